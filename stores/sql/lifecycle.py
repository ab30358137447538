"""Whether the database is one that this version works with; the store's epoch; its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, func, select, text, true, update

from adk_worker.errors import ConfigurationError, SchemaVersionError
from adk_worker.runs import Sweep
from adk_worker.transitions.leases import MAX_EPOCH
from stores.sql.database import Database
from stores.sql.dialects import store_clock
from stores.sql.failures import no_session
from stores.sql.limits import MARK
from stores.sql.schema import SCHEMA_VERSION, schema_row

# It conflicts with every lock of a lease's row: all writes under way are over before the epoch rises, and those that
# come later see it risen (L2).
_WAIT_FOR_WRITERS: Final = text("LOCK TABLE adk_run_leases IN EXCLUSIVE MODE")
_VERSION: Final = select(schema_row.c.version)
_VERSION_AND_MARK: Final = _VERSION.add_columns(func.current_setting(MARK, true()).label("mark"))
_SWEPT: Final = select(store_clock().label("now"), schema_row.c.last_sweep)
_RAISE: Final = (
    update(schema_row)
    .where(schema_row.c.epoch < MAX_EPOCH)
    .values(epoch=schema_row.c.epoch + 1)
    .returning(schema_row.c.epoch)
)


class SqlLifecycle:
    """A :class:`~adk_worker.lifecycle.Lifecycle` of a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def verify(self) -> None:
        found, mark = await self._database.read(self._look)
        if mark != self._database.mark:
            raise ConfigurationError(no_session(self._database.name, "dropped what was asked for"))
        if found != SCHEMA_VERSION:
            raise SchemaVersionError(found=found, wanted=SCHEMA_VERSION)

    def _look(self, tx: Connection) -> tuple[str | None, str | None]:
        row = tx.execute(_VERSION if self._database.mark is None else _VERSION_AND_MARK).one_or_none()
        return (None, self._database.mark) if row is None else (row.version, getattr(row, "mark", None))

    async def differences(self) -> Sequence[str]:
        """See :class:`~adk_worker.lifecycle.ComparesSchema`."""
        from stores.sql.migrate import differences  # noqa: PLC0415 - Alembic, for those alone who ask

        return await self._database.write(differences)

    async def swept(self) -> Sweep:
        """See :class:`~adk_worker.lifecycle.TellsSweeps`."""
        return await self._database.read(_swept)

    async def bump_epoch(self) -> int:
        epoch = await self._database.write(_raise)
        if epoch is None:
            raise ConfigurationError(f"the store's epoch is {MAX_EPOCH} already, and fences have no room for more.")
        return epoch

    async def close(self) -> None:
        await self._database.close()


def _swept(tx: Connection) -> Sweep:
    row = tx.execute(_SWEPT).one()
    return Sweep(row.now, row.last_sweep)


def _raise(tx: Connection) -> int | None:
    if tx.dialect.name == "postgresql":
        tx.execute(_WAIT_FOR_WRITERS)
    epoch: int | None = tx.execute(_RAISE).scalar_one_or_none()
    return epoch
