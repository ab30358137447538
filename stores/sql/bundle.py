"""The bundle of all stores over one database, and each store on its own."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine

from adk_worker.errors import ConfigurationError
from adk_worker.runs import Stores
from stores.sql.checkpoints import SqlCheckpointStore
from stores.sql.database import Database
from stores.sql.history import SqlHistoryStore
from stores.sql.idempotency import SqlIdempotencyStore
from stores.sql.leases import SqlLeaseStore
from stores.sql.lifecycle import SqlLifecycle
from stores.sql.runs import SqlRunStore
from stores.sql.target import SqlOptions


def open_sql(url: str | Engine, **options: Any) -> Stores:
    """All stores over one database of PostgreSQL or SQLite; nothing is connected yet.

    :param url: ``postgresql://user:password@host/database``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, or
        an engine of PostgreSQL's that stays the caller's.
    :param options: those of :class:`~stores.sql.target.SqlOptions`.
    :raises ConfigurationError: the URL or an option cannot be used.
    """
    database = Database(url, SqlOptions(**options))
    return Stores(
        runs=SqlRunStore(database),
        leases=SqlLeaseStore(database),
        checkpoints=SqlCheckpointStore(database),
        idempotency=SqlIdempotencyStore(database),
        history=SqlHistoryStore(database),
        lifecycle=SqlLifecycle(database),
    )


def _database(target: str | Engine, dialect: str, options: dict[str, Any]) -> Database:
    database = Database(target, SqlOptions(**options))
    if database.dialect != dialect:
        raise ConfigurationError(f"{database.name} is a database of {database.dialect}; this store is for {dialect}.")
    return database


class PostgresLeaseStore(SqlLeaseStore):
    """Leases in PostgreSQL; ``target`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, target: str | Engine, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(target, "postgresql", options))
        super().__init__(database)


class PostgresCheckpointStore(SqlCheckpointStore):
    """Checkpoints in PostgreSQL; ``target`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, target: str | Engine, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(target, "postgresql", options))
        super().__init__(database)


class PostgresIdempotencyStore(SqlIdempotencyStore):
    """Claims in PostgreSQL; ``target`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, target: str | Engine, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(target, "postgresql", options))
        super().__init__(database)


class PostgresHistoryStore(SqlHistoryStore):
    """Transcripts in PostgreSQL; ``target`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, target: str | Engine, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(target, "postgresql", options))
        super().__init__(database)


class SqliteLeaseStore(SqlLeaseStore):
    """Leases in a SQLite file; ``url`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, url: str, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(url, "sqlite", options))
        super().__init__(database)


class SqliteCheckpointStore(SqlCheckpointStore):
    """Checkpoints in a SQLite file; ``url`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, url: str, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(url, "sqlite", options))
        super().__init__(database)


class SqliteIdempotencyStore(SqlIdempotencyStore):
    """Claims in a SQLite file; ``url`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, url: str, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(url, "sqlite", options))
        super().__init__(database)


class SqliteHistoryStore(SqlHistoryStore):
    """Transcripts in a SQLite file; ``url`` and ``options`` are as for :func:`open_sql`."""

    def __init__(self, url: str, **options: Any) -> None:
        self.lifecycle = SqlLifecycle(database := _database(url, "sqlite", options))
        super().__init__(database)
