from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.errors import CallKeyReusedError, ClaimOwnerError
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Intent
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.transitions.claims import (
    ResumeClaim,
    abandon,
    any_in_flight,
    begin,
    claim_resume,
    note_dead,
    record,
    settle,
    still_undecided,
    take_over,
)

NOW = 1_000.0
YEARS = 10 * 365 * 86_400.0
BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"booking": 7})
REFUSED = ToolOutcome(kind=OutcomeKind.FAILED, content="no seat left")
IN_FLIGHT = Claim("acme", "k", "one", "d", ClaimState.IN_FLIGHT, fence=3, began_at=NOW, tool="book")
SETTLED = replace(IN_FLIGHT, state=ClaimState.SETTLED, outcome=BOOKED, settled_by=BY_OWNER)
BY_PROBE = replace(SETTLED, settled_by="probe")
TAKEN = replace(IN_FLIGHT, owner="two", former=("one",), fence=4, began_at=NOW + 1)


def begin_as(stored, owner, *, digest="d", take_over=None, now=NOW, fence=4):
    intent = Intent("k", digest, "book", take_over=take_over)
    return begin(stored, intent, tenant="acme", owner=owner, now=now, fence=fence)


# --- begin --------------------------------------------------------------------------------------------------------


def test_an_absent_claim_is_begun():
    """I2."""
    assert begin_as(None, "one", fence=3) == IN_FLIGHT


@pytest.mark.parametrize("stored", [IN_FLIGHT, SETTLED, BY_PROBE, TAKEN])
@pytest.mark.parametrize("owner", ["one", "two", "three"])
def test_a_claim_that_stands_is_returned_as_it_is(stored, owner):
    """I3."""
    assert begin_as(stored, owner) is stored


@pytest.mark.parametrize("stored", [IN_FLIGHT, SETTLED, TAKEN])
@pytest.mark.parametrize("owner", ["one", "two"])
def test_another_digest_is_refused_to_everyone(stored, owner):
    """I1: to an intent that would take the claim over too."""
    for seen in (None, stored.owner):
        with pytest.raises(CallKeyReusedError):
            begin_as(stored, owner, digest="other", take_over=seen)


def test_no_age_makes_a_claim_anybody_elses():
    """I4."""
    stored = begin_as(IN_FLIGHT, "two", now=NOW + YEARS)

    assert stored is IN_FLIGHT
    assert not stored.owned_in_flight_by("two")


def test_an_intent_takes_over_from_whom_it_names():
    """I7: the next owner's time and fence are its own."""
    assert begin_as(IN_FLIGHT, "two", take_over="one", now=NOW + 1) == TAKEN


@pytest.mark.parametrize(
    ("stored", "owner", "seen"),
    [(IN_FLIGHT, "two", "somebody"), (SETTLED, "two", "one"), (TAKEN, "three", "one"), (TAKEN, "two", "two")],
)
def test_an_intent_takes_over_from_nobody_else(stored, owner, seen):
    """I3, F5: not from one that was settled, or taken already; nor a second time."""
    assert begin_as(stored, owner, take_over=seen) is stored


# --- record, settle, abandon, take over ---------------------------------------------------------------------------


def test_the_owner_settles():
    """I2, I3."""
    assert record(IN_FLIGHT, key="k", owner="one", outcome=BOOKED) == SETTLED


@pytest.mark.parametrize("stored", [None, IN_FLIGHT, SETTLED, TAKEN])
def test_whoever_never_owned_the_claim_records_nothing(stored):
    """I3."""
    with pytest.raises(ClaimOwnerError):
        record(stored, key="k", owner="stranger", outcome=BOOKED)


def test_the_same_outcome_again_changes_nothing():
    """F5."""
    assert record(SETTLED, key="k", owner="one", outcome=BOOKED) is SETTLED


@pytest.mark.parametrize("outcome", [BOOKED, REFUSED])
def test_an_outcome_after_somebody_elses_settlement_is_evidence(outcome):
    """F4: an equal one too: that the call happened after all is worth knowing. It is kept once."""
    kept = record(BY_PROBE, key="k", owner="one", outcome=outcome)

    assert kept == replace(BY_PROBE, late=(outcome,))
    assert record(kept, key="k", owner="one", outcome=outcome) is kept


def test_a_former_owners_outcome_is_evidence_and_settles_nothing():
    """F4."""
    assert record(TAKEN, key="k", owner="one", outcome=REFUSED) == replace(TAKEN, late=(REFUSED,))


def test_another_settles_what_is_as_it_was_seen():
    """I7."""
    assert settle(IN_FLIGHT, seen=IN_FLIGHT, outcome=BOOKED, by="probe") == BY_PROBE


@pytest.mark.parametrize("stored", [SETTLED, BY_PROBE, TAKEN])
def test_another_settles_nothing_that_moved_on(stored):
    """I7, F4."""
    assert settle(stored, seen=IN_FLIGHT, outcome=REFUSED, by="probe") is stored


def test_an_absent_claim_is_settled_by_nobody():
    """I2."""
    with pytest.raises(ClaimOwnerError):
        settle(None, seen=IN_FLIGHT, outcome=BOOKED, by="probe")


def test_an_intent_that_was_never_dispatched_is_taken_back():
    """I3, I4: what was taken over is the former owner's again, who may have dispatched."""
    assert abandon(IN_FLIGHT, key="k", owner="one") is None
    back = abandon(TAKEN, key="k", owner="two")
    assert back is not None
    assert (back.owner, back.former, back.state) == ("one", (), ClaimState.IN_FLIGHT)


@pytest.mark.parametrize("stored", [None, SETTLED, TAKEN])
def test_only_the_owner_in_flight_abandons(stored):
    """I3."""
    with pytest.raises(ClaimOwnerError):
        abandon(stored, key="k", owner="one")


def test_a_claim_is_taken_over_from_the_owner_that_was_seen():
    """I7, I11: what was known of that one's death is not known of the next."""
    dead = replace(IN_FLIGHT, dead_seen_at=NOW)

    assert take_over(dead, key="k", seen="one", owner="two", now=NOW + 1, fence=4) == TAKEN


@pytest.mark.parametrize("stored", [None, SETTLED, TAKEN])
def test_a_claim_that_moved_on_is_not_taken_over(stored):
    """I3."""
    with pytest.raises(ClaimOwnerError):
        take_over(stored, key="k", seen="one", owner="three", now=NOW)


def test_the_first_time_of_death_stands():
    """I7, I11."""
    noted = note_dead(IN_FLIGHT, seen=IN_FLIGHT, now=NOW)

    assert noted == replace(IN_FLIGHT, dead_seen_at=NOW)
    assert note_dead(noted, seen=noted, now=NOW + 9) is noted


@pytest.mark.parametrize("stored", [SETTLED, TAKEN])
def test_a_death_says_nothing_of_a_claim_that_moved_on(stored):
    """I7."""
    assert note_dead(stored, seen=IN_FLIGHT, now=NOW) is stored


@pytest.mark.parametrize(
    ("stored", "undecided"),
    [(IN_FLIGHT, True), (replace(IN_FLIGHT, dead_seen_at=NOW), True), (TAKEN, False), (SETTLED, False), (None, False)],
)
def test_a_run_is_parked_only_on_what_is_still_as_it_was_seen(stored, undecided):
    """I5."""
    assert still_undecided(stored, seen=IN_FLIGHT) is undecided


def test_a_run_that_ended_keeps_its_frontier_while_anything_is_undecided():
    """P2."""
    assert any_in_flight([SETTLED, IN_FLIGHT])
    assert not any_in_flight([SETTLED, BY_PROBE])
    assert not any_in_flight([])


# --- resumes ------------------------------------------------------------------------------------------------------


def ask(stored, owner, fence=None, now=NOW):
    return claim_resume(stored, owner=owner, fence=fence, now=now, ttl=300)


def test_a_resume_is_claimed_for_its_ttl():
    """I9."""
    assert ask(None, "one", 3) == ResumeClaim("one", 3, NOW + 300)


@pytest.mark.parametrize(("now", "granted"), [(NOW + 299.999, False), (NOW + 300, True), (NOW + YEARS, True)])
def test_a_claim_that_expires_now_is_in_nobodys_way(now, granted):
    """I9, L6."""
    for fence in (None, 3):
        assert (ask(ResumeClaim("one", fence, NOW + 300), "two", now=now) is not None) is granted


@pytest.mark.parametrize(
    ("stored", "asking", "granted"),
    [
        (3, 4, True),
        (3, 3, False),
        (3, 2, False),
        (3, None, False),
        (None, 4, False),
        (None, None, False),
    ],
)
def test_a_higher_fence_replaces_a_lower_one_and_nothing_else_does(stored, asking, granted):
    """I9."""
    assert (ask(ResumeClaim("one", stored, NOW + 300), "two", asking) is not None) is granted


def test_the_same_owner_claims_again():
    """F5: its own fence, or none."""
    assert ask(ResumeClaim("one", 3, NOW + 1), "one", 3) == ResumeClaim("one", 3, NOW + 300)
