"""What a person decides about a call that may have happened (I8)."""

from __future__ import annotations

from sqlalchemy import Connection

from adk_worker import events
from adk_worker.idempotency import Claim
from adk_worker.refusals import decision_refused
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions import settling as settle_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Phase, State, Verdict
from stores.sql import claim_rows, journal, reading
from stores.sql.claim_rows import StoredClaim
from stores.sql.locks import LockedRun
from stores.sql.requests import existing
from stores.sql.writing import end_cancelled


def decide_of_run(
    tx: Connection, tenant: str, run_id: str, seen: Claim, asked: Settlement, *, policy: FleetPolicy
) -> Settled:
    """See :meth:`adk_worker.runs.RunStore.decide`."""
    run = existing(tx, tenant, run_id)
    stored = claim_rows.lock(tx, tenant, [seen.key]).get(seen.key)
    mine = stored if stored is not None and stored.run_id == run_id else None
    return decide(tx, run, mine, seen, asked, policy=policy)


def decide(
    tx: Connection, run: LockedRun, stored: StoredClaim | None, seen: Claim, asked: Settlement, *, policy: FleetPolicy
) -> Settled:
    """The same, with the run and the claim locked."""
    decided = settle_transitions.decide(stored.claim if stored else None, seen=seen, asked=asked, now=run.at.now)
    if decided.verdict is Verdict.REPEATED:
        return _settled(tx, run, run.state, decided.claim)
    # Under the run's lock no other of its claims is decided.
    undecided = claim_rows.undecided(tx, run.tenant, run.run_id)
    moved = settle_transitions.settled(run.state, key=seen.key, undecided=undecided, at=run.at, policy=policy)
    if moved.verdict is Verdict.REFUSED:
        raise decision_refused(run.view(run.state), decided.claim)
    claim_rows.save(tx, decided.claim)
    if decided.verdict is Verdict.REFUSED:
        return Settled(decided.claim, run.view(run.state), refused=decided.why)
    told = [events.decided(decided.claim)]
    match moved.verdict:
        case Verdict.CANCELLED:
            end_cancelled(tx, run, moved.state, told)
        case Verdict.PARKED:
            detail = events.parked_detail(moved.state)
            journal.write(tx, run, moved.state, [*told, events.parked(moved.state, detail)], detail=detail)
        case _ if moved.state.phase is Phase.LIVE:
            journal.write(tx, run, moved.state, [*told, events.requeued(asked.by)], detail=None)
        case _:
            journal.write(tx, run, moved.state, told)
    if run.state.phase is Phase.CANCELLED:
        claim_rows.forget_if_decided(tx, run.tenant, run.run_id)
    return _settled(tx, run, moved.state, decided.claim)


def _settled(tx: Connection, run: LockedRun, state: State, claim: Claim) -> Settled:
    ticket = state.lease.fence if state.lease.holding is Holding.QUEUE else None
    return Settled(claim, reading.get(tx, run.tenant, run.run_id), ticket)
