"""From a store's URL to an engine whose connections are set up as the stores need them."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from adk_worker.errors import ConfigurationError
from adk_worker.urls import without_secrets
from stores.sql.limits import POOLER, Limits, as_options, behind_pooler, limit_transactions

if TYPE_CHECKING:
    from tenacity import Retrying

_POSTGRESQL: Final = frozenset({"postgres", "postgresql", "postgresql+psycopg2"})
_SQLITE: Final = frozenset({"sqlite", "sqlite+pysqlite"})


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """How a process talks to the database.

    ``pool_size`` is how many connections it holds at most, and how many operations run at once. ``socket_timeout`` is
    for how many seconds a connection may stay silent before it is given up. Within it, PostgreSQL itself gives up a
    statement after 0.8 of that time, the wait for a lock after 0.5, and a transaction whose client has gone quiet
    after the whole of it, so that a stopped worker holds up nobody. ``limits`` says where these are set; a URL with
    ``pooler=transaction`` has them set by each transaction.
    """

    pool_size: int = 10
    socket_timeout: float = 10.0
    limits: Limits = Limits.SESSION

    def __post_init__(self) -> None:
        if self.pool_size < 1:
            raise ConfigurationError(f"pool_size is {self.pool_size}; it has to be at least 1 (ADK_STORE_POOL).")
        if not (self.socket_timeout > 0 and math.isfinite(self.socket_timeout)):
            raise ConfigurationError(
                f"socket_timeout is {self.socket_timeout}; it has to be above 0 seconds (ADK_SOCKET_TIMEOUT)."
            )


def parse_url(url: str) -> URL:
    """Read a store's URL and name its driver; a relative path of SQLite's is taken from where the process is now.

    :raises ConfigurationError: it is no URL of PostgreSQL or SQLite, another driver's, or of a database in memory.
    """
    try:
        parsed = make_url(url.strip())
    except (ArgumentError, ValueError):
        # The cause would show the password.
        raise ConfigurationError(
            f"{without_secrets(url)!r} cannot be read as a URL; a store's is postgresql://user:password@host/database "
            "or sqlite:///file.db, with special characters percent-encoded."
        ) from None
    if parsed.drivername in _POSTGRESQL:
        behind_pooler(parsed)
        return parsed.set(drivername="postgresql+psycopg2")
    if parsed.drivername in _SQLITE:
        return _sqlite_file(parsed)
    raise ConfigurationError(
        f"{parsed.drivername}:// is no store of this kind; it has to be postgresql:// (with or without +psycopg2) "
        "or sqlite:///…"
    )


def _sqlite_file(url: URL) -> URL:
    named = url.database or ""
    if named in {"", ":memory:"} or named.startswith("file:"):
        raise ConfigurationError(
            "a SQLite store is a file, sqlite:///relative.db or sqlite:////absolute.db: of a database in memory each "
            "connection would see one of its own. For a store in memory use memory://."
        )
    return url.set(drivername="sqlite", database=str(Path(named).absolute()))


def make_engine(url: URL, options: SqlOptions) -> Engine:
    """An engine for this process; no connection is made yet. ``url`` is one that :func:`parse_url` returned."""
    if url.drivername == "sqlite":
        return _sqlite_engine(url, options)
    limits = limits_of(url, options)
    url = url.difference_update_query([POOLER])
    engine = create_engine(
        url,
        connect_args=_connect_arguments(url, options, limits),
        hide_parameters=True,
        **_pool(options),
    )
    if limits is Limits.TRANSACTION:
        limit_transactions(engine, options.socket_timeout)
    return engine


def limits_of(url: URL, options: SqlOptions) -> Limits:
    """Where the limits of an engine for ``url`` are set."""
    if options.limits is Limits.SESSION and behind_pooler(url):
        return Limits.TRANSACTION
    return options.limits


def _pool(options: SqlOptions) -> dict[str, Any]:
    return {
        "poolclass": QueuePool,
        "pool_size": options.pool_size,
        "max_overflow": 0,
        "pool_timeout": options.socket_timeout,
        # The same few connections are used again, and the others may grow old unused.
        "pool_use_lifo": True,
    }


def _connect_arguments(url: URL, options: SqlOptions, limits: Limits) -> dict[str, Any]:
    silent = options.socket_timeout
    arguments: dict[str, Any] = {
        # libpq takes whole seconds, and no fewer than two.
        "connect_timeout": max(2, math.ceil(silent)),
        "application_name": "adk-worker",
        # The kernel's part: what is sent and not acknowledged, and a peer that is gone while we wait for it.
        "tcp_user_timeout": math.ceil(silent * 1000),
        "keepalives": 1,
        "keepalives_idle": max(1, math.ceil(silent / 2)),
        "keepalives_interval": max(1, math.ceil(silent / 6)),
        "keepalives_count": 3,
    }
    # What the URL says comes first.
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    if limits is not Limits.TRANSACTION:
        given = url.query.get("options", "")
        # The last one holds.
        settings = [as_options(limits, silent), given if isinstance(given, str) else " ".join(given)]
        arguments["options"] = " ".join(settings).strip()
    return arguments


# --- SQLite -------------------------------------------------------------------------------------------------------

WRITES: Final = "adk_writes"
"""Execution option of a connection whose transaction is going to write."""


def _sqlite_engine(url: URL, options: SqlOptions) -> Engine:
    engine = create_engine(
        url,
        connect_args={
            # For how long a connection waits for another's write, in seconds; 5 would be the driver's own.
            "timeout": options.socket_timeout,
            # The driver begins no transaction by itself: by default it would begin one that has read before it asks
            # for the right to write, and updates would be lost, or refused without a wait.
            "isolation_level": None,
            # Pooled connections move from thread to thread, one at a time.
            "check_same_thread": False,
        },
        hide_parameters=True,
        **_pool(options),
    )
    event.listen(engine, "connect", partial(_set_up_sqlite, patience=options.socket_timeout))
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _: object, *, patience: float) -> None:
    cursor = connection.cursor()
    try:
        # Readers do not wait for the writer. The file keeps the mode; asking for it again takes no lock.
        if not _keeps_log(cursor):
            for attempt in _while_locked(patience):
                with attempt:
                    cursor.execute("PRAGMA journal_mode = WAL")
        # A commit that was answered is on the disk, as on the servers.
        cursor.execute("PRAGMA synchronous = FULL")
    finally:
        cursor.close()


def _keeps_log(cursor: Any) -> bool:
    try:
        return bool(cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal")
    except sqlite3.OperationalError as error:
        if not _locked(error):
            raise
        return False


def _locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_BUSY


def _while_locked(patience: float) -> Retrying:
    """Try again for ``patience`` seconds: for a change of the journal's mode the driver does not wait by itself."""
    from tenacity import (  # noqa: PLC0415 - once in a file's life
        Retrying,
        retry_if_exception,
        stop_after_delay,
        wait_random,
    )

    return Retrying(
        retry=retry_if_exception(_locked),
        stop=stop_after_delay(patience),
        wait=wait_random(0.005, 0.05),
        reraise=True,
    )


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes the database's one write lock before it reads anything, so that what it reads is what it changes.
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
