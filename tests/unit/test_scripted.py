from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from adk_worker.errors import ConfigurationError, ModelError
from adk_worker.messages import Message, TextPart, ToolCallPart, ToolResultPart, Usage
from adk_worker.model import ModelAnswer, ModelProvider, ModelRequest
from adk_worker.providers import Providers, ScriptedProvider, resolve_provider, scripted

a_list = ["done"]
a_provider = ScriptedProvider(a_list, name="mine")
a_number = 7


def a_function(request: ModelRequest) -> str:
    return f"{request.iteration}"


def request(*messages: Message, iteration: int = 1) -> ModelRequest:
    return ModelRequest(
        tenant="acme",
        run_id="run_1",
        agent="booking",
        iteration=iteration,
        model="scripted",
        instructions="Book flights.",
        messages=messages or (USER,),
    )


def result(call_id: str) -> ToolResultPart:
    return ToolResultPart(call_id=call_id, name="search", content="found")


def call(call_id: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(id=call_id, name="search", arguments=arguments)


USER = Message.user("Book the flight.")
CALL = Message.assistant(None, [call("call_1_0")])
RESULT = Message.tool([result("call_1_0")])


# --- turns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("turn", "answer"),
    [
        ("done", ModelAnswer(text="done")),
        (("search", {"to": "OSL"}), ModelAnswer(calls=(call("call_3_0", to="OSL"),))),
        (call("own"), ModelAnswer(calls=(call("own"),))),
        (
            [("search", {"to": "OSL"}), ("search", {"to": "BGO"})],
            ModelAnswer(calls=(call("call_3_0", to="OSL"), call("call_3_1", to="BGO"))),
        ),
        (
            ModelAnswer(text="so", calls=(call("own"),), usage=Usage(input_tokens=3), cost_micros=5),
            ModelAnswer(text="so", calls=(call("own"),), usage=Usage(input_tokens=3), cost_micros=5),
        ),
    ],
)
async def test_a_turn_becomes_an_answer_with_ids_of_its_own(turn, answer):
    assert await ScriptedProvider([turn]).complete(request(iteration=3)) == answer


async def test_the_transcript_alone_says_which_turn_is_due():
    """C7: a run that another process carries on gets the turn that is due there."""
    turns = [("search", {}), "done"]

    first = await ScriptedProvider(turns).complete(request(USER))
    second = await ScriptedProvider(turns).complete(request(USER, CALL, RESULT, iteration=2))
    again = await ScriptedProvider(turns).complete(request(USER))

    assert first == again
    assert second == ModelAnswer(text="done")


async def test_a_script_that_is_over_says_so():
    with pytest.raises(ModelError, match="it has 1 turns, and the transcript asks for turn 2") as caught:
        await ScriptedProvider([("search", {})]).complete(request(USER, CALL, RESULT))

    assert not caught.value.transient


async def test_an_exception_is_raised_every_time_its_turn_is_due():
    provider = ScriptedProvider([ModelError("overloaded", transient=True)])

    for _ in range(2):
        with pytest.raises(ModelError, match="overloaded") as caught:
            await provider.complete(request())
        assert caught.value.transient


async def test_a_function_gives_the_turn_sync_or_async():
    async def in_loop(request: ModelRequest) -> str:
        return f"hello {request.tenant}"

    assert (await ScriptedProvider(a_function).complete(request(iteration=4))).text == "4"
    assert (await ScriptedProvider(in_loop).complete(request())).text == "hello acme"


@pytest.mark.parametrize("turn", [None, 7, ("search",), [("search", "OSL")], [call("same"), call("same")]])
async def test_a_turn_that_cannot_be_used_is_a_model_error(turn):
    with pytest.raises(ModelError, match="has a turn that cannot be used"):
        await ScriptedProvider([turn]).complete(request())


@pytest.mark.parametrize("turns", ["done", None, 7])
def test_a_script_that_is_none_is_refused_where_it_is_made(turns):
    with pytest.raises(ConfigurationError, match="has to be a list of turns or a function"):
        ScriptedProvider(turns)


async def test_a_call_takes_its_delay_and_can_be_aborted_in_it(monkeypatch):
    asked: list[float] = []
    real_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        asked.append(seconds)
        await real_sleep(3600)

    monkeypatch.setattr(scripted.asyncio, "sleep", sleep)
    completing = asyncio.create_task(ScriptedProvider(["done"], delay=30).complete(request()))
    await real_sleep(0)
    completing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await completing
    assert asked == [30]


async def test_the_newest_requests_are_kept_for_tests_and_the_others_are_not():
    provider = ScriptedProvider(a_function)
    for iteration in range(1, 61):
        await provider.complete(request(iteration=iteration))

    assert len(provider.requests) == 50
    assert provider.requests[-1].iteration == 60


# --- what it verifies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ((USER, CALL), "goes on with the results \\[\\]"),
        ((USER, CALL, USER), "goes on with the results \\[\\]"),
        ((USER, CALL, USER, RESULT), "every call needs its result"),
        ((USER, CALL, Message.tool([result("other")])), "goes on with the results \\['other'\\]"),
        ((USER, CALL, Message.tool([result("call_1_0"), result("call_1_0")])), "every call needs its result"),
        ((USER, RESULT), "asks for the calls \\[\\] and goes on with the results"),
        ((USER, CALL, RESULT, RESULT), "asks for the calls \\[\\] and goes on with the results"),
        (
            (USER, Message.assistant(None, [call("a"), call("b")]), Message.tool([result("b"), result("a")])),
            "in call order",
        ),
        ((USER, Message.assistant("done")), "ends with an answer"),
        ((Message.assistant("hello"),), "has to begin with what the user said"),
        ((Message(role="user", parts=(TextPart(text="x"), call("a"))), Message.tool([result("a")])), "role user asks"),
    ],
)
async def test_a_transcript_that_no_provider_would_take_is_refused(messages, said):
    """H2: no hole is ever put before a model."""
    with pytest.raises(ModelError, match=said):
        await ScriptedProvider(a_function).complete(request(*messages))


async def test_an_empty_transcript_is_refused():
    with pytest.raises(ModelError, match="has to begin"):
        await ScriptedProvider(a_function).complete(
            ModelRequest(tenant="acme", run_id="run_1", agent="a", iteration=1, model="m", instructions="", messages=())
        )


def test_an_answer_cannot_give_two_calls_one_id():
    """I1: a call's result is found by its id."""
    with pytest.raises(ValidationError, match="same id"):
        ModelAnswer(calls=(call("same"), call("same")))


def test_an_answer_has_its_place_in_the_transcript():
    assert ModelAnswer(text="so", calls=(call("own"),)).message == Message.assistant("so", [call("own")])


# --- by name -------------------------------------------------------------------------------------------------------


async def test_a_script_is_found_by_its_name():
    found = {name: resolve_provider(f"scripted:{__name__}:{name}") for name in ("a_list", "a_function", "a_provider")}

    assert all(isinstance(provider, ModelProvider) for provider in found.values())
    assert (await found["a_list"].complete(request())).text == "done"
    assert (await found["a_function"].complete(request(iteration=9))).text == "9"
    assert found["a_provider"] is a_provider
    assert found["a_list"].name == f"scripted:{__name__}:a_list"


def test_a_provider_is_its_own():
    assert resolve_provider(a_provider) is a_provider


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("scripted:", "has to be written scripted:package.module:attribute"),
        ("scripted:module", "has to be written scripted:package.module:attribute"),
        ("scripted:no.such.module:turns", "cannot be imported: ModuleNotFoundError"),
        (f"scripted:{__name__}:nothing", "cannot be imported: AttributeError"),
        (f"scripted:{__name__}:a_number", "is int; it has to be a ScriptedProvider, a list of turns, or a function"),
        (f"scripted:{__name__}:ModelRequest", "is type; it has to be"),
    ],
)
def test_a_model_that_nobody_provides_is_a_clear_error(model, said):
    with pytest.raises(ConfigurationError, match=said):
        resolve_provider(model)
    with pytest.raises(ConfigurationError, match=said):
        Providers().check(model)  # as a worker starts
