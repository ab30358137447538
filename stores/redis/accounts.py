"""Tenants' accounts, each of which is in a bucket of its own, apart from the tenant's runs.

What one call does to a run and to the account is two writes. A reservation is written to the account first, under the
call's own name (its run, iteration and fence), so that whoever has to begin anew finds it there; and closed on the
account last, once the run's write has settled it. An account that does not answer then is told later by the same
process. Whoever dies in between leaves a reservation on the account that nobody closes. It counts against the limits as
ever, becomes unaccounted with the run's next reservation, and is shown as unaccounted until then.
"""

from __future__ import annotations

from functools import partial

from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Unaccounted
from adk_worker.ledger.booking import Closed, Reservation
from adk_worker.memory.data import RunKey
from adk_worker.transitions.leases import Holding
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
