"""Reads runs and their events."""

from __future__ import annotations

import json
from collections.abc import Sequence

from adk_worker.errors import InvalidNameError
from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.memory import journal
from adk_worker.memory.data import MemoryData, RunKey, as_run_lease
from adk_worker.messages import Usage
from adk_worker.runs import Run, RunStatus, Taken
from adk_worker.transitions.leases import Holding


def run_of(data: MemoryData, key: RunKey) -> Run:
    """The run as callers see it, made anew from its rows."""
    row, state = data.runs[key], journal.state_of(data, key)
    lease = state.lease
    free = lease.holding is Holding.FREE
    tenant, run_id = key
    return Run(
        tenant=tenant,
        run_id=run_id,
        **json.loads(data.submitted(key)),
        revision=row.revision,
        status=RunStatus.of(state.phase, lease.holding),
        attention=state.attention,
        detail=row.detail,
        parked_on=state.parked_on,
        sequence=state.sequence,
        iteration=row.iteration,
        execution=row.execution,
        usage=Usage(input_tokens=row.input_tokens, output_tokens=row.output_tokens),
        cost_micros=row.cost_micros,
        ledger=row.ledger,
        output=row.output,
        crashes=state.crashes,
        tries=state.tries,
        cancel_requested=state.cancel_requested,
        behind=state.behind,
        holder=None if free else as_run_lease(key, lease).holder,
        fence=lease.fence,
        expires_at=None if free else lease.expires_at,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def taken_of(data: MemoryData, key: RunKey, *, limited: bool) -> Taken:
    """What a worker that holds the lease reads under it."""
    stored = data.checkpoints.get(key)
    payload = None if stored is None else stored.payload
    return Taken(as_run_lease(key, data.lease(key)), run_of(data, key), payload, limited)


def page(data: MemoryData, where: RunFilter, *, limit: int, after: str | None) -> tuple[Sequence[Run], str | None]:
    """Runs that ``where`` asks for, newest first, from behind the cursor ``after``."""
    before = number_of(after)
    found: list[Run] = []
    cursor = None
    for key, row in sorted(data.runs.items(), key=lambda item: -item[1].number):
        if before is not None and row.number >= before:
            continue
        run = run_of(data, key)
        if not where.covers(run):
            continue
        if len(found) == limit:
            return found, cursor
        found.append(run)
        cursor = str(row.number)
    return found, None


def events_of(data: MemoryData, key: RunKey, *, after: int, limit: int) -> Sequence[Event]:
    """The run's events with an id above ``after``; the first one's is 1."""
    first = max(after, 0)
    rows = data.events.get(key, [])[first : first + limit]
    return [
        Event(id=number, at=row.at, kind=row.kind, fence=row.fence, data=json.loads(row.data))
        for number, row in enumerate(rows, first + 1)
    ]


def number_of(after: str | None) -> int | None:
    """Read a page's cursor: the number of the last run before it.

    :raises InvalidNameError: no listing gave it.
    """
    if after is None:
        return None
    if not (after.isascii() and after.isdigit()):
        raise InvalidNameError(what="page's cursor", reason="no listing gave it")
    return int(after)
