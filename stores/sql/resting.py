"""The writes that end a task without a boundary, and those about its calls: park, fail, give back, settle."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from adk_worker import events
from adk_worker.errors import ClaimOwnerError
from adk_worker.events import NewEvent
from adk_worker.idempotency import Claim
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Committed
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import Attention, FleetPolicy, Reason, Verdict
from stores.sql import accounts, claim_rows, journal
from stores.sql.locks import database_time
from stores.sql.rows import ledger_column
from stores.sql.writing import committed, end_cancelled, run_under, unless_refused, writable_under


def park(
    tx: Connection,
    lease: RunLease,
    *,
    attention: Attention,
    detail: str,
    undecided: Sequence[Claim],
    told: Sequence[NewEvent],
) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.park`."""
    run = run_under(tx, lease)
    parked_on = tuple(claim.key for claim in undecided)
    moved = run_transitions.park(run.state, fence=lease.fence, attention=attention, parked_on=parked_on)
    unless_refused(moved, lease)
    booked = booking.lost(run.ledger, in_flight=False)
    kept = ledger_column(booked.ledger)
    if moved.verdict is Verdict.CANCELLED:
        ended = end_cancelled(tx, run, moved.state, told, fence=lease.fence, ledger=kept)
        accounts.close(tx, run.tenant, booked.closed)
        return ended
    # Locked until the run is parked: an outcome comes in before this, and is seen, or after, and heals.
    stored = claim_rows.lock(tx, lease.tenant, parked_on)
    for seen in undecided:
        row = stored.get(seen.key)
        if not claim_transitions.still_undecided(row.claim if row else None, seen=seen):
            return committed(lease, run.state, Verdict.REFUSED)
    tells = [*told, events.parked(moved.state, detail)]
    journal.write(tx, run, moved.state, tells, fence=lease.fence, detail=detail, ledger=kept)
    accounts.close(tx, run.tenant, booked.closed)
    return committed(lease, moved.state, Verdict.DONE)


def fail(tx: Connection, lease: RunLease, *, detail: str, told: Sequence[NewEvent], asked: bool) -> Committed:
    """See :meth:`adk_worker.runs.RunStore.fail`."""
    run = run_under(tx, lease)
    moved = unless_refused(run_transitions.fail(run.state, fence=lease.fence), lease)
    booked = booking.lost(run.ledger, in_flight=asked)
    kept = ledger_column(booked.ledger)
    if moved.verdict is Verdict.CANCELLED:
        ended = end_cancelled(tx, run, moved.state, told, fence=lease.fence, ledger=kept)
        accounts.close(tx, run.tenant, booked.closed)
        return ended
    tells = [*told, events.failed(detail)]
    journal.write(tx, run, moved.state, tells, fence=lease.fence, detail=detail, ledger=kept)
    accounts.close(tx, run.tenant, booked.closed)
    return committed(lease, moved.state, Verdict.DONE)


def give_back(
    tx: Connection,
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
    run = run_under(tx, lease)
    moved = run_transitions.give_back(
        run.state, fence=lease.fence, reason=reason, at=run.at, policy=policy, attention=attention, delay=delay
    )
    unless_refused(moved, lease)
    booked = booking.lost(run.ledger, in_flight=asked)
    kept = ledger_column(booked.ledger)
    if moved.verdict is Verdict.CANCELLED:
        ended = end_cancelled(tx, run, moved.state, fence=lease.fence, ledger=kept)
        accounts.close(tx, run.tenant, booked.closed)
        return ended
    if moved.verdict is Verdict.PARKED:
        told = events.parked(moved.state, detail)
    else:
        told = events.given_back(moved.state, reason=reason, detail=detail)
    # A drain says nothing of the run: what came in its way before still does.
    drained = reason is Reason.DRAIN and moved.verdict is Verdict.DONE
    said = run.row["detail"] if drained else detail
    journal.write(tx, run, moved.state, [told], fence=lease.fence, detail=said, ledger=kept)
    accounts.close(tx, run.tenant, booked.closed)
    answer = committed(lease, moved.state, moved.verdict)
    return answer if reason is Reason.DRAIN else Committed(answer.verdict)


def settle(tx: Connection, lease: RunLease, claim: Claim, outcome: ToolOutcome, *, by: str) -> Claim:
    """See :meth:`adk_worker.runs.RunStore.settle`."""
    run = writable_under(tx, lease)
    row = claim_rows.lock(tx, lease.tenant, [claim.key]).get(claim.key)
    stored = row.claim if row else None
    after = claim_transitions.settle(stored, seen=claim, outcome=outcome, by=by)
    claim_rows.decide(tx, run, stored, after)
    if after != stored:
        journal.tell(tx, run, [events.settled(claim.key, by)], fence=lease.fence)
    return after


def note_dead(tx: Connection, lease: RunLease, seen: Sequence[Claim]) -> Sequence[Claim]:
    """See :meth:`adk_worker.runs.RunStore.note_dead`."""
    writable_under(tx, lease)
    stored = claim_rows.lock(tx, lease.tenant, (claim.key for claim in seen))
    now = database_time(tx)
    noted = []
    for claim in seen:
        row = stored.get(claim.key)
        if row is None:
            raise ClaimOwnerError(key=claim.key)
        after = claim_transitions.note_dead(row.claim, seen=claim, now=now)
        if after != row.claim:
            claim_rows.save(tx, after)
        noted.append(after)
    return noted
