"""The file: locked, read, written whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from adk_worker.errors import StoreUnavailableError
from adk_worker.memory import MemoryData
from adk_worker_filestore.rows import Rows


class File:
    """One store's file, and beside it the file that is locked and whose time stamp is the clock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside = path.with_name(f"{path.name}.lock")
        self._next = path.with_name(f"{path.name}.next")

    @contextmanager
    def opened(self) -> Iterator[MemoryData]:
        """All that is stored, for one operation. What was changed is on disk when the block is left without an error.

        The lock belongs to this opening of the file, so it keeps out threads as it keeps out processes.

        :raises StoreUnavailableError: the file cannot be read or written, or holds something else.
        """
        try:
            with self._beside.open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                rows = Rows.read(self._path)
                now = max(self._now(), rows.clock)
                data = rows.data(lambda: now)
                yield data
                after = Rows.of(data, clock=now)
                if not after.same_as(rows):
                    self._write(after)
        except (OSError, ValidationError) as error:
            raise StoreUnavailableError(store=str(self._path), reason=f"{type(error).__name__}: {error}") from error

    def _now(self) -> float:
        """The time at which the lock's file is touched, by the clock of whoever keeps it: it is one for all (L1)."""
        os.utime(self._beside)
        return self._beside.stat().st_mtime_ns / 1e9

    def _write(self, rows: Rows) -> None:
        """Put a whole new file in place of the old one: it is there as it was, or as it will be."""
        with self._next.open("w", encoding="utf-8") as file:
            file.write(rows.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        self._next.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
