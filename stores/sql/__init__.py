"""Stores in a database: PostgreSQL or SQLite, through one implementation.

:func:`open_sql` opens the bundle that a fleet needs; the lone stores serve runs in process. The tables are made by
:mod:`stores.sql.migrate`, never by opening a store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_worker.exports import exported
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
from stores.sql.schema import SCHEMA_VERSION
from stores.sql.target import SqlOptions

if TYPE_CHECKING:
    from stores.sql.schema import EXPECTED_CHECKPOINT_SCHEMA

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

# Long to write, and no store asks for it.
__getattr__, __dir__ = exported(__name__, {"schema": "EXPECTED_CHECKPOINT_SCHEMA"})
