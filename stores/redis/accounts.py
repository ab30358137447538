"""Tenants' accounts, each of which is in a bucket of its own, apart from the tenant's runs.

What one call does to a run and to the account is two writes. A reservation is written to the account first, under the
call's own name (its run, iteration and fence), so that whoever has to begin anew finds it there; and closed on the
account last, once the run's write has settled it. Whoever dies in between leaves a reservation on the account that
nobody closes. It counts against the limits as ever, becomes unaccounted with the run's next reservation, and is shown
as unaccounted until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from adk_worker.actors import Actor
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Unaccounted
from adk_worker.ledger.booking import Closed, Reservation
from adk_worker.memory import ledgers
from adk_worker.memory.data import RunKey
from adk_worker.runs import Submitted
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy
from stores.redis import rows
from stores.redis.data import RunData
from stores.redis.keys import Keys, bucket_of_run, bucket_of_tenant, run_of
from stores.redis.server import Process


def read(process: Process, tenant: str) -> Account | None:
    """See :meth:`adk_worker.ledger.store.LedgerStore.account`."""
    bucket = bucket_of_tenant(tenant)
    account = process.transact(bucket, lambda data: data.accounts.get(tenant))
    if account is None:
        return None
    key = Keys(bucket).opened(tenant)
    opened: dict[str, str] = process.ask(lambda client: client.hgetall(key), reading=True)
    for name, text in opened.items():
        run, reservation = run_of(name), rows.reservation_of(text)
        if reservation is not None and not process.transact(
            bucket_of_run(run), partial(_is_made, run=run, reservation=reservation)
        ):
            gone = Closed(reservation, unaccounted=Unaccounted(1, reservation.amount))
            account = account.close(gone)
    return account


def _is_made(data: RunData, run: RunKey, reservation: Reservation) -> bool:
    """Whether the acquisition that has reserved still has the lease, so that it may be making its call."""
    lease = data.lease(run)
    return lease.holding is Holding.WORKER and lease.fence == reservation.fence


def requeue(
    process: Process, tenant: str, *, by: Actor, policy: FleetPolicy, limit: int, after: str | None
) -> tuple[Sequence[Submitted], str | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.requeue_over_budget`.

    Runs that the account has turned away are noted there. One that is not parked yet is stamped: the write that is
    about to park it finds that the row has moved, begins anew, and asks the account again.
    """
    bucket = bucket_of_tenant(tenant)
    run_ids = process.transact(bucket, lambda data: data.waiting_of(tenant))
    batch, cursor = ledgers.batch_of(run_ids, limit=limit, after=after)
    queued: list[Submitted] = []
    for run in [(tenant, run_id) for run_id in batch]:
        submitted, over = process.transact(bucket_of_run(run), partial(_requeue, run=run, by=by, policy=policy))
        queued += [] if submitted is None else [submitted]
        if over:
            process.transact(bucket, partial(_forget, run=run))
    return queued, cursor


def _requeue(data: RunData, run: RunKey, by: Actor, policy: FleetPolicy) -> tuple[Submitted | None, bool]:
    data.look(submitted=[run])
    if run not in data.runs or ledgers.is_over(data.runs[run].state):
        return None, True
    submitted = ledgers.requeue_waiting(data, run, by=by, policy=policy)
    if submitted is None:
        data.touch(run)
    return submitted, False


def _forget(data: RunData, run: RunKey) -> None:
    data.look_at_account(run)
    data.accounts.get(run[0])
    data.waiting.pop(run, None)
