"""The one write lock of an SQLite file: whoever has it keeps every other writer from beginning."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tests.waiting import wait_until

_FOREVER = """
CREATE VIEW test_forever AS
    WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted) SELECT n FROM counted
"""


class WriteLock:
    """The lock of ``file``, and what a test does through connections of its own, as any process may."""

    def __init__(self, file: str) -> None:
        self._file = file

    def is_taken(self) -> bool:
        """Whether somebody has it, and keeps it for longer than a transaction takes."""
        with self._connected(within=1) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            connection.execute("ROLLBACK")
            return False

    @contextmanager
    def kept_by_an_insert(self, table: str, *, when: str, within: float) -> Iterator[None]:
        """Have whoever inserts such a row stay in that statement, and keep the lock, for as long as it lives.

        ``when`` is a condition in SQL about ``NEW``. At the end nobody may be left in it.
        """
        with self._connected(within=within) as connection:
            connection.execute(_FOREVER)
            connection.execute(
                f"CREATE TRIGGER test_kept BEFORE INSERT ON {table} WHEN {when} "
                "BEGIN SELECT count(*) FROM test_forever; END"
            )
        yield
        with self._connected(within=within) as connection:
            connection.execute("DROP TRIGGER test_kept")
            connection.execute("DROP VIEW test_forever")

    def await_taken(self, *, after: str, within: float) -> None:
        """Wait until somebody keeps it, once the query ``after`` has found a row."""
        with self._connected(within=within) as connection:
            wait_until(lambda: connection.execute(after).fetchone(), within=within, what=f"a row of: {after}")
        wait_until(self.is_taken, within=within, what="the lock to be kept")

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """What a query finds."""
        with self._connected(within=0) as connection:
            return connection.execute(query).fetchall()

    @contextmanager
    def _connected(self, *, within: float) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._file, isolation_level=None, timeout=within)) as connection:
            yield connection
