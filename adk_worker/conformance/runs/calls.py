"""Claims of a run's calls: begun under the fence, decided by evidence."""

from __future__ import annotations

import pytest

from adk_worker.conformance.runs.driver import BOOKED, REFUSED, TENANT, Driver, left_in_flight
from adk_worker.errors import CallKeyReusedError, ClaimOwnerError, InvalidNameError
from adk_worker.events import EventKind
from adk_worker.idempotency import BY_OWNER, ClaimState, Intent
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Then, Verdict


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

    async def test_a_key_that_comes_twice_at_once_is_one_call(self, stores: Stores) -> None:
        """I1: with another digest it refuses them all."""
        driver = Driver(stores)
        lease = await driver.worker()
        with pytest.raises(CallKeyReusedError):
            await stores.runs.begin(lease, [driver.intent(0), driver.intent(0, seat="12B")], owner=lease.holder)
        assert await driver.claims() == []

        first, second = await driver.begin(lease, 0, 0)

        assert first == second
        assert await driver.claims() == [first]

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
        driver, lease, claim = await left_in_flight(stores)

        settled = await stores.runs.settle(lease, claim, BOOKED, by="probe")

        assert (settled.state, settled.outcome, settled.settled_by) == (ClaimState.SETTLED, BOOKED, "probe")
        assert (settled.owner, await driver.claims()) == (claim.owner, [settled])
        (event,) = await driver.events(EventKind.SETTLED)
        assert (event.data, event.fence) == ({"key": claim.key, "by": "probe"}, lease.fence)

    async def test_a_claim_that_moved_on_is_not_settled(self, stores: Stores) -> None:
        """I7, F4: the answer is what stands, which may be another's settlement, or another's claim."""
        driver, lease, claim = await left_in_flight(stores)
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
        driver, lease, claim = await left_in_flight(stores)

        (noted,) = await stores.runs.note_dead(lease, [claim])
        (again,) = await stores.runs.note_dead(lease, [noted])

        assert noted.dead_seen_at is not None
        assert noted.dead_seen_at >= (claim.began_at or 0)
        assert again == noted
        assert await driver.claims() == [noted]
        assert list(await stores.runs.note_dead(lease, [])) == []

    async def test_an_absent_claim_has_no_owner_to_be_dead(self, stores: Stores) -> None:
        """I11, F1: nothing is noted of the others either."""
        driver, lease, claim = await left_in_flight(stores)
        (other,) = await driver.begin(lease, 1)
        await stores.idempotency.abandon(other)
        before = await driver.picture()

        with pytest.raises(ClaimOwnerError) as refused:
            await stores.runs.note_dead(lease, [claim, other])

        assert refused.value.key == other.key
        assert await driver.picture() == before

    async def test_the_death_of_an_owner_says_nothing_of_the_next(self, stores: Stores) -> None:
        """I7: a claim that moved on is left alone, and a take-over begins afresh."""
        driver, lease, claim = await left_in_flight(stores)
        (noted,) = await stores.runs.note_dead(lease, [claim])
        taken = await stores.idempotency.take_over(noted, lease.holder)

        (stands,) = await stores.runs.note_dead(lease, [claim])

        assert taken.dead_seen_at is None
        assert stands == taken
        assert await driver.claims() == [taken]
