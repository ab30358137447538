"""What the writes of a run store have in common: who may write, what a write came to, and a cancel's end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adk_worker import events
from adk_worker.events import NewEvent
from adk_worker.lease import RunLease
from adk_worker.memory import asked, claims, journal
from adk_worker.memory.data import MemoryData, RunKey, as_run_lease, stale
from adk_worker.runs import Committed
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import Moved, Phase, State, Verdict


def state_under(data: MemoryData, lease: RunLease) -> tuple[RunKey, State]:
    """The run of a lease, and its state.

    :raises StaleFenceError: there is no such run.
    """
    key = (lease.tenant, lease.run_id)
    if key not in data.runs:
        raise stale(key, presented=lease.fence, current=data.lease(key).fence)
    return key, journal.state_of(data, key)


def unless_refused(moved: Moved, lease: RunLease) -> Moved:
    """The move, unless the lease may not write.

    :raises StaleFenceError: it may not.
    """
    if moved.verdict is Verdict.REFUSED:
        key = (lease.tenant, lease.run_id)
        raise stale(key, presented=lease.fence, current=moved.state.lease.fence)
    return moved


def committed(data: MemoryData, key: RunKey, lease: RunLease, verdict: Verdict) -> Committed:
    """What a write came to, by the rows as they stand now."""
    state = journal.state_of(data, key)
    held = as_run_lease(key, state.lease) if state.lease.held_under(lease.fence) else None
    queued = state.lease.holding is Holding.QUEUE  # which a live run's alone ever is
    return Committed(verdict, held, state.lease.fence if queued else None)


def end_cancelled(
    data: MemoryData,
    key: RunKey,
    state: State,
    told: Iterable[NewEvent] = (),
    *,
    at: StoreTime,
    fence: int | None = None,
    **columns: Any,
) -> Committed:
    """Write the end of a run for which a cancel was requested; ``told`` comes before it (P2)."""
    if journal.state_of(data, key).phase is Phase.WAITING_APPROVAL:
        asked.withdraw(data, key, at=at)
    journal.write(data, key, state, [*told, events.cancelled()], at=at, fence=fence, detail=None, **columns)
    claims.forget_if_decided(data, key)
    return Committed(Verdict.CANCELLED)
