"""Who may advance a run: leases, the fence, and why two workers cannot both write.

The argument, in four steps; the tests carry the numbers.

1. *One holder at a time, by the store's clock.* The lease is one row. It is granted by a single atomic decision of the
   store, which reads its own clock (L1): only while free or lapsed, ``now == expires_at`` being lapsed (L6). So of N
   concurrent acquirers exactly one wins (L7), and a refusal names the holder (L5).
2. *Every holder has a greater number than all before it.* Acquisition and hand-over raise the fence; release, park and
   end keep it (L2). A worker that was paused past its lease therefore carries a smaller fence than whoever came after.
3. *The number is checked where it matters.* Every write of a run's state presents its fence, and the store compares in
   the same transaction as the write: equal, and the lease still held by that acquisition (F1). A worker's own opinion
   of the time is never asked. Step 1 could fail, by a clock set back or a bug in renewal, and step 3 would still hold.
4. *What is left is made cheap.* A worker that cannot renew stops itself before the store would let another in (L9), so
   that work is seldom done twice for nothing. This is best effort, and no guarantee rests on it.

A tool's effect outside the store is beyond step 3: that is what idempotency keys, probes and people are for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from adk_worker.errors import ConfigurationError, InvalidNameError
from adk_worker.names import check_name

QUEUE = "queue"
"""The holder that a refusal names while the lease is the queue's."""


@dataclass(frozen=True, slots=True)
class RunLease:
    """One acquisition of a run's lease. ``expires_at`` is in seconds since the epoch, by the store's clock."""

    tenant: str
    run_id: str
    holder: str
    fence: int
    expires_at: float

    def superseded_by(self, other: RunLease) -> bool:
        """Whether ``other`` came after this one: fences are compared, times never (L3)."""
        return (self.tenant, self.run_id) == (other.tenant, other.run_id) and other.fence > self.fence


def check_holder(holder: object) -> str:
    """Return ``holder`` if it can name one: a name such as a run id, and not the queue's; else ``InvalidNameError``."""
    name = check_name(holder, what="holder")
    if name == QUEUE:
        raise InvalidNameError(what="holder", reason=f"{QUEUE!r} is what a refusal calls the queue")
    return name


def check_ttl(ttl_seconds: float) -> float:
    """Return ``ttl_seconds`` if something can live that long.

    :raises ConfigurationError: it is not above 0, or not finite: such a lease would be lapsed at once, or never.
    """
    if not (ttl_seconds > 0 and math.isfinite(ttl_seconds)):
        raise ConfigurationError(f"a TTL of {ttl_seconds} seconds cannot be; it has to be above 0, and finite.")
    return ttl_seconds


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """How long a lease lives and how often it is renewed, in seconds (L10)."""

    ttl_seconds: float = 60.0
    renew_within: float = 20.0

    def __post_init__(self) -> None:
        # A tolerance, for a third of 0.3 is not 0.1.
        if not 0 < self.renew_within <= self.ttl_seconds / 3 * (1 + 1e-9):
            raise ConfigurationError(
                f"a lease of {self.ttl_seconds:g} s has to be renewed within a third of that, "
                f"{self.ttl_seconds / 3:g} s, not {self.renew_within:g} s: two renewals must be able to fail "
                "(ADK_LEASE_TTL, ADK_LEASE_RENEW_WITHIN)."
            )

    @property
    def margin(self) -> float:
        """How long before its expiry a lease that cannot be renewed is given up, in seconds (L9)."""
        return self.ttl_seconds / 6


class LeaseStore(Protocol):
    """Grants leases. Each method is one atomic operation of the store and uses the store's clock alone (L1)."""

    async def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float) -> RunLease:
        """Take the lease if it is free or lapsed; the fence rises.

        :raises RunLeaseError: it is held, even if by the very same ``holder`` (L4).
        :raises InvalidNameError: a name that cannot be one, for the holder :func:`check_holder`.
        :raises ConfigurationError: a TTL that cannot be (:func:`check_ttl`).
        :raises StoreUnavailableError: the store did not answer.
        """
        ...

    async def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        """Extend the lease to now + ``ttl_seconds`` under the same fence; a lapsed one too if nobody took it (L3).

        :raises StaleFenceError: superseded, or released.
        """
        ...

    async def release(self, lease: RunLease) -> None:
        """Give the lease up. Frees nothing if it is not this acquisition's any more (L10). The fence stays (L2).

        The lease of a live run of the fleet goes back to the queue instead: a live run never has a free lease.
        """
        ...

    async def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        """Who holds the lease now, or ``None`` if it is free or lapsed. The queue's name is :data:`QUEUE`."""
        ...
