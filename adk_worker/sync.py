"""A blocking face for an async object, for callers without an event loop: no second set of methods to keep in step."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SyncFace(Generic[T]):
    """Has the public methods of ``target``: coroutines are awaited, async iterators become plain ones.

    They run on one event loop in a daemon thread, which is started by the first call, and again after a fork.
    """

    def __init__(self, target: T) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._target, name)
        if inspect.isasyncgenfunction(found):
            return self._wrapped(found, self._iterate)
        if inspect.iscoroutinefunction(found):
            return self._wrapped(found, self._await)
        return found

    @staticmethod
    def _wrapped(method: Callable[..., Any], how: Callable[[Any], Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            return how(method(*args, **kwargs))

        return call

    def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._running()).result()

    def _iterate(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self._await(following())
            if not more:
                return
            yield item

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="adk-sync", daemon=True).start()
            return self._loop
