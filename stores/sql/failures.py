"""What a driver's error means to a caller: the edge at which they become errors of this project."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from adk_worker.errors import (
    AdkError,
    CommitUnknownError,
    ConfigurationError,
    SchemaVersionError,
    StoreRefusedError,
    StoreUnavailableError,
)
from adk_worker.urls import without_secrets
from stores.sql.limits import POOLER
from stores.sql.schema import SCHEMA_VERSION

_ROLLED_BACK: Final = frozenset({"40001", "40P01"})
"""SQLSTATEs that say: this transaction was rolled back in favour of another, do it again (serialization, deadlock)."""
_NO_SUCH_TABLE: Final = frozenset({"42P01", "42703", "3F000"})
_NOT_ALLOWED: Final = "42501"
_AWAY: Final = ("08", "25", "53", "57", "58", "XX")
"""Classes of SQLSTATE that speak of the server's state: connection, transaction (a standby is read-only), resources,
an operator's intervention, and its own system."""

_NO_OPTION: Final = "invalid connection option"
"""What libpq says of a parameter of the URL that it does not know, before it connects."""

_NO_SESSION: Final = "unsupported startup parameter"
"""What PgBouncer answers to a client that asks for settings of its session."""


_LETS_NOBODY_IN: Final = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|pg_hba\.conf rejects"
    r"|(?:database|role) \".*\" does not exist|is not permitted to log in|no such (?:database|user)"
    r"|permission denied for database|not currently accepting connections|does not support SSL, but SSL was required"
    r"|certificate verify failed|root certificate file|does not match host name|invalid sslmode value"
)
"""What libpq, PostgreSQL and PgBouncer say of a login that fails tomorrow as it fails today. The driver keeps no
SQLSTATE of it. A server that says it in another language than English is taken for one that is away."""


def rolled_back(error: DBAPIError) -> bool:
    """Whether the database undid the whole transaction so that another could go on, and it may be done again."""
    return _sqlstate(error) in _ROLLED_BACK


def commit_unknown(error: DBAPIError) -> bool:
    """Whether an error of COMMIT itself leaves open what came of it."""
    if isinstance(error.orig, sqlite3.Error):
        # The disk failed under it: the write-ahead log may hold the commit or not.
        return "disk I/O error" in str(error.orig)
    return error.connection_invalidated


def translated(error: DBAPIError | PoolTimeoutError, *, store: str, committing: bool = False) -> AdkError | None:
    """The error to raise ``from`` this one; ``None`` for one that says nothing but that our own SQL is wrong.

    Only the error's first line is told: what follows may quote a row.
    """
    if isinstance(error, PoolTimeoutError):
        return StoreUnavailableError(store=store, reason="all connections of this process are in use")
    reason = _reason(error)
    if committing and commit_unknown(error):
        return CommitUnknownError(store=store, reason=f"the connection was lost in COMMIT ({reason})")
    unusable = _unusable(error, reason, store)
    if unusable is not None:
        return unusable
    sqlstate = _sqlstate(error)
    if sqlstate in _NO_SUCH_TABLE or reason.startswith(("no such table", "no such column")):
        return SchemaVersionError(found=None, wanted=SCHEMA_VERSION)
    if sqlstate == _NOT_ALLOWED:
        return ConfigurationError(
            f"the store {store} refuses: {reason}. Grant its user SELECT, INSERT, UPDATE and DELETE on the adk_* "
            "tables."
        )
    away = (
        isinstance(error, OperationalError | InterfaceError)
        or error.connection_invalidated
        or (sqlstate is not None and sqlstate.startswith(_AWAY))
        # No finer class: a file that is no database, or a connection that broke in the middle of an answer.
        or type(error) is DatabaseError
    )
    return StoreUnavailableError(store=store, reason=reason) if away else None


def _unusable(error: DBAPIError, reason: str, store: str) -> AdkError | None:
    """What is wrong with the URL, where nothing but another one would help."""
    if _NO_SESSION in reason:
        return ConfigurationError(no_session(store, f"refuses it ({reason})"))
    if _NO_OPTION in reason:
        return ConfigurationError(f"the store {store}: {reason}.")
    refused = _refused_login(error)
    return None if refused is None else StoreRefusedError(store=store, reason=refused)


def no_session(store: str, what: str) -> str:
    """What to say of a pooler that gives nobody a session; ``what`` is what it does with the settings of one."""
    return (
        f"the store {store} was asked for a session with limits of its own, and something in front of it {what}. If "
        f"that is a pooler, say so in ADK_STORE_URL: postgresql://…?{POOLER}=transaction. Then each transaction sets "
        "them. Migrations need a session: set ADK_MIGRATE_URL to the server itself."
    )


def _sqlstate(error: DBAPIError) -> str | None:
    return getattr(error.orig, "pgcode", None)


def _refused_login(error: DBAPIError) -> str | None:
    """What was said of a login that was refused; ``None`` if it was none."""
    if not isinstance(error, OperationalError) or isinstance(error.orig, sqlite3.Error) or _sqlstate(error):
        return None
    # One line for each host that was tried.
    lines = (line.strip() for line in str(error.orig).splitlines())
    said = next((line for line in lines if _LETS_NOBODY_IN.search(line)), None)
    return None if said is None else without_secrets(said.rstrip(":. "))


def _reason(error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    reason = lines[0].rstrip(":. ") if lines else type(error.orig).__name__
    if reason == "unable to open database file":  # SQLite does not say why
        reason += " (its folder has to be there, and both have to be yours to write)"
    return reason
