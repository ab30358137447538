"""How work under way is told to stop, and how far.

A *soft* cause aborts what may be aborted: a model call, a tool that only reads. An effectful call in flight is awaited
and its outcome recorded, whatever the cause (F4, P2). The *hard* one, ``TIMEOUT``, cancels that too; its claim then
stays in flight, for a probe or a person to decide (I10).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class Cause(StrEnum):
    """Why work has to stop, in rising order of weight: a heavier cause replaces a lighter one."""

    DRAIN = "drain"
    """The process is leaving; the run is handed over."""
    CANCEL = "cancel"
    """Somebody asked for the run's end; the next write ends it (P2)."""
    SUPERSEDED = "superseded"
    """The lease is lost, or may be: nothing of the run's state may be written any more (L9)."""
    TIMEOUT = "timeout"
    """The iteration or the drain took too long: cancel effectful calls too."""


_WEIGHT = {cause: weight for weight, cause in enumerate(Cause)}


class Interrupted(Exception):  # noqa: N818 - a signal within the iteration, not an error of the tree
    """Work was aborted for ``cause``. Caught where the step ends; never leaves the kit."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


class Interruption:
    """A cause that is set at most a few times, from any thread, and awaited in the loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._cause: Cause | None = None
        self._draining = False
        self._soft = asyncio.Event()
        self._hard = asyncio.Event()

    @property
    def cause(self) -> Cause | None:
        """The heaviest cause so far."""
        return self._cause

    @property
    def draining(self) -> bool:
        """Whether the process is leaving, whatever else has been set since."""
        return self._draining

    def set(self, cause: Cause) -> None:
        """Tell the work to stop. From any thread; harmless after the loop has closed."""
        with contextlib.suppress(RuntimeError):  # closed, perhaps only just now
            self._loop.call_soon_threadsafe(self._set, cause)

    def _set(self, cause: Cause) -> None:
        if self._cause is None or _WEIGHT[cause] > _WEIGHT[self._cause]:
            self._cause = cause
        self._draining = self._draining or cause is Cause.DRAIN
        self._soft.set()
        if cause is Cause.TIMEOUT:
            self._hard.set()

    def check(self) -> None:
        """Raise :class:`Interrupted` if a cause is set."""
        if self._cause is not None:
            raise Interrupted(self._cause)

    async def guard(self, work: Coroutine[Any, Any, T], *, until: Cause | None = None) -> T:
        """Await ``work``, but cancel it and raise :class:`Interrupted` once a cause is set.

        ``until=Cause.TIMEOUT`` lets only the hard cause cancel it. A cause that was set before prevents the start.
        """
        stop = self._hard if until is Cause.TIMEOUT else self._soft
        if stop.is_set():
            work.close()
            self.check()
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if task.cancelled():  # by itself, for nobody here has: not to be taken for a cancellation of ours
                raise RuntimeError("the work under way cancelled itself")
            if task.done():
                return task.result()
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if not task.cancelled() and task.exception() is None:
            return task.result()
        assert self._cause is not None  # noqa: S101 - `stop` is set only together with a cause
        raise Interrupted(self._cause)
