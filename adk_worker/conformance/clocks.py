"""The time in the process of whoever calls a store, which is nobody's business but its own (L1)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias
from unittest import mock

YEAR: Final = 366 * 86400.0
"""In seconds: after so long, whatever would ever expire by itself has."""

SetClock: TypeAlias = Callable[[float], None]
"""Sets a store's clock, in seconds since the epoch, and stops it there."""

_SERVERS: Final = ("fakeredis",)
"""Servers that may run in the test's own process. Their clock is the store's, and stays as it is."""


@contextmanager
def caller_off_by(seconds: float) -> Iterator[None]:
    """Within the block, :func:`time.time` is off by ``seconds``, as on a machine whose clock was set wrongly.

    A store that is asked by several machines has a clock of its own, and does not see it. One that lives in this very
    process takes its clock when it is made, as the stores in memory do.
    """
    real, real_ns = time.time, time.time_ns

    def off() -> float:
        return real() if _ours() else real() + seconds

    def off_ns() -> int:
        return real_ns() if _ours() else real_ns() + int(seconds * 1e9)

    with mock.patch("time.time", off), mock.patch("time.time_ns", off_ns):
        yield


def _ours() -> bool:
    """Whether a server within this process asks for the time."""
    asking = sys._getframe(2).f_globals.get("__name__", "")  # noqa: SLF001 - the one way to know who asks
    return str(asking).partition(".")[0] in _SERVERS
