"""Writing a run, its lease and its events, under the run's lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, update

from adk_worker.events import NewEvent
from adk_worker.runs import RunStatus
from adk_worker.transitions.leases import LeaseState, StoreTime
from adk_worker.transitions.runs import Phase, State
from stores.sql.locks import LockedRun
from stores.sql.rows import lease_columns, state_columns
from stores.sql.schema import events, leases, runs

_WRITE_LEASE: Final = update(leases).where(
    leases.c.tenant == bindparam("for_tenant"), leases.c.run_id == bindparam("for_run")
)
"""Sets the columns that are given with it; so does the next one."""
_WRITE_RUN: Final = update(runs).where(runs.c.tenant == bindparam("for_tenant"), runs.c.run_id == bindparam("for_run"))
_WRITE_EVENTS: Final = insert(events)


def write(
    tx: Connection,
    run: LockedRun,
    state: State,
    told: Sequence[NewEvent] = (),
    *,
    fence: int | None = None,
    **columns: Any,
) -> None:
    """Write ``state`` where it differs from what was locked, other ``columns`` of ``adk_runs``, and events.

    ``fence`` is the writer's; without one, the lease's fence after the write is taken. Taking and renewing a lease
    leaves the run's row alone.
    """
    if state.lease != run.state.lease:
        write_lease(tx, run.tenant, run.run_id, state.lease, live=state.phase is Phase.LIVE)
    changed = {name: value for name, value in {**state_columns(state), **columns}.items() if run.row[name] != value}
    if changed:
        this = {"for_tenant": run.tenant, "for_run": run.run_id}
        tx.execute(_WRITE_RUN, {**changed, "updated_at": run.at.now, **this})
    tell(tx, run, told, fence=state.lease.fence if fence is None else fence)


def write_lease(tx: Connection, tenant: str, run_id: str, lease: LeaseState, *, live: bool, **columns: Any) -> None:
    """Write a lease's row: all of it that moves with the lease, and other ``columns`` if they are given."""
    status = RunStatus.of(Phase.LIVE, lease.holding) if live else None
    this = {"for_tenant": tenant, "for_run": run_id}
    tx.execute(_WRITE_LEASE, {**lease_columns(lease), "status": status, **columns, **this})


def tell(tx: Connection, run: LockedRun, told: Sequence[NewEvent], *, fence: int) -> None:
    """Write events."""
    if told:
        rows = [event_columns(event, fence=fence, at=run.at) for event in told]
        tx.execute(_WRITE_EVENTS, [{"tenant": run.tenant, "run_id": run.run_id, **row} for row in rows])


def event_columns(event: NewEvent, *, fence: int, at: StoreTime) -> dict[str, Any]:
    """The columns of ``adk_events`` that hold the event, all but those that say which run it belongs to."""
    return {"at": at.now, "kind": str(event.kind), "fence": fence, "data": dict(event.data)}
