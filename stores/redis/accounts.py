"""Tenants' accounts, each of which is in a bucket of its own, apart from the tenant's runs.

What one call does to a run and to the account is two writes. A reservation is written to the account first, under the
call's own name (its run, iteration and fence), so that whoever has to begin anew finds it there; and closed on the
account last, once the run's write has settled it. Whoever dies in between leaves a reservation on the account that
nobody closes. It counts against the limits as ever, becomes unaccounted with the run's next reservation, and is shown
as unaccounted until then.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial

from adk_worker.actors import Actor
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Unaccounted
from adk_worker.ledger.booking import Closed, Reservation
from adk_worker.ledger.rounds import Round
from adk_worker.memory import ledgers
from adk_worker.memory.data import RunKey, StoredWait
from adk_worker.memory.reading import number_of
from adk_worker.runs import Submitted
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy
from stores.redis import rows, sweeping
from stores.redis.data import RunData
from stores.redis.keys import Keys, bucket_of_run, bucket_of_tenant, run_of, tenant_member, tenant_of
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


def rounds_due(process: Process, *, limit: int, after: str | None) -> tuple[Sequence[Round], str | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.rounds_due`: in the order of buckets, and of names in each."""
    first = 0 if after is None else bucket_of_tenant(after)

    def due(bucket: int) -> Sequence[Round]:
        behind = after if bucket == first else None
        names = process.named(Keys(bucket).due, behind=behind and tenant_member(behind), limit=limit + 1)
        return process.transact(bucket, partial(_begun, tenants=[tenant_of(name) for name in names])) if names else ()

    found = list(itertools.islice(sweeping.in_each(process, due, first=first), limit + 1))
    return found[:limit], found[limit - 1].tenant if len(found) > limit else None


def requeue(
    process: Process, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
) -> tuple[Sequence[Submitted], Round | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.requeue_over_budget`.

    Runs that the account has turned away are noted there. One that is not parked yet is stamped: the write that is
    about to park it finds that the row has moved, begins anew, and asks the account again.
    """
    tenant, behind = made.tenant, number_of(made.after) or 0
    bucket = bucket_of_tenant(tenant)
    account, waiting, cursor = process.transact(bucket, partial(_waiting, tenant=tenant, behind=behind, limit=limit))
    if account is None:
        return (), None
    queued: list[Submitted] = []
    for run, wait in waiting:
        made = made.meet()
        if not made.fits(account, wait.wanted):
            continue
        submitted, asks = process.transact(
            bucket_of_run(run), partial(_requeue, run=run, wait=wait, by=by, policy=policy)
        )
        queued += [] if submitted is None else [submitted]
        if submitted is not None or asks:
            made = made.promise(wait.wanted)
        if not asks:
            process.transact(bucket, partial(_forget, run=run, wait=wait))
    if cursor is not None:
        return queued, made.on(str(cursor))
    process.transact(bucket, partial(_serve, made=made))
    return queued, None


def _begun(data: RunData, tenants: Sequence[str]) -> Sequence[Round]:
    data.look_at_accounts(tenants)
    return [Round.begun(tenant, data.accounts[tenant]) for tenant in tenants]


def _waiting(
    data: RunData, tenant: str, behind: int, limit: int
) -> tuple[Account | None, Sequence[tuple[RunKey, StoredWait]], int | None]:
    account = data.accounts.get(tenant)
    return account, *data.waiting_of(tenant, behind=behind, limit=limit)


def _requeue(
    data: RunData, run: RunKey, wait: StoredWait, by: Actor, policy: FleetPolicy
) -> tuple[Submitted | None, bool]:
    """The run, if it is queued now; and whether it is not parked yet, and is made to ask again."""
    data.look(submitted=[run])
    submitted = ledgers.requeue_waiting(data, run, by=by, policy=policy)
    asks = submitted is None and run in data.runs and data.lease(run).held_under(wait.fence)
    if asks:
        data.touch(run)
    return submitted, asks


def _forget(data: RunData, run: RunKey, wait: StoredWait) -> None:
    """The run waits no more. If it has been turned away anew meanwhile, it does."""
    data.look_at_account(run)
    if data.waiting.get(run) == wait:
        del data.waiting[run]


def _serve(data: RunData, made: Round) -> None:
    account = data.accounts.get(made.tenant)
    if account is not None and (after := made.served(account)) != account:
        data.accounts[made.tenant] = after
