"""What people answer, grant and revoke, and what follows for the run once the last answer is in."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events, refusals
from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Approvals, Grant
from adk_worker.approvals.store import Expired
from adk_worker.errors import RunNotFoundError
from adk_worker.events import NewEvent
from adk_worker.memory import asked, journal, reading
from adk_worker.memory.data import MemoryData, RunKey, StoredApprovals
from adk_worker.memory.writing import end_cancelled
from adk_worker.runs import Dispatch
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict


def answer(data: MemoryData, key: RunKey, given: Answer, *, by: Actor, policy: FleetPolicy) -> Answered:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.answer`."""
    tenant, run_id = _existing(data, key)
    at = data.at()
    came_to = approval_transitions.answer(asked.load(data, key), given, tenant=tenant, run_id=run_id, by=by, now=at.now)
    if not came_to.repeated:
        if data.runs[key].state.phase is not Phase.WAITING_APPROVAL:
            raise refusals.answer_refused(reading.run_of(data, key))
        _follow(data, key, came_to.approvals, [events.approval_answered(came_to.request, came_to.grant)], at, policy)
    lease = journal.state_of(data, key).lease
    queued = lease.holding is Holding.QUEUE and not came_to.approvals.pending
    return Answered(came_to.request, reading.run_of(data, key), lease.fence if queued else None)


def revoke(data: MemoryData, key: RunKey, grant_id: str, *, by: Actor) -> Grant:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.revoke`."""
    tenant, run_id = _existing(data, key)
    at, stood = data.at(), asked.load(data, key)
    revoked, grant = approval_transitions.revoke(stood, grant_id, tenant=tenant, run_id=run_id, by=by, now=at.now)
    if revoked != stood:
        asked.save(data, key, revoked)
        journal.tell(data, key, [events.grant_revoked(grant, by)], at=at)
    return grant


def overdue(data: MemoryData) -> Sequence[RunKey]:
    """The runs for which something is past its time, the longest ago first."""
    now = data.clock()
    return [key for _, key in sorted((row.due, key) for key, row in data.approvals.items() if _over(row, now))]


def expire(data: MemoryData, key: RunKey, *, policy: FleetPolicy) -> Expired | None:
    """Deny what is past its time of one run; ``None`` if nothing is."""
    at = data.at()
    approvals, over = approval_transitions.expire(asked.load(data, key), now=at.now)
    if not over or key not in data.runs:
        return None
    _follow(data, key, approvals, [events.approval_answered(request) for request in over], at, policy)
    tenant, run_id = key
    lease = journal.state_of(data, key).lease
    queued = lease.holding is Holding.QUEUE and not approvals.pending
    dispatch = Dispatch(tenant, run_id, lease.fence, recovery=True) if queued else None
    return Expired(tenant, run_id, tuple(request.request_id for request in over), dispatch)


def _follow(
    data: MemoryData, key: RunKey, approvals: Approvals, told: Sequence[NewEvent], at: StoreTime, policy: FleetPolicy
) -> None:
    """Write answers, and what follows from them: once the last is in, the run is queued, all in one (P1)."""
    state = journal.state_of(data, key)
    if approvals.pending:
        asked.save(data, key, approvals)
        journal.write(data, key, state, told, at=at, detail=approvals.waiting_on)
        return
    moved = run_transitions.answered(state, at=at, policy=policy)
    asked.save(data, key, approvals)
    match moved.verdict:
        case Verdict.DONE:
            journal.write(data, key, moved.state, told, at=at, detail=None)
        case Verdict.CANCELLED:
            end_cancelled(data, key, moved.state, told, at=at)
        case _:
            journal.tell(data, key, told, at=at)


def _existing(data: MemoryData, key: RunKey) -> RunKey:
    tenant, run_id = key
    if key not in data.runs:
        raise RunNotFoundError(tenant=tenant, run_id=run_id)
    return key


def _over(row: StoredApprovals, now: float) -> bool:
    return row.due is not None and now >= row.due
