from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.transitions.leases import (
    EPOCH_SHIFT,
    MAX_EPOCH,
    Holding,
    LeaseState,
    acquire,
    next_fence,
    release,
    renew,
)
from tests.unit.states import AT, FREE, NOW, TTL, held, queued


@pytest.mark.parametrize(
    ("expires_at", "lapsed"), [(NOW - 1, True), (NOW, True), (NOW + 1e-6, False), (NOW + TTL, False)]
)
@pytest.mark.parametrize("holding", [Holding.WORKER, Holding.QUEUE])
def test_a_lease_that_expires_now_has_lapsed(holding, expires_at, lapsed):
    """L6."""
    lease = LeaseState(7, holding, "one", expires_at)

    assert lease.lapsed(NOW) is lapsed
    assert (acquire(lease, holder="two", at=AT, ttl=TTL) is not None) is lapsed


def test_a_free_lease_is_granted_under_the_next_fence():
    """L2."""
    assert acquire(FREE, holder="two", at=AT, ttl=TTL) == LeaseState(8, Holding.WORKER, "two", NOW + TTL)


def test_the_same_holder_is_refused():
    """L4."""
    assert acquire(held(), holder="one", at=AT, ttl=TTL) is None


def test_renewal_keeps_the_fence_and_counts_from_now():
    """L3."""
    assert renew(held(expires_at=NOW + 1), fence=7, at=AT, ttl=TTL) == held(expires_at=NOW + TTL)
    assert renew(held(expires_at=NOW - 99), fence=7, at=AT, ttl=TTL) == held(expires_at=NOW + TTL)


@pytest.mark.parametrize("lease", [held(8), queued(7), queued(8), FREE])
def test_a_lease_that_is_anothers_or_given_up_is_not_renewed(lease):
    """L3."""
    assert renew(lease, fence=7, at=AT, ttl=TTL) is None


@pytest.mark.parametrize("lease", [held(8), queued(7), queued(8), FREE])
@pytest.mark.parametrize("live", [True, False])
def test_release_of_what_is_not_held_frees_nothing(lease, live):
    """L10."""
    assert release(lease, fence=7, live=live, at=AT) == lease


def test_release_keeps_the_fence():
    """L2, L10: of a resting run, or of none; a live run's goes to the queue, lapsed at once."""
    assert release(held(), fence=7, live=False, at=AT) == replace(held(), holding=Holding.FREE, holder=None)
    assert release(held(), fence=7, live=True, at=AT) == queued(8, expires_at=NOW, wait=0.0)


def test_the_epoch_lifts_the_fence_and_lowers_none():
    """L2: and the greatest of all stays within 53 bits."""
    assert next_fence(7, 0) == 8
    assert next_fence(7, 2) == (2 << EPOCH_SHIFT) + 1
    assert next_fence((2 << EPOCH_SHIFT) + 5, 2) == (2 << EPOCH_SHIFT) + 6
    assert next_fence((3 << EPOCH_SHIFT) + 5, 2) == (3 << EPOCH_SHIFT) + 6
    assert (MAX_EPOCH + 1) << EPOCH_SHIFT == 1 << 53
