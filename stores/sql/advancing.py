"""A worker's writes that carry a run on: take, begin, commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from adk_worker import events
from adk_worker.events import NewEvent
from adk_worker.idempotency import Claim, Intent
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Boundary, Committed, Taken
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import FleetPolicy, State, Then, Verdict
from stores.sql import accounts, asked, checkpoints, claim_rows, history, journal
from stores.sql.locks import LockedRun, lock_run
from stores.sql.rows import ledger_column, run_lease
from stores.sql.writing import committed, end_cancelled, run_under, unless_refused

_FOUND: Final = select(checkpoints.PAYLOAD.scalar_subquery().label("payload"), accounts.HAS_LIMITS.label("limited"))
"""What a worker needs to know besides its run's row."""


def take(tx: Connection, tenant: str, run_id: str, *, ticket: int, holder: str, ttl: float) -> Taken | None:
    """See :meth:`adk_worker.runs.RunStore.take`."""
    run = lock_run(tx, tenant, run_id)
    if run is None:
        return None
    moved = run_transitions.take(run.state, ticket=ticket, holder=holder, at=run.at, ttl=ttl)
    if moved.verdict is Verdict.CANCELLED:
        end_cancelled(tx, run, moved.state)
    if moved.verdict is not Verdict.DONE:
        return None
    journal.write(tx, run, moved.state, [events.taken(holder, ticket)])
    return _taken(tx, run, moved.state)


def held_by(tx: Connection, tenant: str, run_id: str, *, holder: str) -> Taken | None:
    """See :meth:`adk_worker.runs.RunStore.held_by`.

    It locks: a take whose answer was lost may be in its COMMIT still, and has the lock until it is through.
    """
    run = lock_run(tx, tenant, run_id)
    if run is None:
        return None
    lease = run.state.lease
    held = lease.holder == holder and lease.held_under(lease.fence) and not lease.lapsed(run.at.now)
    return _taken(tx, run, run.state) if held else None


def _taken(tx: Connection, run: LockedRun, state: State) -> Taken:
    # A statement of its own, after the lock is held: what the holder before has written is in it.
    found = tx.execute(_FOUND, {"for_tenant": run.tenant, "for_run": run.run_id}).one()
    limited = run.ledger.limits.limited or bool(found.limited)
    return Taken(run_lease(run.tenant, run.run_id, state.lease), run.view(state), found.payload, limited)


def begin(
    tx: Connection, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool
) -> tuple[Committed, Sequence[Claim]]:
    """See :meth:`adk_worker.runs.RunStore.begin`."""
    run = run_under(tx, lease)
    moved = unless_refused(run_transitions.begin(run.state, fence=lease.fence, ahead=ahead), lease)
    if moved.verdict is Verdict.CANCELLED:
        return end_cancelled(tx, run, moved.state, fence=lease.fence), ()
    begun = claim_rows.begin(
        tx, lease.tenant, intents, owner=owner, now=run.at.now, fence=lease.fence, run_id=lease.run_id
    )
    # Those that this write has begun; what stood before is not asked about again.
    new = [intent for intent, claim in zip(intents, begun, strict=True) if claim.began_at == run.at.now]
    asked.permit(tx, run, new)
    told = [events.call_permitted(intent) for intent in new if intent.permit is not None]
    journal.write(tx, run, moved.state, told)
    return committed(lease, moved.state, Verdict.DONE), begun


def commit(tx: Connection, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.commit`."""
    run = run_under(tx, lease)
    frontier = boundary.checkpoint
    moved = run_transitions.commit(
        run.state,
        fence=lease.fence,
        sequence=frontier.sequence,
        then=boundary.then,
        stored=boundary.payload is not None,
        at=run.at,
        policy=policy,
        attention=boundary.attention,
    )
    if moved.verdict is Verdict.REPEATED:
        return committed(lease, moved.state, Verdict.REPEATED)
    unless_refused(moved, lease)
    done = moved.verdict is Verdict.DONE
    bound = asked.bound(tx, run, boundary, done=done)
    booked = booking.settle(run.ledger, boundary.charge, fence=lease.fence, asks=not frontier.calls)
    _record(tx, run, boundary.settled)
    if boundary.segment is not None:
        history.store(tx, lease.tenant, boundary.segment)
    if done and boundary.then is Then.COMPLETE:
        checkpoints.forget(tx, lease.tenant, lease.run_id)
    elif boundary.payload is not None:
        checkpoints.put(tx, frontier, boundary.payload)
    said = {
        "revision": frontier.revision,
        "iteration": frontier.iteration,
        "execution": frontier.execution,
        "usage": frontier.usage.model_dump(mode="json"),
        "cost_micros": frontier.cost_micros,
        "output": frontier.output,
        "ledger": ledger_column(booked.ledger),
    }
    if not done:
        ended = end_cancelled(tx, run, moved.state, boundary.events, fence=lease.fence, **said)
        accounts.close(tx, run.tenant, booked.closed)
        return ended
    told = [*boundary.events, *_rest(moved.state, boundary)]
    detail = boundary.detail
    if bound is not None:
        told += map(events.approval_requested, bound.new)
        detail = bound.approvals.waiting_on or detail
    journal.write(tx, run, moved.state, told, fence=lease.fence, detail=detail, **said)
    accounts.close(tx, run.tenant, booked.closed)
    return committed(lease, moved.state, Verdict.DONE)


def _record(tx: Connection, run: LockedRun, settled: Sequence[tuple[Claim, ToolOutcome]]) -> None:
    stored = claim_rows.lock(tx, run.tenant, (claim.key for claim, _ in settled))
    stand = {key: row.claim for key, row in stored.items()}
    for claim, outcome in settled:
        before = stand.get(claim.key)
        after = claim_transitions.record(before, key=claim.key, owner=claim.owner, outcome=outcome)
        claim_rows.decide(tx, run, before, after)
        stand[claim.key] = after


def _rest(after: State, boundary: Boundary) -> tuple[NewEvent, ...]:
    if boundary.then is Then.PARK:
        return (events.parked(after, boundary.detail or ""),)
    if boundary.then is Then.FAIL:
        return (events.failed(boundary.detail or ""),)
    return ()
