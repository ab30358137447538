"""The rows of runs and of their events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from adk_worker.events import NewEvent
from adk_worker.memory.data import MemoryData, RunKey, StoredEvent
from adk_worker.messages import canonical_json
from adk_worker.transitions.leases import StoreTime
from adk_worker.transitions.runs import State


def state_of(data: MemoryData, key: RunKey) -> State:
    """All that the rules look at: the run's row and its lease's."""
    return replace(data.runs[key].state, lease=data.lease(key))


def write(
    data: MemoryData,
    key: RunKey,
    state: State,
    told: Iterable[NewEvent] = (),
    *,
    at: StoreTime,
    fence: int | None = None,
    **columns: Any,
) -> None:
    """Write the run's row, its lease's, and events. ``columns`` are others of the run's row.

    ``fence`` is the writer's; without one, the lease's fence after the write is taken.
    """
    data.leases[key] = state.lease
    data.runs[key] = replace(data.runs[key], state=state, updated_at=at.now, **columns)
    tell(data, key, told, at=at, fence=fence)


def tell(data: MemoryData, key: RunKey, told: Iterable[NewEvent], *, at: StoreTime, fence: int | None = None) -> None:
    """Write events."""
    under = data.lease(key).fence if fence is None else fence
    rows = [StoredEvent(at.now, str(event.kind), under, canonical_json(dict(event.data))) for event in told]
    data.events[key].extend(rows)
