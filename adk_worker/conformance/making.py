"""How a suite comes to its store."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Make: TypeAlias = Callable[[], T | Awaitable[T]]
"""Makes a store that nobody has used, at once or awaited. What it needs closed is for the fixture that gives it."""

MISSING = "override the fixture `make_store`: let it return a function without arguments that makes a fresh store"


async def made(make: Make[T]) -> T:
    """A fresh store.

    :raises TypeError: the fixture gave a store where what makes one was wanted.
    """
    if not callable(make):
        raise TypeError(f"the fixture `make_store` has to give a function that makes a store, not {make!r}")
    store = make()
    return await store if inspect.isawaitable(store) else store
