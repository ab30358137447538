"""Running somebody else's function, sync or async, for a limited time, and not letting it take anything else down.

A sync function runs in an executor's thread, where it cannot be stopped: past its time it is left running, and its
end is to be had from a future. An async function runs in a task, is cancelled past its time, and is left running as
well if it goes on in spite of that. Whatever it raises, ``SystemExit`` included, comes back as a value.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")

CANCEL_GRACE: Final = 1.0
"""How long an async function that was cancelled is waited for, in seconds."""


@dataclass(frozen=True, slots=True)
class Returned(Generic[T]):
    """It returned."""

    value: T


@dataclass(frozen=True, slots=True)
class Raised:
    """It raised; ``error`` may be any ``BaseException``."""

    error: BaseException


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No thread began it, and none will."""


Ending: TypeAlias = Returned[T] | Raised | NotStarted


@dataclass(frozen=True, slots=True, eq=False)
class Overran(Generic[T]):
    """It did not end in time. Once cancelled it ended with ``error``; or it goes on, and ``late`` will be its end."""

    error: BaseException | None = None
    late: asyncio.Future[Ending[T]] | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    """A sync function returned an awaitable, as a decorator around an async one does that hides it."""

    awaitable: Awaitable[object]


class _Thread(Generic[T]):
    """One call in a thread of an executor: it begins at most once, and can be taken back until then.

    An executor's own future is not enough. ``submit`` may queue the call, fail to start a thread, and raise: the call
    looks refused, and is made as soon as another thread is free.
    """

    def __init__(self, call: Callable[[], object], then: Callable[[object], T]) -> None:
        self._call = call
        self._then = then
        self._begun_or_taken_back = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[Ending[T] | _Pending] = self._loop.create_future()

    def submit_to(self, executor: Executor) -> None:
        try:
            executor.submit(contextvars.copy_context().run, self._run).add_done_callback(self._dropped)
        except RuntimeError:  # shut down, or out of threads
            self.take_back()

    def take_back(self) -> bool:
        """Whether the call was still waiting for its thread; it is never made then."""
        if not self._begun_or_taken_back.acquire(blocking=False):
            return False
        self._deliver(NotStarted())
        return True

    async def end(self) -> Ending[T]:
        ended = await self._ended
        if isinstance(ended, _Pending):
            awaitable = ended.awaitable
            return await _in_loop(lambda: awaitable, self._then)
        return ended

    def _run(self) -> None:
        if self._begun_or_taken_back.acquire(blocking=False):
            self._deliver(self._outcome())

    def _outcome(self) -> Ending[T] | _Pending:
        try:
            value = self._call()
            return _Pending(value) if inspect.isawaitable(value) else Returned(self._then(value))
        except BaseException as error:  # noqa: BLE001 - see _in_loop
            return Raised(error)

    def _dropped(self, done: ThreadFuture[None]) -> None:
        """An executor that shuts down may drop what it has queued."""
        if done.cancelled():
            self.take_back()

    def _deliver(self, ended: Ending[T] | _Pending) -> None:
        with contextlib.suppress(RuntimeError):  # the thread outlived the loop: nobody is left to be told
            self._loop.call_soon_threadsafe(self._settle, ended)

    def _settle(self, ended: Ending[T] | _Pending) -> None:
        if not self._ended.done():
            self._ended.set_result(ended)


def is_async(function: Callable[..., object]) -> bool:
    """Whether calling ``function`` makes a coroutine; an object counts by its ``__call__``."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def run_bounded(
    call: Callable[[], Any],
    *,
    in_loop: bool,
    then: Callable[[object], T],
    executor: Executor,
    timeout: float | None,
    grace: float = CANCEL_GRACE,
    left: Callable[[asyncio.Future[Ending[T]]], None] | None = None,
) -> Returned[T] | Raised | NotStarted | Overran[T]:
    """Run ``call`` in the event loop or else in a thread, and ``then`` on what it returns, in the same place.

    ``timeout`` is in seconds and covers the wait for a free thread; a call still waiting then is taken back. A
    cancellation from outside reaches an async function, which is given ``grace`` seconds to end; a sync one is taken
    back if it has not begun, and left alone if it has. ``left`` is given the end to come of one that goes on.

    :raises asyncio.CancelledError: this coroutine itself was cancelled; nothing else is ever raised.
    """
    thread: _Thread[T] | None = None
    if in_loop:
        body = asyncio.create_task(_in_loop(call, then))
    else:
        thread = _Thread(call, then)
        thread.submit_to(executor)
        body = asyncio.create_task(thread.end())

    try:
        await asyncio.wait({body}, timeout=timeout)
    except asyncio.CancelledError:
        goes_on = not thread.take_back() if thread is not None else not await _cancelled(body, grace)
        if goes_on and left is not None:
            left(body)
        raise
    if body.done():
        return _ending(body)
    if thread is None:
        if not await _cancelled(body, grace):
            return Overran(late=body)
        ending = _ending(body)
        return Overran(error=ending.error) if isinstance(ending, Raised) else ending
    if thread.take_back():
        return NotStarted()
    return Overran(late=body)


async def _in_loop(call: Callable[[], Awaitable[object]], then: Callable[[object], T]) -> Ending[T]:
    try:
        return Returned(then(await call()))
    except BaseException as error:  # noqa: BLE001 - neither a SystemExit nor a cancellation of its own may leave
        return Raised(error)


async def _cancelled(body: asyncio.Task[Ending[T]], grace: float) -> bool:
    """Cancel it, and say whether that ended it in time."""
    body.cancel()
    await asyncio.wait({body}, timeout=grace)
    return body.done()


def _ending(body: asyncio.Task[Ending[T]]) -> Ending[T]:
    """How ``body`` ended. It catches every exception itself, but not a cancel from elsewhere before it began."""
    return Raised(asyncio.CancelledError()) if body.cancelled() else body.result()


def derived(source: asyncio.Future[T], convert: Callable[[T], U]) -> asyncio.Future[U]:
    """What ``source`` will give, converted. ``source`` does not fail.

    Cancelling it leaves ``source`` alone, leaving it pending leaves no warning, and whoever holds it keeps ``source``
    alive, which a loop does not do for its tasks.
    """
    target: asyncio.Future[U] = source.get_loop().create_future()

    def settle(done: asyncio.Future[T]) -> None:
        if done.cancelled():
            target.cancel()
        elif not target.done():
            target.set_result(convert(done.result()))

    def hold(_: asyncio.Future[U], held: asyncio.Future[T] = source) -> None:
        """Keep ``source`` alive, as a default argument, and do nothing."""

    source.add_done_callback(settle)
    target.add_done_callback(hold)
    return target
