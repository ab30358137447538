"""Carries out operations of the store in memory."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(operation: Coroutine[Any, Any, T]) -> T:
    """What an operation of the store in memory returns or raises. It awaits nothing, and needs no event loop."""
    try:
        operation.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    operation.close()
    raise AssertionError("an operation of the store in memory awaits something")
