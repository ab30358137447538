"""One message of the queue, from its take to what it leaves: every way out of a step."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import structlog

from adk_worker import turn
from adk_worker.actors import Actor
from adk_worker.continuation import ContinuationPolicy
from adk_worker.errors import CommitUnknownError, ModelUnavailableError, StoreUnavailableError
from adk_worker.idempotency import ClaimState, call_digest, call_key
from adk_worker.interruption import Cause
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.messages import OpaquePart, ToolCallPart
from adk_worker.model import ModelAnswer
from adk_worker.outcomes import OutcomeKind
from adk_worker.registry import Registry
from adk_worker.runs import Dispatch, NewRun, RunStatus
from adk_worker.steps import StepEnd, Stepper
from adk_worker.tools.declaring import tool
from adk_worker.transitions.runs import Attention, FleetPolicy
from tests.unit.far_side import FarSide, agent_with
from tests.waiting import eventually

POLICY = FleetPolicy(max_crashes=3)


class Clock:
    """The store's clock, moved by the test."""

    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


class Watch:
    """A keeper that renews nothing and hands the test each step's interruption."""

    def __init__(self):
        self.entered = {}
        self.since = {}
        self.left = []

    def enter(self, lease, interruption, *, since):
        self.entered[lease.fence] = interruption
        self.since[lease.fence] = since

    def leave(self, lease):
        self.left.append(lease.fence)

    @property
    def newest(self):
        return self.entered[max(self.entered)]

    def interrupt(self, cause):
        self.newest.set(cause)


class Bench:
    """A fleet of as many steppers as a test makes, over one memory store, with no broker but a list."""

    def __init__(self, stores, clock, executor):
        self.stores, self.clock, self.executor = stores, clock, executor
        self.sent: list[Dispatch] = []
        self.watch = Watch()

    async def dispatch(self, message):
        self.sent.append(message)

    def stepper(self, *agents, max_bytes=1 << 20, stores=None, dispatcher=None, **more):
        return Stepper(
            stores=stores or self.stores,
            registry=Registry(agents),
            dispatcher=dispatcher or self,
            watch=self.watch,
            policy=POLICY,
            checkpoint_max_bytes=max_bytes,
            tool_executor=self.executor,
            **more,
        )

    async def submit(self, agent="booking", **fields):
        submitted = await self.stores.runs.submit(
            NewRun(tenant="acme", run_id="run_1", agent=agent, input="book", **fields), policy=POLICY
        )
        return Dispatch("acme", "run_1", submitted.ticket)

    async def run(self):
        return await self.stores.runs.get("run_1", tenant="acme")

    async def drive(self, stepper, message):
        """Carry out messages until none is sent any more; what each came to."""
        ends = []
        while message is not None:
            ends.append(await stepper.step(message, label="task"))
            message = self.sent.pop(0) if self.sent else None
        return ends

    async def reap(self, *, after=0.0):
        self.clock.now += after
        return await self.stores.runs.claim_lapsed(policy=POLICY, limit=10, count_crashes=True)


@pytest.fixture
async def bench():
    clock = Clock()
    with ThreadPoolExecutor(4) as executor:
        yield Bench(memory_stores(MemoryData(clock=clock)), clock, executor)


@pytest.fixture
def far_side():
    return FarSide()


async def test_a_run_is_carried_link_by_link_to_its_end(bench, far_side):
    """F1, H1: each message is one iteration; the store hands over before the next one is sent."""
    ends = await bench.drive(bench.stepper(agent_with(far_side.tool())), await bench.submit())

    assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    run = await bench.run()
    assert (run.status, run.output, run.iteration, run.holder) == (RunStatus.COMPLETED, "Booked 12A.", 2, None)
    assert len(far_side.effects) == 1
    assert bench.watch.left == list(bench.watch.entered)


async def test_a_run_that_is_due_crosses_as_it_is_handed_over(bench, far_side):
    """K1, I1: an event for each crossing, with what is left; the claims of all stay, each under its own key."""
    turns = [[("book", {"seat": str(seat)})] for seat in range(4)]
    stepper = bench.stepper(
        agent_with(far_side.tool(), turns=[*turns, "Booked."]), continuation=ContinuationPolicy(max_steps=4)
    )

    ends = await bench.drive(stepper, await bench.submit())

    run = await bench.run()
    assert (ends[-1], run.execution, run.iteration) == (StepEnd.COMPLETED, 3, 5)
    told = [event for event in await bench.stores.runs.events("run_1", tenant="acme") if event.kind == "continued"]
    assert [(event.data["execution"], event.data["steps"]) for event in told] == [(2, 4), (3, 4)]
    assert all(event.data["history_bytes"] > 0 for event in told)
    claims = await bench.stores.runs.claims("run_1", tenant="acme")
    assert [claim.key for claim in claims] == [key for key, _ in far_side.effects]
    assert len({claim.key for claim in claims}) == 4


async def test_a_run_whose_frontier_is_over_the_cap_crosses_in_its_workers_hands(bench, far_side):
    """K1, C3: it is not handed over, and its numbers go on all the same."""
    turns = [[("book", {"seat": str(seat)})] for seat in range(3)]
    stepper = bench.stepper(
        agent_with(far_side.tool(), turns=[*turns, "Booked."]),
        max_bytes=1,
        continuation=ContinuationPolicy(max_steps=2),
    )

    assert await bench.drive(stepper, await bench.submit()) == [StepEnd.COMPLETED]

    run = await bench.run()
    assert (run.status, run.execution, run.iteration) == (RunStatus.COMPLETED, 4, 4)


async def test_a_lease_is_kept_as_one_that_was_granted_when_it_was_asked_for(bench, far_side, monkeypatch):
    """L9: its answer may have been long on its way."""
    take, asked = bench.stores.runs.take, []

    async def slow(*args, **kwargs):
        asked.append(time.monotonic())
        return await take(*args, **kwargs)

    monkeypatch.setattr(bench.stores.runs, "take", slow)
    await bench.stepper(agent_with(far_side.tool())).step(await bench.submit(), label="t")
    assert [since <= at for since, at in zip(bench.watch.since.values(), asked, strict=True)] == [True]


async def test_a_message_is_sent_only_after_the_commit_that_made_its_ticket(bench, far_side):
    """L2: at the moment of the dispatch the queue holds the lease under exactly that ticket."""
    held = []

    class Looking:
        async def dispatch(self, message):
            lease = await bench.stores.leases.held("run_1", tenant="acme")
            held.append((lease.holder, lease.fence == message.ticket))

    await bench.stepper(agent_with(far_side.tool()), dispatcher=Looking()).step(await bench.submit(), label="t")
    assert held == [("queue", True)]


async def test_a_duplicate_is_refused_and_reads_nothing(bench, far_side):
    """A second copy of a message finds its ticket spent, while the first runs and afterwards."""
    stepper = bench.stepper(agent_with(far_side.tool()))
    message = await bench.submit()
    assert await stepper.step(message, label="t") is StepEnd.HANDED_OVER
    assert await stepper.step(message, label="t") is StepEnd.DUPLICATE
    assert len(far_side.effects) == 1


async def test_a_broker_that_is_away_costs_time_and_nothing_else(bench, far_side):
    """The step ends as handed over; the queued lease lapses, and the reaper finds the same ticket."""

    class Away:
        async def dispatch(self, message):
            raise ConnectionRefusedError("no broker")

    stepper = bench.stepper(agent_with(far_side.tool()), dispatcher=Away())
    assert await stepper.step(await bench.submit(), label="t") is StepEnd.HANDED_OVER
    lease = await bench.stores.leases.held("run_1", tenant="acme")
    (reaped,) = await bench.reap(after=POLICY.dispatch_grace)
    assert reaped.dispatch.ticket == lease.fence


async def test_a_superseded_worker_writes_no_state_and_its_late_outcome_heals_the_run(bench, far_side):
    """F1, F4: the old worker's booking is evidence; it queues the run again that the new one had to park."""
    # given a worker that is paused past its lease in the middle of a booking
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool())
    old = asyncio.create_task(bench.stepper(agent).step(await bench.submit(), label="old"))
    await far_side.entered.wait()
    # when another is given the run, and can only park it
    (reaped,) = await bench.reap(after=POLICY.lease_ttl)
    assert await bench.stepper(agent).step(reaped.dispatch, label="new") is StepEnd.PARKED
    parked = await bench.run()
    assert (parked.status, parked.attention) == (RunStatus.PARKED, Attention.UNDECIDED_CALL)
    # and the old one wakes up
    far_side.after.set()
    assert await old is StepEnd.SUPERSEDED
    # then the run is queued again, and goes on without a second booking
    assert (await bench.run()).status is RunStatus.QUEUED
    (healed,) = await bench.reap()
    assert await bench.drive(bench.stepper(agent), healed.dispatch) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert len(far_side.effects) == 1


async def test_a_worker_told_of_its_supersession_records_the_call_in_flight(bench, far_side):
    """F4, L9: the keeper says so before any write is refused; the call is awaited, its outcome recorded."""
    far_side.after = asyncio.Event()
    step = asyncio.create_task(bench.stepper(agent_with(far_side.tool())).step(await bench.submit(), label="t"))
    await far_side.entered.wait()
    bench.watch.interrupt(Cause.SUPERSEDED)
    far_side.after.set()
    assert await step is StepEnd.SUPERSEDED
    (claim,) = await bench.stores.runs.claims("run_1", tenant="acme")
    assert claim.outcome.kind is OutcomeKind.RETURNED
    assert (await bench.run()).sequence == 1


async def test_a_drain_in_a_model_call_hands_the_run_over_at_once(bench):
    """The model call is aborted; no crash is counted, and the next worker is told at once."""
    started, never = asyncio.Event(), asyncio.Event()

    async def script(request):
        started.set()
        await never.wait()
        return "done"

    agent = agent_with(turns=script)
    step = asyncio.create_task(bench.stepper(agent).step(await bench.submit(), label="t"))
    await started.wait()
    bench.watch.interrupt(Cause.DRAIN)
    assert await step is StepEnd.GIVEN_BACK
    never.set()
    run = await bench.run()
    assert (run.status, run.crashes, run.tries) == (RunStatus.QUEUED, 0, 0)
    assert await bench.drive(bench.stepper(agent), bench.sent.pop()) == [StepEnd.COMPLETED]


async def test_a_drain_waits_for_a_booking_and_keeps_it(bench, far_side):
    """F4: an effectful call is awaited, its boundary written, and the run handed over."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool())
    step = asyncio.create_task(bench.stepper(agent).step(await bench.submit(), label="t"))
    await far_side.entered.wait()
    bench.watch.interrupt(Cause.DRAIN)
    far_side.after.set()
    assert await step is StepEnd.HANDED_OVER
    assert (await bench.run()).sequence == 2


async def test_an_iteration_past_its_time_counts_as_a_crash_and_leaves_the_call_in_flight(bench, far_side):
    """L8, I10: the booking is cancelled, nobody knows, and the next worker asks."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    step = asyncio.create_task(bench.stepper(agent).step(await bench.submit(), label="t"))
    await far_side.entered.wait()
    bench.watch.interrupt(Cause.TIMEOUT)
    assert await step is StepEnd.GIVEN_BACK
    run = await bench.run()
    assert (run.status, run.crashes, run.attention) == (RunStatus.QUEUED, 1, Attention.EXCEPTION)
    (reaped,) = await bench.reap(after=POLICY.retry_backoff_max)
    assert await bench.drive(bench.stepper(agent), reaped.dispatch) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert len(far_side.effects) == 1


class TestToldToStopBetweenTheIntentAndTheCall:
    """I2, L9: nothing is dispatched, and nobody has to ask about what was never sent: its claim is taken back."""

    @pytest.fixture
    def told(self, bench, monkeypatch):
        """Have the worker told as soon as its intents are on record, the first time."""
        begin = bench.stores.runs.begin

        def tell(cause):
            async def begun(*args, **kwargs):
                answer = await begin(*args, **kwargs)
                monkeypatch.setattr(bench.stores.runs, "begin", begin)
                bench.watch.interrupt(cause)
                await eventually(lambda: bench.watch.newest.cause is cause, what="the work to have been told")
                return answer

            monkeypatch.setattr(bench.stores.runs, "begin", begun)

        return tell

    async def claims(self, bench):
        return await bench.stores.runs.claims("run_1", tenant="acme")

    async def test_by_a_drain(self, bench, far_side, told):
        """The run is handed over at once, and made elsewhere."""
        told(Cause.DRAIN)
        stepper = bench.stepper(agent_with(far_side.tool()))
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
        assert (far_side.effects, await self.claims(bench)) == ([], [])
        run = await bench.run()
        assert (run.status, run.sequence, run.crashes, run.tries) == (RunStatus.QUEUED, 1, 0, 0)
        assert await bench.drive(stepper, bench.sent.pop()) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert len(far_side.effects) == 1

    async def test_by_a_supersession(self, bench, far_side, told):
        """F1: its heir finds a call that never ran, though the lease was live when the intent was recorded."""
        told(Cause.SUPERSEDED)
        stepper = bench.stepper(agent_with(far_side.tool()))
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.SUPERSEDED
        assert (far_side.effects, await self.claims(bench)) == ([], [])
        (reaped,) = await bench.reap(after=POLICY.lease_ttl)
        assert await bench.drive(stepper, reaped.dispatch) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert len(far_side.effects) == 1

    async def test_by_a_cancel(self, bench, far_side, told):
        """P2: the run ends, and with no call in flight its frontier goes."""
        told(Cause.CANCEL)
        begin = bench.stores.runs.begin

        async def begun(*args, **kwargs):
            answer = await begin(*args, **kwargs)
            await bench.stores.runs.cancel("run_1", tenant="acme", by=Actor("ana"))
            return answer

        bench.stores.runs.begin = begun
        stepper = bench.stepper(agent_with(far_side.tool()))
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.CANCELLED
        assert (far_side.effects, await self.claims(bench)) == ([], [])
        assert await bench.stores.runs.payload("run_1", tenant="acme") is None

    async def test_by_its_time_being_up(self, bench, far_side, told):
        """L8."""
        told(Cause.TIMEOUT)
        stepper = bench.stepper(agent_with(far_side.tool()))
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
        assert (far_side.effects, await self.claims(bench)) == ([], [])
        assert (await bench.run()).crashes == 1

    async def test_a_call_that_was_taken_over_is_its_former_owner_s_again(self, bench, far_side, told):
        """I4: that one may have dispatched it."""
        # given a repeatable call of a worker that was lost in it
        far_side.before = asyncio.Event()
        stepper = bench.stepper(agent_with(far_side.tool(effect="idempotent")))
        step = asyncio.create_task(stepper.step(await bench.submit(), label="old"))
        await far_side.entered.wait()
        step.cancel()
        await asyncio.wait({step})
        (before,) = await self.claims(bench)
        far_side.before = None
        (reaped,) = await bench.reap(after=POLICY.lease_ttl)
        # when the next one takes it over, and is told to leave
        told(Cause.DRAIN)
        assert await stepper.step(reaped.dispatch, label="new") is StepEnd.GIVEN_BACK
        # then it is as it was
        (after,) = await self.claims(bench)
        assert (after.owner, after.former, after.state) == (before.owner, (), before.state)
        assert far_side.effects == []
        assert await bench.drive(stepper, bench.sent.pop()) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    async def test_a_store_that_is_away_leaves_the_claim_in_flight(self, bench, far_side, told):
        """I4: it is asked about then, as any other; and the worker does not wait for ever to leave."""
        told(Cause.TIMEOUT)
        stores = replace(bench.stores, idempotency=Failing(bench.stores.idempotency, "abandon", AWAY, times=-1))
        stepper = bench.stepper(agent_with(far_side.tool()), stores=stores)
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
        (claim,) = await self.claims(bench)
        assert (far_side.effects, claim.state) == ([], ClaimState.IN_FLIGHT)

    async def test_an_answer_lost_in_commit_takes_it_back_once(self, bench, far_side, told):
        """F5."""
        told(Cause.DRAIN)
        failing = Failing(bench.stores.idempotency, "abandon", UNKNOWN, after=True)
        stepper = bench.stepper(agent_with(far_side.tool()), stores=replace(bench.stores, idempotency=failing))
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
        assert (far_side.effects, await self.claims(bench)) == ([], [])


class TestCancel:
    async def test_in_a_model_call(self, bench):
        """P2: aborted, and the give-back's own write ends the run."""
        started = asyncio.Event()

        async def script(request):
            started.set()
            await asyncio.Event().wait()

        step = asyncio.create_task(bench.stepper(agent_with(turns=script)).step(await bench.submit(), label="t"))
        await started.wait()
        await bench.stores.runs.cancel("run_1", tenant="acme", by=Actor("ana"))
        bench.watch.interrupt(Cause.CANCEL)
        assert await step is StepEnd.CANCELLED
        assert (await bench.run()).status is RunStatus.CANCELLED
        assert bench.sent == []

    async def test_in_a_booking(self, bench, far_side):
        """P2: waited for and recorded; the boundary's own write ends the run."""
        far_side.after = asyncio.Event()
        step = asyncio.create_task(bench.stepper(agent_with(far_side.tool())).step(await bench.submit(), label="t"))
        await far_side.entered.wait()
        await bench.stores.runs.cancel("run_1", tenant="acme", by=Actor("ana"))
        bench.watch.interrupt(Cause.CANCEL)
        far_side.after.set()
        assert await step is StepEnd.CANCELLED
        (claim,) = await bench.stores.runs.claims("run_1", tenant="acme")
        assert claim.outcome.content == {"seat": "12A"}

    async def test_before_a_booking(self, bench, far_side):
        """P2: begin looks at the flag in its own write, so nothing is dispatched."""

        async def script(request):
            await bench.stores.runs.cancel("run_1", tenant="acme", by=Actor("ana"))
            return [("book", {"seat": "1"})]

        agent = agent_with(far_side.tool(), turns=script)
        assert await bench.stepper(agent).step(await bench.submit(), label="t") is StepEnd.CANCELLED
        assert far_side.effects == []


class TestWhatThisWorkerCannot:
    """C4, C7: given back with a backoff, visible in attention, and no crash counted."""

    async def given_back(self, bench, stepper, message, attention):
        assert await stepper.step(message, label="t") is StepEnd.GIVEN_BACK
        run = await bench.run()
        assert (run.status, run.attention, run.crashes, run.tries) == (RunStatus.QUEUED, attention, 0, 1)
        assert run.detail
        assert bench.sent == []
        # and it is taken as soon as a worker that can comes
        (reaped,) = await bench.reap(after=POLICY.retry_backoff_max)
        return reaped.dispatch

    async def test_an_agent_it_does_not_know(self, bench, far_side):
        message = await self.given_back(bench, bench.stepper(), await bench.submit(), Attention.AGENT_UNKNOWN)
        assert await bench.stepper(agent_with(far_side.tool())).step(message, label="t") is StepEnd.HANDED_OVER
        assert (await bench.run()).attention is None

    async def test_a_revision_it_does_not_have(self, bench, far_side):
        """C7: pinned by the first worker that took the run."""
        one, two = agent_with(far_side.tool(), revision="one"), agent_with(far_side.tool(), revision="two")
        await bench.stepper(one).step(await bench.submit(), label="t")
        message = await self.given_back(bench, bench.stepper(two), bench.sent.pop(), Attention.REVISION_MISMATCH)
        assert await bench.stepper(two, one).step(message, label="t") is StepEnd.COMPLETED

    async def test_a_checkpoint_of_a_newer_format(self, bench, far_side, monkeypatch):
        """C4: left where it is, for a newer worker."""
        stepper = bench.stepper(agent_with(far_side.tool()))
        await stepper.step(await bench.submit(), label="t")
        message = bench.sent.pop()
        with monkeypatch.context() as patched:
            patched.setattr("adk_worker.checkpoint.CHECKPOINT_FORMAT", 0)
            message = await self.given_back(bench, stepper, message, Attention.FORMAT_TOO_NEW)
        assert await stepper.step(message, label="t") is StepEnd.COMPLETED


async def test_an_unexpected_exception_backs_off_and_ends_as_poisoned(bench):
    """Each counts; at max_crashes without a boundary the run is parked, with what was raised."""
    agent = agent_with(turns=lambda _: 1 / 0)
    stepper, message = bench.stepper(agent), await bench.submit()
    ends, waits = [], []
    while message is not None:
        ends.append(await stepper.step(message, label="t"))
        lease = await bench.stores.leases.held("run_1", tenant="acme")
        waits.append(lease.expires_at - bench.clock.now if lease else None)
        reaped = await bench.reap(after=POLICY.retry_backoff_max)
        message = reaped[0].dispatch if reaped else None
    assert ends == [StepEnd.GIVEN_BACK, StepEnd.GIVEN_BACK, StepEnd.PARKED]
    assert waits == [1, 2, None]
    run = await bench.run()
    assert (run.status, run.attention) == (RunStatus.PARKED, Attention.POISONED)
    assert "ZeroDivisionError" in run.detail


@pytest.mark.parametrize(("retry_after", "waits"), [(None, [1, 2, 4, 8]), (90.0, [90, 90, 90, 90])])
async def test_a_model_that_is_unavailable_is_waited_for_without_an_end(bench, retry_after, waits):
    """An outage is nobody's crash: the run waits in the queue, for as long as its provider asks, and says for what."""
    outage = ModelUnavailableError("the model answered 503.", retry_after=retry_after)
    agent = agent_with(turns=lambda _: outage)
    stepper, message = bench.stepper(agent), await bench.submit()
    waited = []
    for _ in range(POLICY.max_crashes + 1):
        assert await stepper.step(message, label="t") is StepEnd.GIVEN_BACK
        lease = await bench.stores.leases.held("run_1", tenant="acme")
        waited.append(lease.expires_at - bench.clock.now)
        (reaped,) = await bench.reap(after=POLICY.retry_backoff_max)
        message = reaped.dispatch
    assert waited == waits
    run = await bench.run()
    assert (run.status, run.attention, run.crashes) == (RunStatus.QUEUED, Attention.MODEL_UNAVAILABLE, 0)
    assert run.detail == "the model answered 503."


async def test_calls_that_the_provider_refused_are_told_to_the_model_and_never_made(bench, far_side):
    """I10: there is no claim; the calls beside it are made."""
    seats = [ToolCallPart(id=seat, name="book", arguments={"seat": seat}) for seat in ("1", "2")]
    told = []

    async def script(request):
        told.append(request.messages[-1])
        refused = {"1": "Not as it stands."}
        return ModelAnswer(calls=tuple(seats), refused=refused) if len(request.messages) == 1 else "Done."

    await bench.drive(bench.stepper(agent_with(far_side.tool(), turns=script)), await bench.submit())
    assert [seat for _, seat in far_side.effects] == ["2"]
    first, second = told[-1].parts
    assert (first.is_error, first.content) == (True, "Not as it stands.")
    assert not second.is_error


@pytest.mark.parametrize(("kept", "data"), [(True, {"signature": "abc"}), (False, {"thought": "ghp_" + "a1B2" * 9})])
async def test_what_a_provider_wants_back_is_kept_unless_it_would_have_to_be_masked(bench, kept, data):
    """R1: masked, it would no longer be what the provider wants; unmasked, it would be in every store."""
    seen = []

    async def script(request):
        seen.append(request.messages)
        if len(request.messages) == 1:
            part = OpaquePart(provider="mine", data=data)
            return ModelAnswer(calls=(ToolCallPart(id="1", name="nothing"),), opaque=(part,))
        return "Done."

    await bench.drive(bench.stepper(agent_with(turns=script)), await bench.submit())
    found = [part.data for part in seen[-1][1].parts if isinstance(part, OpaquePart)]
    assert found == ([data] if kept else [])


async def test_half_a_character_of_the_models_does_not_make_the_transcript_unreadable(bench, far_side):
    """H2: what reading refuses is not written; the booking beside it is made once, and the run goes on."""

    async def script(request):
        asked = ModelAnswer(text="Booking \ud83d", calls=(ToolCallPart(id="1", name="book", arguments={"seat": "1"}),))
        return asked if len(request.messages) == 1 else "Booked \ud83d"

    ends = await bench.drive(bench.stepper(agent_with(far_side.tool(), turns=script)), await bench.submit())
    assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert (await bench.run()).output == "Booked ?"
    assert len(far_side.effects) == 1


def nested(levels):
    return functools.reduce(lambda inner, _: [inner], range(levels), 1)


@pytest.mark.parametrize("argument", ["\ud83d", nested(250), nested(195)], ids=["half", "deep", "deep in a checkpoint"])
async def test_arguments_that_cannot_be_read_back_are_not_stored(bench, argument):
    """H2: the model is asked again, and if it insists the run is parked with its frontier whole.

    That a message can be read does not say that a checkpoint can in which it stands.
    """

    async def script(request):
        return ModelAnswer(calls=(ToolCallPart(id="1", name="nothing", arguments={"seat": argument}),))

    stepper = bench.stepper(agent_with(turns=script))
    assert await stepper.step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
    run = await bench.run()
    assert (run.sequence, run.attention) == (0, Attention.EXCEPTION)
    assert "cannot be stored" in run.detail


async def test_a_model_call_that_cancels_itself_is_an_exception_like_any_other(bench):
    """A provider's own time-out may leak its cancellation; the run is given back for it, and not left to lapse."""

    async def script(request):
        raise asyncio.CancelledError

    assert await bench.stepper(agent_with(turns=script)).step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
    run = await bench.run()
    assert (run.status, run.attention, run.crashes) == (RunStatus.QUEUED, Attention.EXCEPTION, 1)


@pytest.mark.parametrize("error", [SystemExit("enough"), KeyboardInterrupt()])
async def test_a_model_that_wants_to_end_the_process_ends_its_own_step_alone(bench, error):
    """It is given back as any exception is; the other runs of the process never know."""

    async def script(request):
        raise error

    assert await bench.stepper(agent_with(turns=script)).step(await bench.submit(), label="t") is StepEnd.GIVEN_BACK
    assert type(error).__name__ in (await bench.run()).detail


async def test_what_a_model_s_error_says_is_logged_masked_with_its_traceback(bench):
    """R1: in the log as in the store."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3

    async def script(request):
        raise ValueError(f"no answer for token {secret}")

    with structlog.testing.capture_logs() as logs:
        await bench.stepper(agent_with(turns=script)).step(await bench.submit(), label="t")
    (told,) = [entry for entry in logs if entry["event"] == "step_gave_back"]
    assert told["detail"] == (await bench.run()).detail == "ValueError: no answer for token [secret:1]"
    assert "in script" in told["exception"]
    assert secret not in str(logs)


async def test_of_an_error_with_endless_words_the_frames_are_logged(bench):
    async def script(request):
        raise ValueError("no " * 100_000)

    with structlog.testing.capture_logs() as logs:
        await bench.stepper(agent_with(turns=script)).step(await bench.submit(), label="t")
    (told,) = [entry for entry in logs if entry["event"] == "step_gave_back"]
    assert "in script" in told["exception"]
    assert len(told["exception"]) < 10_000


async def test_the_name_of_a_tool_that_is_none_is_masked_as_a_text_is(bench, far_side):
    """R1: in the transcript, in the events and in what the model is told."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    seen = []

    async def script(request):
        seen.append(request.messages)
        return (f"look_up {secret}", {}) if len(seen) == 1 else "Done."

    await bench.drive(bench.stepper(agent_with(far_side.tool(), turns=script)), await bench.submit())
    events = await bench.stores.runs.events("run_1", tenant="acme")
    assert secret not in str(seen[-1]) + str(events)
    assert "There is no tool named 'look_up [secret:1]'" in str(seen[-1])


async def test_a_run_that_parks_on_a_call_says_what_the_call_said(bench, far_side):
    """I10, R1: whoever has to find out what happened begins with the error, masked."""
    far_side.after = ValueError("gateway timeout, token ghp_" + "a1B2c3D4e5F6" * 3)
    stepper = bench.stepper(agent_with(far_side.tool()))
    assert await stepper.step(await bench.submit(), label="t") is StepEnd.PARKED
    detail = (await bench.run()).detail
    assert "gateway timeout, token [secret:1]" in detail
    assert "no probe" in detail


async def test_a_transcript_that_is_gone_parks_the_run(bench, far_side, monkeypatch):
    """H2: rather than go on with a hole."""
    stepper = bench.stepper(agent_with(far_side.tool()))
    await stepper.step(await bench.submit(), label="t")

    async def gone(handle, *, tenant):
        return None

    monkeypatch.setattr(bench.stores.history, "fetch", gone)
    assert await stepper.step(bench.sent.pop(), label="t") is StepEnd.PARKED
    assert (await bench.run()).attention is Attention.HISTORY_UNAVAILABLE


class TestAFrontierOverTheCap:
    async def test_the_worker_carries_on_in_the_same_task(self, bench, far_side):
        """C2, C3: a tombstone stands in the store, and the run ends all the same."""
        stepper = bench.stepper(agent_with(far_side.tool()), max_bytes=100)
        assert await stepper.step(await bench.submit(), label="t") is StepEnd.COMPLETED
        assert (await bench.run()).output == "Booked 12A."
        assert len(far_side.effects) == 1

    async def test_a_death_under_it_parks_the_run_for_good(self, bench, far_side):
        """C3: the older frontier is never resumed as if it were current."""
        far_side.after = asyncio.Event()
        stepper = bench.stepper(agent_with(far_side.tool()), max_bytes=100)
        step = asyncio.create_task(stepper.step(await bench.submit(), label="t"))
        await far_side.entered.wait()
        (reaped,) = await bench.reap(after=POLICY.lease_ttl)
        assert reaped.dispatch is None
        run = await bench.run()
        assert (run.status, run.attention) == (RunStatus.PARKED, Attention.FRONTIER_LOST)
        far_side.after.set()
        assert await step is StepEnd.SUPERSEDED


class TestNotYet:
    """I7, I11: permission only for a call whose owner was known dead for longer than a request can outlive it."""

    async def orphaned(self, bench, far_side, **declared):
        """A run whose worker was lost before its booking had its effect; and its next message."""
        far_side.before = asyncio.Event()
        agent = agent_with(far_side.tool(probe=far_side.probe, **declared))
        step = asyncio.create_task(bench.stepper(agent).step(await bench.submit(), label="old"))
        await far_side.entered.wait()
        step.cancel()
        await asyncio.wait({step})
        far_side.before = None
        (reaped,) = await bench.reap(after=POLICY.lease_ttl)
        return agent, reaped.dispatch

    async def test_of_an_owner_that_may_be_alive_is_none(self, bench, far_side):
        agent, message = await self.orphaned(bench, far_side, max_in_flight=0)
        assert await bench.stepper(agent).step(message, label="new") is StepEnd.PARKED
        assert far_side.effects == []

    async def test_of_a_tool_that_declares_nothing_is_none(self, bench, far_side, monkeypatch):
        monkeypatch.setattr(turn, "known_dead", lambda _: True)
        agent, message = await self.orphaned(bench, far_side)
        assert await bench.stepper(agent).step(message, label="new") is StepEnd.PARKED
        assert far_side.effects == []

    async def test_of_a_dead_owner_waits_for_its_requests_and_then_permits(self, bench, far_side, monkeypatch):
        monkeypatch.setattr(turn, "known_dead", lambda _: True)
        agent, message = await self.orphaned(bench, far_side, max_in_flight=30)
        # too early: the run waits in the queue, no crash counted, and the death is on record
        assert await bench.stepper(agent).step(message, label="new") is StepEnd.GIVEN_BACK
        run = await bench.run()
        assert (run.status, run.attention, run.crashes) == (RunStatus.QUEUED, Attention.UNDECIDED_CALL, 1)
        assert await bench.reap(after=29.0) == []
        (reaped,) = await bench.reap(after=1.0)
        # a worker that cannot tell a death any more finds it on record
        monkeypatch.setattr(turn, "known_dead", lambda _: False)
        ends = await bench.drive(bench.stepper(agent), reaped.dispatch)
        assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert [key for key, _ in far_side.effects] == [far_side.probed[0]]

    async def test_says_nothing_once_the_request_arrived_after_all(self, bench, far_side, monkeypatch):
        monkeypatch.setattr(turn, "known_dead", lambda _: True)
        agent, message = await self.orphaned(bench, far_side, max_in_flight=30)
        await bench.stepper(agent).step(message, label="new")
        far_side.effects.append((far_side.probed[0], "12A"))
        (reaped,) = await bench.reap(after=30.0)
        ends = await bench.drive(bench.stepper(agent), reaped.dispatch)
        assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert len(far_side.effects) == 1


class Failing:
    """A run store whose ``method`` fails the first ``times`` times, before or after it did its work."""

    def __init__(self, runs, method, error, *, times=1, after=False):
        self._runs, self._method, self._error, self._times, self._after = runs, method, error, times, after
        self.failed = 0

    def fail(self, *, times):
        """Fail as often from now on; below 0 always."""
        self._times = times

    def __getattr__(self, name):
        found = getattr(self._runs, name)
        if name != self._method or self._times == 0:
            return found

        async def fail(*args, **kwargs):
            self._times -= 1
            self.failed += 1
            if self._after:
                await found(*args, **kwargs)
            raise self._error

        return fail


AWAY = StoreUnavailableError(store="memory", reason="away")
UNKNOWN = CommitUnknownError(store="memory", reason="lost in COMMIT")


class TestAStoreThatFails:
    def over(self, bench, method, error, **how):
        stores = bench.stores
        return type(stores)(
            runs=Failing(stores.runs, method, error, **how),
            leases=stores.leases,
            checkpoints=stores.checkpoints,
            idempotency=stores.idempotency,
            history=stores.history,
            lifecycle=stores.lifecycle,
        )

    @pytest.mark.parametrize("method", ["begin", "commit", "take"])
    async def test_an_answer_lost_in_commit_doubles_nothing(self, bench, far_side, method):
        """F5: it is read again, found done, and the run goes on."""
        stores = self.over(bench, method, UNKNOWN, after=True)
        ends = await bench.drive(bench.stepper(agent_with(far_side.tool()), stores=stores), await bench.submit())
        assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert len(far_side.effects) == 1
        assert (await bench.run()).sequence == 3

    @pytest.mark.parametrize("method", ["begin", "commit"])
    async def test_a_store_that_is_away_for_a_moment_is_waited_for(self, bench, far_side, method):
        """C3: while the lease can still be live."""
        stores = self.over(bench, method, AWAY)
        ends = await bench.drive(bench.stepper(agent_with(far_side.tool()), stores=stores), await bench.submit())
        assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    async def test_a_store_that_stays_away_is_left_to_the_reaper(self, bench, far_side):
        """C3, L9: nothing is dispatched whose intent could not be recorded, and the worker lives on."""
        stores = self.over(bench, "begin", AWAY, times=-1)
        step = asyncio.create_task(
            bench.stepper(agent_with(far_side.tool()), stores=stores).step(await bench.submit(), label="t")
        )
        await eventually(lambda: bench.watch.entered, what="the step to take its lease")
        bench.watch.interrupt(Cause.SUPERSEDED)
        assert await step in {StepEnd.STORE_AWAY, StepEnd.SUPERSEDED}
        assert far_side.effects == []

    async def test_an_outcome_whose_boundary_the_store_never_took_is_kept_as_evidence(self, bench, far_side):
        """F4: no lease has to be live for it, so it is recorded when the store is back, and nobody has to be asked."""
        far_side.after = asyncio.Event()
        stores = self.over(bench, "commit", AWAY, times=0)
        stepper = bench.stepper(agent_with(far_side.tool()), stores=stores)
        step = asyncio.create_task(stepper.step(await bench.submit(), label="t"))
        await far_side.entered.wait()
        stores.runs.fail(times=-1)
        far_side.after.set()
        await eventually(lambda: stores.runs.failed, what="the boundary to be refused")
        bench.watch.interrupt(Cause.SUPERSEDED)
        assert await step is StepEnd.STORE_AWAY
        (reaped,) = await bench.reap(after=POLICY.lease_ttl)
        ends = await bench.drive(bench.stepper(agent_with(far_side.tool())), reaped.dispatch)
        assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
        assert len(far_side.effects) == 1

    async def test_a_take_that_cannot_be_made_changes_nothing(self, bench, far_side):
        stores = self.over(bench, "take", AWAY)
        stepper = bench.stepper(agent_with(far_side.tool()), stores=stores)
        message = await bench.submit()
        assert await stepper.step(message, label="t") is StepEnd.STORE_AWAY
        assert await stepper.step(message, label="t") is StepEnd.HANDED_OVER


async def test_a_late_outcome_of_a_thread_that_cannot_be_stopped_heals_the_run(bench, far_side):
    """F4, I10: a sync tool past its time-out parks the run; what it brings later queues it again."""
    release, done = threading.Event(), []

    @tool(timeout=0.05, name="book")
    def book(seat: str) -> dict:
        release.wait(30)
        done.append(seat)
        return {"seat": seat}

    agent = agent_with(book)
    stepper = bench.stepper(agent)
    assert await stepper.step(await bench.submit(), label="t") is StepEnd.PARKED
    release.set()
    await stepper.settle_late(10)
    (reaped,) = await bench.reap()
    assert await bench.drive(stepper, reaped.dispatch) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert done == ["12A"]


async def test_a_late_outcome_of_a_thread_past_its_iteration_s_time_heals_the_run(bench, far_side):
    """F4, L8: the iteration is over, its tool is not; what that brings later is evidence all the same."""
    begun, release, done = threading.Event(), threading.Event(), []

    @tool(timeout=None, name="book")
    def book(seat: str) -> dict:
        begun.set()
        release.wait(30)
        done.append(seat)
        return {"seat": seat}

    stepper = bench.stepper(agent_with(book))
    step = asyncio.create_task(stepper.step(await bench.submit(), label="t"))
    await eventually(begun.is_set, what="the tool to have begun")
    bench.watch.interrupt(Cause.TIMEOUT)
    assert await step is StepEnd.GIVEN_BACK
    (reaped,) = await bench.reap(after=POLICY.retry_backoff_max)
    assert await stepper.step(reaped.dispatch, label="t") is StepEnd.PARKED
    release.set()
    await stepper.settle_late(10)
    (healed,) = await bench.reap()
    assert await bench.drive(stepper, healed.dispatch) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert done == ["12A"]


async def test_a_key_that_comes_back_with_other_arguments_parks_the_run(bench, far_side):
    """I1: the outcome on record is another call's; neither is it reused nor the call made."""
    agent = agent_with(far_side.tool())
    message = await bench.submit()
    key = call_key(tenant="acme", run_id="run_1", iteration=1, index=0)
    await bench.stores.idempotency.begin(
        key, tenant="acme", owner="somebody", digest=call_digest(key, tool="book", arguments={"seat": "1A"})
    )
    assert await bench.stepper(agent).step(message, label="t") is StepEnd.PARKED
    assert (await bench.run()).attention is Attention.KEY_REUSED
    assert far_side.effects == []


async def test_events_tell_the_run_in_order_and_hold_no_secret(bench, far_side):
    """R1: what happened, by name and number."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    far_side.answer = {"token": secret}
    await bench.drive(bench.stepper(agent_with(far_side.tool())), await bench.submit())
    events = await bench.stores.runs.events("run_1", tenant="acme")
    kinds = [event.kind for event in events]
    assert kinds.index("after_model_call") < kinds.index("after_tool_result") < kinds.index("completed")
    assert secret not in json.dumps([event.model_dump() for event in events])
