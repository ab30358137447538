"""Reads runs and their events: single statements, which take no lease and no lock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, select

from adk_worker.errors import InvalidNameError
from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.lease_transitions import Holding
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions import Phase
from stores.sql.locks import LEASE_COLUMNS, RUN_AND_LEASE
from stores.sql.rows import HIGHEST, event_of, run_of
from stores.sql.schema import ATTENTION, events, leases, runs

_RUNS: Final = select(runs, *LEASE_COLUMNS).select_from(RUN_AND_LEASE)
_ONE: Final = _RUNS.where(runs.c.tenant == bindparam("for_tenant"), runs.c.run_id == bindparam("for_run"))
# A value, and no EXISTS: that would be joined, with a plan that reads the leases of all runs there ever were. So live
# runs are looked at one by one, the newest first, until the page is full.
_RUNNING: Final = (
    select(leases.c.holding)
    .where(leases.c.tenant == runs.c.tenant, leases.c.run_id == runs.c.run_id)
    .correlate(runs)
    .scalar_subquery()
) == Holding.WORKER.value
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
    conditions = _conditions(where)
    if before is not None:
        conditions.append(runs.c.number < before)
    # One more than asked for tells whether there is a next page. The page is cut before leases are joined to it, so
    # that none are read but its own.
    cut = select(runs).where(*conditions).order_by(runs.c.number.desc()).limit(limit + 1).cte("cut")
    cut = cut.prefix_with("MATERIALIZED", dialect="postgresql")
    theirs = (leases.c.tenant == cut.c.tenant) & (leases.c.run_id == cut.c.run_id)
    query = select(cut, *LEASE_COLUMNS).select_from(cut.join(leases, theirs)).order_by(cut.c.number.desc())
    found = tx.execute(query).mappings().all()
    shown = found[:limit]
    return [run_of(row) for row in shown], str(shown[-1]["number"]) if shown and len(found) > limit else None


def cursor(after: str | None) -> int | None:
    """Read a page's cursor.

    :raises InvalidNameError: it is none.
    """
    if after is None:
        return None
    if not (after.isascii() and after.isdigit()):
        raise InvalidNameError(what="page's cursor", reason="it is none that a listing gave")
    # Larger numbers than a column's are behind everything that is there.
    return min(int(after), HIGHEST)


def _conditions(where: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if where.tenant is not None:
        conditions.append(runs.c.tenant == where.tenant)
    if where.run_id is not None:
        conditions.append(runs.c.run_id == where.run_id)
    if where.needs_attention is not None:
        # Said also where one kind is asked for: it is what the index says.
        conditions.append(ATTENTION if where.needs_attention else ~ATTENTION)
    if where.kind is not None:
        conditions.append(runs.c.attention == where.kind.value)
    if where.agent is not None:
        conditions.append(runs.c.agent == where.agent)
    conditions += _in_time(runs.c.created_at, where.created_since, where.created_until)
    conditions += _in_time(runs.c.updated_at, where.updated_since, where.updated_until)
    if where.status is not None:
        conditions += _of_status(where.status)
    return conditions


def _in_time(column: ColumnElement[float], since: float | None, until: float | None) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if since is not None:
        conditions.append(column >= since)
    if until is not None:
        conditions.append(column < until)
    return conditions


def _of_status(status: RunStatus) -> list[ColumnElement[bool]]:
    if status in {RunStatus.RUNNING, RunStatus.QUEUED}:
        return [runs.c.phase == Phase.LIVE.value, _RUNNING if status is RunStatus.RUNNING else ~_RUNNING]
    return [runs.c.phase == Phase(status.value).value]
