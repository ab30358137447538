from __future__ import annotations

import pytest

from adk_worker.errors import FrontierLostError, RunLeaseError, RunStateError, StaleFenceError
from adk_worker.fences import check_fence
from adk_worker.refusals import cancel_refused, requeue_refused
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.leases import Holding, LeaseState
from tests.unit.states import FREE, held, queued


def run(status, **fields):
    said = {"tenant": "acme", "run_id": "run", "agent": "booking", "revision": "r1", "input": "book it"}
    return Run(**said, status=status, **fields)


@pytest.mark.parametrize("status", [status for status in RunStatus if status not in {"parked", "failed"}])
def test_a_run_that_does_not_rest_is_not_queued_again(status):
    """C5, P1: it says what the run does instead."""
    refused = requeue_refused(run(status, behind=True, holder="one"), stored=3)

    assert isinstance(refused, RunStateError)
    assert (refused.tenant, refused.run_id, refused.status) == ("acme", "run", status)
    assert ("approval" in str(refused)) is (status is RunStatus.WAITING_APPROVAL)


@pytest.mark.parametrize("status", [RunStatus.PARKED, RunStatus.FAILED])
def test_a_lost_frontier_comes_before_a_lease(status):
    """C3: waiting for the lease would not help."""
    refused = requeue_refused(run(status, behind=True, holder="one"), stored=3)

    assert isinstance(refused, FrontierLostError)
    assert (refused.tenant, refused.run_id, refused.sequence) == ("acme", "run", 3)


def test_whoever_holds_the_lease_is_named():
    """L5."""
    refused = requeue_refused(run(RunStatus.PARKED, holder="cli", fence=7, expires_at=1_000.0), stored=3)

    assert isinstance(refused, RunLeaseError)
    assert (refused.holder, refused.fence, refused.expires_at) == ("cli", 7, 1_000.0)


def test_an_ended_run_is_not_cancelled():
    """P2."""
    refused = cancel_refused(run(RunStatus.COMPLETED))

    assert isinstance(refused, RunStateError)
    assert refused.status == "completed"


# --- the fences of the lone stores --------------------------------------------------------------------------------


def accept(lease, fence, seen=0):
    return check_fence(lease, tenant="acme", run_id="run", fence=fence, seen=seen)


@pytest.mark.parametrize(("fence", "seen", "highest"), [(1, 0, 1), (7, 7, 7), (9, 7, 9)])
def test_without_a_lease_the_highest_fence_seen_may_write(fence, seen, highest):
    """F1: what is to be stored with the write is returned."""
    assert accept(None, fence, seen) == highest


def test_without_a_lease_a_lower_fence_may_not():
    """F1: the refusal names both numbers."""
    with pytest.raises(StaleFenceError) as refused:
        accept(None, 6, 7)

    assert (refused.value.tenant, refused.value.run_id) == ("acme", "run")
    assert (refused.value.presented, refused.value.current) == (6, 7)


@pytest.mark.parametrize("lease", [held(7), held(7, expires_at=0.0)])
def test_with_a_lease_its_holder_may_write(lease):
    """F1, L9: also once it has lapsed, while nobody took it."""
    assert accept(lease, 7, 3) == 7


@pytest.mark.parametrize("lease", [held(8), queued(8), queued(7), FREE, LeaseState(7, Holding.FREE, "one")])
def test_with_a_lease_nobody_else_may(lease):
    """F1: whatever was seen before."""
    with pytest.raises(StaleFenceError) as refused:
        accept(lease, 7, 0)

    assert (refused.value.presented, refused.value.current) == (7, lease.fence)
