"""Calls that a person decides, when neither their owners nor their far sides can tell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from adk_worker.actors import Actor
from adk_worker.conformance.runs.driver import ANN, BOOKED, REFUSED, Driver, left_in_flight
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import CallDecidedError, CallStateError, RunNotFoundError, RunStateError
from adk_worker.events import EventKind
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Decision
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import RunStatus, Stores
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions.runs import Attention, Reason, Then

BOB = Actor("bob", "op-2")
WHY = "the airline has it in its list"


def completed(by: Actor = ANN, outcome: ToolOutcome = BOOKED) -> Settlement:
    """A person says what the call returned."""
    return Settlement(by, WHY, outcome)


def never_ran(by: Actor = ANN, *, owner_may_live: bool = True) -> Settlement:
    """A person says that the call never ran, and that nothing of it is under way."""
    return Settlement(by, WHY, owner_may_live=owner_may_live)


async def decide(driver: Driver, claim: Claim, asked: Settlement) -> Settled:
    """Decide as a person does."""
    return await driver.runs.decide(driver.run_id, tenant=driver.tenant, claim=claim, asked=asked, policy=driver.policy)


async def parked_on(stores: Stores, run_id: str = "run", *, count: int = 1) -> tuple[Driver, list[Claim]]:
    """A run that is parked on calls of its first worker, which died: the driver, and their claims."""
    driver = Driver(stores, run_id=run_id)
    dead = await driver.dead_worker()
    claims = await driver.begin(dead, *range(count))
    await driver.reap()
    await driver.park(await driver.worker(), *claims)
    return driver, claims


async def begin(driver: Driver, take_over: str | None) -> Claim:
    """The claim that stands after the next worker begins the call in place of an owner that it has seen."""
    lease = await driver.worker()
    intent = driver.intent(take_over=take_over)
    _, (claim,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
    return claim


async def _held(stores: Stores) -> tuple[Driver, Claim]:
    driver, _, claim = await left_in_flight(stores)
    return driver, claim


async def _handed_over(stores: Stores) -> tuple[Driver, Claim]:
    driver, lease, claim = await left_in_flight(stores)
    await driver.commit(lease, 1, Then.HAND_OVER)
    return driver, claim


async def _backing_off(stores: Stores) -> tuple[Driver, Claim]:
    driver, lease, claim = await left_in_flight(stores)
    await driver.give_back(lease)
    return driver, claim


class DecidingConformance:
    """I8: one write, by one person, with who, when and why; and F4 beside it."""

    async def test_a_person_says_what_a_call_returned(self, stores: Stores) -> None:
        """I8, P5: kept with who, when, why and through which user; the same write queues the run again."""
        driver, (claim,) = await parked_on(stores)
        before = await driver.run()

        settled = await decide(driver, claim, completed())

        (kept,) = await driver.claims()
        (decision,) = kept.decisions
        assert decision == Decision("ann", "op-1", decision.at, WHY, claim.owner, BOOKED)
        assert decision.at >= (claim.began_at or 0)
        assert kept == replace(
            claim, state=ClaimState.SETTLED, outcome=BOOKED, settled_by="person:ann", decisions=(decision,)
        )
        run = await driver.run()
        assert (run.status, run.attention, run.detail, run.parked_on) == (RunStatus.QUEUED, None, None, ())
        assert run.fence > before.fence
        assert settled == Settled(kept, run, run.fence)
        assert (await driver.begin(await driver.worker(), 0))[0].outcome == BOOKED

    async def test_what_a_person_did_is_told(self, stores: Stores) -> None:
        """I8, P5."""
        driver, (claim,) = await parked_on(stores)

        await decide(driver, claim, never_ran())

        (event,) = await driver.events(EventKind.DECIDED)
        assert event.data == {
            "key": claim.key,
            "tool": "book",
            "how": "never_ran",
            "why": WHY,
            "owner_may_live": True,
            "by": "ann",
            "os_user": "op-1",
        }
        assert [event.data for event in await driver.events(EventKind.REQUEUED)] == [{"by": "ann", "os_user": "op-1"}]

    async def test_a_call_that_never_ran_is_made_under_the_same_key(self, stores: Stores) -> None:
        """I8, I1, I3: by whoever names the owner that was decided about, and by nobody else."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())

        lease = await driver.worker()
        answers = []
        for number, seen in enumerate([None, "somebody", claim.owner, claim.owner]):
            intent = driver.intent(take_over=seen)
            _, (stands,) = await driver.runs.begin(lease, [intent], owner=f"{lease.holder}-{number}")
            answers.append(stands.owned_in_flight_by(f"{lease.holder}-{number}"))

        assert answers == [False, False, True, False]
        (kept,) = await driver.claims()
        assert (kept.former, kept.fence, kept.dead_seen_at) == ((claim.owner,), lease.fence, None)
        assert [decision.by for decision in kept.decisions] == ["ann"]

    @pytest.mark.parametrize(
        ("dead", "longest", "known", "allowed"),
        [
            (False, None, None, False),
            (False, 0.0, None, False),
            (True, None, None, False),
            (True, LONG, None, False),
            (True, 0.0, None, True),
            (True, None, 0.0, True),
            (True, LONG, 0.0, False),
        ],
    )
    async def test_never_ran_needs_a_proof_that_nothing_is_under_way(
        self, stores: Stores, *, dead: bool, longest: float | None, known: float | None, allowed: bool
    ) -> None:
        """I8, I11: the owner's death, and as long as a request may outlive it; or the person's own word."""
        driver = Driver(stores)
        lease = await driver.dead_worker()
        intent = replace(driver.intent(), max_in_flight=longest)
        _, (claim,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
        await driver.reap()
        await driver.park(await driver.worker(), claim)
        before = await driver.picture()
        asked = replace(never_ran(owner_may_live=False), owner_dead=dead, max_in_flight=known)

        settled = await decide(driver, claim, asked)

        assert (settled.refused is None) is allowed
        after = await driver.picture()
        if not allowed:
            assert (settled.ticket, after.run, after.events) == (None, before.run, before.events)
            assert settled.claim.in_flight
        # That the owner is dead is kept all the same: the time runs from when it was first seen.
        assert ((await driver.claims())[0].dead_seen_at is not None) is dead
        insisting = await decide(driver, settled.claim, never_ran()) if not allowed else settled
        assert insisting.claim.state is ClaimState.NEVER_RAN

    async def test_a_death_that_is_on_record_counts(self, stores: Stores) -> None:
        """I8, I11: whoever asks need not be where the owner died."""
        driver = Driver(stores)
        dead = await driver.dead_worker()
        intent = replace(driver.intent(), max_in_flight=0.0)
        _, (claim,) = await driver.runs.begin(dead, [intent], owner=dead.holder)
        await driver.reap()
        lease = await driver.worker()
        await driver.runs.note_dead(lease, [claim])
        await driver.park(lease, claim)

        settled = await decide(driver, claim, never_ran(owner_may_live=False))

        assert (settled.refused, settled.claim.state) == (None, ClaimState.NEVER_RAN)

    async def test_the_last_of_several_calls_queues_the_run(self, stores: Stores) -> None:
        """I8: until then it stays parked, on what is left."""
        driver, claims = await parked_on(stores, count=3)
        first, second, third = claims

        answers = [await decide(driver, second, completed())]
        run = await driver.run()
        answers.append(await decide(driver, first, never_ran(BOB)))
        left = (await driver.run()).parked_on
        answers.append(await decide(driver, third, completed()))

        assert (run.status, run.attention, run.parked_on) == (
            RunStatus.PARKED,
            Attention.UNDECIDED_CALL,
            (first.key, third.key),
        )
        assert left == (third.key,)
        run = await driver.run()
        assert run.status is RunStatus.QUEUED
        assert [answer.ticket for answer in answers] == [None, None, run.fence]
        assert len(await driver.events(EventKind.DECIDED)) == 3
        assert [event.data["by"] for event in await driver.events(EventKind.REQUEUED)] == ["ann"]

    async def test_a_marked_run_is_decided_and_not_queued(self, stores: Stores) -> None:
        """I8, C3: its stored frontier is behind what ran."""
        driver = Driver(stores)
        dead = await driver.dead_worker()
        (claim,) = await driver.begin(dead, 0, ahead=True)
        await driver.park(dead, claim)

        settled = await decide(driver, claim, completed())

        run = await driver.run()
        assert (run.status, run.attention, run.parked_on) == (RunStatus.PARKED, Attention.FRONTIER_LOST, ())
        assert (settled.ticket, settled.claim.outcome) == (None, BOOKED)

    # --- refusals ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("first", [completed(), never_ran()], ids=["completed", "never ran"])
    async def test_a_second_decision_hears_of_the_first(self, stores: Stores, first: Settlement) -> None:
        """I8: who, when, how; and nothing is written."""
        driver, (claim,) = await parked_on(stores)
        (decision,) = (await decide(driver, claim, first)).claim.decisions
        before = await driver.picture()

        for asked in (completed(BOB), never_ran(BOB)):
            with pytest.raises(CallDecidedError) as refused:
                await decide(driver, claim, asked)
            told = refused.value
            assert (told.key, told.tool, told.by, told.at) == (claim.key, "book", "person:ann", decision.at)
            assert told.how == ("never ran" if first.outcome is None else "returned")

        assert await driver.picture() == before

    async def test_a_decision_after_the_owners_outcome_hears_of_that(self, stores: Stores) -> None:
        """I8, F4."""
        driver, (claim,) = await parked_on(stores)
        await stores.idempotency.record(claim, REFUSED)
        before = await driver.picture()

        with pytest.raises(CallDecidedError) as refused:
            await decide(driver, claim, completed())

        assert (refused.value.how, refused.value.by, refused.value.at) == ("failed", BY_OWNER, None)
        assert await driver.picture() == before

    @pytest.mark.parametrize("asked", [completed(), never_ran()], ids=["completed", "never ran"])
    async def test_the_same_decision_again_finds_it_done(self, stores: Stores, asked: Settlement) -> None:
        """F5: an answer may be lost. The run is queued once."""
        driver, (claim,) = await parked_on(stores)
        first = await decide(driver, claim, asked)
        before = await driver.picture()

        again = await decide(driver, claim, asked)

        assert (again.claim, again.ticket) == (first.claim, first.ticket)
        assert await driver.picture() == before

    async def test_a_call_that_was_never_begun_is_not_decided(self, stores: Stores) -> None:
        """I8, I2: nothing of it was sent, and the next plan makes it."""
        driver, (claim,) = await parked_on(stores)
        await stores.idempotency.abandon(claim)
        before = await driver.picture()

        with pytest.raises(CallStateError) as refused:
            await decide(driver, claim, completed())

        assert (refused.value.key, refused.value.state) == (claim.key, "not in flight")
        assert await driver.picture() == before

    async def test_a_claim_that_has_moved_on_is_not_decided(self, stores: Stores) -> None:
        """I8: what the person has seen of it is about another owner."""
        driver, (claim,) = await parked_on(stores)
        await stores.idempotency.take_over(claim, "somebody")
        before = await driver.picture()

        with pytest.raises(CallStateError):
            await decide(driver, claim, completed())

        assert await driver.picture() == before

    @pytest.mark.parametrize("where", [_held, _handed_over, _backing_off], ids=["held", "queued", "backing off"])
    async def test_a_run_that_is_carried_on_is_not_a_persons_to_decide(
        self, stores: Stores, where: Callable[[Stores], Awaitable[tuple[Driver, Claim]]]
    ) -> None:
        """I7, I8: probes come before people."""
        driver, claim = await where(stores)
        before = await driver.picture()

        for asked in (completed(), never_ran()):
            with pytest.raises(RunStateError) as refused:
                await decide(driver, claim, asked)
            assert refused.value.status == (await driver.run()).status

        assert await driver.picture() == before

    async def test_a_run_that_waits_to_ask_again_is_taken_up_at_once(self, stores: Stores) -> None:
        """I8, I7: it backs off for as long as a request may be under way, and a person knows already."""
        driver, lease, claim = await left_in_flight(stores)
        await driver.give_back(lease, Reason.CONFLICT, attention=Attention.UNDECIDED_CALL, delay=LONG)
        before = await driver.run()

        settled = await decide(driver, claim, completed())

        run = await driver.run()
        assert (run.status, run.attention) == (RunStatus.QUEUED, None)
        assert run.fence > before.fence
        assert settled.ticket == run.fence

    async def test_there_is_nothing_to_decide_of_no_run(self, stores: Stores) -> None:
        """I8, T1: of another tenant's neither; both are told the same."""
        driver, (claim,) = await parked_on(stores)
        before = await driver.picture()

        for other in (Driver(stores, run_id="other"), Driver(stores, tenant="umbrella")):
            with pytest.raises(RunNotFoundError):
                await decide(other, replace(claim, tenant=other.tenant), completed())

        assert await driver.picture() == before

    async def test_a_run_decides_nothing_of_another(self, stores: Stores) -> None:
        """I8, T1: the key is of a call of another run."""
        driver, (claim,) = await parked_on(stores)
        other, _ = await parked_on(stores, run_id="other")
        before = [await one.picture() for one in (driver, other)]

        with pytest.raises((CallStateError, ValueError)):
            await decide(other, claim, completed())

        assert [await one.picture() for one in (driver, other)] == before

    # --- runs that are over -----------------------------------------------------------------------------------

    async def test_the_last_decision_lets_a_cancelled_runs_frontier_go(self, stores: Stores) -> None:
        """P2, I8: nothing of it is undecided any more; it stays cancelled."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        first, second = await driver.begin(lease, 0, 1)
        await driver.cancel()
        await driver.give_back(lease)

        settled = await decide(driver, first, completed())
        kept = await driver.payload()
        await decide(driver, second, never_ran())

        assert settled.ticket is None
        assert kept == driver.boundary(1).payload
        assert await driver.payload() is None
        assert (await driver.run()).status is RunStatus.CANCELLED
        assert len(await driver.events(EventKind.DECIDED)) == 2

    async def test_a_failed_run_keeps_its_frontier(self, stores: Stores) -> None:
        """C5, I8: it is to be carried on once the cause is gone, and is not by a decision."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        (claim,) = await driver.begin(lease, 0)
        await driver.runs.fail(lease, detail="it cannot be done")

        settled = await decide(driver, claim, completed())

        assert (settled.ticket, (await driver.run()).status) == (None, RunStatus.FAILED)
        assert await driver.payload() == driver.boundary(1).payload
        assert (await driver.claims())[0].outcome == BOOKED

    async def test_a_run_that_is_parked_for_something_else_stays_so(self, stores: Stores) -> None:
        """I8: one of its calls is decided before somebody resumes it."""
        driver, lease, claim = await left_in_flight(stores)
        await driver.park(lease)
        before = await driver.run()

        settled = await decide(driver, claim, completed())

        assert (settled.ticket, await driver.run()) == (None, before)
        assert (await driver.claims())[0].outcome == BOOKED

    async def test_a_decision_takes_the_run_from_whoever_looks_at_it(self, stores: Stores) -> None:
        """I8, F4: somebody at a terminal has the parked run's lease, as with a late outcome."""
        driver, (claim,) = await parked_on(stores)
        held = await stores.leases.acquire("run", tenant=driver.tenant, holder="cli", ttl_seconds=LONG)

        await decide(driver, claim, completed())

        run = await driver.run()
        assert run.status is RunStatus.QUEUED
        assert run.fence > held.fence
