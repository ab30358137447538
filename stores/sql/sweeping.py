"""The reaper's writes, and what it is told by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Double, and_, bindparam, func, select, update

from adk_worker import events
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.liveness import of_host
from adk_worker.runs import Dispatch, Reaped, Sweep
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Verdict
from stores.sql import accounts, journal
from stores.sql.apart import each_apart
from stores.sql.dialects import store_clock
from stores.sql.locks import (
    LEASE_COLUMNS,
    RUN_AND_LEASE,
    LockedRun,
    lock_run,
    lock_run_unless_locked,
    locked_run,
    timed,
)
from stores.sql.rows import Columns, lease_state, ledger_column, ledger_of, run_lease
from stores.sql.schema import LIVE, leases, runs, schema_row
from stores.sql.writing import end_cancelled

# The clock as a subquery is asked once, before the search, so that the index can be searched for it. Asked in place it
# would be asked anew for every lease in the index.
_HAS_LAPSED: Final = and_(LIVE, leases.c.expires_at <= select(store_clock()).scalar_subquery())
_OLDEST: Final = select(store_clock() - leases.c.expires_at).where(_HAS_LAPSED).order_by(leases.c.expires_at).limit(1)

# Those that lapsed first come first. What somebody has locked is being worked on, by its holder or another reaper, and
# is left to them; what has changed since the search is searched again by PostgreSQL before it is returned.
_LOCK_LAPSED: Final = timed(
    select(runs, *LEASE_COLUMNS)
    .select_from(RUN_AND_LEASE)
    .where(_HAS_LAPSED)
    .order_by(leases.c.expires_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)

# Their names alone: whatever else is in a row may be what cannot be read. Locked here, before any account is.
_LOCK_NAMES: Final = (
    select(leases.c.tenant, leases.c.run_id)
    .where(_HAS_LAPSED)
    .order_by(leases.c.expires_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)

# No index is kept for this, which is asked once in a worker's life, while every renewal would have to write it. It
# reads what is due within a TTL, as the sweeps of a TTL do. Compared by length: LIKE has characters of its own.
_HELD_ON: Final = (
    select(leases.c.tenant, leases.c.run_id, *LEASE_COLUMNS)
    .where(
        LIVE,
        leases.c.expires_at <= select(store_clock()).scalar_subquery() + bindparam("within", type_=Double),
        leases.c.holding == Holding.WORKER.value,
        func.substr(leases.c.holder, 1, bindparam("length")) == bindparam("begins"),
    )
    .order_by(leases.c.expires_at)
)

_LOCK_SWEEP: Final = timed(select(schema_row.c.last_sweep).with_for_update())
_WRITE_SWEEP: Final = update(schema_row).values(last_sweep=bindparam("began"))


def claim_lapsed(tx: Connection, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
    """See :meth:`adk_worker.runs.RunStore.claim_lapsed`. A run that cannot be read or written fails the whole."""
    rows = tx.execute(_LOCK_LAPSED, {"at_most": limit}).mappings().all()
    # In one go, and in order: what is written about them below would lock them as it comes.
    accounts.lock_all(tx, (row["tenant"] for row in rows if _on_account(row)))
    acted = [_reap(tx, locked_run(row), policy=policy, count_crashes=count_crashes) for row in rows]
    return [reaped for reaped in acted if reaped is not None]


def claim_lapsed_apart(tx: Connection, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
    """Do the same, and leave out a run that cannot be read or written, at several round trips a run."""

    def reap(row: Columns) -> Reaped | None:
        run = lock_run_unless_locked(tx, row["tenant"], row["run_id"])
        return None if run is None else _reap(tx, run, policy=policy, count_crashes=count_crashes)

    return each_apart(tx, _LOCK_NAMES, reap, limit=limit, on_accounts=True)


def _on_account(row: Columns) -> bool:
    reserved = ledger_of(row).reserved
    return reserved is not None and reserved.on_account


def claim_dead(tx: Connection, tenant: str, run_id: str, *, holder: str, policy: FleetPolicy) -> Reaped | None:
    """See :meth:`adk_worker.runs.RunStore.claim_dead`."""
    run = lock_run(tx, tenant, run_id)
    if run is None or run.state.lease.holding is not Holding.WORKER or run.state.lease.holder != holder:
        return None
    return _reap(tx, run, policy=policy, known_dead=True)


def held_on(tx: Connection, host: str, *, within: float) -> Sequence[RunLease]:
    """See :meth:`adk_worker.runs.RunStore.held_on`."""
    begins = of_host(host)
    this = {"within": within, "begins": begins, "length": len(begins)}
    rows = tx.execute(_HELD_ON, this).mappings()
    return [run_lease(row["tenant"], row["run_id"], lease_state(row)) for row in rows]


def _reap(
    tx: Connection, run: LockedRun, *, policy: FleetPolicy, count_crashes: bool = True, known_dead: bool = False
) -> Reaped | None:
    moved = run_transitions.reap(
        run.state, at=run.at, policy=policy, count_crashes=count_crashes, known_dead=known_dead
    )
    if moved.verdict is Verdict.REFUSED:
        return None
    was = run.state.lease.holding
    told = events.reaped(run.state, moved.state, moved.verdict, known_dead=known_dead)
    # A worker that is gone may have been in a model call; the queue makes none.
    booked = booking.lost(run.ledger, in_flight=None if was is Holding.WORKER else run.ledger.reserved is not None)
    kept = ledger_column(booked.ledger)
    dispatch = None
    match moved.verdict:
        case Verdict.CANCELLED:
            end_cancelled(tx, run, moved.state, told, ledger=kept)
        case Verdict.PARKED:
            journal.write(tx, run, moved.state, told, detail=events.parked_detail(moved.state), ledger=kept)
        case _:
            journal.write(tx, run, moved.state, told, ledger=kept)
            dispatch = Dispatch(run.tenant, run.run_id, moved.state.lease.fence, was is Holding.WORKER)
    accounts.close(tx, run.tenant, booked.closed)
    return Reaped(run.tenant, run.run_id, was, moved.verdict, dispatch)


def sweep(tx: Connection) -> Sweep:
    """See :meth:`adk_worker.runs.RunStore.sweep`."""
    row = tx.execute(_LOCK_SWEEP).mappings().one()
    tx.execute(_WRITE_SWEEP, {"began": row["now"]})
    return Sweep(row["now"], row["last_sweep"])


def oldest_lapsed(tx: Connection) -> float | None:
    """See :meth:`adk_worker.runs.RunStore.oldest_lapsed`."""
    seconds: float | None = tx.execute(_OLDEST).scalar_one_or_none()
    return seconds
