"""The store in memory, as a fleet opens it: ``memory://``.

The implementation is the core's own, :mod:`adk_worker.memory`: the stores of a run in process.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from adk_worker.errors import ConfigurationError
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryData,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
    memory_stores,
)
from adk_worker.runs import Stores

__all__ = [
    "MemoryCheckpointStore",
    "MemoryData",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
    "MemoryRunStore",
    "open_memory",
]


def open_memory(
    url: str = "memory://",
    *,
    clock: Callable[[], float] = time.time,
    pool_size: int | None = None,  # noqa: ARG001 - see the docstring
    socket_timeout: float | None = None,  # noqa: ARG001 - see the docstring
) -> Stores:
    """A bundle of its own, which ends with the process: for a fleet whose workers are threads of it, and for tests.

    :param clock: the store's clock, in seconds since the epoch (L1).
    :param pool_size: means nothing here, nor does ``socket_timeout``: there is no connection. They are taken so that
        one set of options opens any store.
    :raises ConfigurationError: the URL names something; no two bundles in memory share anything.
    """
    if url != "memory://":
        raise ConfigurationError("a store in memory has no host, name or options: its URL is memory://")
    return memory_stores(MemoryData(clock))
