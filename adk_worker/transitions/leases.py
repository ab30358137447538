"""The transition table of a lease alone; :mod:`adk_worker.transitions.runs` is that of a run with its lease.

Who holds the lease says who may act::

    FREE     nobody; the run is parked, waits for a person, or has ended
    QUEUE    the message that presents the fence as its ticket, and the reaper once it has lapsed
    WORKER   the acquisition that presents the fence, until somebody takes the lapsed lease

The fence rises with every acquisition and hand-over, and never falls (L2). Nothing here knows a clock: the time is the
store's (L1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

EPOCH_SHIFT = 40
"""The store's epoch stands in the fence's bits from here up (L2)."""
MAX_EPOCH = (1 << (53 - EPOCH_SHIFT)) - 1
"""Fences stay within 53 bits, so that every JSON reader and Lua number carries them exactly."""


class Holding(StrEnum):
    """Who has the lease."""

    FREE = "free"
    QUEUE = "queue"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class StoreTime:
    """The store's clock, in seconds since the epoch (L1), and the store's epoch (L2), as read under the run's lock."""

    now: float
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class LeaseState:
    """A lease's row. ``wait`` is how long the queue waits, in seconds, until it publishes again."""

    fence: int = 0
    holding: Holding = Holding.FREE
    holder: str | None = None
    expires_at: float = 0.0
    wait: float = 0.0

    def lapsed(self, now: float) -> bool:
        """``now == expires_at`` is lapsed (L6)."""
        return now >= self.expires_at

    def held_under(self, fence: int) -> bool:
        """Whether the acquisition ``fence`` still may write: equal *and* still held by it (F1)."""
        return self.holding is Holding.WORKER and self.fence == fence


def next_fence(fence: int, epoch: int) -> int:
    """The number after ``fence`` in the store's ``epoch`` (L2)."""
    return max(fence, epoch << EPOCH_SHIFT) + 1


def acquire(lease: LeaseState, *, holder: str, at: StoreTime, ttl: float) -> LeaseState | None:
    """Grant a free or lapsed lease to ``holder``; ``None`` refuses, even the same holder (L4, L6, L7)."""
    if lease.holding is not Holding.FREE and not lease.lapsed(at.now):
        return None
    return LeaseState(next_fence(lease.fence, at.epoch), Holding.WORKER, holder, at.now + ttl)


def renew(lease: LeaseState, *, fence: int, at: StoreTime, ttl: float) -> LeaseState | None:
    """Extend under the same fence, a lapsed lease too if nobody took it; ``None`` refuses (L3)."""
    if not lease.held_under(fence):
        return None
    return replace(lease, expires_at=at.now + ttl)


def release(lease: LeaseState, *, fence: int, live: bool, at: StoreTime) -> LeaseState:
    """Give up the lease if it is this acquisition's; otherwise nothing changes (L10).

    A live run's goes to the queue, lapsed at once, so that the reaper publishes it.
    """
    if not lease.held_under(fence):
        return lease
    if live:
        return to_queue(lease.fence, wait=0.0, at=at)
    return replace(lease, holding=Holding.FREE, holder=None)


def to_queue(fence: int, *, wait: float, at: StoreTime) -> LeaseState:
    """The queue's lease under the next fence, which waits ``wait`` seconds for its message."""
    return LeaseState(next_fence(fence, at.epoch), Holding.QUEUE, None, at.now + wait, wait)
