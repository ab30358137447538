"""Stores in a database: PostgreSQL or SQLite, through one implementation.

:func:`open_sql` opens the bundle that a fleet needs; the lone stores serve runs in process. The tables are made by
:mod:`stores.sql.migrate`, never by opening a store.
"""

from __future__ import annotations

from stores.sql.bundle import (
    PostgresCheckpointStore,
    PostgresHistoryStore,
    PostgresIdempotencyStore,
    PostgresLeaseStore,
    SqliteCheckpointStore,
    SqliteHistoryStore,
    SqliteIdempotencyStore,
    SqliteLeaseStore,
    open_sql,
)
from stores.sql.schema import EXPECTED_CHECKPOINT_SCHEMA, SCHEMA_VERSION
from stores.sql.target import SqlOptions

__all__ = [
    "EXPECTED_CHECKPOINT_SCHEMA",
    "SCHEMA_VERSION",
    "PostgresCheckpointStore",
    "PostgresHistoryStore",
    "PostgresIdempotencyStore",
    "PostgresLeaseStore",
    "SqlOptions",
    "SqliteCheckpointStore",
    "SqliteHistoryStore",
    "SqliteIdempotencyStore",
    "SqliteLeaseStore",
    "open_sql",
]
