"""A store in one JSON file, for several processes of one machine: ``ADK_STORE_URL=file:///var/lib/runs.json``.

Each operation locks the file, reads it, does what the store in memory does, and puts a new file in its place. So the
rules are those of :mod:`adk_worker.memory`, and what this package adds is what makes a store of them: one operation at
a time whoever asks, nothing acknowledged before it is on disk, and a clock that is nobody's who asks.

It reads and writes everything each time, which will do for some hundred runs.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from adk_worker import Stores
from adk_worker.errors import ConfigurationError
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
)
from adk_worker_filestore.file import File
from adk_worker_filestore.parts import FileLifecycle, part

__all__ = ["open_file"]


def open_file(url: str, *, pool_size: int | None = None, socket_timeout: float | None = None) -> Stores:  # noqa: ARG001
    """The bundle in the file that the URL names. It is created with the first write.

    :param pool_size: means nothing here, nor does ``socket_timeout``; any store is opened with the same options.
    :raises ConfigurationError: the URL names no absolute path, or a host, or options.
    """
    said = urlsplit(url)
    path = Path(unquote(said.path))
    if said.netloc or said.query or said.fragment or not path.is_absolute() or not path.name:
        raise ConfigurationError("a store in a file is named by its absolute path and nothing else: file:///path/to/it")
    file = File(path)
    return Stores(
        runs=part(MemoryRunStore, file),
        leases=part(MemoryLeaseStore, file),
        checkpoints=part(MemoryCheckpointStore, file),
        idempotency=part(MemoryIdempotencyStore, file),
        history=part(MemoryHistoryStore, file),
        lifecycle=FileLifecycle(file),
    )
