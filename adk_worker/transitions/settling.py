"""What a person's decision does to a claim, and to the run that waits for it: pure functions (I8)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from adk_worker.errors import AdkError, CallDecidedError, CallStateError
from adk_worker.idempotency import Claim, ClaimState, Decision
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import (
    ENDED,
    Attention,
    FleetPolicy,
    Moved,
    Phase,
    State,
    Verdict,
    cancel,
    heal,
    requeue,
)


@dataclass(frozen=True, slots=True)
class Decided:
    """The claim after a decision. ``REFUSED`` says that something may be under way, and ``why`` says what.

    The claim is to be written after a refusal, too: it may say by now that its owner is dead.
    """

    claim: Claim
    verdict: Verdict = Verdict.DONE
    why: str | None = None


def decide(stored: Claim | None, *, seen: Claim, asked: Settlement, now: float) -> Decided:
    """The claim after a person decides it, if it still is as they have ``seen`` it.

    :raises CallDecidedError: it is settled already, by a person or otherwise.
    :raises CallStateError: it is absent, or has moved on.
    """
    if stored is None:
        raise CallStateError(key=seen.key, tool=seen.tool, state="not in flight", wanted="nothing of it was ever sent")
    decision = Decision(
        by=asked.by.name,
        os_user=asked.by.os_user,
        at=now,
        why=asked.why,
        owner=seen.owner,
        outcome=asked.outcome,
        owner_may_live=asked.owner_may_live,
    )
    if stored.decisions and replace(stored.decisions[-1], at=now) == decision and not stored.in_flight:
        return Decided(stored, Verdict.REPEATED)
    if not stored.in_flight:
        raise decided(stored)
    if stored.owner != seen.owner:
        wanted = "somebody has begun it anew since; look at it again"
        raise CallStateError(key=stored.key, tool=stored.tool, state="in flight under another owner", wanted=wanted)
    noted = stored
    if asked.owner_dead and stored.dead_seen_at is None:
        noted = replace(stored, dead_seen_at=now)
    if asked.outcome is None and not asked.owner_may_live:
        why = under_way(noted, max_in_flight=asked.max_in_flight, now=now)
        if why is not None:
            return Decided(noted, Verdict.REFUSED, why)
    state = ClaimState.NEVER_RAN if asked.outcome is None else ClaimState.SETTLED
    after = replace(
        noted,
        state=state,
        outcome=asked.outcome,
        settled_by=f"person:{asked.by.name}",
        decisions=(*stored.decisions, decision),
    )
    return Decided(after)


def under_way(claim: Claim, *, max_in_flight: float | None = None, now: float) -> str | None:
    """Why something of the call may still be under way, so that nobody can say that it never will; ``None`` if not."""
    longest = max_in_flight if claim.max_in_flight is None else claim.max_in_flight
    if claim.dead_seen_at is None:
        return "its owner may be alive"
    if longest is None:
        return "its owner is dead, but its tool does not say for how long a request may outlive it (max_in_flight)"
    left = longest - (now - claim.dead_seen_at)
    if left > 0:
        return f"a request of its dead owner may be under way for another {left:.0f} s (its tool's max_in_flight)"
    return None


def decided(claim: Claim) -> AdkError:
    """The refusal of a decision about a call that is decided."""
    last = claim.decisions[-1] if claim.decisions else None
    how = "never ran" if claim.known is None else claim.known.kind.value
    by = claim.settled_by or "nobody"
    return CallDecidedError(key=claim.key, tool=claim.tool, how=how, by=by, at=last.at if last else None)


def settled(state: State, *, key: str, undecided: Iterable[str], at: StoreTime, policy: FleetPolicy) -> Moved:
    """A person has decided the call ``key``; ``undecided`` are the keys of the run's calls that still are not.

    The run is queued again once it is parked on none. ``REFUSED`` while somebody, or the queue, carries it on: it finds
    out by itself. One that backs off to ask about a call again is taken up at once.
    """
    if state.cancel_requested and state.phase not in ENDED:
        return cancel(state)
    if state.phase is Phase.LIVE:
        waits = state.lease.holding is Holding.QUEUE and state.attention is Attention.UNDECIDED_CALL
        return requeue(state, at=at, policy=policy) if waits else Moved(state, Verdict.REFUSED)
    if state.phase is not Phase.PARKED or key not in state.parked_on:
        return Moved(state)
    open_still = set(undecided)
    left = tuple(other for other in state.parked_on if other != key and other in open_still)
    if left:
        return Moved(replace(state, parked_on=left))
    healed = heal(state, key=key, at=at, policy=policy)
    if healed.verdict is not Verdict.DONE:
        return healed
    # Whoever decides publishes too, unlike one who brings an outcome: the reaper need not come at once.
    lease = replace(healed.state.lease, expires_at=at.now + policy.dispatch_grace, wait=policy.dispatch_grace)
    return Moved(replace(healed.state, lease=lease))
