"""Keeps a process from forking while one of its threads has a store open that does not survive it."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager, nullcontext


class ForkLock:
    """Held by a thread, it makes every fork of this process wait. To be made before the threads, once per program.

    SQLite keeps the locks of a process in the process's memory. A child that inherits them with an open connection
    takes its own connections' locks for held, and no other process sees them: the last one to close the database, as
    it believes, removes the log that the child goes on writing to, and all that is in it is lost
    (https://www.sqlite.org/howtocorrupt.html, section 2.6). Servers' databases are not locked by processes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        os.register_at_fork(
            before=self._lock.acquire, after_in_parent=self._lock.release, after_in_child=self._lock.release
        )

    def over(self, store_url: str) -> AbstractContextManager[object]:
        """Hold it while a store of that URL is open, if it is one that needs it. Not to be nested."""
        return self._lock if store_url.startswith("sqlite") else nullcontext()
