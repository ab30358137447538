"""The whole bundle in memory."""

from __future__ import annotations

from adk_worker.errors import ConfigurationError
from adk_worker.memory.checkpoints import MemoryCheckpointStore
from adk_worker.memory.data import MemoryData
from adk_worker.memory.history import MemoryHistoryStore
from adk_worker.memory.idempotency import MemoryIdempotencyStore
from adk_worker.memory.leases import MemoryLeaseStore
from adk_worker.memory.runs import MemoryRunStore
from adk_worker.runs import Stores, Sweep
from adk_worker.transitions.leases import MAX_EPOCH


class MemoryLifecycle:
    """There is nothing to open, and nothing to close: a bundle in memory ends with its last reference."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    async def verify(self) -> None:
        pass

    async def bump_epoch(self) -> int:
        with self._data.lock:
            if self._data.epoch >= MAX_EPOCH:
                raise ConfigurationError(f"the store's epoch is {MAX_EPOCH} already, and fences have no room for more.")
            self._data.epoch += 1
            return self._data.epoch

    async def swept(self) -> Sweep:
        with self._data.lock:
            return Sweep(self._data.clock(), self._data.last_sweep)

    async def close(self) -> None:
        pass


def memory_stores(data: MemoryData | None = None) -> Stores:
    """All parts of a store in memory over the same ``data``, for a fleet whose workers are threads of one process."""
    shared = data or MemoryData()
    return Stores(
        runs=MemoryRunStore(shared),
        leases=MemoryLeaseStore(shared),
        checkpoints=MemoryCheckpointStore(shared),
        idempotency=MemoryIdempotencyStore(shared),
        history=MemoryHistoryStore(shared),
        lifecycle=MemoryLifecycle(shared),
    )
