"""Claims of a run's calls: begun under the fence, decided by evidence."""

from __future__ import annotations

from functools import partial

import pytest

from adk_worker.conformance.runs.driver import BOOKED, REFUSED, TENANT, Driver
from adk_worker.conformance.waiting import Racer, race_in_threads, winners
from adk_worker.errors import CallKeyReusedError, ClaimOwnerError, InvalidNameError
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Intent
from adk_worker.lease import RunLease
from adk_worker.runs import Committed, EventKind, RunStatus, Stores
from adk_worker.transitions import Attention, Holding, Then, Verdict

_RUNS = 10


class CallsConformance:
    """What ran."""

    async def test_intents_are_recorded_in_one_write(self, stores: Stores) -> None:
        """I2: under the owner and the fence, in the order in which they were asked for."""
        driver = Driver(stores)
        lease = await driver.worker()
        intents = [driver.intent(index) for index in (2, 0, 1)]

        committed, claims = await stores.runs.begin(lease, intents, owner=lease.holder)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, lease, None)
        assert [claim.key for claim in claims] == [intent.key for intent in intents]
        for claim in claims:
            assert claim.owned_in_flight_by(lease.holder)
            assert (claim.tenant, claim.tool, claim.fence) == (TENANT, "book", lease.fence)
            assert claim.began_at is not None
        assert await driver.claims() == list(claims)
        assert await stores.idempotency.peek([intents[0].key], tenant=TENANT) == {intents[0].key: claims[0]}
        assert not (await driver.run()).behind

    async def test_beginning_again_finds_the_claims(self, stores: Stores) -> None:
        """F5: after an answer that was lost; what was settled meanwhile is found as such."""
        driver = Driver(stores)
        lease = await driver.worker()
        first, second = await driver.begin(lease, 0, 1)
        await stores.idempotency.record(first, BOOKED)

        again = await driver.begin(lease, 0, 1)

        assert (again[0].state, again[0].outcome) == (ClaimState.SETTLED, BOOKED)
        assert again[1] == second

    async def test_a_dead_workers_claim_is_not_its_successors(self, stores: Stores) -> None:
        """I4, I3: a lapsed lease is no proof that the call did not happen."""
        driver = Driver(stores)
        dead = await driver.dead_worker()
        claims = await driver.begin(dead, 0)
        await driver.reap()

        found = await driver.begin(await driver.worker(), 0)

        assert found == claims
        assert found[0].owner == dead.holder

    async def test_one_reused_key_refuses_all_intents(self, stores: Stores) -> None:
        """I1: nothing is begun, and no mark is set."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.begin(lease, 0)
        before = await driver.picture()

        with pytest.raises(CallKeyReusedError) as refused:
            await stores.runs.begin(
                lease, [driver.intent(1), driver.intent(0, seat="12B")], owner=lease.holder, ahead=True
            )

        assert refused.value.key == driver.intent(0).key
        assert await driver.picture() == before

    async def test_an_intent_takes_over_from_the_owner_that_the_plan_has_seen(self, stores: Stores) -> None:
        """I7: from no other; and asking again finds it taken."""
        driver = Driver(stores)
        dead = await driver.dead_worker()
        await driver.begin(dead, 0, 1)
        await driver.reap()
        lease = await driver.worker()
        intents = [driver.intent(0, take_over=dead.holder), driver.intent(1, take_over="somebody")]

        for _ in range(2):
            _, (taken, left) = await stores.runs.begin(lease, intents, owner=lease.holder)

            assert taken.owned_in_flight_by(lease.holder)
            assert (taken.former, taken.fence) == ((dead.holder,), lease.fence)
            assert left.owned_in_flight_by(dead.holder)

    async def test_the_claims_of_a_run_are_its_own(self, stores: Stores) -> None:
        """T1, I2: and outlive it; those of another run, or of a lone begin, are not among them."""
        driver, other = Driver(stores), Driver(stores, run_id="other")
        lease = await driver.worker()
        claims = await driver.begin(lease, 0)
        await other.begin(await other.worker(), 0)
        await stores.idempotency.begin("lone", tenant=TENANT, owner="one", digest="d")

        await driver.commit(lease, 1, Then.COMPLETE, settled=[(claims[0], BOOKED)])

        (kept,) = await driver.claims()
        assert (kept.key, kept.outcome) == (claims[0].key, BOOKED)

    async def test_an_abandoned_intent_is_gone_from_the_run(self, stores: Stores) -> None:
        """I3: its owner never dispatched."""
        driver = Driver(stores)
        first, second = await driver.begin(await driver.worker(), 0, 1)

        await stores.idempotency.abandon(first)

        assert await driver.claims() == [second]

    @pytest.mark.parametrize("name", ["", "a\x00b", "x" * 513], ids=repr)
    async def test_what_is_no_key_and_no_owner_is_refused(self, stores: Stores, name: str) -> None:
        """T1: before anything is written."""
        driver = Driver(stores)
        lease = await driver.worker()

        with pytest.raises(InvalidNameError):
            await stores.runs.begin(lease, [driver.intent(), Intent(name, "d")], owner=lease.holder)
        with pytest.raises(InvalidNameError):
            await stores.runs.begin(lease, [driver.intent()], owner=name)

        assert await driver.claims() == []

    # --- the mark ---------------------------------------------------------------------------------------------

    async def test_a_worker_that_is_ahead_marks_the_run_as_it_begins(self, stores: Stores) -> None:
        """C3: no mark, no dispatch; it stays until the next stored frontier."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)

        await driver.begin(lease, 0, ahead=True)
        await driver.begin(lease, 1)
        marked = await driver.run(), await driver.frontier_lost()
        await driver.commit(lease, 2)

        assert (marked[0].behind, marked[1]) == (True, True)
        assert ((await driver.run()).behind, await driver.frontier_lost()) == (False, False)

    async def test_a_marked_run_whose_worker_dies_is_parked(self, stores: Stores) -> None:
        """C3: it is not resumed from the frontier before the calls that were made."""
        driver = Driver(stores)
        lease = await driver.dead_worker()
        await driver.commit(lease, 1)
        await driver.begin(lease, 0, ahead=True)

        reaped = await driver.reap()

        assert reaped is not None
        assert (reaped.verdict, reaped.dispatch) == (Verdict.PARKED, None)
        run = await driver.run()
        assert (run.status, run.attention, run.holder) == (RunStatus.PARKED, Attention.FRONTIER_LOST, None)
        assert run.detail
        assert await driver.payload() == driver.boundary(1).payload

    async def test_a_marked_run_whose_worker_let_it_go_is_parked(self, stores: Stores) -> None:
        """C3, L10: in the queue's hands too."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.begin(lease, 0, ahead=True)
        await stores.leases.release(lease)

        reaped = await driver.reap()

        assert reaped is not None
        assert (reaped.verdict, reaped.dispatch) == (Verdict.PARKED, None)
        assert (await driver.run()).attention is Attention.FRONTIER_LOST

    # --- probes -----------------------------------------------------------------------------------------------

    async def test_a_probes_answer_settles_anothers_claim(self, stores: Stores) -> None:
        """I7: who decided it is kept, and told."""
        driver, lease, claim = await self._left_in_flight(stores)

        settled = await stores.runs.settle(lease, claim, BOOKED, by="probe")

        assert (settled.state, settled.outcome, settled.settled_by) == (ClaimState.SETTLED, BOOKED, "probe")
        assert (settled.owner, await driver.claims()) == (claim.owner, [settled])
        (event,) = await driver.events(EventKind.SETTLED)
        assert (event.data, event.fence) == ({"key": claim.key, "by": "probe"}, lease.fence)

    async def test_a_claim_that_moved_on_is_not_settled(self, stores: Stores) -> None:
        """I7, F4: the answer is what stands, which may be another's settlement, or another's claim."""
        driver, lease, claim = await self._left_in_flight(stores)
        await stores.idempotency.record(claim, REFUSED)
        before = await driver.picture()

        stands = await stores.runs.settle(lease, claim, BOOKED, by="probe")

        assert (stands.outcome, stands.settled_by) == (REFUSED, BY_OWNER)
        assert await driver.picture() == before
        (other,) = await driver.begin(lease, 1)
        taken = await stores.idempotency.take_over(other, "somebody")
        assert await stores.runs.settle(lease, other, BOOKED, by="probe") == taken
        await stores.idempotency.abandon(taken)
        await stores.idempotency.abandon(other)
        with pytest.raises(ClaimOwnerError):
            await stores.runs.settle(lease, other, BOOKED, by="probe")

    async def test_the_time_of_death_is_noted_once(self, stores: Stores) -> None:
        """I7, I11: "not yet" is counted from the first time, not from the last."""
        driver, lease, claim = await self._left_in_flight(stores)

        (noted,) = await stores.runs.note_dead(lease, [claim])
        (again,) = await stores.runs.note_dead(lease, [noted])

        assert noted.dead_seen_at is not None
        assert noted.dead_seen_at >= (claim.began_at or 0)
        assert again == noted
        assert await driver.claims() == [noted]
        assert list(await stores.runs.note_dead(lease, [])) == []

    async def test_the_death_of_an_owner_says_nothing_of_the_next(self, stores: Stores) -> None:
        """I7: a claim that moved on is left alone, and a take-over begins afresh."""
        driver, lease, claim = await self._left_in_flight(stores)
        (noted,) = await stores.runs.note_dead(lease, [claim])
        taken = await stores.idempotency.take_over(noted, lease.holder)

        (stands,) = await stores.runs.note_dead(lease, [claim])

        assert taken.dead_seen_at is None
        assert stands == taken
        assert await driver.claims() == [taken]

    # --- parked on a call -------------------------------------------------------------------------------------

    async def test_a_run_is_parked_on_calls_that_nobody_can_decide(self, stores: Stores) -> None:
        """I5: it says on which."""
        driver, lease, claim = await self._left_in_flight(stores)

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
        driver, lease, claim = await self._left_in_flight(stores)
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
        driver, lease, claim = await self._left_in_flight(stores)
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
        driver, lease, claim = await self._left_in_flight(stores)
        await driver.park(lease, claim)

        await stores.idempotency.abandon(claim)

        assert (await driver.run()).status is RunStatus.QUEUED
        assert (await driver.begin(await driver.worker(), 0))[0].owner != claim.owner

    async def test_an_intent_that_its_former_owner_has_again_heals_nothing(self, stores: Stores) -> None:
        """I4: that one may have dispatched."""
        driver, lease, claim = await self._left_in_flight(stores)
        taken = await stores.idempotency.take_over(claim, "two")
        await driver.park(lease, taken)

        await stores.idempotency.abandon(taken)

        assert (await driver.run()).status is RunStatus.PARKED

    async def test_one_of_several_undecided_calls_heals_the_run(self, stores: Stores) -> None:
        """F4: the plan is made again, and finds what is left."""
        driver, lease, first = await self._left_in_flight(stores)
        (second,) = await driver.begin(lease, 1)
        await driver.park(lease, first, second)

        await stores.idempotency.record(second, BOOKED)

        assert (await driver.run()).status is RunStatus.QUEUED
        assert [claim.state for claim in await driver.claims()] == [ClaimState.IN_FLIGHT, ClaimState.SETTLED]

    async def test_the_outcome_of_another_call_heals_nothing(self, stores: Stores) -> None:
        """F4: nor does one that comes while the run is parked for another reason."""
        driver, lease, claim = await self._left_in_flight(stores)
        (other,) = await driver.begin(lease, 1)
        await driver.park(lease, claim)
        before = await driver.run()

        await stores.idempotency.record(other, BOOKED)

        assert await driver.run() == before
        assert (await driver.claims())[1].outcome == BOOKED

    async def test_an_outcome_after_the_settlement_is_evidence(self, stores: Stores) -> None:
        """F4: it overwrites nothing and queues nothing; it is told once."""
        driver, lease, claim = await self._left_in_flight(stores)
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
        driver, lease, claim = await self._left_in_flight(stores)

        await stores.idempotency.record(claim, BOOKED)

        assert (await driver.begin(lease, 0))[0].outcome == BOOKED
        assert await driver.held() == lease

    async def test_no_run_stays_parked_on_a_call_that_was_decided(self, stores: Stores) -> None:
        """F4: whichever comes first, the park or the outcome, the run goes on."""
        for number in range(_RUNS):
            driver, lease, claim = await self._left_in_flight(stores, run_id=f"run-{number}")

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
            driver, lease, claim = await self._left_in_flight(stores, run_id=f"run-{number}")

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

    @staticmethod
    async def _left_in_flight(stores: Stores, run_id: str = "run") -> tuple[Driver, RunLease, Claim]:
        """A run whose first worker died with a call in flight: the driver, the next worker's lease, the claim."""
        driver = Driver(stores, run_id=run_id)
        dead = await driver.dead_worker()
        (claim,) = await driver.begin(dead, 0)
        await driver.reap()
        return driver, await driver.worker(), claim
