"""Rounds over runs that wait for room on a tenant's account.

Runs that the account has turned away are noted there, and a round reads no others. One that is not parked yet is
stamped: the write that is about to park it finds that the row has moved, begins anew, and asks the account again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial

from adk_worker.actors import Actor
from adk_worker.errors import StoreUnavailableError
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.rounds import Round
from adk_worker.log import get_logger
from adk_worker.memory import ledgers
from adk_worker.memory.data import RunKey, StoredWait
from adk_worker.memory.reading import number_of
from adk_worker.runs import Submitted
from adk_worker.transitions.runs import FleetPolicy
from stores.redis import sweeping
from stores.redis.data import RunData
from stores.redis.keys import Keys, bucket_of_run, bucket_of_tenant, tenant_member, tenant_of
from stores.redis.server import Process

_log = get_logger(__name__)


def due(process: Process, *, limit: int, after: str | None) -> tuple[Sequence[Round], str | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.rounds_due`: in the order of buckets, and of names in each."""
    first = 0 if after is None else bucket_of_tenant(after)

    def of_bucket(bucket: int) -> Sequence[Round]:
        behind = after if bucket == first else None
        names = process.named(Keys(bucket).due, behind=behind and tenant_member(behind), limit=limit + 1)
        return process.transact(bucket, partial(_begun, tenants=[tenant_of(name) for name in names])) if names else ()

    found = list(itertools.islice(sweeping.in_each(process, of_bucket, first=first), limit + 1))
    return found[:limit], found[limit - 1].tenant if len(found) > limit else None


def requeue(
    process: Process, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
) -> tuple[Sequence[Submitted], Round | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.requeue_over_budget`.

    A node that is away is asked once, and keeps its own runs waiting and no others: the round stays due.
    """
    tenant, behind = made.tenant, number_of(made.after) or 0
    bucket = bucket_of_tenant(tenant)
    account, waiting, cursor = process.transact(bucket, partial(_waiting, tenant=tenant, behind=behind, limit=limit))
    if account is None:
        return (), None
    queued: list[Submitted] = []
    away: set[str] = set()
    for run, wait in waiting:
        made = made.meet()
        if not made.fits(account, wait.wanted):
            continue
        came = _asked(process, run, partial(_requeue, run=run, wait=wait, by=by, policy=policy), away)
        if came is None:
            made = made.miss()
            continue
        if came is not _Is.GONE:
            made = made.promise(wait.wanted)
        if came is not _Is.ASKING:
            _tell(process, bucket, partial(_forget, run=run, wait=wait))
        if isinstance(came, Submitted):
            queued.append(came)
    if cursor is not None:
        return queued, made.on(str(cursor))
    _tell(process, bucket, partial(_serve, made=made))
    return queued, None


class _Is(Enum):
    """What a run is that has not been queued."""

    ASKING = auto()
    """It is not parked yet, and made to ask again."""
    GONE = auto()
    """It does not wait any more."""


def _asked(
    process: Process, run: RunKey, ask: Callable[[RunData], Submitted | _Is], away: set[str]
) -> Submitted | _Is | None:
    """What came of it; ``None`` where the run cannot be read, or its node is ``away``, or is found to be."""
    place = process.place(bucket_of_run(run))
    if place in away:
        return None
    try:
        return process.transact(bucket_of_run(run), ask)
    except StoreUnavailableError as error:
        away.add(place)
        _log.warning("not_swept", place=place, error=str(error))
    except ValueError as error:
        # One that cannot be read is not to hold up others. Its kind alone: the text may quote the run.
        tenant, run_id = run
        _log.error("run_not_reaped", tenant=tenant, run_id=run_id, error=type(error).__name__)
    return None


def _tell(process: Process, bucket: int, work: Callable[[RunData], None]) -> None:
    """Tell the account. Should it be away by now, the round stays due; what was queued has to be published."""
    try:
        process.transact(bucket, work)
    except StoreUnavailableError as error:
        _log.warning("not_swept", place=process.place(bucket), error=str(error))


def _begun(data: RunData, tenants: Sequence[str]) -> Sequence[Round]:
    data.look_at_accounts(tenants)
    return [Round.begun(tenant, data.accounts[tenant]) for tenant in tenants]


def _waiting(
    data: RunData, tenant: str, behind: int, limit: int
) -> tuple[Account | None, Sequence[tuple[RunKey, StoredWait]], int | None]:
    account = data.accounts.get(tenant)
    return account, *data.waiting_of(tenant, behind=behind, limit=limit)


def _requeue(data: RunData, run: RunKey, wait: StoredWait, by: Actor, policy: FleetPolicy) -> Submitted | _Is:
    data.look(submitted=[run])
    submitted = ledgers.requeue_waiting(data, run, by=by, policy=policy)
    if submitted is not None:
        return submitted
    if run not in data.runs or not data.lease(run).held_under(wait.fence):
        return _Is.GONE
    data.touch(run)
    return _Is.ASKING


def _forget(data: RunData, run: RunKey, wait: StoredWait) -> None:
    """The run waits no more. If it has been turned away anew meanwhile, it does."""
    data.look_at_account(run)
    if data.waiting.get(run) == wait:
        del data.waiting[run]


def _serve(data: RunData, made: Round) -> None:
    account = data.accounts.get(made.tenant)
    if account is not None and (after := made.served(account)) != account:
        data.accounts[made.tenant] = after
