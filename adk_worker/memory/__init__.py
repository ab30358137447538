"""The stores in memory: the reference of every rule, for tests and for runs in one process that need not outlive it."""

from __future__ import annotations

from adk_worker.memory.bundle import memory_stores
from adk_worker.memory.checkpoints import MemoryCheckpointStore
from adk_worker.memory.data import MemoryData
from adk_worker.memory.history import MemoryHistoryStore
from adk_worker.memory.idempotency import MemoryIdempotencyStore
from adk_worker.memory.leases import MemoryLeaseStore
from adk_worker.memory.lone_ledgers import MemoryLedgers
from adk_worker.memory.runs import MemoryRunStore

__all__ = [
    "MemoryCheckpointStore",
    "MemoryData",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
    "MemoryLedgers",
    "MemoryRunStore",
    "memory_stores",
]
