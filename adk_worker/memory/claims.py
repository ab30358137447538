"""The rows of claims, and what follows for a run once a call is decided."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events
from adk_worker.adapters import adapter
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.memory import journal
from adk_worker.memory.data import ClaimKey, MemoryData, RunKey, StoredClaim
from adk_worker.messages import canonical_json
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict


def load(data: MemoryData, key: ClaimKey) -> Claim | None:
    """The claim on ``key``, made anew from its JSON."""
    row = data.claims.get(key)
    return None if row is None else adapter(Claim).validate_json(row.text)


def save(data: MemoryData, claim: Claim, *, run: RunKey | None = None) -> None:
    """Write the claim's row. The run that it was begun for stays the first one named."""
    key = (claim.tenant, claim.key)
    row = data.claims.get(key)
    known = row.run if row is not None and row.run is not None else run
    data.claims[key] = StoredClaim(canonical_json(adapter(Claim).dump_python(claim, mode="json")), known)


def of_run(data: MemoryData, key: RunKey) -> Sequence[Claim]:
    """The run's claims in the order in which they began."""
    return [adapter(Claim).validate_json(row.text) for row in data.claims_of(key)]


def decide(data: MemoryData, before: Claim | None, after: Claim) -> None:
    """Write a claim on which an outcome came in, and what follows for its run, all in one (F4, P2)."""
    if before == after:
        return
    save(data, after)
    run = data.claims[after.tenant, after.key].run
    if run is None:
        return
    if after.state is ClaimState.SETTLED and (before is None or before.state is ClaimState.IN_FLIGHT):
        follow(data, run, after.key)
    else:
        journal.tell(data, run, [events.late_outcome(after)], at=data.at())


def give_back(data: MemoryData, after: Claim) -> None:
    """Write a claim that its former owner has again, with what follows for its run if that is known not to have run."""
    save(data, after)
    run = data.claims[after.tenant, after.key].run
    if run is not None and not after.in_flight:
        follow(data, run, after.key)


def remove(data: MemoryData, key: ClaimKey) -> None:
    """Remove the claim of a call that never ran, with what follows for its run."""
    run = data.claims.pop(key).run
    if run is not None:
        follow(data, run, key[1])


def follow(data: MemoryData, run: RunKey, key: str) -> None:
    """Do what follows once nothing is undecided about a call: queue the run that waits for it, let a frontier go."""
    at = data.at()
    state = journal.state_of(data, run)
    moved = run_transitions.heal(state, key=key, at=at, policy=FleetPolicy())
    if moved.verdict is Verdict.DONE:
        journal.write(data, run, moved.state, [events.healed(key)], at=at, detail=None)
    elif moved.verdict is Verdict.PARKED:
        detail = events.parked_detail(moved.state)
        journal.write(data, run, moved.state, [events.parked(moved.state, detail)], at=at, detail=detail)
    if state.phase is Phase.CANCELLED:
        forget_if_decided(data, run)


def forget_if_decided(data: MemoryData, run: RunKey) -> None:
    """Forget the frontier of a run that was cancelled, unless a call of its is still undecided (C5, P2)."""
    if not claim_transitions.any_in_flight(of_run(data, run)):
        data.checkpoints.pop(run, None)
