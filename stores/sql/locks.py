"""Locking a run, and reading what the rules look at.

A lease's row is its run's lock: every operation on a run locks that row first, and reads and writes everything else
while it has it. So operations on one run come one after the other, and none of them waits for another in a circle.

The order, which every transaction keeps to: the leases' rows (several only where none is waited for), the claims' in
the order of their keys, a tenant's account last, several in the order of tenants. Nobody who has an account locked
locks anything else.

Each statement here locks in an inner part and reads the clock in its outer part, so after the wait (L1). And it locks
*all* rows that it returns: PostgreSQL gives a statement that waited the newest version of the rows that it locked, and
of every other row the version from before the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, select

from adk_worker.ledger.booking import Ledger
from adk_worker.runs import Run
from adk_worker.transitions.leases import LeaseState, StoreTime
from adk_worker.transitions.runs import State
from stores.sql import schema
from stores.sql.dialects import store_clock
from stores.sql.rows import Columns, lease_state, ledger_of, run_of, run_state

EPOCH: Final = select(schema.schema_row.c.epoch).scalar_subquery()
"""The store's epoch. It needs no lock: raising it waits for all who have locked a lease, and they wait for it."""

LEASE_COLUMNS: Final = tuple(column for column in schema.leases.c if column.name not in {"tenant", "run_id", "number"})
"""What a lease says beside its run's name and number, which stand in the run's row as well."""

# In this order: rows are locked as their tables stand here.
RUN_AND_LEASE: Final = schema.leases.join(
    schema.runs,
    (schema.leases.c.tenant == schema.runs.c.tenant) & (schema.leases.c.run_id == schema.runs.c.run_id),
)


def timed(rows: Select[Any]) -> Select[Any]:
    """``rows``, which locks what it selects, with the time at which it had it locked."""
    locked = rows.cte("locked").prefix_with("MATERIALIZED", dialect="postgresql")
    return select(locked, store_clock().label("now"), EPOCH.label("epoch"))


_THIS_LEASE = (schema.leases.c.tenant == bindparam("tenant")) & (schema.leases.c.run_id == bindparam("run_id"))

_LOCK_LEASE: Final = timed(select(*LEASE_COLUMNS).where(_THIS_LEASE).with_for_update())

_LOCK_RUN: Final = timed(
    select(schema.runs, *LEASE_COLUMNS).select_from(RUN_AND_LEASE).where(_THIS_LEASE).with_for_update()
)

_LOCK_RUN_UNLESS_LOCKED: Final = timed(
    select(schema.runs, *LEASE_COLUMNS).select_from(RUN_AND_LEASE).where(_THIS_LEASE).with_for_update(skip_locked=True)
)

READ_RUN: Final = select(schema.runs, *LEASE_COLUMNS).select_from(RUN_AND_LEASE)
"""Runs with their leases, as they stand; only reads."""


@dataclass(frozen=True, slots=True)
class LockedLease:
    """A lease's row under lock. ``live`` says whether a live run of the fleet stands behind it."""

    lease: LeaseState
    at: StoreTime
    live: bool


@dataclass(frozen=True, slots=True)
class LockedRun:
    """A run's row and its lease's under one lock."""

    tenant: str
    run_id: str
    state: State
    at: StoreTime
    row: Columns

    @property
    def ledger(self) -> Ledger:
        """What the run may spend, and what it has."""
        return ledger_of(self.row)

    def view(self, state: State | None = None, **changed: Any) -> Run:
        """The run as callers see it, in ``state`` if that has been written since, as ``changed`` columns have."""
        return run_of(self.row, self.state if state is None else state, **changed)


def lock_lease(tx: Connection, tenant: str, run_id: str) -> LockedLease | None:
    """Lock a lease's row; ``None`` if the name was never leased."""
    row = tx.execute(_LOCK_LEASE, {"tenant": tenant, "run_id": run_id}).mappings().one_or_none()
    return None if row is None else LockedLease(lease_state(row), store_time(row), row["status"] is not None)


def lock_run(tx: Connection, tenant: str, run_id: str) -> LockedRun | None:
    """Lock a run; ``None`` if there is none."""
    row = tx.execute(_LOCK_RUN, {"tenant": tenant, "run_id": run_id}).mappings().one_or_none()
    return None if row is None else locked_run(row)


def lock_run_unless_locked(tx: Connection, tenant: str, run_id: str) -> LockedRun | None:
    """Lock a run; ``None`` if there is none, or if somebody has it locked, who is not waited for."""
    row = tx.execute(_LOCK_RUN_UNLESS_LOCKED, {"tenant": tenant, "run_id": run_id}).mappings().one_or_none()
    return None if row is None else locked_run(row)


def locked_run(row: Columns) -> LockedRun:
    """A run from a row of a statement made with :func:`timed`."""
    return LockedRun(row["tenant"], row["run_id"], run_state(row), store_time(row), row)


def store_time(row: Columns) -> StoreTime:
    """Clock and epoch from a row of a statement made with :func:`timed`."""
    return StoreTime(row["now"], row["epoch"])


def database_time(tx: Connection) -> float:
    """The store's clock, for what needs no lease's lock. Ask once everything is locked."""
    now: float = tx.execute(_NOW).scalar_one()
    return now


_NOW: Final = select(store_clock())
