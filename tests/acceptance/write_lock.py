"""The one write lock of an SQLite file, as a port: whoever has it keeps every other writer from beginning."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager


class WriteLock:
    """Takes the lock of ``file`` as any process may, through a connection of its own."""

    def __init__(self, file: str) -> None:
        self._file = file

    @contextmanager
    def taken_after(self, query: str, *parameters: object, within: float) -> Iterator[sqlite3.Connection]:
        """Take the lock as soon as ``query`` finds a row; the connection that has it reads on in the same state.

        The lock is not fair: whoever asks first after the commit that makes the row gets it. Looking takes
        microseconds here, and the writer that has just committed has to cross two threads before it asks again; on a
        machine that holds us up for that long it is first all the same, so look at what is stored.
        """
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=within)) as connection:
            deadline = time.monotonic() + within
            while connection.execute(query, parameters).fetchone() is None:
                assert time.monotonic() < deadline, f"waited {within:g} s in vain for a row of: {query} {parameters}"
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")
