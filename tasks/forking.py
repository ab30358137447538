"""Keeps a process from forking while one of its threads does what a child must not inherit half done."""

from __future__ import annotations

import os
import threading
from typing import Final

_LONGEST: Final = 5.0
"""How long a fork waits, in seconds: the loop that forks also consumes, and a server may be long in answering."""


class ForkLock:
    """Held by a thread, it makes every fork of this process wait. To be made before the threads, once per program.

    A child has the forking thread alone, and whatever the others were at stays as it was. Two things do harm then:

    - Locks that a library keeps for the whole process. Kombu has some around what its connections make as they are
      first used: a child that was forked while a thread published could never publish itself.
    - SQLite keeps the locks of a process in the process's memory. A child that inherits them with an open connection
      takes its own connections' locks for held, and no other process sees them: the last one to close the database, as
      it believes, removes the log that the child goes on writing to, and all that is in it is lost
      (https://www.sqlite.org/howtocorrupt.html, section 2.6). For that store forks wait as long as it takes.
    """

    def __init__(self, store_url: str) -> None:
        self._longest = -1.0 if store_url.startswith("sqlite") else _LONGEST
        self._lock = threading.Lock()
        self._forking = threading.local()
        os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def _before(self) -> None:
        self._forking.holds = self._lock.acquire(timeout=self._longest)

    def _in_parent(self) -> None:
        if self._forking.holds:
            self._lock.release()

    def _in_child(self) -> None:
        self._lock = threading.Lock()
