"""Removes runs that are over."""

from __future__ import annotations

from adk_worker.memory import claims
from adk_worker.memory.data import MemoryData, RunKey
from adk_worker.memory.reading import number_of
from adk_worker.pruning import Prune, Pruned
from adk_worker.transitions import claims as claim_transitions


def prune(data: MemoryData, which: Prune, *, limit: int, after: str | None) -> Pruned:
    """See :meth:`adk_worker.runs.RunStore.prune`."""
    behind = number_of(after)
    now = data.clock()
    numbered = sorted((row.number, key) for key, row in data.runs.items() if behind is None or row.number > behind)
    seen = numbered[:limit]
    due = [key for _, key in seen if is_due(data, key, which, now=now)]
    removed = [key for key in due if not claim_transitions.any_in_flight(claims.of_run(data, key))]
    for key in removed:
        _remove(data, key)
    return Pruned(len(removed), len(due) - len(removed), str(seen[-1][0]) if len(numbered) > limit else None)


def is_due(data: MemoryData, key: RunKey, which: Prune, *, now: float) -> bool:
    """Whether the run is to go, by its row."""
    row = data.runs[key]
    return which.due(row.state.phase, updated_at=row.updated_at, now=now)


def _remove(data: MemoryData, key: RunKey) -> None:
    for name in [name for name, row in data.claims.items() if row.run == key]:
        del data.claims[name]
    del data.runs[key]
    for table in (data.checkpoints, data.segments, data.events, data.resumes, data.approvals, data.waiting):
        table.pop(key, None)
