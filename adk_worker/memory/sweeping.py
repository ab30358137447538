"""The reaper's writes."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events
from adk_worker.lease import RunLease
from adk_worker.ledger import booking
from adk_worker.liveness import of_host
from adk_worker.memory import journal, ledgers
from adk_worker.memory.data import MemoryData, RunKey, as_run_lease
from adk_worker.memory.writing import end_cancelled
from adk_worker.runs import Dispatch, Reaped
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict


def lapsed(data: MemoryData) -> Sequence[tuple[float, RunKey]]:
    """The leases of live runs that have lapsed, the longest ago first: when, and whose."""
    now = data.clock()
    found = []
    for key, row in data.runs.items():
        lease = data.lease(key)
        if row.state.phase is Phase.LIVE and lease.lapsed(now):
            found.append((lease.expires_at, key))
    return sorted(found)


def held_on(data: MemoryData, host: str, *, within: float) -> Sequence[RunLease]:
    """See :meth:`adk_worker.runs.RunStore.held_on`."""
    until = data.clock() + within
    due = [key for key in data.runs if data.lease(key).lapsed(until)]
    found = [lease for key in due if (lease := held(data, key, host)) is not None]
    return sorted(found, key=lambda lease: lease.expires_at)


def held(data: MemoryData, key: RunKey, host: str) -> RunLease | None:
    """The lease of a live run, if a worker on ``host`` holds it."""
    lease = data.lease(key)
    live = key in data.runs and data.runs[key].state.phase is Phase.LIVE
    if not live or lease.holding is not Holding.WORKER or not (lease.holder or "").startswith(of_host(host)):
        return None
    return as_run_lease(key, lease)


def reap(
    data: MemoryData, key: RunKey, *, policy: FleetPolicy, count_crashes: bool = True, known_dead: bool = False
) -> Reaped | None:
    """Act on one lease; ``None`` if there is nothing to act on."""
    at = data.at()
    before = journal.state_of(data, key)
    moved = run_transitions.reap(before, at=at, policy=policy, count_crashes=count_crashes, known_dead=known_dead)
    if moved.verdict is Verdict.REFUSED:
        return None
    told = events.reaped(before, moved.state, moved.verdict, known_dead=known_dead)
    tenant, run_id = key
    dispatch = None
    # A worker that is gone may have been in a model call; the queue makes none.
    in_flight = None if before.lease.holding is Holding.WORKER else data.runs[key].ledger.reserved is not None
    booked = booking.lost(data.runs[key].ledger, in_flight=in_flight)
    ledgers.close(data, key, booked.closed)
    match moved.verdict:
        case Verdict.CANCELLED:
            end_cancelled(data, key, moved.state, told, at=at, ledger=booked.ledger)
        case Verdict.PARKED:
            detail = events.parked_detail(moved.state)
            journal.write(data, key, moved.state, told, at=at, detail=detail, ledger=booked.ledger)
        case _:
            journal.write(data, key, moved.state, told, at=at, ledger=booked.ledger)
            recovery = before.lease.holding is Holding.WORKER
            dispatch = Dispatch(tenant, run_id, moved.state.lease.fence, recovery)
    return Reaped(tenant, run_id, before.lease.holding, moved.verdict, dispatch)
