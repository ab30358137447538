"""Runs with seal keys, on the fleet's own steps and in process: who is given an original, and who never is (R2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import pytest
import structlog
from pydantic import AfterValidator

from adk_worker.actors import Actor
from adk_worker.checkpoint import Checkpointer, decode_checkpoint
from adk_worker.client import Fleet
from adk_worker.errors import SealKeyMissingError
from adk_worker.memory import MemoryCheckpointStore, MemoryData, MemoryIdempotencyStore, memory_stores
from adk_worker.outcomes import OutcomeKind
from adk_worker.redaction.masking import Redactor
from adk_worker.registry import Registry
from adk_worker.runner import AgentRunner
from adk_worker.runs import Dispatch, RunStatus
from adk_worker.sealing.keys import SealKey, SealKeys
from adk_worker.steps import StepEnd, Stepper
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import tool
from adk_worker.tools.probe import Happened
from adk_worker.transitions.runs import Attention
from tests.unit.far_side import FarSide, agent_with
from tests.unit.test_steps import POLICY, Bench, Clock
from tests.waiting import eventually

OLD, NEW = SealKey.new("old"), SealKey.new("new")
PASSWORD = "hunter22"
GITHUB = "ghp_" + "a1B2c3" * 6
ASK = f"log in as bob, password={PASSWORD}"


class SealingBench(Bench):
    """A fleet whose steppers have seal keys."""

    def stepper(self, *agents, redactor):
        return Stepper(
            stores=self.stores,
            registry=Registry(agents),
            dispatcher=self,
            watch=self.watch,
            policy=POLICY,
            checkpoint_max_bytes=1 << 20,
            tool_executor=self.executor,
            redactor=redactor,
        )


@pytest.fixture
async def bench():
    clock = Clock()
    data = MemoryData(clock=clock)
    with ThreadPoolExecutor(4) as executor:
        made = SealingBench(memory_stores(data), clock, executor)
        made.data = data
        yield made


@pytest.fixture
def far_side():
    return FarSide()


def keyed(*keys: SealKey) -> Redactor:
    return Redactor(seal_keys=SealKeys(keys or (NEW,)))


async def submit(bench, redactor, *, text=ASK, **metadata):
    """Submit as a web app does, through the client; its message."""
    fleet = Fleet(bench.stores, bench, redactor=redactor)
    run = await fleet.submit("booking", text, tenant="acme", run_id="run_1", metadata=metadata)
    bench.sent.clear()
    return Dispatch("acme", "run_1", run.fence)


def stored(bench):
    """All rows of the store, as text."""
    return "\n".join(f"{name}: {dict(rows)!r}" for name, rows in vars(bench.data).items() if isinstance(rows, Mapping))


class Script:
    """A model that says its turns one after the other, and remembers all that it was shown."""

    def __init__(self, *turns):
        self.turns, self.shown = turns, []

    async def __call__(self, request):
        self.shown.append(request)
        return self.turns[len(self.shown) - 1]


def _eight(text: str) -> str:
    if len(text) != len(PASSWORD):
        raise ValueError(f"{text} is not it")
    return text


# --- on the fleet ----------------------------------------------------------------------------------------------------


async def test_the_tool_is_given_the_original_and_nothing_else_is(bench, far_side):
    """R2: not the model, not the claim, not an event, not the log, not the transcript."""
    far_side.answer = {"said": f"welcome {PASSWORD}", "token": GITHUB}
    script = Script([("book", {"seat": "bob:[secret:1]@12A"})], "Done, [secret:1].")
    with structlog.testing.capture_logs() as logs:
        ends = await bench.drive(
            bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed()), await submit(bench, keyed())
        )
    assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert [seat for _, seat in far_side.effects] == [f"bob:{PASSWORD}@12A"]
    assert "welcome [secret:1]" in str(script.shown[-1].messages)
    everything = stored(bench) + str(logs) + str(script.shown)
    assert PASSWORD not in everything
    assert GITHUB not in everything


async def test_what_a_tool_brought_can_be_given_to_the_next(bench, far_side):
    """R2: also what the model has never seen."""
    far_side.answer = {"token": GITHUB}
    script = Script([("book", {"seat": "1"})], [("book", {"seat": "[secret:2]"})], "Done.")
    await bench.drive(
        bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed()), await submit(bench, keyed())
    )
    assert [seat for _, seat in far_side.effects] == ["1", GITHUB]


async def test_a_secret_that_the_model_writes_reaches_the_tool_and_no_store(bench, far_side):
    """R2: it makes up a password; without keys such a call is refused."""
    script = Script([("book", {"seat": f"password={PASSWORD}"})], "Done.")
    await bench.drive(
        bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed()),
        await submit(bench, keyed(), text="hello"),
    )
    assert [seat for _, seat in far_side.effects] == [f"password={PASSWORD}"]
    assert PASSWORD not in stored(bench)


@pytest.mark.parametrize("invented", ["[secret:99]", "x [secret:1] [secret:0]"])
async def test_a_placeholder_that_the_model_invents_is_refused_to_it(bench, far_side, invented):
    """R2: masked text is never executed."""
    script = Script([("book", {"seat": invented})], "I give up.")
    await bench.drive(
        bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed()), await submit(bench, keyed())
    )
    assert far_side.effects == []
    assert "stands for no secret that is kept for this run" in str(script.shown[-1].messages)


async def test_metadata_is_given_to_tools_as_it_was_submitted_and_to_the_model_masked(bench):
    """R2."""
    seen = []

    @tool
    async def look(ctx: ToolContext) -> str:
        """Look."""
        seen.append((dict(ctx.metadata), repr(ctx)))
        return "ok"

    script = Script([("look", {})], "Done.")
    await bench.drive(
        bench.stepper(agent_with(look, turns=script), redactor=keyed()),
        await submit(bench, keyed(), user={"api_token": PASSWORD}, note="[secret:77]"),
    )
    assert seen[0][0] == {"user": {"api_token": PASSWORD}, "note": "[secret:77]"}
    assert PASSWORD not in seen[0][1]
    assert PASSWORD not in str(script.shown) + stored(bench)


async def test_arguments_are_validated_as_the_tool_will_get_them(bench):
    """I10, R2: and what a validator of the author's repeats is masked."""
    got = []

    @tool
    async def log_in(password: Annotated[str, AfterValidator(_eight)]) -> str:
        """Log in."""
        got.append(password)
        return "ok"

    script = Script([("log_in", {"password": "[secret:1]x"})], [("log_in", {"password": "[secret:1]"})], "Done.")
    await bench.drive(bench.stepper(agent_with(log_in, turns=script), redactor=keyed()), await submit(bench, keyed()))
    assert got == [PASSWORD]
    assert PASSWORD not in stored(bench) + str(script.shown)


async def test_a_probe_is_given_what_the_tool_was_given(bench, far_side):
    """R2, I7: it has to ask about the very same call. What it answers is masked."""
    asked = []

    def probe(key, arguments):
        asked.append(arguments)
        return Happened({"as": PASSWORD})

    far_side.after = ValueError(f"no answer for {PASSWORD}")
    script = Script([("book", {"seat": "[secret:1]"})], "Done.")
    agent = agent_with(far_side.tool(probe=probe), turns=script)
    with structlog.testing.capture_logs() as logs:
        await bench.drive(bench.stepper(agent, redactor=keyed()), await submit(bench, keyed()))
    assert asked == [{"seat": PASSWORD}]
    assert PASSWORD not in stored(bench) + str(logs) + str(script.shown)
    assert "[secret:1]" in str(script.shown[-1].messages)


async def test_a_run_that_parks_on_a_call_says_it_without_its_secret(bench, far_side):
    """R1, R2: in what people are shown, in events, and in the log."""
    far_side.after = ValueError(f"gateway timeout with {PASSWORD}")
    script = Script([("book", {"seat": "[secret:1]"})])
    with structlog.testing.capture_logs() as logs:
        stepper = bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed())
        assert await stepper.step(await submit(bench, keyed()), label="t") is StepEnd.PARKED
    assert "gateway timeout with [secret:1]" in (await bench.run()).detail
    assert PASSWORD not in stored(bench) + str(logs)


async def test_an_unexpected_error_is_told_without_a_secret_that_a_tool_brought(bench, far_side):
    """R1, R2: by the frontier's masks, not the submit's."""
    far_side.answer = {"password": "correct horse"}
    raised = []

    async def script(request):
        if request.iteration == 1:
            return [("book", {"seat": "1"})]
        raised.append("correct horse")
        raise KeyError(f"no such {raised[-1]}")

    stepper = bench.stepper(agent_with(far_side.tool(), turns=script), redactor=keyed())
    message = await submit(bench, keyed())
    with structlog.testing.capture_logs() as logs:
        await stepper.step(message, label="t")
        assert await stepper.step(bench.sent.pop(), label="t") is StepEnd.GIVEN_BACK
    assert raised
    assert "no such [secret:2]" in (await bench.run()).detail
    assert "correct horse" not in stored(bench) + str(logs)


async def test_the_digest_of_a_call_is_the_same_under_every_key(bench, far_side):
    """I1, R2: of the masked arguments, so a rotated key is no other call."""
    far_side.after = asyncio.CancelledError()  # the call stays in flight, and the run parks
    script = Script([("book", {"seat": "[secret:1]"})], "Done.")
    agent = agent_with(far_side.tool(effect="idempotent"), turns=script)
    claims = []
    for redactor in (keyed(OLD), keyed(NEW, OLD)):
        bench_run = await bench.run()
        message = await submit(bench, keyed(OLD)) if bench_run is None else bench.sent.pop()
        await bench.stepper(agent, redactor=redactor).step(message, label="t")
        claims += await bench.stores.runs.claims("run_1", tenant="acme")
    assert len({claim.digest for claim in claims}) == 1


async def test_a_call_that_waits_for_an_approval_is_shown_masked_and_made_with_its_secret(bench, far_side):
    """R2, P1: the request is bound to the masked arguments, and so is its answer."""
    script = Script([("book", {"seat": "bob:[secret:1]"})], "Done.")
    agent = agent_with(far_side.tool(requires_approval=True), turns=script)
    stepper = bench.stepper(agent, redactor=keyed())
    assert await stepper.step(await submit(bench, keyed()), label="t") is StepEnd.WAITING_APPROVAL
    (request,) = (await bench.stores.runs.approvals("run_1", tenant="acme")).approvals.requests
    assert request.arguments == {"seat": "bob:[secret:1]"}

    fleet = Fleet(bench.stores, bench, redactor=keyed())
    await fleet.approve("run_1", request.request_id, tenant="acme", by="ana")
    ends = await bench.drive(bench.stepper(agent, redactor=keyed(NEW, OLD)), bench.sent.pop())
    assert ends[-1] is StepEnd.COMPLETED
    assert [seat for _, seat in far_side.effects] == [f"bob:{PASSWORD}"]
    assert PASSWORD not in stored(bench)


async def test_what_a_person_says_of_a_call_is_sealed_too(bench, far_side):
    """R2, I8: a secret in the outcome that somebody gives can be given to the next tool."""
    far_side.after = ValueError("no answer")
    script = Script([("book", {"seat": "1"})], [("book", {"seat": "[secret:2]"})], "Done.")
    agent = agent_with(far_side.tool(), turns=script)
    stepper = bench.stepper(agent, redactor=keyed())
    assert await stepper.step(await submit(bench, keyed()), label="t") is StepEnd.PARKED

    far_side.after = None
    fleet = Fleet(bench.stores, bench, redactor=keyed(), registry=Registry([agent]))
    said = {"completed": {"token": GITHUB}, "why": "the desk has looked", "by": "ana"}
    await fleet.settle("run_1", "book", tenant="acme", **said)
    await bench.drive(stepper, bench.sent.pop())
    assert [seat for _, seat in far_side.effects] == ["1", GITHUB]
    assert GITHUB not in stored(bench)


class TestAKeyThatIsGone:
    async def parked(self, bench, agent, *redactors):
        """Submit under the first redactor's keys and go on under the others', one step each, until it parks."""
        message = await submit(bench, redactors[0])
        for redactor in redactors:
            end = await bench.stepper(agent, redactor=redactor).step(message, label="t")
            if end is StepEnd.PARKED:
                break
            message = bench.sent.pop()
        assert end is StepEnd.PARKED
        return await bench.run()

    @pytest.mark.parametrize("without", [Redactor(), keyed(OLD), keyed(SealKey.new("new"))])
    async def test_the_run_parks_before_anything_is_dispatched(self, bench, far_side, without):
        """R2: and names the key."""
        script = Script([("book", {"seat": "[secret:1]"})], "Done.")
        message = await submit(bench, keyed())
        stepper = bench.stepper(agent_with(far_side.tool(), turns=script), redactor=without)
        assert await stepper.step(message, label="t") is StepEnd.PARKED
        run = await bench.run()
        assert run.attention is Attention.SEAL_KEY_MISSING
        assert "under the key 'new'" in run.detail
        assert (far_side.effects, script.shown) == ([], [])

    async def test_in_mid_run_as_well_and_it_goes_on_once_the_key_is_back(self, bench, far_side):
        """R2, C5: nothing is lost meanwhile."""
        script = Script([("book", {"seat": "[secret:1]"})], [("book", {"seat": "x[secret:1]"})], "Done.")
        agent = agent_with(far_side.tool(), turns=script)
        run = await self.parked(bench, agent, keyed(), keyed(OLD))
        assert run.attention is Attention.SEAL_KEY_MISSING
        assert len(far_side.effects) == 1

        back = await bench.stores.runs.requeue("run_1", tenant="acme", by=Actor("ana"), policy=POLICY)
        ends = await bench.drive(bench.stepper(agent, redactor=keyed(OLD, NEW)), Dispatch("acme", "run_1", back.ticket))
        assert ends[-1] is StepEnd.COMPLETED
        assert [seat for _, seat in far_side.effects] == [PASSWORD, f"x{PASSWORD}"]

    async def test_a_run_that_holds_nothing_sealed_does_not_need_it(self, bench, far_side):
        message = await submit(bench, keyed(), text="no secret here")
        ends = await bench.drive(bench.stepper(agent_with(far_side.tool()), redactor=Redactor()), message)
        assert ends[-1] is StepEnd.COMPLETED


async def test_a_secret_in_an_outcome_survives_the_death_of_the_worker_that_recorded_it(bench, far_side):
    """R2, I5: the live run and the resumed one read the same, and can do the same."""

    @tool(name="make", effect="effectful")
    async def make() -> dict:
        """Make a token."""
        return {"token": GITHUB}

    release = asyncio.Event()

    @tool(name="slow", effect="read_only")
    async def slow() -> str:
        """Take long."""
        await release.wait()
        return "ok"

    script = Script([("make", {}), ("slow", {})], [("book", {"seat": "[secret:2]"})], "Done.")
    agent = agent_with(make, slow, far_side.tool(), turns=script)
    dying = asyncio.create_task(bench.stepper(agent, redactor=keyed()).step(await submit(bench, keyed()), label="t"))

    async def recorded():
        return any(claim.outcome for claim in await bench.stores.runs.claims("run_1", tenant="acme"))

    await eventually(recorded, what="the outcome to be recorded")
    dying.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await dying

    release.set()
    (reaped,) = await bench.reap(after=1_000.0)
    await bench.drive(bench.stepper(agent, redactor=keyed()), reaped.dispatch)
    assert [seat for _, seat in far_side.effects] == [GITHUB]
    assert GITHUB not in stored(bench)


async def test_the_stored_frontier_of_a_run_without_keys_is_as_it_was(bench, far_side):
    """R2: nothing is kept, and the call is refused."""
    script = Script([("book", {"seat": "[secret:1]"})], "Done.")
    stepper = bench.stepper(agent_with(far_side.tool(), turns=script), redactor=Redactor())
    await stepper.step(await submit(bench, Redactor()), label="t")
    frontier = decode_checkpoint(await bench.stores.runs.payload("run_1", tenant="acme"))
    assert "sealed" not in frontier.masks
    assert far_side.effects == []


# --- in process ------------------------------------------------------------------------------------------------------


class TestInProcess:
    def runner(self, store, claims, redactor):
        return AgentRunner(checkpoints=Checkpointer(store), idempotency=claims, redactor=redactor)

    async def test_a_run_is_given_its_secret_and_a_resumed_one_too(self, far_side):
        """R2."""
        store, claims = MemoryCheckpointStore(), MemoryIdempotencyStore()
        script = Script([("book", {"seat": "[secret:1]"})], RuntimeError("overloaded"), "Done.")
        agent = agent_with(far_side.tool(), turns=_raising(script))
        with pytest.raises(RuntimeError):
            await self.runner(store, claims, keyed()).run(agent, ASK, tenant="acme", run_id="run_1")
        assert [seat for _, seat in far_side.effects] == [PASSWORD]
        frontier = await store.latest("run_1", tenant="acme")
        assert PASSWORD not in frontier.model_dump_json()

        with pytest.raises(SealKeyMissingError, match="'new'") as refused:
            await self.runner(store, claims, keyed(OLD)).resume(agent, "run_1", tenant="acme")
        assert refused.value.known == ("old",)

        run = await self.runner(store, claims, keyed(OLD, NEW)).resume(agent, "run_1", tenant="acme")
        assert run.status is RunStatus.COMPLETED
        assert PASSWORD not in json.dumps([message.model_dump(mode="json") for message in run.messages])

    async def test_an_outcome_has_the_kind_that_it_had(self, far_side):
        claims = MemoryIdempotencyStore()
        recorded = []
        record = claims.record

        async def spy(claim, outcome):
            recorded.append(outcome)
            await record(claim, outcome)

        claims.record = spy
        far_side.answer = {"token": GITHUB}
        agent = agent_with(far_side.tool())
        await self.runner(MemoryCheckpointStore(), claims, keyed()).run(agent, "x", tenant="acme", run_id="run_1")
        (outcome,) = recorded
        assert (outcome.kind, outcome.content) == (OutcomeKind.RETURNED, {"token": "[secret:1]"})
        assert set(outcome.sealed) == {"1"}


def _raising(script):
    async def say(request):
        said = await script(request)
        if isinstance(said, Exception):
            raise said
        return said

    return say
