"""What a person's decision does to a claim and to its run, case by case."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.actors import Actor
from adk_worker.errors import CallDecidedError, CallStateError
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Decision
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions.leases import Holding, LeaseState, StoreTime
from adk_worker.transitions.runs import ENDED, Attention, FleetPolicy, Phase, State, Verdict
from adk_worker.transitions.settling import Decided, decide, settled, under_way

NOW = 1_000.0
AT = StoreTime(NOW)
POLICY = FleetPolicy(dispatch_grace=30)
BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"seat": "12A"})
ANN = Actor("ann", "op-1")
IN_FLIGHT = Claim("acme", "k", "one", "d", ClaimState.IN_FLIGHT, fence=3, began_at=NOW - 100, tool="book")
DEAD = replace(IN_FLIGHT, dead_seen_at=NOW - 60)
HAPPENED = Settlement(ANN, "they have it", BOOKED)
NEVER_RAN = Settlement(ANN, "they have not")
FREE = LeaseState(7)
PARKED = State(lease=FREE, phase=Phase.PARKED, attention=Attention.UNDECIDED_CALL, parked_on=("k", "l"))


# --- the claim --------------------------------------------------------------------------------------------------------


def test_a_decision_is_kept_with_the_claim():
    """I8, P5."""
    decided = decide(IN_FLIGHT, seen=IN_FLIGHT, asked=HAPPENED, now=NOW)

    kept = Decision("ann", "op-1", NOW, "they have it", "one", BOOKED)
    after = replace(IN_FLIGHT, state=ClaimState.SETTLED, outcome=BOOKED, settled_by="person:ann", decisions=(kept,))
    assert decided == Decided(after)


@pytest.mark.parametrize(
    ("claim", "longest", "said"),
    [
        (IN_FLIGHT, None, "its owner may be alive"),
        (IN_FLIGHT, 0.0, "its owner may be alive"),
        (DEAD, None, "does not say for how long"),
        (DEAD, 90.0, "for another 30 s"),
        (replace(DEAD, max_in_flight=90.0), 10.0, "for another 30 s"),
        (DEAD, 60.0, None),
        (DEAD, 10.0, None),
        (replace(DEAD, max_in_flight=60.0), None, None),
        (replace(DEAD, max_in_flight=60.0), 90.0, None),
    ],
)
def test_never_ran_is_said_of_what_cannot_be_under_way(claim, longest, said):
    """I8, I11: what was declared as the call was begun counts before what is declared now; the end is passed at it."""
    asked = replace(NEVER_RAN, max_in_flight=longest)

    why = under_way(claim, max_in_flight=longest, now=NOW)
    decided = decide(claim, seen=claim, asked=asked, now=NOW)

    assert (why is None) is (said is None)
    assert said is None or said in why
    assert decided.verdict is (Verdict.DONE if said is None else Verdict.REFUSED)
    assert decided.claim.state is (ClaimState.NEVER_RAN if said is None else ClaimState.IN_FLIGHT)
    insisting = decide(claim, seen=claim, asked=replace(asked, owner_may_live=True), now=NOW)
    assert insisting.claim.state is ClaimState.NEVER_RAN


def test_the_first_sight_of_a_death_is_what_counts():
    """I11: it is kept also by a refusal, and not moved by a later one."""
    asked = replace(NEVER_RAN, owner_dead=True)

    first = decide(IN_FLIGHT, seen=IN_FLIGHT, asked=asked, now=NOW).claim
    second = decide(first, seen=IN_FLIGHT, asked=asked, now=NOW + 10).claim

    assert first == second == replace(IN_FLIGHT, dead_seen_at=NOW)


def test_what_was_said_already_is_repeated_and_anything_else_is_refused():
    """F5, I8: whose word stands is said, be it a person's, the owner's, or that of an outcome that came in since."""
    after = decide(IN_FLIGHT, seen=IN_FLIGHT, asked=HAPPENED, now=NOW).claim
    assert decide(after, seen=IN_FLIGHT, asked=HAPPENED, now=NOW + 5) == Decided(after, Verdict.REPEATED)

    by_owner = replace(IN_FLIGHT, state=ClaimState.SETTLED, outcome=BOOKED, settled_by=BY_OWNER)
    ran = decide(IN_FLIGHT, seen=IN_FLIGHT, asked=replace(NEVER_RAN, owner_may_live=True), now=NOW).claim
    late = replace(ran, late=(BOOKED,))
    for stored, how, by in (
        (after, "returned", "person:ann"),
        (by_owner, "returned", BY_OWNER),
        (ran, "never ran", "person:ann"),
        (late, "returned", "person:ann"),
    ):
        with pytest.raises(CallDecidedError) as refused:
            decide(stored, seen=IN_FLIGHT, asked=replace(HAPPENED, why="I know better"), now=NOW)
        assert (refused.value.how, refused.value.by) == (how, by)


@pytest.mark.parametrize("stored", [None, replace(IN_FLIGHT, owner="two", former=("one",))])
def test_a_claim_that_has_moved_on_is_not_decided(stored):
    """I8: it is gone, or another owner's by now."""
    with pytest.raises(CallStateError):
        decide(stored, seen=IN_FLIGHT, asked=HAPPENED, now=NOW)


# --- its run ----------------------------------------------------------------------------------------------------------


def moved(state, *, key="k", undecided=()):
    return settled(state, key=key, undecided=undecided, at=AT, policy=POLICY)


def test_a_run_stays_parked_on_what_is_left():
    """I8."""
    assert moved(PARKED, undecided=("l", "other")).state == replace(PARKED, parked_on=("l",))


@pytest.mark.parametrize("lease", [FREE, replace(FREE, holding=Holding.WORKER, holder="cli", expires_at=NOW + 50)])
def test_the_last_one_queues_it_whoever_looks_at_it(lease):
    """I8: with time for its message, since whoever decides publishes."""
    after = moved(replace(PARKED, lease=lease, crashes=2, tries=3), undecided=("other",)).state

    assert after == State(lease=LeaseState(8, Holding.QUEUE, None, NOW + 30, 30))


def test_a_marked_run_stays_parked_for_its_frontier():
    """C3."""
    after = moved(replace(PARKED, behind=True))

    assert after.verdict is Verdict.PARKED
    assert (after.state.attention, after.state.parked_on) == (Attention.FRONTIER_LOST, ())


@pytest.mark.parametrize("phase", sorted(ENDED))
def test_a_run_that_has_ended_stays_as_it_is(phase):
    """P2, C5."""
    ended = State(lease=FREE, phase=phase)
    assert moved(ended).state is ended


def test_a_run_that_is_parked_on_nothing_of_it_stays_so():
    """I8."""
    other = replace(PARKED, parked_on=("l",))
    assert moved(other).state is other


@pytest.mark.parametrize(
    "lease", [LeaseState(7, Holding.WORKER, "w", NOW + 50), LeaseState(7, Holding.QUEUE, None, NOW + 50, 30)]
)
def test_whoever_carries_the_run_on_finds_out(lease):
    """I7."""
    live = State(lease=lease)
    assert moved(live) == replace(moved(live), state=live, verdict=Verdict.REFUSED)


def test_one_that_waits_to_ask_again_is_taken_up_at_once():
    """I7, I8."""
    lease = LeaseState(7, Holding.QUEUE, None, NOW + 500, 500)
    waiting = State(lease=lease, attention=Attention.UNDECIDED_CALL, tries=2)

    assert moved(waiting).state == State(lease=LeaseState(8, Holding.QUEUE, None, NOW + 30, 30))


def test_a_cancel_is_not_overlooked():
    """P2: whatever asked for the end, the next write of its state brings it."""
    after = moved(replace(PARKED, cancel_requested=True))

    assert after.verdict is Verdict.CANCELLED
    assert after.state.phase is Phase.CANCELLED
