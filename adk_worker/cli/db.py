"""``adk db``: the store's schema and epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import awaited
from adk_worker.cli.source import load_settings
from adk_worker.errors import StoreRefusedError

if TYPE_CHECKING:
    from adk_worker.settings import Settings


@click.group("db", short_help="The store's schema and epoch.")
def db() -> None:
    """The store's schema and epoch. The store is that of ADK_STORE_URL, and of no adk dev."""


@db.command("upgrade")
@options.as_json
@options.debug
def upgrade(*, as_json: bool) -> int:
    """Bring the store's tables, or keys, to the version that this adk-worker needs. Harmless if they are.

    ADK_MIGRATE_URL may name the store with the rights that this takes.
    """
    from adk_worker.siblings import require_ours
    from adk_worker.urls import without_secrets

    require_ours("stores")
    from stores.upgrading import migrator

    settings = load_settings()
    url = settings.migrate_url or settings.store_url
    migrate = migrator(url)
    try:
        before = migrate.current(url)
        migrate.upgrade(url)
        after = migrate.current(url)
    except StoreRefusedError as error:
        if settings.migrate_url is None:
            raise
        raise StoreRefusedError(
            store=error.store, reason=error.reason, hint=error.hint, setting="ADK_MIGRATE_URL"
        ) from error
    warnings = awaited(lambda: _dangers(settings.model_copy(update={"store_url": url})))
    for warning in warnings:
        note(f"warning: {warning}")
    if as_json:
        emit({"store": without_secrets(url), "before": before, "after": after, "warnings": warnings})
    elif before == after:
        say(f"{without_secrets(url)} is at {after} already")
    else:
        say(f"{without_secrets(url)} is upgraded from {before or 'nothing'} to {after}")
    return ExitCode.DONE


async def _dangers(settings: Settings) -> list[str]:
    """What the store's server may do to what it is given, in sentences, for a store that knows."""
    from adk_worker.errors import ConfigurationError
    from adk_worker.lifecycle import TellsRisks
    from adk_worker.wiring import make_stores

    stores = make_stores(settings)
    try:
        if not isinstance(stores.lifecycle, TellsRisks):
            return []
        return list(await stores.lifecycle.risks())
    except ConfigurationError as error:
        return [f"no worker will start with this: {error}"]
    finally:
        await stores.lifecycle.close()


@db.command("verify")
@options.as_json
@options.debug
def verify(*, as_json: bool) -> int:
    """Check that the store answers and has the schema that this adk-worker needs, and by what it may lose writes.

    Of a database it compares every table, column and index with what is declared.
    """
    from adk_worker.errors import ConfigurationError
    from adk_worker.lifecycle import ComparesSchema, TellsRisks
    from adk_worker.urls import without_secrets
    from adk_worker.wiring import make_stores

    settings = load_settings()

    async def check() -> Sequence[str]:
        stores = make_stores(settings)
        try:
            await stores.lifecycle.verify()
            found = await stores.lifecycle.differences() if isinstance(stores.lifecycle, ComparesSchema) else ()
            if found:
                raise ConfigurationError(
                    f"the store says that it is at this version, and its schema is another one: {'; '.join(found)}. "
                    "Somebody has changed it by hand: restore it from a backup, or make good what is named."
                )
            return await stores.lifecycle.risks() if isinstance(stores.lifecycle, TellsRisks) else ()
        finally:
            await stores.lifecycle.close()

    risks = awaited(check)
    url = without_secrets(settings.store_url)
    if as_json:
        emit({"store": url, "ok": True, "risks": list(risks)})
    else:
        say(f"{url} answers, and its schema is the one that this adk-worker needs")
        for risk in risks:
            note(f"warning: {risk}")
    return ExitCode.DONE


@db.command("bump-epoch")
@options.as_json
@options.debug
def bump_epoch(*, as_json: bool) -> int:
    """Raise the store's epoch, so that every fence given from now on is above all before.

    To be done after a restore, or a failover that lost writes, and before workers start again: the store may have
    forgotten fences that it had given.
    """
    from adk_worker.urls import without_secrets
    from adk_worker.wiring import make_stores

    settings = load_settings()

    async def bump() -> int:
        stores = make_stores(settings)
        try:
            await stores.lifecycle.verify()
            return await stores.lifecycle.bump_epoch()
        finally:
            await stores.lifecycle.close()

    epoch = awaited(bump)
    url = without_secrets(settings.store_url)
    if as_json:
        emit({"store": url, "epoch": epoch})
    else:
        say(f"{url} is in epoch {epoch}")
    return ExitCode.DONE
