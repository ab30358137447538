"""A worker's writes that carry a run on: take, begin, commit."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events
from adk_worker.events import NewEvent
from adk_worker.idempotency import Claim, Intent
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.ledger.booking import Closed, Reservation
from adk_worker.memory import asked, claims, history, journal, ledgers, reading
from adk_worker.memory.data import MemoryData, RunKey, StoredCheckpoint
from adk_worker.memory.writing import committed, end_cancelled, state_under, unless_refused
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Boundary, Committed, Taken
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import FleetPolicy, State, Then, Verdict


def take(data: MemoryData, key: RunKey, *, ticket: int, holder: str, ttl: float) -> Taken | None:
    """See :meth:`adk_worker.runs.RunStore.take`."""
    if key not in data.runs:
        return None
    at = data.at()
    moved = run_transitions.take(journal.state_of(data, key), ticket=ticket, holder=holder, at=at, ttl=ttl)
    if moved.verdict is Verdict.CANCELLED:
        end_cancelled(data, key, moved.state, at=at)
    if moved.verdict is not Verdict.DONE:
        return None
    journal.write(data, key, moved.state, [events.taken(holder, ticket)], at=at)
    return reading.taken_of(data, key, limited=ledgers.limited(data, key))


def begin(
    data: MemoryData, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool
) -> tuple[Committed, Sequence[Claim]]:
    """See :meth:`adk_worker.runs.RunStore.begin`."""
    key, state = state_under(data, lease)
    at = data.at()
    moved = unless_refused(run_transitions.begin(state, fence=lease.fence, ahead=ahead), lease)
    if moved.verdict is Verdict.CANCELLED:
        return end_cancelled(data, key, moved.state, at=at, fence=lease.fence), ()
    stand: dict[str, Claim] = {}
    begun: list[Claim] = []
    new: list[Intent] = []
    for intent in intents:
        stored = stand.get(intent.key) or claims.load(data, (lease.tenant, intent.key))
        claim = claim_transitions.begin(stored, intent, tenant=lease.tenant, owner=owner, now=at.now, fence=lease.fence)
        new += [intent] if claim != stored else []
        stand[intent.key] = claim
        begun.append(claim)
    # Nothing was written so far: one key that comes with another digest, or unapproved, refuses them all (I1, P1).
    asked.permit(data, key, new, at=at)
    for claim in stand.values():
        claims.save(data, claim, run=key)
    told = [events.call_permitted(intent) for intent in new if intent.permit is not None]
    journal.write(data, key, moved.state, told, at=at)
    return committed(data, key, lease, Verdict.DONE), begun


def commit(data: MemoryData, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.commit`."""
    key, state = state_under(data, lease)
    frontier = boundary.checkpoint
    at = data.at()
    moved = run_transitions.commit(
        state,
        fence=lease.fence,
        sequence=frontier.sequence,
        then=boundary.then,
        stored=boundary.payload is not None,
        at=at,
        policy=policy,
        attention=boundary.attention,
    )
    charge = boundary.charge
    if moved.verdict is Verdict.REPEATED:
        if charge is not None:
            # The account may not have been told yet.
            made = Reservation(charge.iteration, lease.fence, charge.amount)
            ledgers.close(data, key, Closed(made, spent=charge.amount))
        return committed(data, key, lease, Verdict.REPEATED)
    unless_refused(moved, lease)
    done = moved.verdict is Verdict.DONE
    settled = [_recorded(data, claim, outcome) for claim, outcome in boundary.settled]
    bound = asked.bound(data, key, boundary, done=done, at=at)
    # From here on nothing is refused: all of it is written.
    told = [*boundary.events, *(_rest(moved.state, boundary) if done else ())]
    detail = boundary.detail if done else None
    if bound is not None:
        asked.save(data, key, bound.approvals)
        told += map(events.approval_requested, bound.new)
        detail = bound.approvals.waiting_on or detail
    for before, after in settled:
        claims.decide(data, before, after)
    if boundary.segment is not None:
        history.store(data, key, boundary.segment)
    if boundary.payload is not None:
        data.checkpoints[key] = StoredCheckpoint(boundary.payload, frontier.sequence, frontier.agent)
    booked = booking.settle(data.runs[key].ledger, charge, fence=lease.fence, asks=not frontier.calls)
    journal.write(
        data,
        key,
        moved.state,
        told,
        at=at,
        fence=lease.fence,
        revision=frontier.revision,
        detail=detail,
        iteration=frontier.iteration,
        execution=frontier.execution,
        input_tokens=frontier.usage.input_tokens,
        output_tokens=frontier.usage.output_tokens,
        cost_micros=frontier.cost_micros,
        output=frontier.output,
        ledger=booked.ledger,
    )
    ledgers.close(data, key, booked.closed)
    if not done:
        return end_cancelled(data, key, moved.state, at=at, fence=lease.fence)
    if boundary.then is Then.COMPLETE:
        data.checkpoints.pop(key, None)
    return committed(data, key, lease, Verdict.DONE)


def _recorded(data: MemoryData, claim: Claim, outcome: ToolOutcome) -> tuple[Claim | None, Claim]:
    stored = claims.load(data, (claim.tenant, claim.key))
    return stored, claim_transitions.record(stored, key=claim.key, owner=claim.owner, outcome=outcome)


def _rest(after: State, boundary: Boundary) -> tuple[NewEvent, ...]:
    if boundary.then is Then.PARK:
        return (events.parked(after, boundary.detail or ""),)
    if boundary.then is Then.FAIL:
        return (events.failed(boundary.detail or ""),)
    return ()
