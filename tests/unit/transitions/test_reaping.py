"""What the reaper, evidence and people may do to a run that no worker writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, Phase, State, Verdict, cancel, heal, reap, requeue
from tests.unit.states import AT, FREE, NOW, POLICY, held, queued, running

# --- the reaper ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lease", [held(expires_at=NOW + 1e-6), queued(expires_at=NOW + 1e-6), FREE])
def test_what_has_not_lapsed_is_left_alone(lease):
    """L6."""
    state = State(lease=lease)

    assert (reap(state, at=AT, policy=POLICY).verdict, reap(state, at=AT, policy=POLICY).state) == (
        Verdict.REFUSED,
        state,
    )


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.LIVE])
@pytest.mark.parametrize("lease", [held(expires_at=NOW), queued(expires_at=NOW)])
def test_a_resting_run_is_left_alone(phase, lease):
    """L2: whoever held its lease; it must not come to stand in the queue."""
    assert reap(State(lease=lease, phase=phase), at=AT, policy=POLICY).verdict is Verdict.REFUSED


@pytest.mark.parametrize(("count_crashes", "crashes"), [(True, 1), (False, 0)])
def test_a_dead_workers_run_is_queued_under_a_new_ticket(count_crashes, crashes):
    """L2, L6, L9."""
    moved = reap(State(lease=held(expires_at=NOW)), at=AT, policy=POLICY, count_crashes=count_crashes)

    assert (moved.verdict, moved.state) == (Verdict.DONE, State(lease=queued(8), crashes=crashes))


@pytest.mark.parametrize(("wait", "doubled"), [(0, 30), (1, 30), (15, 30), (20, 40), (30, 60), (60, 100), (100, 100)])
def test_a_lost_message_is_published_again_under_the_same_ticket(wait, doubled):
    """L2: the wait doubles, from the grace to its cap."""
    state = State(lease=queued(expires_at=NOW, wait=wait), crashes=1)

    moved = reap(state, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state.crashes) == (Verdict.DONE, 1)
    assert moved.state.lease == queued(expires_at=NOW + doubled, wait=doubled)


def test_the_last_death_poisons():
    """C3: unless it is not counted."""
    state = State(lease=held(expires_at=NOW), crashes=2)

    moved = reap(state, at=AT, policy=POLICY)

    assert (moved.verdict, moved.state.attention, moved.state.crashes) == (Verdict.PARKED, Attention.POISONED, 3)
    assert reap(state, at=AT, policy=POLICY, count_crashes=False).verdict is Verdict.DONE


@pytest.mark.parametrize(("lease", "crashes"), [(held(expires_at=NOW), 1), (queued(expires_at=NOW), 0)])
def test_a_marked_run_is_parked_whoever_has_it(lease, crashes):
    """C3."""
    moved = reap(State(lease=lease, behind=True), at=AT, policy=POLICY)

    assert (moved.verdict, moved.state.attention) == (Verdict.PARKED, Attention.FRONTIER_LOST)
    assert (moved.state.crashes, moved.state.lease.holding) == (crashes, Holding.FREE)


def test_a_worker_known_dead_need_not_lapse_and_the_queue_cannot_die():
    """I11."""
    assert reap(State(lease=held()), at=AT, policy=POLICY, known_dead=True).verdict is Verdict.DONE
    assert reap(State(lease=queued()), at=AT, policy=POLICY, known_dead=True).verdict is Verdict.REFUSED


# --- people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.PARKED, Phase.FAILED])
@pytest.mark.parametrize("lease", [FREE, held(expires_at=NOW)])
def test_a_resting_run_is_queued_again(phase, lease):
    """L2, C5: also when somebody's lease on it has lapsed."""
    worn = State(lease=lease, phase=phase, crashes=3, tries=9, attention=Attention.POISONED, parked_on=("k",))

    assert requeue(worn, at=AT, policy=POLICY).state == State(lease=queued(8))


def test_a_run_that_backs_off_is_queued_again_at_once():
    """L2, C4: its backoff begins anew; nobody has said that the cause of its crashes is gone."""
    worn = State(lease=queued(expires_at=NOW + 300), crashes=3, tries=9, attention=Attention.REVISION_MISMATCH)

    assert requeue(worn, at=AT, policy=POLICY).state == State(lease=queued(8), crashes=3)


@pytest.mark.parametrize(
    "state",
    [
        State(lease=queued()),
        State(lease=queued(), attention=Attention.REVISION_MISMATCH, behind=True),
        State(lease=held(), attention=Attention.REVISION_MISMATCH),
        *(State(lease=FREE, phase=phase) for phase in Phase if phase not in {Phase.PARKED, Phase.FAILED}),
        State(lease=FREE, phase=Phase.PARKED, behind=True),
        State(lease=held(), phase=Phase.PARKED),
    ],
)
def test_no_other_run_is_queued_again(state):
    """C3, L5, P1."""
    assert (requeue(state, at=AT, policy=POLICY).verdict, requeue(state, at=AT, policy=POLICY).state) == (
        Verdict.REFUSED,
        state,
    )


def test_an_outcome_heals_the_run_that_is_parked_on_it():
    """F4: lapsed at once, so that the reaper publishes it."""
    parked = State(lease=FREE, phase=Phase.PARKED, attention=Attention.UNDECIDED_CALL, parked_on=("k-1", "k-2"))

    moved = heal(parked, key="k-2", at=AT, policy=POLICY)

    assert (moved.verdict, moved.state) == (Verdict.DONE, State(lease=queued(8, expires_at=NOW, wait=0.0)))


def test_whoever_holds_the_parked_run_loses_it_to_the_outcome():
    """F4: it would stay parked on a decided call, for nobody brings the outcome again once the holder has let go."""
    parked = State(lease=held(), phase=Phase.PARKED, attention=Attention.UNDECIDED_CALL, parked_on=("k",))

    moved = heal(parked, key="k", at=AT, policy=POLICY)

    assert (moved.verdict, moved.state) == (Verdict.DONE, State(lease=queued(8, expires_at=NOW, wait=0.0)))


def test_a_marked_run_that_an_outcome_would_heal_is_left_with_its_lost_frontier():
    """C3, F4: the call that it was parked on is decided, and it must not be carried on all the same."""
    undecided = State(
        lease=FREE, phase=Phase.PARKED, attention=Attention.UNDECIDED_CALL, parked_on=("k", "other"), behind=True
    )

    moved = heal(undecided, key="k", at=AT, policy=POLICY)

    lost = replace(undecided, attention=Attention.FRONTIER_LOST, parked_on=())
    assert (moved.verdict, moved.state) == (Verdict.PARKED, lost)


@pytest.mark.parametrize(
    "state",
    [
        running(parked_on=("k",)),
        State(lease=FREE, phase=Phase.PARKED, parked_on=("other",)),
        State(lease=FREE, phase=Phase.CANCELLED, parked_on=("k",)),
    ],
)
def test_an_outcome_heals_nothing_else(state):
    """F4, C3."""
    assert (heal(state, key="k", at=AT, policy=POLICY).verdict, heal(state, key="k", at=AT, policy=POLICY).state) == (
        Verdict.REFUSED,
        state,
    )


@pytest.mark.parametrize(
    "state",
    [
        State(lease=queued()),
        State(lease=FREE, phase=Phase.PARKED, attention=Attention.POISONED),
        State(lease=FREE, phase=Phase.WAITING_APPROVAL, attention=Attention.APPROVAL),
        State(lease=held(), phase=Phase.PARKED),
    ],
)
def test_a_run_that_no_worker_carries_is_cancelled_at_once(state):
    """P2."""
    moved = cancel(state)

    assert (moved.verdict, moved.state.phase, moved.state.attention) == (Verdict.CANCELLED, Phase.CANCELLED, None)
    assert (moved.state.lease.holding, moved.state.lease.fence) == (Holding.FREE, 7)


def test_a_held_run_is_asked():
    """P2."""
    assert (cancel(running()).verdict, cancel(running()).state) == (Verdict.DONE, running(cancel_requested=True))


@pytest.mark.parametrize(
    ("phase", "verdict"),
    [(Phase.COMPLETED, Verdict.REFUSED), (Phase.FAILED, Verdict.REFUSED), (Phase.CANCELLED, Verdict.REPEATED)],
)
def test_an_ended_run_is_not_cancelled(phase, verdict):
    """P2."""
    state = State(lease=FREE, phase=phase)

    assert (cancel(state).verdict, cancel(state).state) == (verdict, state)
