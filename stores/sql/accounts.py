"""Tenants' accounts.

An account's row spans runs, so it is locked last: after the run's lock and its claims', at the end of a transaction, in
the order of tenants where there are several. Whoever has it locked waits for nobody, and commits next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

from sqlalchemy import Connection, bindparam, exists, or_, select, update

from adk_worker.actors import Actor
from adk_worker.adapters import adapter
from adk_worker.ledger.accounts import Account, AccountChange
from adk_worker.ledger.amounts import Amount, Budget, BudgetChange, Unaccounted
from adk_worker.ledger.booking import Closed
from adk_worker.ledger.rounds import Round
from adk_worker.ledger.waitlist import Waitlist
from stores.sql.dialects import PerDialect
from stores.sql.locks import database_time
from stores.sql.rows import Columns
from stores.sql.schema import DUE, accounts

_THIS: Final = accounts.c.tenant == bindparam("for_tenant")
_READ: Final = select(accounts).where(_THIS)
_LOCK: Final = _READ.with_for_update()
_LOCK_ALL: Final = (
    select(accounts.c.tenant)
    .where(accounts.c.tenant.in_(bindparam("for_tenants", expanding=True)))
    .order_by(accounts.c.tenant)
    .with_for_update()
)
_DUE: Final = (
    select(accounts)
    .where(DUE, accounts.c.tenant > bindparam("behind"))
    .order_by(accounts.c.tenant)
    .limit(bindparam("at_most"))
)
_SAVE: Final = update(accounts).where(_THIS)
_CREATE: Final = PerDialect(lambda insert: insert(accounts).on_conflict_do_nothing())
_WAITS: Final = tuple(field.name for field in fields(Waitlist))
HAS_LIMITS: Final = exists().where(
    _THIS, or_(accounts.c.limit_tokens.is_not(None), accounts.c.limit_cost_micros.is_not(None))
)
"""Whether the tenant ``for_tenant`` has limits; part of a statement."""


def read(tx: Connection, tenant: str) -> Account | None:
    """The account, as it stands; only reads."""
    row = tx.execute(_READ, {"for_tenant": tenant}).mappings().one_or_none()
    return None if row is None else _account_of(row)


def lock(tx: Connection, tenant: str) -> Account | None:
    """Lock the account; ``None`` if there is none."""
    row = tx.execute(_LOCK, {"for_tenant": tenant}).mappings().one_or_none()
    return None if row is None else _account_of(row)


def lock_all(tx: Connection, tenants: Iterable[str]) -> None:
    """Lock the accounts of several tenants, in their order, before any of them is written."""
    wanted = sorted(set(tenants))
    if wanted:
        tx.execute(_LOCK_ALL, {"for_tenants": wanted}).all()


def save(tx: Connection, tenant: str, account: Account) -> None:
    """Write an account that is locked."""
    tx.execute(_SAVE, {"for_tenant": tenant, **_columns(account)})


def close(tx: Connection, tenant: str, closed: Closed | None) -> None:
    """Tell the tenant's account that a reservation has ended. The last thing that a transaction does."""
    if closed is not None:
        account = lock(tx, tenant)
        if account is not None:
            save(tx, tenant, account.close(closed))


def change(tx: Connection, tenant: str, change: BudgetChange, *, by: Actor) -> Account:
    """See :meth:`adk_worker.ledger.store.LedgerStore.change_account`."""
    tx.execute(_CREATE.on(tx), {"tenant": tenant, **_columns(Account())})
    before = lock(tx, tenant)
    if before is None:
        raise AssertionError("the row was inserted, or stood there, and accounts are never removed")
    account = before.change(change, by=by, at=database_time(tx))
    save(tx, tenant, account)
    return account


def due(tx: Connection, *, limit: int, behind: str) -> Sequence[Round]:
    """Rounds that are to be made, of tenants whose names come after ``behind``, in order; only reads."""
    rows = tx.execute(_DUE, {"behind": behind, "at_most": limit}).mappings()
    return [Round.begun(row["tenant"], _account_of(row)) for row in rows]


def serve(tx: Connection, made: Round) -> None:
    """Note that a round is over."""
    account = lock(tx, made.tenant)
    if account is not None and (after := made.served(account)) != account:
        save(tx, made.tenant, after)


def _account_of(row: Columns) -> Account:
    return Account(
        limits=Budget(row["limit_tokens"], row["limit_cost_micros"]),
        spent=Amount(row["spent_tokens"], row["spent_cost_micros"]),
        reserved=Amount(row["reserved_tokens"], row["reserved_cost_micros"]),
        unaccounted=Unaccounted(
            row["unaccounted_calls"], Amount(row["unaccounted_tokens"], row["unaccounted_cost_micros"])
        ),
        changes=adapter(tuple[AccountChange, ...]).validate_python(row["changes"]),
        waitlist=Waitlist(*(row[f"waits_{name}"] for name in _WAITS)),
    )


def _columns(account: Account) -> dict[str, Any]:
    return {
        "limit_tokens": account.limits.tokens,
        "limit_cost_micros": account.limits.cost_micros,
        "spent_tokens": account.spent.tokens,
        "spent_cost_micros": account.spent.cost_micros,
        "reserved_tokens": account.reserved.tokens,
        "reserved_cost_micros": account.reserved.cost_micros,
        "unaccounted_calls": account.unaccounted.calls,
        "unaccounted_tokens": account.unaccounted.amount.tokens,
        "unaccounted_cost_micros": account.unaccounted.amount.cost_micros,
        "changes": adapter(tuple[AccountChange, ...]).dump_python(account.changes, mode="json"),
        **{f"waits_{name}": getattr(account.waitlist, name) for name in _WAITS},
    }
