"""Tasks that end without a boundary, and runs that are queued again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from adk_worker.conformance.runs.driver import PATIENT, TENANT, Driver
from adk_worker.conformance.texts import TRICKY
from adk_worker.conformance.waiting import LONG, SOON, race_in_threads, winners
from adk_worker.errors import FrontierLostError, RunLeaseError, RunNotFoundError, RunStateError
from adk_worker.events import EventKind, NewEvent
from adk_worker.lease import RunLease
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_RUNS = 10
_RACERS = 6
_BACKOFF = replace(PATIENT, retry_backoff=LONG, retry_backoff_max=3 * LONG, max_crashes=100)


class RestingConformance:
    """Every exit of a task without a boundary gives the lease to the queue, or lets the run rest."""

    # --- give back --------------------------------------------------------------------------------------------

    async def test_an_exception_gives_the_run_back(self, stores: Stores) -> None:
        """L2: to be published by the reaper after the backoff; it counts."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)

        committed = await driver.give_back(lease, attention=Attention.EXCEPTION, detail=TRICKY)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        run = await driver.run()
        assert (run.status, run.crashes, run.tries) == (RunStatus.QUEUED, 1, 1)
        assert (run.attention, run.detail) == (Attention.EXCEPTION, TRICKY)
        assert run.fence > lease.fence
        assert (run.sequence, await driver.payload()) == (1, driver.boundary(1).payload)
        (event,) = await driver.events(EventKind.GIVEN_BACK)
        assert event.data == {"reason": "exception", "detail": TRICKY, "wait": PATIENT.retry_backoff}
        assert event.fence == lease.fence

    async def test_a_conflict_counts_no_crash(self, stores: Stores) -> None:
        """C4, C7, I9: this worker cannot, another may; however often, the run is not poisoned."""
        driver = Driver(stores)

        for tries in range(1, 2 * PATIENT.max_crashes):
            committed = await driver.give_back(
                await driver.worker(), Reason.CONFLICT, attention=Attention.REVISION_MISMATCH
            )

            run = await driver.run()
            assert (committed.verdict, committed.ticket) == (Verdict.DONE, None)
            assert (run.status, run.crashes, run.tries) == (RunStatus.QUEUED, 0, tries)
            assert run.attention is Attention.REVISION_MISMATCH

    async def test_the_backoff_doubles_up_to_its_cap(self, stores: Stores) -> None:
        """C4: it is kept in the store, and a new boundary begins it afresh."""
        driver = Driver(stores, policy=_BACKOFF)

        for reason in (Reason.CONFLICT, Reason.EXCEPTION, Reason.CONFLICT):
            await driver.give_back(await driver.worker(), reason)
        run = await driver.run()
        lease = await driver.worker()
        await driver.commit(lease, 1)
        await driver.give_back(lease)

        waits = [event.data["wait"] for event in await driver.events(EventKind.GIVEN_BACK)]
        assert waits == [LONG, 2 * LONG, 3 * LONG, LONG]
        assert (run.expires_at or 0) - run.updated_at == pytest.approx(3 * LONG)

    async def test_a_delay_stands_in_for_the_backoff(self, stores: Stores) -> None:
        """I7: the time at which a probe may be asked again is known."""
        driver = Driver(stores, policy=_BACKOFF)

        await driver.give_back(await driver.worker(), Reason.CONFLICT, delay=SOON)
        await driver.lapse()

        reaped = await driver.reap()
        assert reaped is not None
        assert reaped.dispatch is not None
        assert reaped.dispatch.ticket == (await driver.run()).fence

    async def test_a_drain_gives_the_run_back_at_once(self, stores: Stores) -> None:
        """L2: with the ticket that is to be dispatched; it counts nothing, and says nothing of the run."""
        driver = Driver(stores)
        await driver.give_back(await driver.worker(), attention=Attention.EXCEPTION, detail="it went wrong")
        lease = await driver.worker()

        committed = await driver.give_back(lease, Reason.DRAIN, detail="the worker is leaving")

        run = await driver.run()
        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, run.fence)
        assert (run.status, run.crashes, run.tries) == (RunStatus.QUEUED, 1, 1)
        assert (run.attention, run.detail) == (Attention.EXCEPTION, "it went wrong")
        assert (await driver.events(EventKind.GIVEN_BACK))[-1].data["reason"] == "drain"
        assert committed.ticket is not None
        assert await driver.take(committed.ticket) is not None

    async def test_too_many_exceptions_without_a_boundary_park_the_run(self, stores: Stores) -> None:
        """C3: as poisoned; its frontier is kept, and it is nobody's until somebody queues it again."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.HAND_OVER)

        verdicts = [(await driver.give_back(await driver.worker())).verdict for _ in range(PATIENT.max_crashes)]

        run = await driver.run()
        assert verdicts == [Verdict.DONE, Verdict.DONE, Verdict.PARKED]
        assert (run.status, run.attention, run.holder) == (RunStatus.PARKED, Attention.POISONED, None)
        assert (run.crashes, run.detail) == (PATIENT.max_crashes, "it went wrong")
        assert await driver.payload() == driver.boundary(1).payload
        (event,) = await driver.events(EventKind.PARKED)
        assert event.data == {"attention": "poisoned", "detail": "it went wrong"}
        assert len(await driver.events(EventKind.GIVEN_BACK)) == PATIENT.max_crashes - 1

    # --- park and fail ----------------------------------------------------------------------------------------

    async def test_a_run_is_parked_without_a_boundary(self, stores: Stores) -> None:
        """C5, P3: its stored frontier stays as it is."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        told = (NewEvent("budget", {"left": 0}),)

        committed = await stores.runs.park(lease, attention=Attention.OVER_BUDGET, detail=TRICKY, events=told)

        run = await driver.run()
        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        assert (run.status, run.attention, run.detail) == (RunStatus.PARKED, Attention.OVER_BUDGET, TRICKY)
        assert (run.holder, run.fence, run.parked_on) == (None, lease.fence, ())
        assert (run.sequence, await driver.payload()) == (1, driver.boundary(1).payload)
        said = {"attention": "over_budget", "detail": TRICKY}
        told_now = (await driver.events())[-2:]
        assert [(event.kind, event.data) for event in told_now] == [("budget", {"left": 0}), (EventKind.PARKED, said)]

    async def test_a_run_fails_without_a_boundary(self, stores: Stores) -> None:
        """C5: its frontier is kept, to be carried on once the cause is gone."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        told = (NewEvent("model", {"tries": 3}),)

        committed = await stores.runs.fail(lease, detail=TRICKY, events=told)

        run = await driver.run()
        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        assert (run.status, run.attention, run.detail) == (RunStatus.FAILED, None, TRICKY)
        assert (run.holder, run.fence) == (None, lease.fence)
        assert (run.sequence, await driver.payload()) == (1, driver.boundary(1).payload)
        said = {"detail": TRICKY}
        told_now = (await driver.events())[-2:]
        assert [(event.kind, event.data) for event in told_now] == [("model", {"tries": 3}), (EventKind.FAILED, said)]

    # --- requeue ----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("rest", [Then.PARK, Then.FAIL])
    async def test_a_resting_run_is_queued_again(self, stores: Stores, rest: Then) -> None:
        """C5, L2: under a new ticket, with its counters reset, from the frontier that was kept."""
        driver = Driver(stores)
        await driver.give_back(await driver.worker())
        lease = await driver.worker()
        await driver.commit(lease, 1, rest, attention=Attention.OVER_BUDGET, detail="too dear")

        submitted = await driver.requeue()

        run = await driver.run()
        assert submitted.run == run
        assert (run.status, run.fence) == (RunStatus.QUEUED, submitted.ticket)
        assert run.fence > lease.fence
        assert (run.crashes, run.tries, run.attention, run.detail, run.parked_on) == (0, 0, None, None, ())
        (event,) = await driver.events(EventKind.REQUEUED)
        assert (event.data, event.fence) == ({"by": "ann", "os_user": "op-1"}, run.fence)
        assert submitted.ticket is not None
        taken = await driver.take(submitted.ticket)
        assert taken is not None
        assert taken.payload == driver.boundary(1).payload

    async def test_a_run_that_backs_off_is_queued_again_at_once(self, stores: Stores) -> None:
        """C4, C7, L2: under a new ticket, and its backoff begins anew; its crashes count on."""
        driver = Driver(stores, policy=_BACKOFF)
        await driver.give_back(await driver.worker())
        await driver.give_back(await driver.worker(), Reason.CONFLICT, attention=Attention.REVISION_MISMATCH)
        backing_off = await driver.run()

        submitted = await driver.requeue()

        run = await driver.run()
        assert submitted.run == run
        assert (run.status, run.fence) == (RunStatus.QUEUED, submitted.ticket)
        assert run.fence > backing_off.fence
        assert (run.crashes, run.tries, run.attention, run.detail) == (1, 0, None, None)
        assert (run.expires_at or 0) - run.updated_at == pytest.approx(_BACKOFF.dispatch_grace)
        (event,) = await driver.events(EventKind.REQUEUED)
        assert (event.data, event.fence) == ({"by": "ann", "os_user": "op-1"}, run.fence)
        assert await driver.take(backing_off.fence) is None
        assert await driver.take(run.fence) is not None

    async def test_a_poisoned_run_is_queued_again(self, stores: Stores) -> None:
        """C3: somebody mended what it died of; it may die as often again."""
        driver = Driver(stores)
        for _ in range(PATIENT.max_crashes):
            await driver.give_back(await driver.worker())

        await driver.requeue()
        verdicts = [(await driver.give_back(await driver.worker())).verdict for _ in range(PATIENT.max_crashes)]

        assert verdicts == [Verdict.DONE, Verdict.DONE, Verdict.PARKED]

    @pytest.mark.parametrize(
        ("get_there", "status"),
        [
            (lambda driver, lease: driver.commit(lease, 1, Then.HAND_OVER), RunStatus.QUEUED),
            (lambda driver, lease: driver.commit(lease, 1), RunStatus.RUNNING),
            (lambda driver, lease: driver.commit(lease, 1, Then.COMPLETE), RunStatus.COMPLETED),
            (lambda driver, lease: driver.commit(lease, 1, Then.WAIT_APPROVAL), RunStatus.WAITING_APPROVAL),
        ],
        ids=["queued", "running", "completed", "waiting"],
    )
    async def test_a_run_that_does_not_rest_is_not_queued_again(
        self, stores: Stores, get_there: Callable[[Driver, RunLease], Awaitable[Any]], status: RunStatus
    ) -> None:
        """P1, C5: nor one that waits for what a requeue does not answer, nor one that is done; nothing is written."""
        driver = Driver(stores)
        await get_there(driver, await driver.worker())
        before = await driver.picture()

        with pytest.raises(RunStateError) as refused:
            await driver.requeue()

        assert (refused.value.tenant, refused.value.run_id, refused.value.status) == (TENANT, "run", status)
        assert await driver.picture() == before

    async def test_a_cancelled_run_is_not_queued_again(self, stores: Stores) -> None:
        """P2: it has ended."""
        driver = Driver(stores)
        await driver.submit()
        await driver.cancel()

        with pytest.raises(RunStateError) as refused:
            await driver.requeue()

        assert refused.value.status == RunStatus.CANCELLED

    async def test_a_run_whose_frontier_is_lost_is_not_queued_again(self, stores: Stores) -> None:
        """C3: the older frontier is not current; the error says where it stands, and nothing is written."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        await driver.commit(lease, 2, Then.PARK, stored=False)
        before = await driver.picture()

        with pytest.raises(FrontierLostError) as refused:
            await driver.requeue()

        assert (refused.value.run_id, refused.value.sequence) == ("run", 1)
        assert await driver.picture() == before

    async def test_a_resting_run_that_somebody_holds_is_not_queued_again(self, stores: Stores) -> None:
        """L5: whoever holds its lease is named; once that has lapsed it holds nothing."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        with pytest.raises(RunLeaseError) as refused:
            await driver.requeue()
        await stores.leases.renew(lease, ttl_seconds=SOON)
        await driver.lapse()
        submitted = await driver.requeue()

        assert (refused.value.holder, refused.value.fence) == ("cli", lease.fence)
        assert submitted.ticket is not None
        assert submitted.ticket > lease.fence

    async def test_a_run_that_has_moved_since_it_was_seen_is_left_alone(self, stores: Stores) -> None:
        """P2: whoever chose it from a list meant it as it was there; nothing is written."""
        driver = Driver(stores)
        await driver.park(await driver.worker())
        seen = await driver.run()
        await driver.requeue(seen=seen)
        await driver.park(await driver.worker())
        before = await driver.picture()
        assert before.run is not None
        assert (before.run.status, before.run.attention) == (seen.status, seen.attention)

        for act in (driver.requeue, driver.cancel):
            with pytest.raises(RunStateError) as refused:
                await act(seen=seen)
            assert (refused.value.tenant, refused.value.run_id) == (TENANT, "run")
        assert await driver.picture() == before

        await driver.requeue(seen=before.run)
        await driver.park(await driver.worker())
        assert (await driver.cancel(seen=await driver.run())).status is RunStatus.CANCELLED

    async def test_a_live_run_that_has_gone_on_is_the_one_that_was_seen(self, stores: Stores) -> None:
        """P2: it moves from boundary to boundary by itself; one that was parked meanwhile is another matter."""
        going, parked = Driver(stores, run_id="going"), Driver(stores, run_id="parked")
        for driver in (going, parked):
            await driver.submit()
        seen = {driver.run_id: await driver.run() for driver in (going, parked)}
        await going.commit(await going.worker(), 1, Then.HAND_OVER)
        await going.worker()
        await parked.park(await parked.worker())

        asked = await going.cancel(seen=seen["going"])
        with pytest.raises(RunStateError):
            await parked.cancel(seen=seen["parked"])

        assert (asked.status, asked.cancel_requested) == (RunStatus.RUNNING, True)
        assert (await parked.run()).status is RunStatus.PARKED

    async def test_what_is_not_there_is_not_queued_again(self, stores: Stores) -> None:
        """T1: another tenant's run is not there."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)

        for other in (Driver(stores, run_id="another"), Driver(stores, tenant="other")):
            with pytest.raises(RunNotFoundError) as refused:
                await other.requeue()
            assert (refused.value.tenant, refused.value.run_id) == (other.tenant, other.run_id)

        assert (await driver.run()).status is RunStatus.PARKED

    async def test_of_many_that_queue_a_run_again_one_does(self, stores: Stores) -> None:
        """L7: two people at two terminals."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            await driver.commit(await driver.worker(), 1, Then.PARK)

            answers = await race_in_threads([driver.requeue for _ in range(_RACERS)])

            (won,) = winners(answers, RunStateError)
            assert won.ticket == (await driver.run()).fence
            assert len(await driver.events(EventKind.REQUEUED)) == 1
