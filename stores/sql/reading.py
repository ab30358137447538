"""Reads runs and their events: single statements, which take no lease and no lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import (
    CTE,
    ColumnElement,
    Connection,
    FromClause,
    ScalarSelect,
    Select,
    Table,
    and_,
    bindparam,
    select,
)

from adk_worker.errors import InvalidNameError
from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.log import get_logger
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.runs import Phase
from stores.sql.locks import LEASE_COLUMNS, RUN_AND_LEASE
from stores.sql.rows import HIGHEST, event_of, run_of
from stores.sql.schema import ATTENTION, events, leases, runs

T = TypeVar("T")

_log = get_logger(__name__)

_RUNS: Final = select(runs, *LEASE_COLUMNS).select_from(RUN_AND_LEASE)
_ONE: Final = _RUNS.where(runs.c.tenant == bindparam("for_tenant"), runs.c.run_id == bindparam("for_run"))
_OF_LEASES: Final = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
"""The statuses that stand in the lease. All others stand in the run's row."""
_EVENTS: Final = (
    select(events)
    .where(
        events.c.tenant == bindparam("for_tenant"),
        events.c.run_id == bindparam("for_run"),
        events.c.id > bindparam("after"),
    )
    .order_by(events.c.id)
    .limit(bindparam("at_most"))
)


def get(tx: Connection, tenant: str, run_id: str) -> Run | None:
    """See :meth:`adk_worker.runs.RunStore.get`."""
    row = tx.execute(_ONE, {"for_tenant": tenant, "for_run": run_id}).mappings().one_or_none()
    return None if row is None else run_of(row)


def events_of(tx: Connection, tenant: str, run_id: str, *, after: int, limit: int) -> Sequence[Event]:
    """See :meth:`adk_worker.runs.RunStore.events`."""
    this = {"for_tenant": tenant, "for_run": run_id, "after": min(after, HIGHEST), "at_most": limit}
    return [event_of(row) for row in tx.execute(_EVENTS, this).mappings()]


def page(tx: Connection, where: RunFilter, *, limit: int, before: int | None) -> tuple[Sequence[Run], str | None]:
    """See :meth:`adk_worker.runs.RunStore.list`; ``before`` is what its cursor says."""
    # One more than asked for tells whether there is a next page.
    found = tx.execute(_page(where, limit=limit + 1, before=before)).mappings().all()
    shown = found[:limit]
    return [run_of(row) for row in shown], str(shown[-1]["number"]) if shown and len(found) > limit else None


def page_apart(tx: Connection, where: RunFilter, *, limit: int, before: int | None) -> tuple[Sequence[Run], str | None]:
    """Do the same, one run at a time; the page lacks those that cannot be read, which are named in the log."""
    rows = _page(where, limit=limit + 1, before=before).subquery()
    names = select(rows.c.tenant, rows.c.run_id, rows.c.number).order_by(rows.c.number.desc())
    found = tx.execute(names).mappings().all()
    shown = found[:limit]
    read: list[Run] = []
    for row in shown:
        try:
            run = get(tx, row["tenant"], row["run_id"])
        except ValueError as error:
            # Its kind alone: the text may quote the run.
            _log.error("run_not_read", tenant=row["tenant"], run_id=row["run_id"], error=type(error).__name__)
            continue
        # It is read after it was found, and may have moved in between.
        if run is not None and where.covers(run):
            read.append(run)
    return read, str(shown[-1]["number"]) if shown and len(found) > limit else None


def _page(where: RunFilter, *, limit: int, before: int | None) -> Select[Any]:
    query = _by_leases if where.status in _OF_LEASES and where.run_id is None else _by_runs
    return query(where, limit=limit, before=before)


def cursor(after: str | None) -> int | None:
    """Read a page's cursor.

    :raises InvalidNameError: no listing gave it.
    """
    if after is None:
        return None
    if not (after.isascii() and after.isdigit()):
        raise InvalidNameError(what="page's cursor", reason="no listing gave it")
    # Larger numbers than a column's are behind everything that is there.
    return min(int(after), HIGHEST)


def _by_runs(where: RunFilter, *, limit: int, before: int | None) -> Select[Any]:
    """A page of what is found in the indexes of runs."""
    conditions = [*_placed(where, runs, before), *_said(where)]
    if where.run_id is not None:
        conditions.append(runs.c.run_id == where.run_id)
    if where.status in _OF_LEASES:
        conditions.append(_behind(leases, leases.c.status, at=runs) == where.status.value)
    elif where.status is not None:
        conditions.append(runs.c.phase == Phase(where.status.value).value)
    cut = _cut(runs, conditions, limit)
    return select(cut, *LEASE_COLUMNS).select_from(cut.join(leases, _same(cut, leases))).order_by(cut.c.number.desc())


def _by_leases(where: RunFilter, *, limit: int, before: int | None) -> Select[Any]:
    """A page of what is found in the indexes of leases. What else is asked of a run is looked up in its row."""
    conditions = [leases.c.status == where.status, *_placed(where, leases, before)]
    if said := _said(where):
        conditions.append(_behind(runs, and_(*said), at=leases))
    cut = _cut(leases, conditions, limit)
    lease = [cut.c[column.name] for column in LEASE_COLUMNS]
    return select(runs, *lease).select_from(cut.join(runs, _same(cut, runs))).order_by(cut.c.number.desc())


def _cut(table: Table, conditions: Sequence[ColumnElement[bool]], limit: int) -> CTE:
    """The newest that there are, before the other table is joined to them: so none are read there but theirs."""
    page = select(table).where(*conditions).order_by(table.c.number.desc()).limit(limit)
    return page.cte("cut").prefix_with("MATERIALIZED", dialect="postgresql")


def _behind(table: Table, column: ColumnElement[T], *, at: Table) -> ScalarSelect[T]:
    """What the row of the same run in ``table`` says, where a row of ``at`` is looked at.

    A value, and no EXISTS: that would be joined, with a plan that reads all rows there ever were. So rows are looked
    at one by one, the newest first, until the page is full.
    """
    return select(column).select_from(table).where(_same(table, at)).correlate(at).scalar_subquery()


def _same(one: FromClause, other: FromClause) -> ColumnElement[bool]:
    return (one.c.tenant == other.c.tenant) & (one.c.run_id == other.c.run_id)


def _placed(where: RunFilter, table: Table, before: int | None) -> list[ColumnElement[bool]]:
    """What both tables' indexes are searched by."""
    conditions: list[ColumnElement[bool]] = []
    if where.tenant is not None:
        conditions.append(table.c.tenant == where.tenant)
    if before is not None:
        conditions.append(table.c.number < before)
    return conditions


def _said(where: RunFilter) -> list[ColumnElement[bool]]:
    """What stands in a run's row, beside its status."""
    conditions: list[ColumnElement[bool]] = []
    if where.needs_attention is not None:
        # Said also where one kind is asked for: it is what the index says.
        conditions.append(ATTENTION if where.needs_attention else ~ATTENTION)
    if where.kind is not None:
        conditions.append(runs.c.attention == where.kind.value)
    if where.agent is not None:
        conditions.append(runs.c.agent == where.agent)
    conditions += _in_time(runs.c.created_at, where.created_since, where.created_until)
    conditions += _in_time(runs.c.updated_at, where.updated_since, where.updated_until)
    return conditions


def _in_time(column: ColumnElement[float], since: float | None, until: float | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if since is not None:
        conditions.append(column >= since)
    if until is not None:
        conditions.append(column < until)
    return conditions
