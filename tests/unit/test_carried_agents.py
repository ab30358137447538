"""Agents of pydantic-ai, carried as they are; and those that cannot be, with the reason."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as TheirAgent
from pydantic_ai import ModelRetry, RunContext, ToolReturn
from pydantic_ai.capabilities import Hooks, ProcessHistory
from pydantic_ai.exceptions import ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelResponse
from pydantic_ai.messages import TextPart as Says
from pydantic_ai.messages import ToolCallPart as Asks
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.output import TextOutput, ToolOutput
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.tools import Tool as TheirTool
from pydantic_ai.toolsets import (
    AbstractToolset,
    CombinedToolset,
    ExternalToolset,
    FunctionToolset,
    PrefixedToolset,
)

from adk_worker import (
    Agent,
    AgentRunner,
    Checkpointer,
    ConfigurationError,
    Effect,
    Happened,
    IndeterminateToolCallError,
    MemoryCheckpointStore,
    MemoryIdempotencyStore,
    ModelPolicy,
    RunStatus,
    Usage,
    current_call,
)
from tests import modelserver
from tests.architecture.packages import ROOT
from tests.waiting import eventually

QUICK = ModelPolicy(timeout=20, backoff=0.001)


class Script:
    """A model of pydantic-ai that says its turns, and keeps what it was asked."""

    def __init__(self, *turns):
        self.turns = turns
        self.asked = []
        self.model = FunctionModel(self._answer, model_name="script")

    def _answer(self, messages, info):
        self.asked.append((messages, info))
        turn = self.turns[min(len(self.asked), len(self.turns)) - 1]
        parts = [Says(turn)] if isinstance(turn, str) else [Asks(*call, f"c{n}") for n, call in enumerate(turn)]
        return ModelResponse(parts=parts)

    @property
    def told(self):
        """What the newest request gives as results, by call."""
        return {part.tool_call_id: part for part in self.asked[-1][0][-1].parts if part.part_kind == "tool-return"}


@dataclasses.dataclass
class Deps:
    who: str


class Weather(BaseModel):
    city: str
    degrees: int


@pytest.fixture
async def runner():
    checkpoints = Checkpointer(MemoryCheckpointStore())
    async with AgentRunner(idempotency=MemoryIdempotencyStore(), checkpoints=checkpoints, models=QUICK) as runner:
        yield runner


def run(runner, agent, **metadata):
    return runner.run(agent, "go", tenant="acme", run_id="run_1", metadata=metadata)


def one_tool(function, script, **options):
    theirs = TheirAgent(script.model, name="one", tools=[function])
    return Agent.from_pydantic_ai(theirs, tools={function.__name__: options})


# --- what is carried ----------------------------------------------------------------------------------------------


async def test_instructions_and_system_prompts_stand_in_every_request_as_their_functions_say(runner):
    script = Script([("look", {})], "Done.")
    theirs = TheirAgent(
        script.model, name="a", deps_type=str, instructions="Be brief.", system_prompt="You are a desk."
    )

    @theirs.instructions
    def who(ctx: RunContext[str]) -> str:
        return f"It is for {ctx.deps}."

    @theirs.system_prompt
    async def where(ctx: RunContext[str]) -> str:
        return f"In {ctx.metadata['city'] if ctx.metadata else 'nowhere'}."

    @theirs.tool_plain
    def look() -> str:
        return "looked"

    agent = Agent.from_pydantic_ai(theirs, deps=lambda metadata: metadata["who"])
    ended = await run(runner, agent, who="Ada")

    assert (ended.status, ended.output) == (RunStatus.COMPLETED, "Done.")
    for messages, info in script.asked:
        assert "Be brief." in info.instructions
        assert "It is for Ada." in info.instructions
        prompts = [part.content for part in messages[0].parts if part.part_kind == "system-prompt"]
        assert prompts == ["You are a desk.", "In nowhere."]
    assert agent.instructions.startswith("Be brief.")


async def test_an_output_that_is_no_text_is_the_runs_output_as_json(runner):
    script = Script([("final_result", {"city": "Oslo", "degrees": 3})])
    agent = Agent.from_pydantic_ai(TheirAgent(script.model, name="a", output_type=Weather))

    assert (await run(runner, agent)).output == '{"city":"Oslo","degrees":3}'


async def test_an_output_that_does_not_fit_is_asked_for_again_within_the_call(runner):
    """Nothing was called meanwhile, so that the repetition is harmless; what it cost is counted."""
    script = Script(
        [("final_result", {"city": "Oslo", "degrees": "cold"})],
        [("final_result", {"city": "Atlantis", "degrees": 3})],
        [("final_result", {"city": "Oslo", "degrees": 3})],
    )
    theirs = TheirAgent(script.model, name="a", output_type=Weather, retries={"output": 2})

    @theirs.output_validator
    def exists(weather: Weather) -> Weather:
        if weather.city == "Atlantis":
            raise ModelRetry("There is no Atlantis.")
        return weather

    ended = await run(runner, Agent.from_pydantic_ai(theirs))

    assert ended.output == '{"city":"Oslo","degrees":3}'
    assert (ended.iteration, len(script.asked)) == (1, 3)
    assert ended.usage.input_tokens > 100


async def test_an_output_that_never_fits_fails_the_run_with_what_to_do(runner):
    script = Script([("final_result", {"city": "Oslo", "degrees": "cold"})])

    ended = await run(runner, Agent.from_pydantic_ai(TheirAgent(script.model, name="a", output_type=Weather)))

    assert ended.status is RunStatus.FAILED
    assert "no output that the agent takes" in ended.detail
    assert "Raise its retries" in ended.detail


async def test_a_result_beside_other_calls_waits_for_them(runner):
    """The calls are made one boundary later, under claims; the model gives its result when it has theirs."""
    result = ("final_result", {"city": "Oslo", "degrees": 3})
    script = Script([("measure", {}), result], [result])
    theirs = TheirAgent(script.model, name="a", output_type=Weather)
    measured = []

    @theirs.tool_plain
    def measure() -> int:
        measured.append(current_call().idempotency_key)
        return 3

    ended = await run(runner, Agent.from_pydantic_ai(theirs))

    assert (ended.status, len(measured)) == (RunStatus.COMPLETED, 1)
    assert script.told["c0"].content == 3
    assert "was not taken" in script.told["c1"].content


async def test_a_tool_finds_what_it_was_written_for_and_the_key_of_its_call(runner):
    """I1, F3: its deps are made of the run's metadata, wherever the call is made; sync tools run in threads."""
    script = Script([("sync", {"n": 1}), ("asynchronous", {"n": 2})], "Done.")
    seen = {}

    theirs = TheirAgent(script.model, name="a", deps_type=Deps)

    @theirs.tool
    def sync(ctx: RunContext[Deps], n: int) -> int:
        seen["sync"] = (ctx.deps.who, ctx.tool_call_id, ctx.tool_name, ctx.run_id, current_call().idempotency_key)
        return n

    @theirs.tool
    async def asynchronous(ctx: RunContext[Deps], n: int) -> Weather:
        seen["asynchronous"] = (ctx.metadata, ctx.model.model_name, ctx.agent, current_call().idempotency_key)
        return Weather(city="Oslo", degrees=n)

    async def deps(metadata):
        return Deps(metadata["who"])

    await run(runner, Agent.from_pydantic_ai(theirs, deps=deps), who="Ada")

    assert seen["sync"][:4] == ("Ada", "c0", "sync", "run_1")
    assert seen["asynchronous"][:3] == ({"who": "Ada"}, "script", theirs)
    assert len({seen["sync"][-1], seen["asynchronous"][-1], None}) == 3
    assert current_call() is None
    assert script.told["c1"].content == {"city": "Oslo", "degrees": 2}


def test_tools_are_effectful_unless_told_otherwise():
    """I7."""

    def book(seat: int, note: str = "none") -> None:
        """Book a seat."""

    def probe(key, arguments):
        return Happened(None)

    theirs = TheirAgent(Script("x").model, name="a", tools=[book, TheirTool(book, name="slow", timeout=7)])
    plain = Agent.from_pydantic_ai(theirs)
    told = Agent.from_pydantic_ai(
        theirs, tools={"book": {"effect": "idempotent", "retries": 2}, "slow": {"probe": probe}}
    )

    assert [tool.effect for tool in plain.tools] == [Effect.EFFECTFUL, Effect.EFFECTFUL]
    assert (plain.tools[0].description, plain.tools[0].schema["required"]) == ("Book a seat.", ["seat"])
    assert plain.tools[1].timeout == 7
    assert (told.tools[0].effect, told.tools[0].retries, told.tools[1].probe) == (Effect.IDEMPOTENT, 2, probe)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("book", {"seat": "the window"}), "seat"),
        (("book", {"seat": 1, "class": "first"}), "class"),
        (("book", '{"seat": 1'), "no JSON object"),
        (("fly", {}), "There is no tool named 'fly'"),
    ],
)
async def test_a_call_that_does_not_fit_is_told_to_the_model_and_not_made(runner, call, said):
    """I10: pydantic-ai's own retries are not used up, and there is no claim."""
    script = Script([call], "Never mind.")

    def book(seat: int) -> None:
        raise AssertionError

    ended = await run(runner, one_tool(book, script))

    assert (ended.status, ended.output) == (RunStatus.COMPLETED, "Never mind.")
    assert said in script.told["c0"].content


@pytest.mark.parametrize("error", [ModelRetry("No such seat."), ToolFailed("No such seat."), ApprovalRequired()])
async def test_what_a_tool_says_of_its_failure_is_known(runner, error):
    """I10: an effectful call that says that it failed is recorded as failed, and the model told."""
    script = Script([("book", {})], "Never mind.")

    def book() -> None:
        raise error

    ended = await run(runner, one_tool(book, script))

    assert ended.output == "Never mind."
    assert script.told["c0"].outcome == "failed"
    assert ("No such seat." if str(error) else "requires_approval=True") in script.told["c0"].content


async def test_an_exception_of_an_effectful_tool_proves_nothing(runner):
    """I10."""

    def book() -> None:
        raise ConnectionError("the line went dead")

    with pytest.raises(IndeterminateToolCallError):
        await run(runner, one_tool(book, Script([("book", {})])))


async def test_an_exception_of_a_tool_that_only_looks_is_told(runner):
    """I10."""
    script = Script([("look", {})], "Never mind.")

    def look() -> None:
        raise ConnectionError("the line went dead")

    await run(runner, one_tool(look, script, effect="read_only"))

    assert "the line went dead" in script.told["c0"].content


async def test_deps_that_cannot_be_made_are_a_call_that_did_not_happen(runner):
    """I10: before the function is called, nothing can have happened."""
    script, made = Script([("book", {})], "Never mind."), []

    def deps(metadata):
        made.append(1)
        if len(made) == 2:
            raise OSError("no route to the database")

    theirs = TheirAgent(script.model, name="a", deps_type=object)

    @theirs.tool_plain
    def book() -> None:
        raise AssertionError

    await run(runner, Agent.from_pydantic_ai(theirs, deps=deps))

    assert "no route to the database" in script.told["c0"].content


async def test_an_arguments_validator_is_asked_before_the_call(runner):
    script = Script([("book", {"seat": 13})], "Never mind.")

    def not_unlucky(ctx, seat):
        if seat == 13:
            raise ModelRetry("Not that one.")

    def book(seat: int) -> None:
        raise AssertionError

    theirs = TheirAgent(script.model, name="a", tools=[TheirTool(book, args_validator=not_unlucky)])
    await run(runner, Agent.from_pydantic_ai(theirs))

    assert script.told["c0"].content == "Not that one."


async def test_what_a_tool_says_beside_its_result_stands_in_it(runner):
    script = Script([("look", {})], "Done.")

    def look() -> ToolReturn:
        return ToolReturn(return_value=3, content="by the north window", metadata={"not": "told"})

    await run(runner, one_tool(look, script))

    assert script.told["c0"].content == {"return_value": 3, "content": ["by the north window"]}


async def test_toolsets_are_carried_under_the_names_that_the_model_sees(runner):
    inner = FunctionToolset()

    @inner.tool_plain
    def look(n: int) -> int:
        return n + 1

    @inner.tool_plain
    def see() -> int:
        return 1

    @inner.instructions
    def how() -> str:
        return "Look before you leap."

    script = Script([("left_gaze", {"n": 1}), ("right_look", {"n": 2})], "Done.")
    renamed = PrefixedToolset(inner.renamed({"gaze": "look"}), "left")
    theirs = TheirAgent(script.model, name="a", toolsets=[CombinedToolset([renamed]), inner.prefixed("right")])
    agent = Agent.from_pydantic_ai(theirs, tools={"left_see": {"effect": "read_only"}})

    await run(runner, agent)

    assert agent.tool_names == ("left_gaze", "left_see", "right_look", "right_see")
    assert {tool.name for tool in script.asked[0][1].function_tools} == set(agent.tool_names)
    assert "Look before you leap." in script.asked[0][1].instructions
    assert (script.told["c0"].content, script.told["c1"].content) == (2, 3)


async def test_a_tool_that_wants_an_approval_waits_for_it(runner):
    """P1."""

    def pay() -> None:
        raise AssertionError

    theirs = TheirAgent(Script([("pay", {})]).model, name="a", tools=[TheirTool(pay, requires_approval=True)])

    assert (await run(runner, Agent.from_pydantic_ai(theirs))).status is RunStatus.WAITING_APPROVAL


async def test_history_processors_see_every_request(runner):
    script, seen = Script([("look", {})], "Done."), []

    def watch(messages):
        seen.append(len(messages))
        return messages

    theirs = TheirAgent(script.model, name="a", capabilities=[ProcessHistory(watch)])

    @theirs.tool_plain
    def look() -> int:
        return 1

    await run(runner, Agent.from_pydantic_ai(theirs))

    assert seen == [1, 3]


# --- its revision -------------------------------------------------------------------------------------------------


def revision(**changed):
    given = {"name": "a", "instructions": "Be brief.", "output_type": str, "tools": [], **changed}
    return Agent.from_pydantic_ai(TheirAgent(Script("x").model, **given)).revision


def test_its_revision_is_the_same_in_every_process_and_another_where_the_agent_is():
    """C7: instructions, output and tools decide how a run goes on."""

    def look() -> int:
        """Look."""

    revisions = [
        revision(),
        revision(instructions="Be long."),
        revision(system_prompt="You are a desk."),
        revision(output_type=Weather),
        revision(tools=[look]),
    ]

    assert revision() == revisions[0]
    assert len(set(revisions)) == len(revisions)


# --- what is refused ----------------------------------------------------------------------------------------------


class Odd(AbstractToolset):
    id = None

    async def get_tools(self, ctx):
        return {}

    async def call_tool(self, name, tool_args, ctx, tool):
        return None


def refund(cents: int) -> str:
    """Refund."""
    return f"{cents}"


def shout(text: str) -> str:
    """Shout."""
    return text.upper()


def nothing() -> None:
    """Do nothing."""


def whatever(*_):
    """Stand for a function that pydantic-ai calls in a run."""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"toolsets": [ExternalToolset([])]}, "ExternalToolset cannot be carried: its tools are called by somebody"),
        ({"toolsets": [whatever]}, "DynamicToolset cannot be carried: its tools are made anew for each run"),
        ({"toolsets": [FunctionToolset().filtered(whatever)]}, "known only in a run"),
        ({"toolsets": [FunctionToolset().prepared(whatever)]}, "known only in a run"),
        ({"toolsets": [Odd()]}, "Odd cannot be carried: it calls its tools in a way of its own"),
        ({"tools": [TheirTool(nothing, sequential=True)]}, "sequential=True, and the calls of one turn are made at"),
        ({"tools": [TheirTool(nothing, defer_loading=True)]}, "defer_loading=True"),
        ({"output_type": refund}, "output type has the function refund, which would be called without a claim"),
        ({"output_type": [str, ToolOutput(refund)]}, "the function refund"),
        ({"output_type": TextOutput(shout)}, "would be called without a claim"),
        ({"output_type": [str, DeferredToolRequests]}, "a call that waits for a person is the fleet's"),
        ({"capabilities": [Hooks()]}, "the capability Hooks, which may bring tools of its own"),
        ({"deps_type": Weather}, "takes dependencies .Weather., which live in one process; give deps="),
        ({"validation_context": {"a": 1}}, "validation_context"),
        ({"model": None}, "no model; give model="),
    ],
)
def test_what_cannot_be_carried_is_refused_with_its_reason(given, said):
    theirs = TheirAgent(**{"model": Script("x").model, "name": "a", **given})

    with pytest.raises(ConfigurationError, match=said) as caught:
        Agent.from_pydantic_ai(theirs)

    assert str(caught.value).startswith("the pydantic-ai agent 'a' cannot be carried: ")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"deps": "Ada"}, "is one value for all runs"),
        ({"tools": {"fly": {"effect": "read_only"}}}, "It has: nothing"),
        (
            {"tools": {"nothing": {"effects": "read_only"}}},
            "declares 'effects'; what can be declared is did_not_happen,",
        ),
        ({"tools": {"nothing": {"effect": "harmless"}}}, "effect='harmless'"),
        ({"tools": {"nothing": {"retries": 3}}}, "repeating it might do it twice"),
    ],
)
def test_what_is_said_of_it_is_checked_too(given, said):
    with pytest.raises(ConfigurationError, match=said):
        Agent.from_pydantic_ai(TheirAgent(Script("x").model, name="a", tools=[nothing]), **given)


def test_an_agent_without_a_name_is_given_one():
    theirs = TheirAgent(Script("x").model)

    with pytest.raises(ConfigurationError, match="has no name"):
        Agent.from_pydantic_ai(theirs)

    assert Agent.from_pydantic_ai(theirs, name="b").name == "b"


def test_what_is_no_agent_of_pydantic_ai_is_refused():
    with pytest.raises(ConfigurationError, match=r"takes a pydantic_ai.Agent, not str"):
        Agent.from_pydantic_ai("openai:gpt-5")


_WITHOUT = """
import sys
sys.modules["pydantic_ai"] = None
from adk_worker import Agent
Agent.from_pydantic_ai(object())
"""


def test_without_the_extra_it_says_which_one_it_needs():
    ran = subprocess.run([sys.executable, "-c", _WITHOUT], check=False, cwd=ROOT, capture_output=True, text=True)

    assert "ConfigurationError: Agent.from_pydantic_ai needs the extra 'models'" in ran.stderr


# --- over HTTP ----------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    with modelserver.model_server([modelserver.Says("Done.")]) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("model", [None, "openai-chat:gpt-4o"])
async def test_its_model_is_asked_as_often_as_the_policy_says(server, runner, model):
    """The agent's own model repeats nothing by itself, whoever made its client; a name has clients of the process."""
    server.follow(
        [
            modelserver.Status(503),
            modelserver.Says(calls=[modelserver.Call("nothing", "{}", "c1")]),
            modelserver.Status(500),
            modelserver.Says("Done."),
        ]
    )
    theirs = TheirAgent("openai-chat:gpt-4o", name="a", tools=[nothing], model_settings={"temperature": 0.5})

    ended = await run(runner, Agent.from_pydantic_ai(theirs, model=model))

    assert (ended.status, ended.output) == (RunStatus.COMPLETED, "Done.")
    assert ended.usage == Usage(input_tokens=200, output_tokens=40)
    assert ended.cost_micros == 900
    assert len(server.requests) == 4
    assert server.connections == 1
    assert {asked["temperature"] for asked in server.requests} == {0.5}

    await runner.close()
    await eventually(lambda: server.open_connections == 0, what="its connection to be given back")


async def test_a_failure_for_good_ends_the_run_with_what_to_do(server, runner):
    server.follow([modelserver.Status(401, "invalid_api_key", "Wrong key.")])

    ended = await run(runner, Agent.from_pydantic_ai(TheirAgent("openai:gpt-4o", name="a")))

    assert ended.status is RunStatus.FAILED
    assert "Wrong key. Check the key of its provider" in ended.detail
    assert len(server.requests) == 1
