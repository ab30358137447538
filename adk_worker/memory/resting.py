"""The writes that end a task without a boundary, and people's: park, fail, give back, requeue, cancel."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events, refusals
from adk_worker.actors import Actor
from adk_worker.errors import RunNotFoundError
from adk_worker.events import NewEvent
from adk_worker.idempotency import Claim
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.memory import claims, journal, ledgers, reading
from adk_worker.memory.data import MemoryData, RunKey
from adk_worker.memory.writing import committed, end_cancelled, state_under, unless_refused
from adk_worker.runs import Committed, Run, Submitted
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import Attention, FleetPolicy, Moved, Reason, State, Verdict


def park(
    data: MemoryData,
    lease: RunLease,
    *,
    attention: Attention,
    detail: str,
    undecided: Sequence[Claim],
    told: Sequence[NewEvent],
) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.park`."""
    key, state = state_under(data, lease)
    at = data.at()
    parked_on = tuple(claim.key for claim in undecided)
    moved = run_transitions.park(state, fence=lease.fence, attention=attention, parked_on=parked_on)
    unless_refused(moved, lease)
    booked = booking.lost(data.runs[key].ledger, in_flight=False)
    if moved.verdict is Verdict.CANCELLED:
        ledgers.close(data, key, booked.closed)
        return end_cancelled(data, key, moved.state, told, at=at, fence=lease.fence, ledger=booked.ledger)
    for seen in undecided:
        if not claim_transitions.still_undecided(claims.load(data, (lease.tenant, seen.key)), seen=seen):
            return committed(data, key, lease, Verdict.REFUSED)
    tells = [*told, events.parked(moved.state, detail)]
    journal.write(data, key, moved.state, tells, at=at, fence=lease.fence, detail=detail, ledger=booked.ledger)
    ledgers.close(data, key, booked.closed)
    return committed(data, key, lease, Verdict.DONE)


def fail(data: MemoryData, lease: RunLease, *, detail: str, told: Sequence[NewEvent], asked: bool) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.fail`."""
    key, state = state_under(data, lease)
    at = data.at()
    moved = unless_refused(run_transitions.fail(state, fence=lease.fence), lease)
    booked = booking.lost(data.runs[key].ledger, in_flight=asked)
    ledgers.close(data, key, booked.closed)
    if moved.verdict is Verdict.CANCELLED:
        return end_cancelled(data, key, moved.state, told, at=at, fence=lease.fence, ledger=booked.ledger)
    tells = [*told, events.failed(detail)]
    journal.write(data, key, moved.state, tells, at=at, fence=lease.fence, detail=detail, ledger=booked.ledger)
    return committed(data, key, lease, Verdict.DONE)


def give_back(
    data: MemoryData,
    lease: RunLease,
    *,
    reason: Reason,
    detail: str,
    policy: FleetPolicy,
    attention: Attention | None,
    delay: float | None,
    asked: bool,
) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.give_back`."""
    key, state = state_under(data, lease)
    at = data.at()
    moved = run_transitions.give_back(
        state, fence=lease.fence, reason=reason, at=at, policy=policy, attention=attention, delay=delay
    )
    unless_refused(moved, lease)
    booked = booking.lost(data.runs[key].ledger, in_flight=asked)
    ledgers.close(data, key, booked.closed)
    if moved.verdict is Verdict.CANCELLED:
        return end_cancelled(data, key, moved.state, at=at, fence=lease.fence, ledger=booked.ledger)
    if moved.verdict is Verdict.PARKED:
        tells = [events.parked(moved.state, detail)]
    else:
        tells = [events.given_back(moved.state, reason=reason, detail=detail)]
    # A drain says nothing of the run: what came in its way before still does.
    said = data.runs[key].detail if reason is Reason.DRAIN and moved.verdict is Verdict.DONE else detail
    journal.write(data, key, moved.state, tells, at=at, fence=lease.fence, detail=said, ledger=booked.ledger)
    answer = committed(data, key, lease, moved.verdict)
    return answer if reason is Reason.DRAIN else Committed(answer.verdict)


def requeue(data: MemoryData, key: RunKey, *, by: Actor, policy: FleetPolicy, seen: Run | None = None) -> Submitted:
    """See :meth:`adk_worker.runs.RunStore.requeue`."""
    at = data.at()
    state = _state(data, key)
    refusals.unless_changed(reading.run_of(data, key), seen)
    moved = run_transitions.requeue(state, at=at, policy=policy)
    if moved.verdict is not Verdict.DONE:
        stored = data.checkpoints.get(key)
        raise refusals.requeue_refused(reading.run_of(data, key), stored=stored.sequence if stored else 0)
    journal.write(data, key, moved.state, [events.requeued(by)], at=at, detail=None)
    return Submitted(reading.run_of(data, key), moved.state.lease.fence)


def cancel(data: MemoryData, key: RunKey, *, by: Actor, seen: Run | None = None) -> Run:
    """See :meth:`adk_worker.runs.RunStore.cancel`."""
    at = data.at()
    state = _state(data, key)
    refusals.unless_changed(reading.run_of(data, key), seen)
    moved: Moved = run_transitions.cancel(state)
    told = () if state.cancel_requested else (events.cancel_requested(by),)
    match moved.verdict:
        case Verdict.REFUSED:
            raise refusals.cancel_refused(reading.run_of(data, key))
        case Verdict.CANCELLED:
            end_cancelled(data, key, moved.state, told, at=at)
        case Verdict.DONE:
            journal.write(data, key, moved.state, told, at=at)
        case _:
            pass
    return reading.run_of(data, key)


def _state(data: MemoryData, key: RunKey) -> State:
    if key not in data.runs:
        tenant, run_id = key
        raise RunNotFoundError(tenant=tenant, run_id=run_id)
    return journal.state_of(data, key)
