"""What a lie is, and what liars have in common."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from adk_worker.memory import MemoryData, MemoryIdempotencyStore, memory_stores


@dataclass(frozen=True)
class Lie:
    """One broken store: the suite that it is given to, what makes it, and the test that has to fail."""

    suite: type
    make: Callable[[], Any]
    seen_by: str
    beside_leases: bool = False
    """Whether ``make`` gives the store and the leases that decide about its fences."""

    @property
    def name(self) -> str:
        return self.make.__name__


def bundle(**parts: type) -> Callable[[], Any]:
    """What makes a bundle in memory with some of its parts replaced; it is called as the first of these."""

    def make():
        data = MemoryData()
        return replace(memory_stores(data), **{name: part(data) for name, part in parts.items()})

    make.__name__ = next(iter(parts.values())).__name__
    return make


@contextmanager
def row(data, run, **changes):
    """The run's row with other fields for as long as a method looks at it."""
    with data.lock:
        stored = data.runs.get(run)
        if stored is None:
            yield
            return
        was = {name: getattr(stored.state, name) for name in changes}
        data.runs[run] = replace(stored, state=replace(stored.state, **changes))
        try:
            yield
        finally:
            after = data.runs[run]
            # What the method itself has not changed is as it was.
            back = {name: was[name] for name in changes if getattr(after.state, name) == changes[name]}
            data.runs[run] = replace(after, state=replace(after.state, **back))


async def standing(data, claim):
    """The claim that stands on a claim's key."""
    return (await MemoryIdempotencyStore(data).peek([claim.key], tenant=claim.tenant))[claim.key]
