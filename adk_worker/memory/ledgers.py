"""What runs and tenants may spend: the writes about it, and what other writes have to say to an account."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from adk_worker import events, refusals
from adk_worker.actors import Actor
from adk_worker.errors import RunNotFoundError
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange, Unaccounted
from adk_worker.ledger.booking import Booked, Closed, Refusal, Reservation, Scope
from adk_worker.ledger.rounds import Round
from adk_worker.memory import journal, reading
from adk_worker.memory.data import MemoryData, RunKey, StoredWait
from adk_worker.memory.writing import committed, end_cancelled, state_under, unless_refused
from adk_worker.runs import Committed, Submitted
from adk_worker.transitions import budgets as budget_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import StoreTime
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict


def limited(data: MemoryData, key: RunKey) -> bool:
    """Whether the run's model calls have to be reserved."""
    return data.runs[key].ledger.limits.limited or data.on_account(key, partial(_has_limits, tenant=key[0]))


def reserve(data: MemoryData, lease: RunLease, asked: Reservation) -> Committed:
    """See :meth:`adk_worker.ledger.store.LedgerStore.reserve`."""
    key, state = state_under(data, lease)
    at = data.at()
    moved = unless_refused(run_transitions.begin(state, fence=lease.fence, ahead=False), lease)
    stands = data.runs[key].ledger
    asked = replace(asked, fence=lease.fence)
    if moved.verdict is Verdict.CANCELLED:
        # An attempt before at this very write may have reached the account alone.
        close(data, key, Closed(asked))
        return end_cancelled(data, key, moved.state, at=at, fence=lease.fence)
    if stands.reserved is not None and stands.reserved.same_attempt(asked):
        return committed(data, key, lease, Verdict.DONE)
    before = booking.lost(stands, in_flight=stands.reserved is not None)
    number = data.runs[key].number
    answer: Refusal | bool = before.ledger.refusal(asked.amount) or data.on_account(
        key, partial(_reserve_on, key=key, asked=asked, number=number)
    )
    if isinstance(answer, Refusal):
        return _park(data, key, lease, before, answer, at=at)
    booked = booking.reserve(stands, replace(asked, on_account=answer))
    journal.write(data, key, moved.state, at=at, fence=lease.fence, ledger=booked.ledger)
    close(data, key, booked.closed)
    return committed(data, key, lease, Verdict.DONE)


def _park(
    data: MemoryData, key: RunKey, lease: RunLease, before: Booked, refusal: Refusal, *, at: StoreTime
) -> Committed:
    moved = budget_transitions.park(journal.state_of(data, key), fence=lease.fence)
    detail = refusal.words(tenant=lease.tenant, run_id=lease.run_id)
    told = [events.parked(moved.state, detail)]
    kept = replace(before.ledger, refused=refusal)
    journal.write(data, key, moved.state, told, at=at, fence=lease.fence, detail=detail, ledger=kept)
    close(data, key, before.closed)
    return Committed(Verdict.PARKED, detail=detail)


def close(data: MemoryData, key: RunKey, closed: Closed | None) -> None:
    """Tell the tenant's account that a reservation of the run's has ended."""
    if closed is not None:
        data.then_on_account(key, partial(_close_on, key=key, closed=closed))


def change_budget(data: MemoryData, key: RunKey, *, change: BudgetChange, by: Actor, policy: FleetPolicy) -> Submitted:
    """See :meth:`adk_worker.ledger.store.LedgerStore.change_budget`."""
    if key not in data.runs:
        raise RunNotFoundError(tenant=key[0], run_id=key[1])
    at = data.at()
    state, before = journal.state_of(data, key), data.runs[key].ledger
    if state.phase in {Phase.COMPLETED, Phase.CANCELLED}:
        raise refusals.budget_refused(reading.run_of(data, key))
    after = replace(before, limits=change.applied(before.limits))
    told = [events.budget_changed(after.limits, by)]
    fits = before.refused is not None and after.refusal(before.refused.wanted) is None
    if before.refused is not None and before.refused.scope is Scope.RUN and fits:
        moved = budget_transitions.afford(state, at=at, policy=policy)
        if moved.verdict is Verdict.DONE:
            after = replace(after, refused=None)
            told.append(events.requeued(by))
            journal.write(data, key, moved.state, told, at=at, detail=None, ledger=after)
            return Submitted(reading.run_of(data, key), moved.state.lease.fence)
    journal.write(data, key, state, told, at=at, ledger=after)
    return Submitted(reading.run_of(data, key), None)


def change_account(data: MemoryData, tenant: str, *, change: BudgetChange, by: Actor) -> Account:
    """See :meth:`adk_worker.ledger.store.LedgerStore.change_account`."""
    account = data.accounts.get(tenant, Account()).change(change, by=by, at=data.at().now)
    data.accounts[tenant] = account
    return account


def requeue_waiting(data: MemoryData, key: RunKey, *, by: Actor, policy: FleetPolicy) -> Submitted | None:
    """Queue a run again that is parked on its tenant's limits; ``None`` if it is not."""
    if key not in data.runs:
        return None
    at = data.at()
    state, stands = journal.state_of(data, key), data.runs[key].ledger
    if stands.refused is None or stands.refused.scope is not Scope.TENANT:
        return None
    moved = budget_transitions.afford(state, at=at, policy=policy)
    if moved.verdict is not Verdict.DONE:
        return None
    told: list[Any] = [events.requeued(by)]
    journal.write(data, key, moved.state, told, at=at, detail=None, ledger=replace(stands, refused=None))
    return Submitted(reading.run_of(data, key), moved.state.lease.fence)


def rounds_due(data: MemoryData, *, limit: int, after: str | None) -> tuple[Sequence[Round], str | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.rounds_due`; the cursor is a tenant's name."""
    due = sorted(tenant for tenant, account in data.accounts.items() if account.waitlist.due)
    left = [tenant for tenant in due if after is None or tenant > after]
    rounds = [Round.begun(tenant, data.accounts[tenant]) for tenant in left[:limit]]
    return rounds, left[limit - 1] if len(left) > limit else None


def requeue_over_budget(
    data: MemoryData, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
) -> tuple[Sequence[Submitted], Round | None]:
    """See :meth:`adk_worker.ledger.store.LedgerStore.requeue_over_budget`."""
    account = data.accounts.get(made.tenant)
    if account is None:
        return (), None
    waiting, cursor = data.waiting_of(made.tenant, behind=reading.number_of(made.after) or 0, limit=limit)
    queued: list[Submitted] = []
    for key, wait in waiting:
        made = made.meet()
        if not made.fits(account, wait.wanted):
            continue
        submitted = requeue_waiting(data, key, by=by, policy=policy)
        del data.waiting[key]
        if submitted is not None:
            made = made.promise(wait.wanted)
            queued.append(submitted)
    if cursor is not None:
        return queued, made.on(str(cursor))
    data.accounts[made.tenant] = made.served(account)
    return queued, None


# --- on the account -----------------------------------------------------------------------------------------------


def _has_limits(data: MemoryData, tenant: str) -> bool:
    account = data.accounts.get(tenant)
    return account is not None and account.limits.limited


def _reserve_on(data: MemoryData, key: RunKey, asked: Reservation, number: int) -> Refusal | bool:
    """Whether the reservation stands on the account; ``False`` where there are no limits; or why it does not."""
    tenant, _ = key
    account, opened = data.accounts.get(tenant), data.opened.get(key)
    if account is None or (opened is not None and opened.same_attempt(asked)):
        return account is not None
    if opened is not None:
        account = account.close(Closed(opened, unaccounted=Unaccounted(1, opened.amount)))
        data.accounts[tenant] = account
        del data.opened[key]
    if not account.limits.limited:
        data.waiting.pop(key, None)
        return False
    refusal = account.refusal(asked.amount)
    if refusal is not None:
        data.accounts[tenant] = account.turn_away()
        data.waiting[key] = StoredWait(number, asked.fence, asked.amount)
        return refusal
    data.accounts[tenant] = account.reserve(asked)
    data.opened[key] = asked
    data.waiting.pop(key, None)
    return True


def _close_on(data: MemoryData, key: RunKey, closed: Closed) -> None:
    """The reservation is gone; one that is gone already, or another's, is left alone."""
    account, opened = data.accounts.get(key[0]), data.opened.get(key)
    if account is None or opened is None or not opened.same_attempt(closed.reservation):
        return
    data.accounts[key[0]] = account.close(replace(closed, reservation=opened))
    del data.opened[key]
