"""Makes the tables, and brings them to another version: the alembic migrations, from a program.

The scripts are in ``alembic/`` beside this package in a checkout, and in ``adk_worker/_migrations`` once installed.
Alembic keeps its own note of the revision in ``adk_alembic_version``, so that an app with migrations of its own may
share the database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from adk_worker import errors
from adk_worker.errors import ConfigurationError
from adk_worker.urls import without_secrets
from stores.sql.failures import translated
from stores.sql.limits import Limits
from stores.sql.schema import metadata
from stores.sql.target import WRITES, SqlOptions, make_engine, parse_url

_PREFIX: Final = "adk_"
_VERSION_TABLE: Final = "adk_alembic_version"
# One at a time in a database. The number is this project's: the first eight bytes of SHA-256 of "adk-worker".
_ONE_AT_A_TIME: Final = text("SELECT pg_advisory_xact_lock(6314291075462878452)")

_IMPATIENT: Final = text("SET LOCAL lock_timeout = '10s'")


def _ours(name: str | None, kind: str, _parents: Mapping[str, str | None]) -> bool:
    return kind != "table" or (name is not None and name.startswith(_PREFIX))


SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "target_metadata": metadata,
        "version_table": _VERSION_TABLE,
        "include_name": _ours,
        # All steps are one transaction: it is the old version, or the new one.
        "transaction_per_migration": False,
    }
)
"""How alembic is to look at the database: at our tables alone."""


def upgrade(url: str, revision: str = "head") -> None:
    """Bring the database to ``revision``, the newest by default; harmless if it is there.

    Several at once wait for each other.

    :raises ConfigurationError: the URL cannot be used, or its user may not create tables.
    :raises StoreUnavailableError: no answer, or the tables are in use for too long.
    """
    with connected(url) as connection:
        command.upgrade(_config(connection), revision)


def downgrade(url: str, revision: str) -> None:
    """Bring the database back to ``revision``; ``base`` removes all tables, with what is in them."""
    with connected(url) as connection:
        command.downgrade(_config(connection), revision)


def current(url: str) -> str | None:
    """The revision that the database is at; ``None`` without our tables."""
    with connected(url) as connection:
        return MigrationContext.configure(connection, opts={"version_table": _VERSION_TABLE}).get_current_revision()


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """A connection in a transaction in which nobody else migrates; it is committed at the end of the block."""
    # A migration may take its time, but it must not stand in line for long, with everybody else behind it.
    target = parse_url(url)
    engine = make_engine(target, SqlOptions(pool_size=1, limits=Limits.NONE))
    try:
        with engine.execution_options(**{WRITES: True}).begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(_ONE_AT_A_TIME)
                connection.execute(_IMPATIENT)
            yield connection
    except CommandError as error:
        raise ConfigurationError(
            f"the database cannot be migrated: {error}. A revision that is not known here is a newer adk-worker's: "
            "migrate with that version."
        ) from error
    except DBAPIError as error:
        told = translated(error, store=without_secrets(target.render_as_string(hide_password=False)))
        if told is None:
            raise
        raise told from error
    finally:
        engine.dispose()


def script_location() -> Path:
    """Where the migrations are.

    :raises ConfigurationError: they are in neither place.
    """
    kit = Path(errors.__file__).parent
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
