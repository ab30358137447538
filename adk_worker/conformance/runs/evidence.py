"""Runs that are parked on calls, and the outcomes that come in late."""

from __future__ import annotations

from functools import partial

import pytest

from adk_worker.conformance.runs.driver import BOOKED, REFUSED, Driver, left_in_flight
from adk_worker.conformance.waiting import LONG, Racer, race_in_threads, winners
from adk_worker.errors import ClaimOwnerError, StaleFenceError
from adk_worker.events import EventKind
from adk_worker.idempotency import BY_OWNER, ClaimState
from adk_worker.runs import Committed, RunStatus, Stores
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, Verdict

_RUNS = 10


class EvidenceConformance:
    """F4: what is known later is not lost, and carries the run on."""

    async def test_a_run_is_parked_on_calls_that_nobody_can_decide(self, stores: Stores) -> None:
        """I5: it says on which."""
        driver, lease, claim = await left_in_flight(stores)

        committed = await driver.park(lease, claim)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        run = await driver.run()
        assert (run.status, run.attention, run.parked_on) == (
            RunStatus.PARKED,
            Attention.UNDECIDED_CALL,
            (claim.key,),
        )
        assert (run.detail, run.holder, run.fence) == ("somebody has to look", None, lease.fence)
        (event,) = await driver.events(EventKind.PARKED)
        assert event.data == {"attention": "undecided_call", "detail": "somebody has to look"}
        assert event.fence == lease.fence

    @pytest.mark.parametrize("how", ["recorded", "settled", "taken over", "abandoned"])
    async def test_a_run_is_not_parked_on_a_call_that_was_decided(self, stores: Stores, how: str) -> None:
        """I5, F4: between the plan and the park; nothing is written, and the lease is kept to plan again."""
        driver, lease, claim = await left_in_flight(stores)
        (other,) = await driver.begin(lease, 1)
        match how:
            case "recorded":
                await stores.idempotency.record(claim, BOOKED)
            case "settled":
                await stores.runs.settle(lease, claim, BOOKED, by="probe")
            case "taken over":
                await stores.idempotency.take_over(claim, "somebody")
            case _:
                await stores.idempotency.abandon(claim)
        before = await driver.picture()

        committed = await driver.park(lease, other, claim)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.REFUSED, lease, None)
        assert await driver.picture() == before

    async def test_a_late_outcome_heals_the_run_that_waits_for_it(self, stores: Stores) -> None:
        """F4: settles the call and queues the run, lapsed at once: its bringer may have no broker."""
        driver, lease, claim = await left_in_flight(stores)
        await driver.park(lease, claim)

        await stores.idempotency.record(claim, BOOKED)

        run = await driver.run()
        assert (run.status, run.attention, run.detail, run.parked_on) == (RunStatus.QUEUED, None, None, ())
        assert run.fence > lease.fence
        assert (run.crashes, run.tries) == (0, 0)
        assert (await driver.claims())[0].outcome == BOOKED
        (event,) = await driver.events(EventKind.HEALED)
        assert event.data == {"key": claim.key}
        reaped = await driver.reap()
        assert reaped is not None
        assert (reaped.was, reaped.verdict) == (Holding.QUEUE, Verdict.DONE)
        assert reaped.dispatch is not None
        assert reaped.dispatch.ticket == run.fence

    async def test_an_intent_that_is_taken_back_heals_the_run_that_waits_for_it(self, stores: Stores) -> None:
        """F4, I3: its owner says that the call never ran, so the next plan may make it."""
        driver, lease, claim = await left_in_flight(stores)
        await driver.park(lease, claim)

        await stores.idempotency.abandon(claim)

        assert (await driver.run()).status is RunStatus.QUEUED
        assert (await driver.begin(await driver.worker(), 0))[0].owner != claim.owner

    async def test_an_intent_that_its_former_owner_has_again_heals_nothing(self, stores: Stores) -> None:
        """I4: that one may have dispatched."""
        driver, lease, claim = await left_in_flight(stores)
        taken = await stores.idempotency.take_over(claim, "two")
        await driver.park(lease, taken)

        await stores.idempotency.abandon(taken)

        assert (await driver.run()).status is RunStatus.PARKED

    async def test_one_of_several_undecided_calls_heals_the_run(self, stores: Stores) -> None:
        """F4: the plan is made again, and finds what is left."""
        driver, lease, first = await left_in_flight(stores)
        (second,) = await driver.begin(lease, 1)
        await driver.park(lease, first, second)

        await stores.idempotency.record(second, BOOKED)

        assert (await driver.run()).status is RunStatus.QUEUED
        assert [claim.state for claim in await driver.claims()] == [ClaimState.IN_FLIGHT, ClaimState.SETTLED]

    async def test_a_late_outcome_heals_the_run_whoever_holds_it(self, stores: Stores) -> None:
        """F4: somebody at a terminal has the parked run's lease; they lose it, for the outcome comes but once."""
        driver, lease, claim = await left_in_flight(stores)
        await driver.park(lease, claim)
        held = await stores.leases.acquire("run", tenant=driver.tenant, holder="cli", ttl_seconds=LONG)

        await stores.idempotency.record(claim, BOOKED)

        run = await driver.run()
        assert (run.status, run.parked_on) == (RunStatus.QUEUED, ())
        assert run.fence > held.fence
        with pytest.raises(StaleFenceError):
            await stores.leases.renew(held, ttl_seconds=LONG)

    async def test_a_marked_run_is_left_with_its_lost_frontier(self, stores: Stores) -> None:
        """C3, F4: the call that it was parked on is decided, and it must not be carried on all the same."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        (claim,) = await driver.begin(lease, 0, ahead=True)
        await driver.park(lease, claim)

        await stores.idempotency.record(claim, BOOKED)

        run = await driver.run()
        assert (run.status, run.attention, run.parked_on) == (RunStatus.PARKED, Attention.FRONTIER_LOST, ())
        assert "sequence 1" in (run.detail or "")
        assert (await driver.claims())[0].outcome == BOOKED
        assert [event.kind for event in await driver.events()][-1] == EventKind.PARKED

    async def test_the_outcome_of_another_call_heals_nothing(self, stores: Stores) -> None:
        """F4: nor does one that comes while the run is parked for another reason."""
        driver, lease, claim = await left_in_flight(stores)
        (other,) = await driver.begin(lease, 1)
        await driver.park(lease, claim)
        before = await driver.run()

        await stores.idempotency.record(other, BOOKED)

        assert await driver.run() == before
        assert (await driver.claims())[1].outcome == BOOKED

    async def test_an_outcome_after_the_settlement_is_evidence(self, stores: Stores) -> None:
        """F4: it overwrites nothing and queues nothing; it is told once."""
        driver, lease, claim = await left_in_flight(stores)
        await stores.runs.settle(lease, claim, REFUSED, by="probe")
        await driver.park(lease)
        before = await driver.run()

        await stores.idempotency.record(claim, BOOKED)
        await stores.idempotency.record(claim, BOOKED)

        (kept,) = await driver.claims()
        assert (kept.outcome, kept.settled_by, kept.late) == (REFUSED, "probe", (BOOKED,))
        assert (await driver.run()).status is before.status
        assert [event.data for event in await driver.events(EventKind.LATE_OUTCOME)] == [{"key": claim.key}]

    async def test_a_superseded_workers_outcome_is_recorded(self, stores: Stores) -> None:
        """F4: its lease is not asked for; whoever carries the run on finds it, and keeps the lease."""
        driver, lease, claim = await left_in_flight(stores)

        await stores.idempotency.record(claim, BOOKED)

        assert (await driver.begin(lease, 0))[0].outcome == BOOKED
        assert await driver.held() == lease

    async def test_no_run_stays_parked_on_a_call_that_was_decided(self, stores: Stores) -> None:
        """F4: whichever comes first, the park or the outcome, the run goes on."""
        for number in range(_RUNS):
            driver, lease, claim = await left_in_flight(stores, run_id=f"run-{number}")

            racers: list[Racer] = [
                partial(driver.park, lease, claim),
                partial(stores.idempotency.record, claim, BOOKED),
            ]
            parked, recorded = await race_in_threads(racers)

            assert recorded is None
            assert isinstance(parked, Committed)
            status = RunStatus.QUEUED if parked.verdict is Verdict.DONE else RunStatus.RUNNING
            run = await driver.run()
            assert (run.status, run.parked_on) == (status, ())

    async def test_of_two_settlements_one_stands(self, stores: Stores) -> None:
        """I3, I7: a probe's and the owner's, at once: the other is evidence, or sees what stands."""
        for number in range(_RUNS):
            driver, lease, claim = await left_in_flight(stores, run_id=f"run-{number}")

            racers: list[Racer] = [
                partial(stores.runs.settle, lease, claim, REFUSED, by="probe"),
                partial(stores.idempotency.record, claim, BOOKED),
            ]
            answers = await race_in_threads(racers)

            winners(answers, ClaimOwnerError)
            (stands,) = await driver.claims()
            if stands.settled_by == BY_OWNER:
                assert (stands.outcome, stands.late) == (BOOKED, ())
            else:
                assert (stands.outcome, stands.late) == (REFUSED, (BOOKED,))
