from __future__ import annotations

import math
from dataclasses import replace

import pytest

from adk_worker.errors import ConfigurationError
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import (
    Attention,
    FleetPolicy,
    Phase,
    Reason,
    State,
    Then,
    Verdict,
    begin,
    commit,
    fail,
    give_back,
    park,
    reap,
    submit,
    take,
)
from tests.unit.states import AT, FREE, NOW, POLICY, TTL, held, queued, running

# --- take ---------------------------------------------------------------------------------------------------------


def test_a_submitted_run_is_queued_for_the_grace():
    """L2: above the fence of a lease that stood there before."""
    assert submit(at=AT, policy=POLICY) == State(lease=queued(1))
    assert submit(at=AT, policy=POLICY, fence=7).lease == queued(8)


@pytest.mark.parametrize("expires_at", [NOW + 1, NOW, NOW - 1])
def test_the_ticket_takes_the_lease_lapsed_or_not(expires_at):
    """L2."""
    moved = take(State(lease=queued(expires_at=expires_at)), ticket=7, holder="one", at=AT, ttl=TTL)

    assert (moved.verdict, moved.state.lease) == (Verdict.DONE, held(8))


def test_a_marked_run_is_not_taken_but_left_for_the_reaper_to_park():
    """C3: its worker let go of it while what ran was ahead of the stored frontier."""
    state = State(lease=queued(expires_at=NOW), behind=True)

    assert take(state, ticket=7, holder="one", at=AT, ttl=TTL).verdict is Verdict.REFUSED
    assert reap(state, at=AT, policy=POLICY).state.attention is Attention.FRONTIER_LOST


@pytest.mark.parametrize("lease", [queued(6), queued(8), held(), held(expires_at=NOW - 1), FREE])
def test_every_other_message_is_a_duplicate(lease):
    """F1."""
    state = State(lease=lease)

    moved = take(state, ticket=7, holder="one", at=AT, ttl=TTL)

    assert (moved.verdict, moved.state) == (Verdict.REFUSED, state)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.LIVE])
def test_a_resting_run_is_not_taken(phase):
    """F1."""
    assert take(State(lease=queued(), phase=phase), ticket=7, holder="one", at=AT, ttl=TTL).verdict is Verdict.REFUSED


# --- begin and commit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind", "ahead", "marked"), [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 1)])
def test_the_mark_stays_until_a_frontier_is_stored(behind, ahead, marked):
    """C3."""
    moved = begin(running(behind=bool(behind)), fence=7, ahead=bool(ahead))

    assert (moved.verdict, moved.state) == (Verdict.DONE, running(behind=bool(marked)))


@pytest.mark.parametrize("stored", [True, False])
def test_a_boundary_begins_the_counts_afresh(stored):
    """C3: a tombstone is a boundary too, and marks the run."""
    worn = running(crashes=2, tries=4, behind=True, attention=Attention.EXCEPTION, parked_on=("k",))

    moved = commit(worn, fence=7, sequence=5, then=Then.KEEP, stored=stored, at=AT, policy=POLICY)

    assert moved.verdict is Verdict.DONE
    assert moved.state == State(lease=held(), sequence=5, committed_by=7, behind=not stored)


def test_a_boundary_hands_over_under_a_new_ticket():
    """L2."""
    moved = commit(running(), fence=7, sequence=5, then=Then.HAND_OVER, stored=True, at=AT, policy=POLICY)

    assert moved.state.lease == queued(8)
    assert moved.state.phase is Phase.LIVE


@pytest.mark.parametrize(
    ("then", "phase"),
    [
        (Then.WAIT_APPROVAL, Phase.WAITING_APPROVAL),
        (Then.PARK, Phase.PARKED),
        (Then.COMPLETE, Phase.COMPLETED),
        (Then.FAIL, Phase.FAILED),
    ],
)
def test_a_boundary_lets_the_run_rest_with_its_lease_free(then, phase):
    """L2: the fence is kept."""
    moved = commit(
        running(),
        fence=7,
        sequence=5,
        then=then,
        stored=True,
        at=AT,
        policy=POLICY,
        attention=Attention.APPROVAL,
    )

    assert (moved.state.phase, moved.state.attention) == (phase, Attention.APPROVAL)
    assert (moved.state.lease.holding, moved.state.lease.holder, moved.state.lease.fence) == (Holding.FREE, None, 7)


def test_the_very_same_commit_is_repeated_whatever_became_of_the_lease():
    """F5."""
    for lease in (held(), held(9), queued(8), FREE):
        state = State(lease=lease, sequence=5, committed_by=7)

        moved = commit(state, fence=7, sequence=5, then=Then.HAND_OVER, stored=True, at=AT, policy=POLICY)

        assert (moved.verdict, moved.state) == (Verdict.REPEATED, state)


def test_another_acquisitions_commit_of_the_same_sequence_is_no_repetition():
    """F5: by its fence and its sequence, both."""
    state = State(lease=held(9), sequence=5, committed_by=9)

    moved = commit(state, fence=7, sequence=5, then=Then.KEEP, stored=True, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state) == (Verdict.REFUSED, state)


@pytest.mark.parametrize("sequence", [3, 4, 6])
def test_a_boundary_follows_the_one_before(sequence):
    """C5."""
    with pytest.raises(ValueError, match="does not follow 4"):
        commit(running(), fence=7, sequence=sequence, then=Then.KEEP, stored=True, at=AT, policy=POLICY)


@pytest.mark.parametrize("then", [Then.HAND_OVER, Then.WAIT_APPROVAL])
def test_only_a_stored_frontier_is_handed_over(then):
    """C3."""
    with pytest.raises(ValueError, match="stored frontier"):
        commit(running(), fence=7, sequence=5, then=then, stored=False, at=AT, policy=POLICY)


# --- who may write ------------------------------------------------------------------------------------------------


WRITES = {
    "begin": lambda state: begin(state, fence=7, ahead=True),
    "commit": lambda state: commit(
        state, fence=7, sequence=state.sequence + 1, then=Then.KEEP, stored=True, at=AT, policy=POLICY
    ),
    "park": lambda state: park(state, fence=7, attention=Attention.OVER_BUDGET),
    "fail": lambda state: fail(state, fence=7),
    "give_back": lambda state: give_back(state, fence=7, reason=Reason.EXCEPTION, at=AT, policy=POLICY),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("lease", [held(6), held(8), queued(7), queued(8), FREE])
def test_a_write_needs_the_fence_and_the_lease(write, lease):
    """F1: the one is not enough without the other."""
    state = State(lease=lease)

    assert (write(state).verdict, write(state).state) == (Verdict.REFUSED, state)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_lapsed_lease_that_nobody_took_still_writes(write):
    """L9, F1: time alone takes nothing away."""
    assert write(State(lease=held(expires_at=NOW - 99))).verdict is Verdict.DONE


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.LIVE])
def test_a_lease_on_a_resting_run_is_no_leave_to_write_it(write, phase):
    """F1."""
    state = State(lease=held(), phase=phase)

    assert (write(state).verdict, write(state).state) == (Verdict.REFUSED, state)


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_every_write_looks_at_the_cancel(write):
    """P2."""
    moved = write(running(cancel_requested=True, attention=Attention.EXCEPTION))

    assert (moved.verdict, moved.state.phase, moved.state.attention) == (Verdict.CANCELLED, Phase.CANCELLED, None)
    assert (moved.state.lease.holding, moved.state.lease.fence) == (Holding.FREE, 7)


def test_take_and_reap_look_at_the_cancel_too():
    """P2."""
    asked = State(lease=queued(expires_at=NOW), cancel_requested=True)
    dead = State(lease=held(expires_at=NOW), cancel_requested=True)

    assert take(asked, ticket=7, holder="one", at=AT, ttl=TTL).state.phase is Phase.CANCELLED
    for state in (asked, dead):
        assert reap(state, at=AT, policy=POLICY).state.phase is Phase.CANCELLED


# --- ends without a boundary --------------------------------------------------------------------------------------


def test_a_park_says_on_what():
    """I5."""
    moved = park(running(), fence=7, attention=Attention.UNDECIDED_CALL, parked_on=("k-1", "k-2"))

    assert (moved.state.phase, moved.state.parked_on) == (Phase.PARKED, ("k-1", "k-2"))
    assert moved.state.attention is Attention.UNDECIDED_CALL
    assert moved.state.lease.holding is Holding.FREE


def test_exceptions_count_and_back_off():
    """C4: up to the cap."""
    state, waits = running(), []
    generous = replace(POLICY, max_crashes=99)
    for tries in range(1, 6):
        moved = give_back(state, fence=7, reason=Reason.EXCEPTION, at=AT, policy=generous)
        assert (moved.state.crashes, moved.state.tries, moved.state.lease.fence) == (tries, tries, 8)
        waits.append(moved.state.lease.wait)
        assert moved.state.lease.expires_at == NOW + waits[-1]
        state = replace(moved.state, lease=held())

    assert waits == [1, 2, 4, 5, 5]


def test_the_backoff_of_a_run_that_was_tried_for_ever_is_a_number():
    """C4: 2 ** 10,000 is none."""
    moved = give_back(running(tries=10_000), fence=7, reason=Reason.CONFLICT, at=AT, policy=POLICY)

    assert moved.state.lease.wait == 5


def test_conflicts_back_off_and_do_not_count():
    """C4, C7, I9."""
    moved = give_back(
        running(crashes=2),
        fence=7,
        reason=Reason.CONFLICT,
        at=AT,
        policy=POLICY,
        attention=Attention.RESUME_CONFLICT,
        delay=9,
    )

    assert (moved.state.crashes, moved.state.tries, moved.state.lease.wait) == (2, 1, 9)
    assert moved.state.attention is Attention.RESUME_CONFLICT


def test_a_drain_says_nothing_of_the_run():
    """L2."""
    worn = running(crashes=2, tries=4, attention=Attention.EXCEPTION)

    moved = give_back(worn, fence=7, reason=Reason.DRAIN, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state) == (Verdict.DONE, replace(worn, lease=queued(8)))


@pytest.mark.parametrize("reason", Reason)
def test_a_marked_run_is_not_given_back_but_parked(reason):
    """C3."""
    moved = give_back(running(behind=True), fence=7, reason=reason, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state.phase) == (Verdict.PARKED, Phase.PARKED)
    assert (moved.state.attention, moved.state.behind) == (Attention.FRONTIER_LOST, True)


def test_the_last_exception_poisons():
    """C3."""
    moved = give_back(running(crashes=2), fence=7, reason=Reason.EXCEPTION, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state.phase, moved.state.crashes) == (Verdict.PARKED, Phase.PARKED, 3)
    assert moved.state.attention is Attention.POISONED


# --- the policy ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lease_ttl", 0),
        ("dispatch_grace", -1),
        ("dispatch_grace_max", 0),
        ("retry_backoff", 0),
        ("retry_backoff_max", -0.5),
        ("max_crashes", 0),
        ("lease_ttl", math.nan),
        ("dispatch_grace", math.inf),
        ("retry_backoff_max", math.nan),
    ],
)
def test_a_policy_that_cannot_be_is_refused(field, value):
    """Oneself is told which field it is."""
    with pytest.raises(ConfigurationError, match=field):
        FleetPolicy(**{field: value})


@pytest.mark.parametrize("field", ["dispatch_grace", "retry_backoff"])
def test_a_wait_that_grows_does_not_end_below_its_beginning(field):
    with pytest.raises(ConfigurationError, match=f"{field}_max is 4; it has to be at least {field}, which is 5"):
        FleetPolicy(**{field: 5, f"{field}_max": 4})
    FleetPolicy(**{field: 5, f"{field}_max": 5})
