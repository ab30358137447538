"""Leases (L1-L7, L10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    bindparam,
    case,
    literal,
    or_,
    select,
)
from sqlalchemy.sql.dml import ReturningInsert

from adk_worker.errors import RunLeaseError, StaleFenceError
from adk_worker.lease import RunLease, check_holder, check_ttl
from adk_worker.names import check_run
from adk_worker.runs import RunStatus
from adk_worker.transitions import leases as lease_transitions
from adk_worker.transitions.leases import EPOCH_SHIFT, Holding
from stores.sql.database import Database
from stores.sql.dialects import Insert, PerDialect, greatest, store_clock
from stores.sql.journal import write_lease
from stores.sql.locks import EPOCH, LEASE_COLUMNS, lock_lease
from stores.sql.rows import lease_state, run_lease
from stores.sql.schema import LIVE, leases


def granting(insert: Callable[[Table], Insert], clock: ColumnElement[float]) -> ReturningInsert[Any]:
    """The one statement that decides an acquisition (L7): it returns the new fence and expiry, or no row.

    PostgreSQL judges the WHERE, and computes what is set, on the newest version of the row and with the row locked,
    however long it had to wait for that. It leaves a row locked that it did not change.
    """
    lowest = EPOCH * literal(1 << EPOCH_SHIFT)
    until = clock + bindparam("ttl")
    return (
        insert(leases)
        .values(
            tenant=bindparam("for_tenant"),
            run_id=bindparam("for_run"),
            fence=lowest + 1,
            holding=Holding.WORKER.value,
            holder=bindparam("for_holder"),
            expires_at=until,
            wait=0.0,
        )
        .on_conflict_do_update(
            index_elements=[leases.c.tenant, leases.c.run_id],
            set_={
                "fence": greatest(leases.c.fence, lowest) + 1,
                "holding": Holding.WORKER.value,
                "holder": bindparam("for_holder"),
                "expires_at": until,
                "wait": 0.0,
                "status": case((LIVE, RunStatus.RUNNING.value)),
            },
            where=or_(leases.c.holding == Holding.FREE.value, leases.c.expires_at <= clock),
        )
        .returning(leases.c.fence, leases.c.expires_at)
    )


_GRANT: Final = PerDialect(lambda insert: granting(insert, store_clock()))

_THIS: Final = (leases.c.tenant == bindparam("for_tenant")) & (leases.c.run_id == bindparam("for_run"))
_READ: Final = select(*LEASE_COLUMNS).where(_THIS)
_HELD: Final = _READ.where(leases.c.holding != Holding.FREE.value, leases.c.expires_at > store_clock())


class SqlLeaseStore:
    """A :class:`~adk_worker.lease.LeaseStore` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float) -> RunLease:
        check_run(tenant, run_id)
        check_holder(holder)
        check_ttl(ttl_seconds)
        return await self._database.write(lambda tx: _acquire(tx, tenant, run_id, holder, ttl_seconds))

    async def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        check_run(lease.tenant, lease.run_id)
        check_ttl(ttl_seconds)
        return await self._database.write(lambda tx: _renew(tx, lease, ttl_seconds))

    async def release(self, lease: RunLease) -> None:
        check_run(lease.tenant, lease.run_id)
        await self._database.write(lambda tx: _release(tx, lease))

    async def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: _held(tx, tenant, run_id))


def _acquire(tx: Connection, tenant: str, run_id: str, holder: str, ttl: float) -> RunLease:
    this = {"for_tenant": tenant, "for_run": run_id}
    granted = tx.execute(_GRANT.on(tx), {**this, "for_holder": holder, "ttl": ttl}).one_or_none()
    if granted is not None:
        return RunLease(tenant, run_id, holder, granted.fence, granted.expires_at)
    # The row is locked by now, so this is whoever the lease was refused for.
    held = run_lease(tenant, run_id, lease_state(tx.execute(_READ, this).mappings().one()))
    raise RunLeaseError(tenant=tenant, run_id=run_id, holder=held.holder, fence=held.fence, expires_at=held.expires_at)


def _renew(tx: Connection, lease: RunLease, ttl: float) -> RunLease:
    locked = lock_lease(tx, lease.tenant, lease.run_id)
    if locked is None:
        raise StaleFenceError(tenant=lease.tenant, run_id=lease.run_id, presented=lease.fence, current=0)
    renewed = lease_transitions.renew(locked.lease, fence=lease.fence, at=locked.at, ttl=ttl)
    if renewed is None:
        current = locked.lease.fence
        raise StaleFenceError(tenant=lease.tenant, run_id=lease.run_id, presented=lease.fence, current=current)
    write_lease(tx, lease.tenant, lease.run_id, renewed, live=locked.live)
    return run_lease(lease.tenant, lease.run_id, renewed)


def _release(tx: Connection, lease: RunLease) -> None:
    locked = lock_lease(tx, lease.tenant, lease.run_id)
    if locked is None:
        return
    released = lease_transitions.release(locked.lease, fence=lease.fence, live=locked.live, at=locked.at)
    if released != locked.lease:
        write_lease(tx, lease.tenant, lease.run_id, released, live=locked.live)


def _held(tx: Connection, tenant: str, run_id: str) -> RunLease | None:
    row = tx.execute(_HELD, {"for_tenant": tenant, "for_run": run_id}).mappings().one_or_none()
    return None if row is None else run_lease(tenant, run_id, lease_state(row))
