"""What a person decides about a call that may have happened (I8)."""

from __future__ import annotations

from adk_worker import events
from adk_worker.errors import RunNotFoundError
from adk_worker.idempotency import Claim
from adk_worker.memory import claims, journal, reading
from adk_worker.memory.data import MemoryData, RunKey
from adk_worker.memory.writing import end_cancelled
from adk_worker.refusals import decision_refused
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions import settling as settle_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict


def decide_of_run(data: MemoryData, key: RunKey, seen: Claim, asked: Settlement, *, policy: FleetPolicy) -> Settled:
    """See :meth:`adk_worker.runs.RunStore.decide`."""
    if key not in data.runs:
        tenant, run_id = key
        raise RunNotFoundError(tenant=tenant, run_id=run_id)
    row = data.claims.get((seen.tenant, seen.key))
    mine = row is not None and row.run == key
    at = data.at()
    stored = claims.load(data, (seen.tenant, seen.key)) if mine else None
    decided = settle_transitions.decide(stored, seen=seen, asked=asked, now=at.now)
    if decided.verdict is Verdict.REPEATED:
        return _settled(data, key, decided.claim)
    state = journal.state_of(data, key)
    undecided = [claim.key for claim in claims.of_run(data, key) if claim.in_flight]
    moved = settle_transitions.settled(state, key=seen.key, undecided=undecided, at=at, policy=policy)
    if moved.verdict is Verdict.REFUSED:
        raise decision_refused(reading.run_of(data, key), decided.claim)
    claims.save(data, decided.claim)
    if decided.verdict is Verdict.REFUSED:
        return Settled(decided.claim, reading.run_of(data, key), refused=decided.why)
    told = [events.decided(decided.claim)]
    match moved.verdict:
        case Verdict.CANCELLED:
            end_cancelled(data, key, moved.state, told, at=at)
        case Verdict.PARKED:
            detail = events.parked_detail(moved.state)
            journal.write(data, key, moved.state, [*told, events.parked(moved.state, detail)], at=at, detail=detail)
        case _ if moved.state.phase is Phase.LIVE:
            journal.write(data, key, moved.state, [*told, events.requeued(asked.by)], at=at, detail=None)
        case _ if moved.state != state:
            journal.write(data, key, moved.state, told, at=at)
        case _:
            journal.tell(data, key, told, at=at)
    if state.phase is Phase.CANCELLED:
        claims.forget_if_decided(data, key)
    return _settled(data, key, decided.claim)


def decide_alone(data: MemoryData, seen: Claim, asked: Settlement) -> Settled:
    """See :meth:`adk_worker.settling.settlement.TakesDecisions.decide`."""
    key = (seen.tenant, seen.key)
    run = data.claims[key].run if key in data.claims else None
    if run is not None and run in data.runs:
        return decide_of_run(data, run, seen, asked, policy=FleetPolicy())
    decided = settle_transitions.decide(claims.load(data, key), seen=seen, asked=asked, now=data.clock())
    claims.save(data, decided.claim)
    return Settled(decided.claim, refused=decided.why)


def _settled(data: MemoryData, key: RunKey, claim: Claim) -> Settled:
    lease = data.lease(key)
    ticket = lease.fence if lease.holding is Holding.QUEUE else None
    return Settled(claim, reading.run_of(data, key), ticket)
