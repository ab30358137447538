"""What a run's row has to be found by, kept in the same write as the row."""

from __future__ import annotations

from adk_worker.ledger.accounts import Account
from adk_worker.memory.data import RunKey
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Phase, State
from stores.redis.keys import member, tenant_member
from stores.redis.transaction import Transaction


def index(tx: Transaction, run: RunKey, *, before: State | None, after: State, number: int) -> None:
    """Put the run where it is looked for now, and take it away from where it is not any more."""
    keys, name, place = tx.keys, member(run), str(number)
    if before is None:
        tx.add("ZADD", keys.runs, place, name)
        tx.add("ZADD", keys.tenant(run[0]), place, name)
        tx.add("ZADD", keys.named(run[1]), place, name)
    stood, stands = None if before is None else _status(before), _status(after)
    if stood is not stands:
        tx.add("ZADD", keys.status(stands), place, name)
        if stood is not None:
            tx.remove("ZREM", keys.status(stood), name)
    noticed = before is not None and before.attention is not None
    if after.attention is not None and not noticed:
        tx.add("ZADD", keys.attention, place, name)
    elif after.attention is None and noticed:
        tx.remove("ZREM", keys.attention, name)
    # A live run's lease is never free, so that each of them is in it.
    lapsed, lapses = None if before is None else _lapse(before), _lapse(after)
    if lapses is not None and lapses != lapsed:
        tx.add("ZADD", keys.lapses, repr(lapses), name)
    elif lapses is None and lapsed is not None:
        tx.remove("ZREM", keys.lapses, name)


def expire(tx: Transaction, run: RunKey, *, before: float | None, after: float | None) -> None:
    """Put the run where it is looked for once a request of its is past its time, or take it away from there."""
    if after is not None and after != before:
        tx.add("ZADD", tx.keys.expiries, repr(after), member(run))
    elif after is None and before is not None:
        tx.remove("ZREM", tx.keys.expiries, member(run))


def mark(tx: Transaction, tenant: str, *, before: Account | None, after: Account) -> None:
    """Put the tenant where the reaper looks as long as there may be room for runs of its that wait."""
    was = before is not None and before.waitlist.due
    if after.waitlist.due and not was:
        tx.add("ZADD", tx.keys.due, "0", tenant_member(tenant))
    elif was and not after.waitlist.due:
        tx.remove("ZREM", tx.keys.due, tenant_member(tenant))


def unindex(tx: Transaction, run: RunKey, state: State) -> None:
    """Take a run that is over away from wherever it can be found."""
    keys = tx.keys
    for key in (keys.runs, keys.tenant(run[0]), keys.named(run[1]), keys.status(_status(state)), keys.attention):
        tx.remove("ZREM", key, member(run))


def _status(state: State) -> RunStatus:
    return RunStatus.of(state.phase, state.lease.holding)


def _lapse(state: State) -> float | None:
    return state.lease.expires_at if state.phase is Phase.LIVE else None
