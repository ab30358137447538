"""The parts of the bundle: each operation of the store in memory, made on what the file holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from adk_worker.errors import SchemaVersionError, StoreUnavailableError
from adk_worker.memory import MemoryData, memory_stores
from adk_worker_filestore.file import File


def part(kind: Callable[[MemoryData], Any], file: File) -> Any:
    """A store whose every public operation is that of ``kind``, on what the file holds.

    A store is used from several event loops and threads at once. The lock is waited for in a thread, so that no loop is
    held up by another process.
    """
    names = [name for name, value in vars(kind).items() if not name.startswith("_") and callable(value)]
    operations = {name: _operation(kind, name, file) for name in names}
    return type(kind.__name__.replace("Memory", "File"), (), operations)()


def _operation(kind: Callable[[MemoryData], Any], name: str, file: File) -> Callable[..., Coroutine[Any, Any, Any]]:
    def made(args: tuple[Any, ...], fields: dict[str, Any]) -> Any:
        with file.opened() as data:
            return _at_once(getattr(kind(data), name)(*args, **fields))

    async def operation(self: object, *args: Any, **fields: Any) -> Any:  # noqa: ARG001 - it has no state of its own
        return await asyncio.to_thread(made, args, fields)

    return operation


def _at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of an operation in memory, which waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("an operation in memory waited for something")


class FileLifecycle:
    """There is nothing to open, and nothing to close."""

    def __init__(self, file: File) -> None:
        self._file = file

    async def verify(self) -> None:
        """Look whether the file can be read and is of this version."""
        try:
            await asyncio.to_thread(self._look)
        except StoreUnavailableError as error:
            if "version" in error.reason:
                raise SchemaVersionError(
                    found="another", wanted="1", command="pip install -U adk-worker-filestore"
                ) from error
            raise

    async def bump_epoch(self) -> int:
        """Raise the epoch: every fence given from now on is above all before (L2)."""

        def bump() -> int:
            with self._file.opened() as data:
                return int(_at_once(memory_stores(data).lifecycle.bump_epoch()))

        return await asyncio.to_thread(bump)

    async def close(self) -> None:
        """Nothing was kept open."""

    def _look(self) -> None:
        with self._file.opened():
            pass
