"""Cancels: never lost, whoever holds the run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from adk_worker.conformance.runs.driver import BOOKED, HASTY, REFUSED, TENANT, Driver
from adk_worker.conformance.waiting import LONG, Racer, race_in_threads
from adk_worker.errors import RunNotFoundError, RunStateError, StaleFenceError
from adk_worker.events import EventKind
from adk_worker.idempotency import Claim
from adk_worker.lease import RunLease
from adk_worker.runs import Committed, Reaped, RunStatus, Stores, Taken
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_RUNS = 10

Write = Callable[[Driver, RunLease, Claim], Awaitable[Any]]


async def _begin(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    committed, claims = await driver.runs.begin(lease, [driver.intent(7)], owner=lease.holder, ahead=True)
    assert list(claims) == []
    return committed


async def _hand_over(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.commit(lease, 2, Then.HAND_OVER)


async def _complete(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.commit(lease, 2, Then.COMPLETE)


async def _keep(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.commit(lease, 2)


async def _park(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.park(lease)


async def _park_on_a_call(driver: Driver, lease: RunLease, claim: Claim) -> Committed:
    return await driver.park(lease, claim)


async def _fail(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.runs.fail(lease, detail="it cannot be done")


async def _give_back(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.give_back(lease)


async def _drain(driver: Driver, lease: RunLease, _: Claim) -> Committed:
    return await driver.give_back(lease, Reason.DRAIN)


_WRITES: list[Write] = [
    _begin,
    _keep,
    _hand_over,
    _complete,
    _park,
    _park_on_a_call,
    _fail,
    _give_back,
    _drain,
]


class CancelConformance:
    """P2: every take, begin, boundary, park, give-back and reap looks at the flag in its own write."""

    async def test_a_queued_run_ends_at_once(self, stores: Stores) -> None:
        """P2: its message finds nothing to take, and the reaper nothing to publish."""
        driver = Driver(stores, policy=HASTY)
        ticket = (await driver.submit()).ticket
        assert ticket is not None

        run = await driver.cancel()

        assert (run.status, run.holder, run.attention) == (RunStatus.CANCELLED, None, None)
        assert run == await driver.run()
        kinds = [event.kind for event in await driver.events()]
        assert kinds == [EventKind.SUBMITTED, EventKind.CANCEL_REQUESTED, EventKind.CANCELLED]
        assert (await driver.events(EventKind.CANCEL_REQUESTED))[0].data == {"by": "ann", "os_user": "op-1"}
        assert await driver.take(ticket) is None
        assert await driver.reap() is None

    @pytest.mark.parametrize("then", [Then.PARK, Then.WAIT_APPROVAL])
    async def test_a_resting_run_ends_at_once(self, stores: Stores, then: Then) -> None:
        """P2, C5: with nothing in flight its frontier is forgotten."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, then, attention=Attention.APPROVAL, detail="waiting")

        run = await driver.cancel()

        assert (run.status, run.attention, run.detail) == (RunStatus.CANCELLED, None, None)
        assert await driver.payload() is None

    async def test_a_resting_run_that_somebody_holds_ends_at_once(self, stores: Stores) -> None:
        """P2: no write of theirs would bring the end; they lose the lease."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        run = await driver.cancel()

        assert (run.status, run.holder) == (RunStatus.CANCELLED, None)
        with pytest.raises(StaleFenceError):
            await stores.leases.renew(lease, ttl_seconds=LONG)

    @pytest.mark.parametrize("then", [Then.COMPLETE, Then.FAIL])
    async def test_a_run_that_has_ended_stays_as_it_is(self, stores: Stores, then: Then) -> None:
        """P2: and the caller is told."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, then)
        before = await driver.picture()

        with pytest.raises(RunStateError) as refused:
            await driver.cancel()

        assert (refused.value.tenant, refused.value.run_id) == (TENANT, "run")
        assert refused.value.status == (await driver.run()).status
        assert await driver.picture() == before

    async def test_a_cancelled_run_is_cancelled_again_in_vain(self, stores: Stores) -> None:
        """P2, F5: it is what was asked for; nothing is written."""
        driver = Driver(stores)
        await driver.submit()
        cancelled = await driver.cancel()
        before = await driver.picture()

        assert await driver.cancel() == cancelled

        assert await driver.picture() == before

    async def test_what_is_not_there_is_not_cancelled(self, stores: Stores) -> None:
        """T1: another tenant's run is not there."""
        driver = Driver(stores)
        await driver.submit()

        for other in (Driver(stores, run_id="another"), Driver(stores, tenant="other")):
            with pytest.raises(RunNotFoundError):
                await other.cancel()

        assert (await driver.run()).status is RunStatus.QUEUED

    # --- of a run that a worker holds -------------------------------------------------------------------------

    async def test_a_held_run_is_asked_to_end(self, stores: Stores) -> None:
        """P2: its worker hears of it with the next renewal; asking twice is told once."""
        driver = Driver(stores)
        lease = await driver.worker()

        first = await driver.cancel()
        second = await driver.cancel()

        for run in (first, second):
            assert (run.status, run.cancel_requested, run.holder) == (RunStatus.RUNNING, True, lease.holder)
        (renewal,) = await stores.runs.renew_many([lease], ttl_seconds=LONG)
        assert renewal.lease is not None
        assert renewal.cancel_requested
        assert len(await driver.events(EventKind.CANCEL_REQUESTED)) == 1
        assert await driver.events(EventKind.CANCELLED) == []

    @pytest.mark.parametrize("write", _WRITES, ids=lambda write: write.__name__.strip("_"))
    async def test_the_next_write_ends_the_run(self, stores: Stores, write: Write) -> None:
        """P2: whatever it was meant to do; the lease is free, and nothing is to be dispatched."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        (claim,) = await driver.begin(lease, 0)
        await driver.cancel()

        committed = await write(driver, lease, claim)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.CANCELLED, None, None)
        run = await driver.run()
        assert (run.status, run.holder, run.fence) == (RunStatus.CANCELLED, None, lease.fence)
        assert (run.attention, run.detail, run.parked_on) == (None, None, ())
        (event,) = await driver.events(EventKind.CANCELLED)
        assert event.fence == lease.fence
        assert await driver.claims() == [claim]
        with pytest.raises(StaleFenceError):
            await driver.commit(lease, 3)

    async def test_the_last_boundary_of_a_cancelled_run_is_written(self, stores: Stores) -> None:
        """P2: an effectful call in flight was waited for: its outcome and its messages are kept."""
        driver = Driver(stores)
        lease = await driver.worker()
        (claim,) = await driver.begin(lease, 0)
        await driver.cancel()
        segment = driver.segment("booked")

        committed = await driver.commit(lease, 1, Then.HAND_OVER, segment=segment, settled=[(claim, BOOKED)])

        assert committed.verdict is Verdict.CANCELLED
        assert (await driver.claims())[0].outcome == BOOKED
        messages = await stores.history.fetch(str(segment.handle), tenant=TENANT)
        assert [message.text for message in messages or ()] == ["booked"]
        assert (await driver.run()).sequence == 1
        assert await driver.payload() is None

    async def test_a_dead_workers_run_ends_in_the_sweep(self, stores: Stores) -> None:
        """P2: instead of being queued again."""
        driver = Driver(stores)
        await driver.dead_worker()
        await driver.cancel()

        reaped = await driver.reap()

        assert reaped == Reaped(TENANT, "run", Holding.WORKER, Verdict.CANCELLED, None)
        assert (await driver.run()).status is RunStatus.CANCELLED
        assert len(await driver.events(EventKind.CANCELLED)) == 1

    async def test_a_run_that_was_let_go_ends_at_the_next_take_or_sweep(self, stores: Stores) -> None:
        """P2, L10: the release itself looks at no flag."""
        taken, swept = Driver(stores, run_id="taken"), Driver(stores, run_id="swept")
        for driver in (taken, swept):
            lease = await driver.worker()
            await driver.cancel()
            await stores.leases.release(lease)

        assert await taken.take((await taken.run()).fence) is None
        reaped = await swept.reap()

        assert reaped is not None
        assert reaped.verdict is Verdict.CANCELLED
        for driver in (taken, swept):
            assert (await driver.run()).status is RunStatus.CANCELLED
            assert len(await driver.events(EventKind.CANCELLED)) == 1

    # --- what is still undecided ------------------------------------------------------------------------------

    async def test_a_cancelled_run_keeps_its_frontier_until_its_calls_are_decided(self, stores: Stores) -> None:
        """P2, C5: its claims list them; the last outcome takes the frontier with it."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        first, second = await driver.begin(lease, 0, 1)
        await driver.cancel()
        await driver.give_back(lease)
        kept = [await driver.payload()]

        await stores.idempotency.record(first, BOOKED)
        kept.append(await driver.payload())
        await stores.idempotency.record(second, REFUSED)

        assert kept == [driver.boundary(1).payload] * 2
        assert await driver.payload() is None
        assert [claim.outcome for claim in await driver.claims()] == [BOOKED, REFUSED]
        assert (await driver.run()).status is RunStatus.CANCELLED

    async def test_an_abandoned_call_is_decided_too(self, stores: Stores) -> None:
        """P2, C5: it never ran."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        (claim,) = await driver.begin(lease, 0)
        await driver.cancel()
        await driver.give_back(lease)

        await stores.idempotency.abandon(claim)

        assert await driver.payload() is None

    # --- races ------------------------------------------------------------------------------------------------

    async def test_a_cancel_is_not_lost_between_two_iterations(self, stores: Stores) -> None:
        """P2: whichever comes first, the hand-over or the cancel."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            lease = await driver.worker()
            racers: list[Racer] = [partial(driver.commit, lease, 1, Then.HAND_OVER), driver.cancel]

            committed, _ = await race_in_threads(racers)

            assert isinstance(committed, Committed)
            assert (await driver.run()).status is RunStatus.CANCELLED

    async def test_a_cancel_is_not_lost_as_a_run_is_taken(self, stores: Stores) -> None:
        """P2: either it ended while it was queued, or its worker is told."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            ticket = (await driver.submit()).ticket
            assert ticket is not None
            racers: list[Racer] = [partial(driver.take, ticket), driver.cancel]

            taken, _ = await race_in_threads(racers)

            run = await driver.run()
            if isinstance(taken, Taken):
                assert (run.status, run.cancel_requested) == (RunStatus.RUNNING, True)
            else:
                assert (taken, run.status) == (None, RunStatus.CANCELLED)
