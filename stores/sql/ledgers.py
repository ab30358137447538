"""What runs and tenants may spend: the writes about it."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from adk_worker import events, refusals
from adk_worker.actors import Actor
from adk_worker.errors import RunNotFoundError
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.booking import Booked, Refusal, Reservation, Scope
from adk_worker.runs import Committed, Submitted
from adk_worker.transitions import budgets as budget_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict
from stores.sql import accounts, journal
from stores.sql.locks import LockedRun, lock_run
from stores.sql.rows import ledger_column
from stores.sql.writing import committed, end_cancelled, run_under, unless_refused


def reserve(tx: Connection, lease: RunLease, asked: Reservation) -> Committed:
    """See :meth:`adk_worker.ledger.store.LedgerStore.reserve`."""
    run = run_under(tx, lease)
    moved = unless_refused(run_transitions.begin(run.state, fence=lease.fence, ahead=False), lease)
    if moved.verdict is Verdict.CANCELLED:
        return end_cancelled(tx, run, moved.state, fence=lease.fence)
    asked = replace(asked, fence=lease.fence)
    stands = run.ledger
    if stands.reserved is not None and stands.reserved.same_attempt(asked):
        return committed(lease, run.state, Verdict.DONE)
    before = booking.lost(stands, in_flight=stands.reserved is not None)
    refusal = before.ledger.refusal(asked.amount)
    if refusal is not None:
        return _park(tx, run, lease, before, refusal)
    answer = _reserve_on(tx, run.tenant, before, asked)
    if isinstance(answer, Refusal):
        return _park(tx, run, lease, Booked(before.ledger), answer)
    booked = booking.reserve(stands, replace(asked, on_account=answer))
    journal.write(tx, run, moved.state, fence=lease.fence, ledger=ledger_column(booked.ledger))
    return committed(lease, moved.state, Verdict.DONE)


def _reserve_on(tx: Connection, tenant: str, before: Booked, asked: Reservation) -> Refusal | bool:
    """Whether the reservation stands on the tenant's account; ``False`` where it has no limits; or why it does not."""
    account = accounts.lock(tx, tenant)
    if account is None:
        return False
    stands = account if before.closed is None else account.close(before.closed)
    refusal = stands.refusal(asked.amount)
    reserves = stands.limits.limited and refusal is None
    after = stands.turn_away() if refusal is not None else stands
    after = after.reserve(asked) if reserves else after
    if after != account:
        accounts.save(tx, tenant, after)
    return refusal or reserves


def _park(tx: Connection, run: LockedRun, lease: RunLease, before: Booked, refusal: Refusal) -> Committed:
    moved = budget_transitions.park(run.state, fence=lease.fence)
    detail = refusal.words(tenant=lease.tenant, run_id=lease.run_id)
    told = [events.parked(moved.state, detail)]
    kept = ledger_column(replace(before.ledger, refused=refusal))
    journal.write(tx, run, moved.state, told, fence=lease.fence, detail=detail, ledger=kept)
    accounts.close(tx, run.tenant, before.closed)
    return Committed(Verdict.PARKED, detail=detail)


def change_budget(
    tx: Connection, tenant: str, run_id: str, *, change: BudgetChange, by: Actor, policy: FleetPolicy
) -> Submitted:
    """See :meth:`adk_worker.ledger.store.LedgerStore.change_budget`."""
    run = lock_run(tx, tenant, run_id)
    if run is None:
        raise RunNotFoundError(tenant=tenant, run_id=run_id)
    if run.state.phase in {Phase.COMPLETED, Phase.CANCELLED}:
        raise refusals.budget_refused(run.view())
    after = replace(run.ledger, limits=change.applied(run.ledger.limits))
    told = [events.budget_changed(after.limits, by)]
    refused = after.refused
    if refused is not None and refused.scope is Scope.RUN and after.refusal(refused.wanted) is None:
        moved = budget_transitions.afford(run.state, at=run.at, policy=policy)
        if moved.verdict is Verdict.DONE:
            written = {"detail": None, "ledger": ledger_column(replace(after, refused=None))}
            journal.write(tx, run, moved.state, [*told, events.requeued(by)], **written)
            return Submitted(run.view(moved.state, updated_at=run.at.now, **written), moved.state.lease.fence)
    column = ledger_column(after)
    journal.write(tx, run, run.state, told, ledger=column)
    return Submitted(run.view(updated_at=run.at.now, ledger=column), None)


def requeue_waiting(tx: Connection, tenant: str, run_id: str, *, by: Actor, policy: FleetPolicy) -> Submitted | None:
    """Queue a run again that is parked on its tenant's limits; ``None`` if it is not."""
    run = lock_run(tx, tenant, run_id)
    if run is None or run.ledger.refused is None or run.ledger.refused.scope is not Scope.TENANT:
        return None
    moved = budget_transitions.afford(run.state, at=run.at, policy=policy)
    if moved.verdict is not Verdict.DONE:
        return None
    written = {"detail": None, "ledger": ledger_column(replace(run.ledger, refused=None))}
    journal.write(tx, run, moved.state, [events.requeued(by)], **written)
    return Submitted(run.view(moved.state, updated_at=run.at.now, **written), moved.state.lease.fence)
