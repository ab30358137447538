"""Checkpoints in memory."""

from __future__ import annotations

from adk_worker.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from adk_worker.errors import FrontierLostError
from adk_worker.memory.data import MemoryData, StoredCheckpoint
from adk_worker.names import check_run


class MemoryCheckpointStore:
    """A :class:`~adk_worker.checkpoint.CheckpointStore` for one process; usable from any thread and event loop."""

    def __init__(self, data: MemoryData | None = None) -> None:
        self._data = data or MemoryData()

    async def put(self, checkpoint: Checkpoint, *, fence: int | None = None) -> None:
        key = check_run(checkpoint.tenant, checkpoint.run_id)
        row = StoredCheckpoint(encode_checkpoint(checkpoint), checkpoint.sequence, checkpoint.agent)
        with self._data.lock:
            self._data.accept_fence(key, fence)
            self._data.checkpoints[key] = row

    async def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            row = self._data.checkpoints.get(key)
            run = self._data.runs.get(key)
        if run is not None and run.state.behind:
            raise FrontierLostError(tenant=tenant, run_id=run_id, sequence=row.sequence if row else 0)
        return None if row is None else decode_checkpoint(row.payload)

    async def forget(self, run_id: str, *, tenant: str, fence: int | None = None) -> None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            self._data.accept_fence(key, fence)
            self._data.checkpoints.pop(key, None)
