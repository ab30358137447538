"""A local clock that a test moves."""

from __future__ import annotations


class Clock:
    """Monotonic, in seconds; starts at a number that is not 0, so that a forgotten start shows."""

    def __init__(self, now=1000.0):
        self.now = now

    def __call__(self):
        return self.now
