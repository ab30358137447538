"""A blocking face for an async object, for callers without an event loop: no second set of methods to keep in step."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_IN_CALLERS_THREAD = "connection"
"""The parameter of a method that is handed something of the caller's, which only the caller's thread may use."""


class SyncFace(Generic[T]):
    """Has the public methods of ``target``: coroutines are awaited, async iterators become plain ones.

    They run on one event loop in a daemon thread, which is started by the first call, and again after a fork. A call
    with a ``connection`` runs in the calling thread instead, on a loop of its own.
    """

    def __init__(self, target: T) -> None:
        self._target = target
        self._by_process: dict[int, _Loop] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._target, name)
        if inspect.isasyncgenfunction(found):
            return self._wrapped(found, self._iterate)
        if inspect.iscoroutinefunction(found):
            return self._wrapped(found, self._await)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._target) if not name.startswith("_"))})

    def _wrapped(self, method: Callable[..., Any], how: Callable[[Any], Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get(_IN_CALLERS_THREAD) is not None:
                with asyncio.Runner() as runner:
                    return runner.run(method(*args, **kwargs))
            return how(method(*args, **kwargs))

        return call

    def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._loop().wait_for(work)

    def _iterate(self, items: AsyncGenerator[Any, None]) -> Iterator[Any]:
        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        loop = self._loop()
        try:
            while True:
                more, item = loop.wait_for(following())
                if not more:
                    return
                yield item
        finally:
            # Not waited for: whoever drops an iterator may be the garbage collector, in whichever thread.
            loop.submit(items.aclose())

    def _loop(self) -> _Loop:
        # No lock, which a fork could copy while it is held. Of two made at once one is dropped before it has started.
        pid = os.getpid()
        return self._by_process.get(pid) or self._by_process.setdefault(pid, _Loop())


class _Loop:
    """An event loop in a thread of its own, which the first call starts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run ``work`` and return its result. Whatever interrupts the wait cancels the work."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("this is the event loop's own thread: await the method itself, not its blocking face")
        running = self.submit(work)
        try:
            return running.result()
        finally:
            running.cancel()

    def submit(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Have the loop run ``work``; its future."""
        return asyncio.run_coroutine_threadsafe(work, self._running())

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="adk-sync", daemon=True)
                self._thread.start()
            return self._loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # What asks for the program's end is its caller's to see, and ends the loop as well: nobody would hear of it,
        # and every later call would wait for ever.
        with contextlib.suppress(SystemExit, KeyboardInterrupt):
            loop.run_forever()
            return
