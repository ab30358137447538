"""What the writes of a run store have in common: who may write, what a write came to, and a cancel's end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from adk_worker import events
from adk_worker.errors import StaleFenceError
from adk_worker.events import NewEvent
from adk_worker.lease import RunLease
from adk_worker.runs import Committed
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Moved, Phase, State, Verdict
from stores.sql import asked, claim_rows, journal
from stores.sql.locks import LockedRun, lock_lease, lock_run
from stores.sql.rows import run_lease


def run_under(tx: Connection, lease: RunLease) -> LockedRun:
    """Lock the run of a lease, whether that may write it or not.

    :raises StaleFenceError: there is no such run.
    """
    run = lock_run(tx, lease.tenant, lease.run_id)
    if run is None:
        alone = lock_lease(tx, lease.tenant, lease.run_id)
        raise stale(lease, current=0 if alone is None else alone.lease.fence)
    return run


def writable_under(tx: Connection, lease: RunLease) -> LockedRun:
    """Lock the run of a lease that may write it.

    :raises StaleFenceError: it may not.
    """
    run = run_under(tx, lease)
    if not run.state.writable_by(lease.fence):
        raise stale(lease, current=run.state.lease.fence)
    return run


def unless_refused(moved: Moved, lease: RunLease) -> Moved:
    """The move, unless the lease may not write.

    :raises StaleFenceError: it may not.
    """
    if moved.verdict is Verdict.REFUSED:
        raise stale(lease, current=moved.state.lease.fence)
    return moved


def stale(lease: RunLease, *, current: int) -> StaleFenceError:
    """The refusal of a write under ``lease`` (F1)."""
    return StaleFenceError(tenant=lease.tenant, run_id=lease.run_id, presented=lease.fence, current=current)


def committed(lease: RunLease, state: State, verdict: Verdict) -> Committed:
    """What a write under ``lease`` came to, by the state as it stands after it."""
    held = run_lease(lease.tenant, lease.run_id, state.lease) if state.lease.held_under(lease.fence) else None
    queued = state.phase is Phase.LIVE and state.lease.holding is Holding.QUEUE
    return Committed(verdict, held, state.lease.fence if queued else None)


def end_cancelled(
    tx: Connection,
    run: LockedRun,
    state: State,
    told: Sequence[NewEvent] = (),
    *,
    fence: int | None = None,
    **columns: Any,
) -> Committed:
    """Write the end of a run for which a cancel was requested; ``told`` comes before it (P2)."""
    if run.state.phase is Phase.WAITING_APPROVAL:
        asked.withdraw(tx, run)
    journal.write(tx, run, state, [*told, events.cancelled()], fence=fence, detail=None, **columns)
    claim_rows.forget_if_decided(tx, run.tenant, run.run_id)
    return Committed(Verdict.CANCELLED)
