"""The transition table of a claim: pure functions, as :mod:`adk_worker.transitions.runs` is for a run.

Every idempotency store reads the claim's row under a lock, asks one function here, and writes what comes back in the
same transaction. ``None`` for a claim is an absent one. Times are the store's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from adk_worker.errors import CallKeyReusedError, ClaimOwnerError
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Intent
from adk_worker.outcomes import ToolOutcome


def begin(
    stored: Claim | None, intent: Intent, *, tenant: str, owner: str, now: float, fence: int | None = None
) -> Claim:
    """The claim that stands after a ``begin``: a new one, the stored one, or the stored one taken over.

    A claim in flight stays its owner's however old it is (I4): only an intent that names that owner takes it over. The
    same holds for the claim of a call that never ran (I8), which nobody takes over once an outcome has come in.

    :raises CallKeyReusedError: the digests differ (I1).
    """
    if stored is None:
        return Claim(
            tenant,
            intent.key,
            owner,
            intent.digest,
            ClaimState.IN_FLIGHT,
            fence=fence,
            began_at=now,
            tool=intent.tool,
            max_in_flight=intent.max_in_flight,
        )
    if stored.digest != intent.digest:
        raise CallKeyReusedError(key=intent.key)
    if intent.take_over is not None and stored.open_after(intent.take_over) and owner != intent.take_over:
        taken = _owned_by(stored, owner, fence=fence, now=now)
        return taken if intent.max_in_flight is None else replace(taken, max_in_flight=intent.max_in_flight)
    return stored


def record(stored: Claim | None, *, key: str, owner: str, outcome: ToolOutcome) -> Claim:
    """The claim after its owner, or a former owner, brings an outcome (F4).

    :raises ClaimOwnerError: ``owner`` never owned it.
    """
    if stored is None or owner not in (stored.owner, *stored.former):
        raise ClaimOwnerError(key=key)
    if stored.owned_in_flight_by(owner):
        return replace(stored, state=ClaimState.SETTLED, outcome=outcome, settled_by=BY_OWNER)
    own_again = stored.owner == owner and stored.settled_by == BY_OWNER and stored.outcome == outcome
    if own_again or outcome in stored.late:
        return stored
    return replace(stored, late=(*stored.late, outcome))


def settle(stored: Claim | None, *, seen: Claim, outcome: ToolOutcome, by: str) -> Claim:
    """The claim after somebody other than its owner decides it, if it is still as ``seen``; else as it stands.

    :raises ClaimOwnerError: it is absent.
    """
    if stored is None:
        raise ClaimOwnerError(key=seen.key)
    if not stored.owned_in_flight_by(seen.owner):
        return stored
    return replace(stored, state=ClaimState.SETTLED, outcome=outcome, settled_by=by)


def abandon(stored: Claim | None, *, key: str, owner: str) -> Claim | None:
    """The claim after its owner says that it never dispatched: the former owner's again, or absent.

    :raises ClaimOwnerError: not in flight under ``owner``.
    """
    if stored is None or not stored.owned_in_flight_by(owner):
        raise ClaimOwnerError(key=key)
    if not stored.former:
        return None
    before = stored.former[-1]
    decision = stored.decisions[-1] if stored.decisions else None
    never_ran = decision is not None and decision.outcome is None and decision.owner == before
    state = ClaimState.NEVER_RAN if never_ran else ClaimState.IN_FLIGHT
    return replace(stored, owner=before, former=stored.former[:-1], state=state)


def take_over(stored: Claim | None, *, key: str, seen: str, owner: str, now: float, fence: int | None = None) -> Claim:
    """The claim in flight after ``owner`` took it from ``seen``.

    :raises ClaimOwnerError: it is not in flight under ``seen``, nor known not to have run under it.
    """
    if stored is None or not stored.open_after(seen):
        raise ClaimOwnerError(key=key)
    return _owned_by(stored, owner, fence=fence, now=now)


def note_dead(stored: Claim, *, seen: Claim, now: float) -> Claim:
    """The claim with the time at which its owner was first known dead (I11); a claim that moved on is left alone."""
    if stored.dead_seen_at is not None or not stored.owned_in_flight_by(seen.owner):
        return stored
    return replace(stored, dead_seen_at=now)


def still_undecided(stored: Claim | None, *, seen: Claim) -> bool:
    """Whether a claim on which a run is about to be parked is as the plan has seen it: in flight, and that owner's."""
    return stored is not None and stored.owned_in_flight_by(seen.owner)


def any_in_flight(claims: Iterable[Claim]) -> bool:
    """Whether something is undecided, so that a run that ended must keep its frontier (P2)."""
    return any(claim.in_flight for claim in claims)


@dataclass(frozen=True, slots=True)
class ResumeClaim:
    """Who is resuming a run (I9). ``fence`` is that of the resumer's lease, ``None`` for one without a lease."""

    owner: str
    fence: int | None
    expires_at: float


def claim_resume(
    stored: ResumeClaim | None, *, owner: str, now: float, ttl: float, fence: int | None = None
) -> ResumeClaim | None:
    """The claim after ``owner`` asks to resume; ``None`` refuses (I9).

    One that has expired stands in nobody's way; ``now == expires_at`` is expired, as a lease is lapsed. The same owner
    asks again after an answer was lost (F5). A fence replaces a lower one; whoever has none waits.
    """
    granted = ResumeClaim(owner, fence, now + ttl)
    if stored is None or now >= stored.expires_at or stored.owner == owner:
        return granted
    if fence is not None and stored.fence is not None and fence > stored.fence:
        return granted
    return None


def _owned_by(stored: Claim, owner: str, *, fence: int | None, now: float) -> Claim:
    return replace(
        stored,
        owner=owner,
        state=ClaimState.IN_FLIGHT,
        former=(*stored.former, stored.owner),
        fence=fence,
        began_at=now,
        dead_seen_at=None,
    )
