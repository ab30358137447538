"""What people answer, grant and revoke, and what the reaper denies for them (P1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, select

from adk_worker import events, refusals
from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Approvals, Grant
from adk_worker.approvals.store import Expired
from adk_worker.events import NewEvent
from adk_worker.runs import Dispatch
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Phase, State, Verdict
from stores.sql import asked, journal
from stores.sql.apart import each_apart
from stores.sql.dialects import store_clock
from stores.sql.locks import LockedRun, lock_run_unless_locked
from stores.sql.requests import existing
from stores.sql.rows import Columns
from stores.sql.schema import PENDING, approvals
from stores.sql.writing import end_cancelled

# The clock as a subquery, so that the index is searched for one time (see stores.sql.sweeping).
_OVERDUE: Final = (
    select(approvals.c.tenant, approvals.c.run_id)
    .where(PENDING, approvals.c.expires_at <= select(store_clock()).scalar_subquery())
    .order_by(approvals.c.expires_at)
    .limit(bindparam("at_most"))
)


def answer(tx: Connection, tenant: str, run_id: str, given: Answer, *, by: Actor, policy: FleetPolicy) -> Answered:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.answer`."""
    run = existing(tx, tenant, run_id)
    stood = asked.read(tx, tenant, run_id)
    came_to = approval_transitions.answer(stood, given, tenant=tenant, run_id=run_id, by=by, now=run.at.now)
    if came_to.repeated:
        queued = run.state.lease.holding is Holding.QUEUE and not stood.pending
        return Answered(came_to.request, run.view(), run.state.lease.fence if queued else None)
    if run.state.phase is not Phase.WAITING_APPROVAL:
        raise refusals.answer_refused(run.view())
    asked.save(tx, run, stood, came_to.approvals)
    told = [events.approval_answered(came_to.request, came_to.grant)]
    state = _follow(tx, run, came_to.approvals, told, policy=policy)
    view = run.view(state, detail=came_to.approvals.waiting_on, updated_at=run.at.now)
    queued = state.lease.holding is Holding.QUEUE
    return Answered(came_to.request, view, state.lease.fence if queued else None)


def revoke(tx: Connection, tenant: str, run_id: str, grant_id: str, *, by: Actor) -> Grant:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.revoke`."""
    run = existing(tx, tenant, run_id)
    stood = asked.read(tx, tenant, run_id)
    after, grant = approval_transitions.revoke(stood, grant_id, tenant=tenant, run_id=run_id, by=by, now=run.at.now)
    if after != stood:
        asked.save(tx, run, stood, after)
        journal.tell(tx, run, [events.grant_revoked(grant, by)], fence=run.state.lease.fence)
    return grant


def expire(tx: Connection, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.expire`."""
    # A run's requests that are due are denied together, and one run that cannot be written keeps no other waiting.
    return each_apart(tx, _OVERDUE, lambda row: _expire(tx, row, policy=policy), limit=limit)


def _expire(tx: Connection, due: Columns, *, policy: FleetPolicy) -> Expired | None:
    run = lock_run_unless_locked(tx, due["tenant"], due["run_id"])
    if run is None:  # whoever has it is answering, or is another reaper: the next sweep looks again
        return None
    # Read under the lock: somebody may have answered since the search.
    stood = asked.read(tx, run.tenant, run.run_id)
    after, over = approval_transitions.expire(stood, now=run.at.now)
    if not over:
        return None
    asked.save(tx, run, stood, after)
    state = _follow(tx, run, after, [events.approval_answered(request) for request in over], policy=policy)
    queued = state.lease.holding is Holding.QUEUE and not after.pending
    dispatch = Dispatch(run.tenant, run.run_id, state.lease.fence, recovery=True) if queued else None
    return Expired(run.tenant, run.run_id, tuple(request.request_id for request in over), dispatch)


def _follow(
    tx: Connection, run: LockedRun, after: Approvals, told: Sequence[NewEvent], *, policy: FleetPolicy
) -> State:
    """Do what follows from answers: once the last is in, the run is queued. The state that it has then."""
    if after.pending:
        journal.write(tx, run, run.state, told, detail=after.waiting_on)
        return run.state
    moved = run_transitions.answered(run.state, at=run.at, policy=policy)
    match moved.verdict:
        case Verdict.DONE:
            journal.write(tx, run, moved.state, told, detail=None)
        case Verdict.CANCELLED:
            end_cancelled(tx, run, moved.state, told)
        case _:
            journal.tell(tx, run, told, fence=run.state.lease.fence)
    return moved.state
