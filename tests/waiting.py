"""How a test waits for something that another process or thread does: it asks again, until a deadline.

There is no other waiting in the tests. Where the thing can be awaited (an event, a barrier, a process's end), await it;
where time itself is the subject, use a fake clock.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1


def wait_until(predicate: Callable[[], T], *, within: float = 60.0, what: str = "") -> T:
    """Call ``predicate`` until it returns something true, and return that.

    ``within`` is in seconds and is there for the day when it never comes true, so be generous: it costs nothing
    otherwise. ``what`` names the thing awaited in the failure. Raises AssertionError at the deadline, and at once
    whatever the predicate raises.
    """
    deadline = time.monotonic() + within
    pause = _FIRST_PAUSE
    while True:
        found = predicate()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(_never_came(predicate, within, what, found))
        time.sleep(pause)  # noqa: TID251 - this is the one place that may
        pause = min(pause * 1.5, _LONGEST_PAUSE)


async def eventually(predicate: Callable[[], T | Awaitable[T]], *, within: float = 60.0, what: str = "") -> T:
    """Do as :func:`wait_until` does while the event loop runs on; the predicate may be async."""
    deadline = time.monotonic() + within
    pause = _FIRST_PAUSE
    while True:
        answer = predicate()
        found: T = await answer if inspect.isawaitable(answer) else answer
        if found:
            return found
        if time.monotonic() >= deadline:
            raise AssertionError(_never_came(predicate, within, what, found))
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _never_came(predicate: Callable[[], object], within: float, what: str, last: object) -> str:
    awaited = what or getattr(predicate, "__qualname__", repr(predicate))
    return f"waited {within:g} s in vain for: {awaited} (last answer: {last!r})"
