"""How the suites wait, and how they race. Nothing sleeps for a length of time: it asks again, until a deadline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
Racer = Callable[[], Coroutine[Any, Any, Any]]
"""What starts one racer, where they do different things."""

SOON = 0.05
"""A TTL, in seconds, of a lease that a test wants to see lapse."""
LONG = 600.0
"""A TTL, in seconds, that no test outlives."""
_DEADLINE = 30.0
_PAUSE = 0.005


async def until(ask: Callable[[], Awaitable[T]], *, what: str) -> T:
    """Ask until the answer is true, and return it; fail after half a minute. ``what`` names it in the failure."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _DEADLINE
    while not (answer := await ask()):
        assert loop.time() < deadline, f"waited {_DEADLINE:g} s in vain for {what}; the last answer: {answer!r}"
        await asyncio.sleep(_PAUSE)
    return answer


async def race(racers: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
    """Run all at once in this event loop; what each returned or raised, in order."""
    return await asyncio.gather(*racers, return_exceptions=True)


async def race_in_threads(makers: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T | BaseException]:
    """Run each in a thread and an event loop of its own, started together; what each returned or raised, in order."""
    barrier = threading.Barrier(len(makers))

    def run(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async def started() -> T:
            barrier.wait(_DEADLINE)
            return await make()

        return asyncio.run(started())

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(max_workers=len(makers)) as threads:
        running = [loop.run_in_executor(threads, run, make) for make in makers]
        return await asyncio.gather(*running, return_exceptions=True)


def winners(answers: Sequence[T | BaseException], refusal: type[Exception]) -> list[T]:
    """The answers that are no refusals. Any other error is raised: a racer may lose, not break."""
    won: list[T] = []
    for answer in answers:
        if isinstance(answer, BaseException):
            if not isinstance(answer, refusal):
                raise answer
        else:
            won.append(answer)
    return won
