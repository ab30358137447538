"""Gives up connections on which nothing comes back.

libpq waits for an answer for as long as the connection stands, and TCP's own timers see a dead network but not a
server, or something in between, that takes what it is sent and says nothing. So a thread watches over the statements
under way and shuts the socket of one that takes too long: whoever waits on it then sees a lost connection.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


class Watched:
    """One connection in use. ``fd`` is a descriptor of its own, so that no other connection can come to have it."""

    def __init__(self, fd: int, limit: float) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))
        self._limit = limit
        self.deadline = time.monotonic() + limit
        self.given_up = False

    def touch(self) -> None:
        """Something is sent now: the wait begins anew."""
        self.deadline = time.monotonic() + self._limit

    def give_up(self) -> None:
        """End the connection under whoever waits on it."""
        self.given_up = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It has ended already.
            return

    def close(self) -> None:
        """Close the descriptor; the connection itself is its owner's."""
        self._socket.close()


class SilenceWatch:
    """Watches over connections for ``limit`` seconds of silence each. Its thread starts with the first one.

    It looks four times in that time: nobody has to wake it, which every statement would pay for.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._opening = threading.local()

    @contextmanager
    def over(self, fd: int) -> Iterator[Watched]:
        """Watch over the socket ``fd`` for the length of the block."""
        watched = Watched(fd, self._limit)
        with self._lock:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="adk-store-watch", daemon=True)
                self._thread.start()
        try:
            yield watched
        finally:
            with self._lock:
                self._watched.discard(watched)
            watched.close()

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Watch over what this thread connects within the block, from its first statements on."""
        with ExitStack() as self._opening.stack:
            try:
                yield
            finally:
                del self._opening.stack

    def connected(self, driver: Any, _: object) -> None:
        """Tell of a new connection, before anything is asked on it. SQLAlchemy asks a few things, and so waits."""
        stack: ExitStack | None = getattr(self._opening, "stack", None)
        if stack is not None:
            stack.enter_context(self.over(driver.fileno()))

    def close(self) -> None:
        """End the thread."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._limit / 4):
            now = time.monotonic()
            with self._lock:
                for watched in self._watched:
                    if not watched.given_up and watched.deadline <= now:
                        watched.give_up()
