"""The stores in memory: the reference of every rule, for tests and for runs in one process that need not outlive it."""

from __future__ import annotations

from adk_worker.memory.checkpoints import MemoryCheckpointStore
from adk_worker.memory.data import MemoryData
from adk_worker.memory.history import MemoryHistoryStore
from adk_worker.memory.idempotency import MemoryIdempotencyStore
from adk_worker.memory.leases import MemoryLeaseStore

__all__ = [
    "MemoryCheckpointStore",
    "MemoryData",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
]
