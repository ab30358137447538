"""The real SDKs of OpenAI and Anthropic, over HTTP, against a server of the tests that speaks their protocols."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest
import structlog.testing

from adk_worker import (
    Agent,
    AgentRunner,
    Checkpointer,
    MemoryCheckpointStore,
    MemoryIdempotencyStore,
    Message,
    ModelError,
    ModelPolicy,
    ModelUnavailableError,
    RunStatus,
    ToolCallPart,
    ToolResultPart,
    Usage,
    tool,
)
from adk_worker.errors import ConfigurationError
from adk_worker.model import ModelRequest, ToolSpec
from adk_worker.providers import Endpoint, Price, Providers
from tests.architecture.packages import ROOT
from tests.modelserver import Call, CutsOff, Garbles, Hangs, Says, Status, model_server
from tests.waiting import eventually

NAMES = ["openai:gpt-4o", "openai-chat:gpt-4o", "anthropic:claude-sonnet-5"]
EACH = pytest.mark.parametrize("name", NAMES)
QUICK = ModelPolicy(timeout=20, attempts=3, backoff=0.001, backoff_max=5)

SEARCH = ToolSpec(
    "search",
    "Find flights.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False},
)


def request(*messages, name="openai:gpt-4o", iteration=1, instructions="Be brief.", tools=(SEARCH,)):
    return ModelRequest(
        tenant="acme",
        run_id="run_1",
        agent="booking",
        iteration=iteration,
        model=name,
        instructions=instructions,
        messages=messages or (Message.user("Book the flight."),),
        tools=tools,
    )


@pytest.fixture
def server(monkeypatch):
    with model_server([Says("Booked.")]) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
async def models():
    """Providers by name, closed with the test."""
    made = []

    def resolve(name, policy=QUICK):
        made.append(Providers(policy))
        return made[-1].resolve(name)

    yield resolve
    for providers in made:
        await providers.close()


# --- what is asked and answered -----------------------------------------------------------------------------------


@EACH
async def test_an_answer_comes_with_its_usage_and_its_cost(server, models, name):
    answer = await models(name).complete(request(name=name))

    assert (answer.text, answer.calls, answer.refused) == ("Booked.", (), {})
    assert answer.usage == Usage(input_tokens=100, output_tokens=20)
    # Per million tokens: gpt-4o takes 2.5 and 10, claude-sonnet-5 takes 2 and 10.
    assert answer.cost_micros == (400 if name.startswith("anthropic") else 450)


@EACH
async def test_the_model_is_told_everything_and_in_order(server, models, name):
    transcript = (
        Message.user("Book the flight to Lisbon."),
        Message.assistant("Let me see.", [ToolCallPart(id="c1", name="search", arguments={"city": "Lisbon"})]),
        Message.tool([ToolResultPart(call_id="c1", name="search", content="the line is dead", is_error=True)]),
    )

    await models(name).complete(request(*transcript, name=name, iteration=2))

    (asked,) = server.requests
    said = str(asked)
    places = [said.index(part) for part in ("Book the flight to Lisbon.", "Let me see.", "the line is dead")]
    assert places == sorted(places)
    assert "Be brief." in said
    assert "Find flights." in said


@EACH
async def test_several_calls_of_one_turn_come_in_order(server, models, name):
    server.follow([Says(calls=[Call("search", {"city": "Oslo"}, "c1"), Call("search", {"city": "Rome"}, "c2")])])

    answer = await models(name).complete(request(name=name))

    assert [(call.id, call.arguments) for call in answer.calls] == [("c1", {"city": "Oslo"}), ("c2", {"city": "Rome"})]


@pytest.mark.parametrize("name", NAMES[:2])
@pytest.mark.parametrize("sent", ['{"city": "Lis', "[1, 2]", "Lisbon"])
async def test_a_malformed_call_is_refused_to_the_model_with_what_it_sent(server, models, name, sent):
    """I10: it was never started, so that there is no claim."""
    server.follow([Says(calls=[Call("search", sent, "c1")])])

    answer = await models(name).complete(request(name=name))

    assert "no JSON object" in answer.refused["c1"]
    assert answer.calls[0].arguments == {"INVALID_JSON": sent}


async def test_ids_that_a_server_leaves_out_or_repeats_are_made_up(server, models):
    """A call's result is found by its id."""
    server.follow([Says(calls=[Call("search", {"city": "Oslo"}, "c1"), Call("search", {"city": "Rome"}, "c1")])])

    answer = await models("openai-chat:gpt-4o").complete(request(iteration=4))

    assert [call.id for call in answer.calls] == ["c1", "call_4_1"]


@pytest.mark.parametrize("name", ["openai:gpt-5", "anthropic:claude-sonnet-5"])
async def test_what_a_provider_wants_back_is_given_back(server, models, name):
    """Without its signed reasoning, a provider refuses the results of the calls that came of it."""
    server.follow([Says("So.", calls=[Call("search", {"city": "Oslo"}, "c1")], thinking="Oslo it is.")])
    answer = await models(name).complete(request(name=name))
    stored = Message.model_validate_json(answer.message.model_dump_json())
    result = Message.tool([ToolResultPart(call_id="c1", name="search", content="LH1")])

    await models(name).complete(request(Message.user("Book."), stored, result, name=name, iteration=2))

    assert "c2lnbmF0dXJl" in str(server.requests[-1])
    assert "c2lnbmF0dXJl" not in str(server.requests[0])


# --- what fails ---------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_what_passes_by_itself_is_tried_again(server, models, name, status):
    server.follow([Status(status), Status(status), Says("Booked.")])

    answer = await models(name).complete(request(name=name))

    assert answer.text == "Booked."
    assert len(server.requests) == 3


@EACH
async def test_it_is_tried_as_often_as_the_policy_says_and_no_more(server, models, name):
    """The SDKs would each repeat by themselves: two layers that repeat would multiply."""
    server.follow([Status(529 if name.startswith("anthropic") else 500, "overloaded_error", "Overloaded")])

    with pytest.raises(ModelUnavailableError, match="Overloaded") as caught:
        await models(name).complete(request(name=name))

    assert caught.value.transient
    assert len(server.requests) == 3


@EACH
async def test_the_pause_is_the_one_that_the_provider_asks_for(server, models, name):
    server.follow([Status(429, headers={"Retry-After": "1"}), Says("Booked.")])

    with structlog.testing.capture_logs() as logs:
        await models(name).complete(request(name=name))

    assert [entry["again_in"] for entry in logs if entry["event"] == "model_call_failed"] == [1.0]


@EACH
async def test_a_provider_that_asks_for_a_long_pause_is_not_waited_for(server, models, name):
    """It would keep a slot of the worker: the run waits in the queue instead."""
    server.follow([Status(429, headers={"Retry-After": "3600"})])

    with pytest.raises(ModelUnavailableError) as caught:
        await models(name).complete(request(name=name))

    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


@EACH
async def test_a_provider_that_hangs_is_given_up(server, models, name):
    server.follow([Hangs()])
    hasty = ModelPolicy(timeout=1, attempts=2, backoff=0.001)

    with pytest.raises(ModelError, match=r"did not answer within 1 s \(ADK_MODEL_TIMEOUT\)") as caught:
        await models(name, hasty).complete(request(name=name))

    assert caught.value.transient
    # It may have been charged for, so that it counts: not one of those that are repeated without an end.
    assert not isinstance(caught.value, ModelUnavailableError)
    assert server.requests


@EACH
async def test_a_cancel_reaches_a_call_under_way(server, models, name):
    """P2."""
    server.follow([Hangs()])
    call = asyncio.ensure_future(models(name).complete(request(name=name)))
    await eventually(lambda: server.requests, what="the request to arrive")

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call


@EACH
async def test_an_answer_that_breaks_off_is_asked_for_again(server, models, name):
    server.follow([CutsOff(), Says("Booked.")])

    assert (await models(name).complete(request(name=name))).text == "Booked."


@EACH
async def test_a_connection_that_always_breaks_is_a_transient_failure_that_counts(server, models, name):
    server.follow([CutsOff()])

    with pytest.raises(ModelError, match="broke before its answer was whole") as caught:
        await models(name).complete(request(name=name))

    assert caught.value.transient
    assert not isinstance(caught.value, ModelUnavailableError)


@EACH
async def test_what_is_no_answer_is_not_taken_for_one(server, models, name):
    server.follow([Garbles()])

    with pytest.raises(ModelError) as caught:
        await models(name).complete(request(name=name))

    assert caught.value.transient


@EACH
@pytest.mark.parametrize("field", ["input_tokens", "output_tokens"])
async def test_a_use_that_cannot_be_is_no_answer(models, server, name, field):
    """Stored, it would overflow what a database takes for a number, and the run could not go on."""
    server.follow([Says("Hello.", **{field: 10**30})])
    with pytest.raises(ModelError, match=r"a use of 1e\+30 tokens") as caught:
        await models(name).complete(request(name=name))
    assert caught.value.transient


async def test_an_answer_without_a_choice_is_no_answer(models, server):
    name = "openai-chat:gpt-4o"
    page = {"id": "1", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": []}
    server.follow([Garbles(page)])
    with pytest.raises(ModelError, match="what is no answer: it holds none") as caught:
        await models(name).complete(request(name=name))
    assert caught.value.transient


@EACH
async def test_a_provider_that_is_not_there_is_unavailable(models, name, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")

    with pytest.raises(ModelUnavailableError, match="cannot be reached"):
        await models(name).complete(request(name=name))


_LONG = "The transcript is too long"
_SPENT = "Add credit to the account"


@pytest.mark.parametrize(
    ("name", "turn", "told"),
    [
        *(
            (name, turn, told)
            for name in NAMES
            for turn, told in [
                (Status(401, "invalid_api_key", "Incorrect key."), "Check the key of its provider"),
                (Status(403, "permission_error", "Not yours."), "may use this model"),
                (Status(404, "model_not_found", "No such model."), "Check the model's name"),
                (Status(400, "invalid_request_error", "Bad schema."), "mend the agent"),
            ]
        ),
        (NAMES[0], Status(400, "context_length_exceeded", "It is too long."), _LONG),
        (NAMES[1], Status(400, "context_length_exceeded", "It is too long."), _LONG),
        (NAMES[2], Status(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"), _LONG),
        (NAMES[0], Status(429, "insufficient_quota", "You have spent it all."), _SPENT),
        (NAMES[1], Status(429, "insufficient_quota", "You have spent it all."), _SPENT),
        (NAMES[2], Status(402, "billing_error", "You have spent it all."), _SPENT),
    ],
)
async def test_what_does_not_pass_by_itself_says_what_to_do(server, models, name, turn, told):
    server.follow([turn])

    with pytest.raises(ModelError, match=told) as caught:
        await models(name).complete(request(name=name))

    assert not caught.value.transient
    assert turn.message in str(caught.value)
    assert str(turn.status) in str(caught.value)
    assert len(server.requests) == 1


@EACH
async def test_a_refusal_is_no_answer(server, models, name):
    server.follow([Says("I cannot help with that.", finish="refusal")])

    with pytest.raises(ModelError, match=r"refused to answer.*Change the agent's instructions or the input") as caught:
        await models(name).complete(request(name=name))

    assert not caught.value.transient
    assert len(server.requests) == 1


@EACH
@pytest.mark.parametrize("calls", [(), (Call("search", '{"city": "Lis'),)])
async def test_an_answer_that_is_cut_off_is_no_answer(server, models, name, calls):
    if name.startswith("anthropic"):
        calls = [Call("search", "{}") for _ in calls]
    server.follow([Says("The flight is", calls=calls, finish="length")])

    with pytest.raises(ModelError, match=r"cut off at its token limit.*Raise ADK_MODEL_MAX_TOKENS") as caught:
        await models(name).complete(request(name=name))

    assert not caught.value.transient


# --- the other SDKs of the extra ----------------------------------------------------------------------------------

OTHERS = pytest.mark.parametrize("name", ["google:gemini-2.5-flash", "bedrock:us.amazon.nova-lite-v1:0"])


@OTHERS
async def test_google_and_bedrock_are_asked_and_answer_as_the_others_do(server, models, name):
    server.follow([Says("Let me see.", calls=[Call("search", {"city": "Oslo"}, "c1")]), Says("Booked.")])
    model = models(name)

    first = await model.complete(request(name=name))
    result = Message.tool([ToolResultPart(call_id="c1", name="search", content={"flight": "LH1"})])
    second = await model.complete(request(Message.user("Book."), first.message, result, name=name, iteration=2))

    assert [(call.id, call.name, call.arguments) for call in first.calls] == [("c1", "search", {"city": "Oslo"})]
    assert (second.text, second.usage) == ("Booked.", Usage(input_tokens=100, output_tokens=20))
    assert second.cost_micros > 0
    assert "LH1" in str(server.requests[-1])
    assert "Be brief." in str(server.requests[-1])


@OTHERS
async def test_google_and_bedrock_are_tried_as_often_as_the_policy_says(server, models, name):
    server.follow([Status(503, "UNAVAILABLE", "Come back later.")])

    with pytest.raises(ModelUnavailableError, match=r"Come back later\."):
        await models(name).complete(request(name=name))

    assert len(server.requests) == 3


@OTHERS
@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (Status(403, "PERMISSION_DENIED", "Not yours."), "Not yours. Check the key of its provider"),
        (Says("The flight is", finish="length"), "cut off at its token limit"),
        (Says("No.", finish="refusal"), "refused to answer"),
    ],
)
async def test_google_and_bedrock_fail_for_good_as_the_others_do(server, models, name, turn, told):
    server.follow([turn])

    with pytest.raises(ModelError, match=told) as caught:
        await models(name).complete(request(name=name))

    assert not caught.value.transient


@OTHERS
async def test_google_and_bedrock_are_given_up_when_they_hang(server, models, name):
    server.follow([Hangs()])

    with pytest.raises(ModelError, match=r"did not answer|broke before") as caught:
        await models(name, ModelPolicy(timeout=0.5, attempts=1)).complete(request(name=name))

    assert caught.value.transient


# --- clients, endpoints, prices -----------------------------------------------------------------------------------


@EACH
async def test_its_connection_is_kept(server, models, name):
    model = models(name)

    for _ in range(3):
        await model.complete(request(name=name))

    assert server.connections == 1


@EACH
async def test_its_connection_is_given_back_when_the_process_ends(server, name):
    providers = Providers(QUICK)
    await providers.resolve(name).complete(request(name=name))
    assert server.open_connections == 1

    await providers.close()

    await eventually(lambda: server.open_connections == 0, what="the connection to be closed")


async def test_a_provider_that_cannot_be_closed_keeps_no_other_open(server, monkeypatch):
    """Nor the worker: its loop, its stores and its tools are closed after the models."""
    providers = Providers(QUICK)
    broken = providers.resolve("anthropic:claude-sonnet-5")

    async def fails():
        raise RuntimeError("the transport is closed")

    monkeypatch.setattr(broken, "close", fails)
    await providers.resolve("openai:gpt-4o").complete(request(name="openai:gpt-4o"))

    with structlog.testing.capture_logs() as logs:
        await providers.close()

    await eventually(lambda: server.open_connections == 0, what="the connection to be closed")
    assert [(log["event"], log["model"]) for log in logs] == [("model_not_closed", "anthropic:claude-sonnet-5")]


@EACH
def test_each_event_loop_has_clients_of_its_own(server, name):
    """A client is tied to the loop that it was first used in."""
    providers = Providers(QUICK)

    async def ask():
        answer = await providers.resolve(name).complete(request(name=name))
        await providers.close()
        return answer.text

    assert [asyncio.run(ask()) for _ in range(2)] == ["Booked.", "Booked."]


async def test_a_process_has_one_provider_for_a_model():
    providers = Providers(QUICK)

    assert providers.resolve("openai:gpt-4o") is providers.resolve("openai:gpt-4o")
    assert providers.resolve("openai:gpt-4o") is not providers.resolve("openai:gpt-5")


async def test_any_server_that_speaks_openais_protocol_can_be_named(server, models):
    endpoint = Endpoint.model_validate({"base_url": f"{server.url}/v1", "api_key": "my-key"})
    policy = ModelPolicy(endpoints={"mine": endpoint}, prices={"mine:llama": Price(input_mtok=1, output_mtok=2)})

    answer = await models("mine:llama", policy).complete(request())

    assert answer.cost_micros == 140
    assert server.paths == ["/v1/chat/completions"]
    assert server.requests[0]["model"] == "llama"
    assert server.headers[0]["authorization"] == "Bearer my-key"
    assert "my-key" not in repr(policy)


async def test_a_price_of_ones_own_comes_first_and_small_sums_are_rounded_up(server, models):
    policy = ModelPolicy(prices={"openai:gpt-4o": Price(input_mtok="0.001", output_mtok=0)})

    assert (await models("openai:gpt-4o", policy).complete(request())).cost_micros == 1


async def test_an_unknown_price_is_said_once(server, models):
    model = models("openai:gpt-nobody-knows")

    with structlog.testing.capture_logs() as logs:
        costs = [(await model.complete(request())).cost_micros for _ in range(2)]

    assert costs == [0, 0]
    assert [entry["model"] for entry in logs if entry["event"] == "price_unknown"] == ["openai:gpt-nobody-knows"]


async def test_the_answers_length_is_the_policys(server, models):
    await models("openai-chat:gpt-4o", ModelPolicy(max_tokens=77)).complete(request())

    assert server.requests[0]["max_completion_tokens"] == 77


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gpt-4o", "has to be written provider:model"),
        ("nobody:gpt", "no provider knows the model"),
        ("anthropic:claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openai:gpt-4o", "OPENAI_API_KEY"),
        ("groq:llama", "groq"),
    ],
)
def test_a_model_that_can_never_work_is_found_out_beforehand(monkeypatch, name, told):
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)

    with pytest.raises(ConfigurationError, match=told):
        Providers().check(name)


# --- whole runs ---------------------------------------------------------------------------------------------------

SEARCHED = []


@tool(effect="read_only")
async def search(city: str) -> str:
    """Find flights."""
    SEARCHED.append(city)
    return f"LH1 to {city}"


@pytest.fixture
async def runner():
    SEARCHED.clear()
    checkpoints = Checkpointer(MemoryCheckpointStore())
    async with AgentRunner(idempotency=MemoryIdempotencyStore(), checkpoints=checkpoints, models=QUICK) as runner:
        yield runner


def booking(name):
    return Agent(name="booking", instructions="Be brief.", model=name, tools=[search])


@EACH
async def test_a_run_makes_the_calls_and_tells_the_model(server, runner, name):
    calls = [Call("search", {"city": "Oslo"}, "c1"), Call("search", {"city": "Rome"}, "c2")]
    server.follow([Says(calls=calls), Says("Booked.")])

    run = await runner.run(booking(name), "Book.", tenant="acme")

    assert (run.status, run.output) == (RunStatus.COMPLETED, "Booked.")
    assert sorted(SEARCHED) == ["Oslo", "Rome"]
    assert run.usage == Usage(input_tokens=200, output_tokens=40)
    assert run.cost_micros > 0
    told = str(server.requests[-1])
    assert told.index("LH1 to Oslo") < told.index("LH1 to Rome")


@EACH
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (Call("search", '{"city": "Lis', "c1"), "no JSON object"),
        (Call("search", {"town": "Lisbon"}, "c1"), "are not valid"),
        (Call("fly", {"city": "Lisbon"}, "c1"), "There is no tool named"),
    ],
)
async def test_a_call_that_cannot_be_made_goes_back_to_the_model(server, runner, name, call, told):
    """I10: invalid arguments, or a tool that is not there."""
    server.follow([Says(calls=[call]), Says("Never mind.")])

    run = await runner.run(booking(name), "Book.", tenant="acme")

    assert (run.status, run.output) == (RunStatus.COMPLETED, "Never mind.")
    assert SEARCHED == []
    assert told in str(server.requests[-1])


@EACH
async def test_a_model_call_that_fails_for_good_ends_the_run_and_the_frontier_is_kept(server, runner, name):
    """C5: once the cause is gone, the run is carried on from there, and nothing is searched twice."""
    server.follow([Says(calls=[Call("search", {"city": "Oslo"}, "c1")]), Status(401, "invalid_api_key", "Wrong key.")])

    failed = await runner.run(booking(name), "Book.", tenant="acme", run_id="run_1")

    assert failed.status is RunStatus.FAILED
    assert "Wrong key. Check the key of its provider" in failed.detail

    server.follow([Says("Booked.")])
    carried = await runner.resume(booking(name), "run_1", tenant="acme")

    assert (carried.status, carried.output) == (RunStatus.COMPLETED, "Booked.")
    assert SEARCHED == ["Oslo"]


# --- without the extra --------------------------------------------------------------------------------------------

_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["pydantic_ai", "openai", "anthropic"]))
from adk_worker.providers import resolve_provider
resolve_provider("openai:gpt-4o")
"""


def test_without_the_extra_a_models_name_says_which_extra_it_needs():
    ran = subprocess.run([sys.executable, "-c", _WITHOUT], check=False, cwd=ROOT, capture_output=True, text=True)

    assert "ConfigurationError: the model 'openai:gpt-4o' needs the extra 'models'" in ran.stderr
    assert "pip install 'adk-worker[models]'" in ran.stderr
