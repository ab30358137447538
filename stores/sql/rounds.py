"""Rounds over runs that wait for room on a tenant's account: read in pages, each run queued in a write of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.exc import DBAPIError

from adk_worker.actors import Actor
from adk_worker.errors import StoreUnavailableError
from adk_worker.ledger.amounts import Amount
from adk_worker.ledger.booking import Scope
from adk_worker.ledger.rounds import Round
from adk_worker.log import get_logger
from adk_worker.runs import Submitted
from adk_worker.transitions.runs import Attention, FleetPolicy, Phase
from stores.sql import accounts, ledgers, reading
from stores.sql.database import Database
from stores.sql.rows import Columns, ledger_of
from stores.sql.schema import runs

_log = get_logger(__name__)

_PARKED: Final = (
    select(runs.c.run_id, runs.c.number, runs.c.ledger)
    .where(
        runs.c.tenant == bindparam("for_tenant"),
        runs.c.phase == Phase.PARKED.value,
        runs.c.attention == Attention.OVER_BUDGET.value,
        runs.c.number > bindparam("behind"),
    )
    .order_by(runs.c.number)
    .limit(bindparam("at_most"))
)


async def due(database: Database, *, limit: int, after: str | None) -> tuple[Sequence[Round], str | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.rounds_due`; the cursor is a tenant's name."""
    # One more than asked for tells whether there is a next page.
    found = await database.read(lambda tx: accounts.due(tx, limit=limit + 1, behind=after or ""))
    return found[:limit], found[limit - 1].tenant if len(found) > limit else None


async def requeue(
    database: Database, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
) -> tuple[Sequence[Submitted], Round | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.requeue_over_budget`.

    Should the store go away in between, what was queued so far is returned, since its messages have to be published;
    the round stays due.
    """
    tenant, behind = made.tenant, reading.cursor(made.after) or 0
    account = await database.read(lambda tx: accounts.read(tx, tenant))
    if account is None:
        return (), None
    found = await database.read(lambda tx: parked(tx, tenant, limit=limit + 1, behind=behind))
    queued: list[Submitted] = []
    try:
        for run_id, _, wanted in found[:limit]:
            made = made if wanted is None else made.meet()
            if wanted is None or not made.fits(account, wanted):
                continue
            work = partial(ledgers.requeue_waiting, tenant=tenant, run_id=run_id, by=by, policy=policy)
            try:
                submitted = await database.write(work)
            except (DBAPIError, ValueError) as error:
                # One that cannot be read or written is not to hold up others. Its kind alone: the text may quote it.
                _log.error("run_not_reaped", tenant=tenant, run_id=run_id, error=type(error).__name__)
                made = made.miss()
                continue
            if submitted is not None:
                made = made.promise(wanted)
                queued.append(submitted)
        if len(found) > limit:
            return queued, made.on(str(found[limit - 1][1]))
        await database.write(lambda tx: accounts.serve(tx, made))
    except StoreUnavailableError:
        if not queued:
            raise
    return queued, None


def parked(tx: Connection, tenant: str, *, limit: int, behind: int) -> Sequence[tuple[str, int, Amount | None]]:
    """The runs that are parked for a budget, the oldest first: id, number, and what each asked for; only reads.

    ``None`` for one that is parked on its own budget.
    """
    rows = tx.execute(_PARKED, {"for_tenant": tenant, "behind": behind, "at_most": limit}).mappings()
    return [(row["run_id"], row["number"], _wanted(row)) for row in rows]


def _wanted(row: Columns) -> Amount | None:
    try:
        refused = ledger_of(row).refused
    except ValueError:
        return Amount()  # whoever is about to queue it finds out that it cannot be read
    return refused.wanted if refused is not None and refused.scope is Scope.TENANT else None
