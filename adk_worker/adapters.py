"""Between the dataclasses of the kit and their JSON: pydantic's adapters, each built when it is first needed.

Building one takes a millisecond or more, and few programs read every kind of thing that is stored.
"""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def adapter(kind: type[T]) -> TypeAdapter[T]:
    """The one adapter for ``kind``, a dataclass or a tuple of them. Two threads that meet here build it twice."""
    return TypeAdapter(kind)
