"""How long the server itself lets something of ours take, so that a stopped worker holds up nobody.

Usually a connection asks for these limits as it is made, and they are its session's. A pooler of transactions
(PgBouncer, or a cloud's own) gives the same session to one client after another, and refuses or drops what one of them
asks for itself. Behind one, each transaction sets its own limits, at the head of its first statement: one more
round trip would be a lock held that much longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, event

from adk_worker.errors import ConfigurationError

POOLER: Final = "pooler"
"""The parameter of a URL that says what stands in front of PostgreSQL; it is ours, and libpq is not told."""

MARK: Final = "adk.limits"
"""A setting of ours in a session that has been given its limits. It is missing where something dropped them."""

_BEGUN: Final = "adk_begun"


class Limits(StrEnum):
    """Whose the limits are: the session's, each transaction's, or a migration's, which may take its time."""

    SESSION = "session"
    TRANSACTION = "transaction"
    MIGRATION = "migration"


def behind_pooler(url: URL) -> bool:
    """Whether the URL says that a pooler of transactions stands in front.

    :raises ConfigurationError: it says something else of it.
    """
    given = url.query.get(POOLER)
    if given not in {None, Limits.TRANSACTION.value}:
        raise ConfigurationError(
            f"the store's URL says {POOLER}={given}; it has to be {POOLER}=transaction, which fits a pooler of "
            "sessions as well. One of statements cannot be used: every write here is a transaction."
        )
    return given is not None


def as_options(limits: Limits, silent: float) -> str:
    """What a connection asks for as it is made, as libpq's ``options``; ``silent`` is ``SqlOptions.socket_timeout``."""
    # The isolation that the transactions here are made for: a stricter one would only have more of them done again.
    settings = {MARK: limits.value, "default_transaction_isolation": r"read\ committed"}
    # A migration that waits for a table has everybody else who wants it stand in line behind.
    settings |= {"lock_timeout": "3s"} if limits is Limits.MIGRATION else _limits(silent)
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def limit_transactions(engine: Engine, silent: float) -> None:
    """Have each transaction of ``engine`` set its limits."""
    # The isolation comes first: PostgreSQL takes it only before anything is read.
    settings = {"transaction_isolation": "'read committed'", **_limits(silent)}
    head = "".join(f"SET LOCAL {name} = {value}; " for name, value in settings.items())

    def begun(connection: Connection) -> None:
        connection.info[_BEGUN] = True

    def sending(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        first = connection.info.pop(_BEGUN, False)
        return (head + statement if first else statement), parameters

    event.listen(engine, "begin", begun)
    event.listen(engine, "before_cursor_execute", sending, retval=True)


def _limits(silent: float) -> Mapping[str, str]:
    seconds = {
        "statement_timeout": 0.8 * silent,
        "lock_timeout": 0.5 * silent,
        "idle_in_transaction_session_timeout": silent,
    }
    return {name: str(math.ceil(limit * 1000)) for name, limit in seconds.items()}
