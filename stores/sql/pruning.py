"""Removes runs that are over, a batch in a transaction.

Runs are looked at in the order in which they were submitted, which an index has, and until one is met that was
submitted too late to be due: so a batch reads no more than its own length, and no index has to move with a run's last
write (:mod:`stores.sql.schema`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Table, bindparam, delete, select, tuple_

from adk_worker.idempotency import ClaimState
from adk_worker.pruning import Prune, Pruned
from adk_worker.transitions.runs import Phase
from stores.sql.dialects import store_clock
from stores.sql.locks import RUN_AND_LEASE
from stores.sql.schema import approvals, checkpoints, claims, events, grants, leases, messages, resumes, runs

_OLDEST: Final = (
    select(runs.c.tenant, runs.c.run_id, runs.c.number, runs.c.phase, runs.c.created_at, runs.c.updated_at)
    .add_columns(store_clock().label("now"))
    .where(runs.c.number > bindparam("behind"))
    .order_by(runs.c.number)
    .limit(bindparam("at_most"))
)


def _named(table: Table) -> Any:
    return tuple_(table.c.tenant, table.c.run_id).in_(bindparam("named", expanding=True))


# Whoever works on one of them has its lease locked, and keeps it from being removed; it is nobody we would wait for.
_LOCK: Final = (
    select(runs.c.tenant, runs.c.run_id, runs.c.phase, runs.c.updated_at)
    .select_from(RUN_AND_LEASE)
    .where(_named(leases))
    .with_for_update(skip_locked=True)
)
_UNDECIDED: Final = (
    select(claims.c.tenant, claims.c.run_id)
    .where(_named(claims), claims.c.state == ClaimState.IN_FLIGHT.value)
    .distinct()
)
_REMOVE: Final = tuple(
    delete(table).where(_named(table))
    for table in (checkpoints, messages, claims, approvals, grants, events, resumes, runs)
)


def prune(tx: Connection, which: Prune, *, limit: int, behind: int) -> Pruned:
    """See :meth:`adk_worker.runs.RunStore.prune`; ``behind`` is the number that its cursor says."""
    seen = tx.execute(_OLDEST, {"behind": behind, "at_most": limit}).mappings().all()
    due = _locked(tx, which, [(row["tenant"], row["run_id"]) for row in seen if _due(which, row, now=row["now"])])
    undecided = _pairs(tx, _UNDECIDED, due)
    removed = [name for name in due if name not in undecided]
    for statement in _REMOVE if removed else ():
        tx.execute(statement, {"named": removed})
    older = len(seen) == limit and seen[-1]["created_at"] <= seen[-1]["now"] - which.older_than
    return Pruned(len(removed), len(undecided), str(seen[-1]["number"]) if older else None)


def _locked(tx: Connection, which: Prune, named: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those that are due still, locked. One that was failed may have been queued again since it was read."""
    if not named:
        return []
    now = tx.execute(select(store_clock())).scalar_one()
    rows = tx.execute(_LOCK, {"named": named}).mappings()
    return [(row["tenant"], row["run_id"]) for row in rows if _due(which, row, now=now)]


def _due(which: Prune, row: Any, *, now: float) -> bool:
    return which.due(Phase(row["phase"]), updated_at=row["updated_at"], now=now)


def _pairs(tx: Connection, statement: Any, named: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(tenant, run_id) for tenant, run_id in tx.execute(statement, {"named": named})} if named else set()
