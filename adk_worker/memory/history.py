"""Transcripts in memory."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker.errors import HistoryUnavailableError
from adk_worker.history import Handle, Segment, StoredSegment, assemble
from adk_worker.memory.data import MemoryData, RunKey
from adk_worker.messages import Message
from adk_worker.names import check_name, check_run


class MemoryHistoryStore:
    """A :class:`~adk_worker.history.HistoryStore` for one process; usable from any thread and event loop."""

    def __init__(self, data: MemoryData | None = None) -> None:
        self._data = data or MemoryData()

    async def append(
        self,
        run_id: str,
        *,
        tenant: str,
        start: int,
        messages: Sequence[Message],
        fence: int | None = None,
        after: str | None = None,
    ) -> str:
        key = check_run(tenant, run_id)
        with self._data.lock:
            behind = locate(self._data, key, start=start, after=after)
            segment = Segment.extend(behind, messages)
            self._data.accept_fence(key, fence)
            store(self._data, key, segment)
        return str(segment.handle)

    async def fetch(self, handle: str, *, tenant: str) -> tuple[Message, ...] | None:
        check_name(tenant, what="tenant")
        wanted = Handle.parse(handle)
        with self._data.lock:
            segments = dict(self._data.segments.get((tenant, wanted.run_id), {}))
        if wanted.count > 0 and not segments:
            return None
        return assemble(wanted, segments)

    async def segments(self, run_id: str, *, tenant: str) -> Sequence[str]:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return [segment.payload for segment in self._data.segments.get(key, {}).values()]


def store(data: MemoryData, key: RunKey, segment: Segment) -> None:
    """Keep a segment under the lock; one that is there already stays the one that was first."""
    row = StoredSegment(segment.after.count, segment.after.digest, segment.payload)
    data.segments[key].setdefault((segment.handle.count, segment.handle.digest), row)


def locate(data: MemoryData, key: RunKey, *, start: int, after: str | None) -> Handle:
    """The handle behind which messages go.

    :raises HistoryUnavailableError: nothing that is stored ends there.
    """
    _, run_id = key
    if after is not None:
        named = Handle.parse(after)
        if named.run_id != run_id or named.count != start:
            raise HistoryUnavailableError(handle=after, reason=f"it does not end at message {start} of this run")
        if named != Handle.empty(run_id) and (named.count, named.digest) not in data.segments.get(key, {}):
            raise HistoryUnavailableError(handle=after, reason=f"the segment that ends at message {start} is gone")
        return named
    if start == 0:
        return Handle.empty(run_id)
    ends = data.ends_at(key, start)
    if not ends:
        raise HistoryUnavailableError(handle=f"{run_id!r}, message {start}", reason="nothing is stored up to there")
    return Handle(run_id, start, ends[-1])
