"""Makes the tables, and brings them to another version: the alembic migrations, from a program.

The scripts are in ``alembic/`` beside this package in a checkout, and in ``adk_worker/_migrations`` once installed.
Alembic keeps its own note of the revision in ``adk_alembic_version``, so that an app with migrations of its own may
share the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy import Connection, func, select, text, true
from sqlalchemy.exc import DBAPIError, PendingRollbackError
from tenacity import Retrying, retry_if_result, wait_random

from adk_worker import names
from adk_worker.errors import ConfigurationError
from adk_worker.urls import without_secrets
from stores.sql.failures import no_session, translated
from stores.sql.limits import MARK, POOLER, Limits, behind_pooler
from stores.sql.schema import with_postgresql
from stores.sql.target import WRITES, SqlOptions, make_engine, parse_url

_PREFIX: Final = "adk_"
_VERSION_TABLE: Final = "adk_alembic_version"
# One at a time in a database. The number is this project's: the first eight bytes of SHA-256 of "adk-worker".
_ALONE: Final = text("SELECT pg_try_advisory_lock(6314291075462878452)")
_MARK: Final = select(func.current_setting(MARK, true()))
# Nobody waits in the server: that would be a transaction, and CREATE INDEX CONCURRENTLY waits for all of those.
_UNTIL_ALONE: Final = Retrying(retry=retry_if_result(lambda alone: not alone), wait=wait_random(0.05, 0.25))


def _ours(name: str | None, kind: str, _parents: Mapping[str, str | None]) -> bool:
    return kind != "table" or (name is not None and name.startswith(_PREFIX))


SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "target_metadata": with_postgresql(),
        "version_table": _VERSION_TABLE,
        "include_name": _ours,
        # Each step is one transaction, and what it has locked is free again before the next one. On SQLite, where
        # nothing is built beside other writes, all steps are one.
        "transaction_per_migration": True,
    }
)
"""How alembic is to look at the database: at our tables alone."""


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to ``revision``, the newest by default; harmless if it is there.

    Several at once wait for each other.

    :raises ConfigurationError: the URL cannot be used, or its user may not create tables.
    :raises StoreUnavailableError: no answer, or a table was in use for more than three seconds. Steps that were done
        by then stay done; do it again.
    """
    with alone(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Bring the database back to ``revision``; ``base`` removes all tables, with what is in them."""
    with alone(url) as connection:
        command.downgrade(_config(connection), revision)


def current(url: str) -> str | None:
    """The revision that the database is at; ``None`` without our tables."""
    with alone(url) as connection:
        return MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE}).get_current_revision()


def differences(connection: Connection) -> Sequence[str]:
    """What of our tables, columns and indexes is missing, or otherwise than :mod:`stores.sql.schema` declares it."""
    found = compare_metadata(MigrationContext.configure(connection, opts=dict(SETTINGS)), with_postgresql())
    # A change of a column comes as a list of its changes.
    steps = [step for one in found for step in (one if isinstance(one, list) else [one])]
    return [_in_words(*step) for step in steps]


def _in_words(what: str, *about: Any) -> str:
    named = [one if isinstance(one, str) else getattr(one, "name", None) for one in about]
    where = ".".join(name for name in named[:3] if name)
    verb, _, kind = what.partition("_")
    return f"{kind} {where} {_VERBS.get(verb, 'is another one than declared')}"


_VERBS: Final = MappingProxyType({"add": "is missing", "remove": "is not one of ours"})


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection in a transaction while nobody migrates; it is committed at the end of the block."""
    with alone(url) as connection:
        if connection.in_transaction():
            yield connection
        else:
            with connection.begin():
                yield connection


@contextmanager
def alone(url: str) -> Iterator[Connection]:
    """A connection for the time in which nobody else migrates; on SQLite it is in a transaction, which that is.

    :raises ConfigurationError: the URL cannot be used, or leads through a pooler: on PostgreSQL this is a lock of the
        session's.
    """
    target = parse_url(url)
    if behind_pooler(target):
        raise ConfigurationError(
            "migrations need a session of their own, which a pooler does not give: set ADK_MIGRATE_URL to the server "
            f"itself, without {POOLER}=."
        )
    store = without_secrets(target.render_as_string(hide_password=False))
    engine = make_engine(target, SqlOptions(pool_size=1, limits=Limits.MIGRATION))
    try:
        with engine.execution_options(**{WRITES: True}).connect() as connection:
            if connection.dialect.name == "postgresql":
                _wait_for_others(connection, store)
                yield connection
            else:
                with connection.begin():
                    yield connection
    except CommandError as error:
        raise ConfigurationError(
            f"the database cannot be migrated: {error}. A revision that is not known here is a newer adk-worker's: "
            "migrate with that version."
        ) from error
    except (DBAPIError, PendingRollbackError) as error:
        # A connection that is lost in alembic's autocommit block cannot end that, and this is what is raised then.
        lost = error if isinstance(error, DBAPIError) else error.__context__
        told = translated(lost, store=store) if isinstance(lost, DBAPIError) else None
        if told is None:
            raise
        raise told from error
    finally:
        engine.dispose()


def _wait_for_others(connection: Connection, store: str) -> None:
    """Take the lock, which goes with the session."""
    if connection.execute(_MARK).scalar_one() != Limits.MIGRATION.value:
        raise ConfigurationError(no_session(store, "dropped what was asked for"))

    def try_once() -> bool:
        alone: bool = connection.execute(_ALONE).scalar_one()
        connection.commit()
        return alone

    connection.commit()
    _UNTIL_ALONE(try_once)


def script_location() -> Path:
    """Where the migrations are.

    :raises ConfigurationError: they are in neither place.
    """
    kit = Path(names.__file__).parent
    installed = kit / "_migrations"
    checkout = kit.parent / "alembic"
    for place in (installed, checkout):
        if (place / "env.py").is_file():
            return place
    raise ConfigurationError(f"the migrations are not at {installed}: the installation is incomplete, install it anew.")


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
