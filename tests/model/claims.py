"""The claims of a run's calls: small numbers in a :class:`~tests.model.world.World`, and as the tables see them."""

from __future__ import annotations

from functools import cache

from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, Intent, call_digest
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from tests.model.world import FAILED, HAPPENED, NOTHING, Call, Start

TOOL = "book_seat"

_OUTCOMES = {
    FAILED: ToolOutcome(kind=OutcomeKind.FAILED, content="it did not happen"),
    HAPPENED: ToolOutcome(kind=OutcomeKind.RETURNED, content="it happened"),
}
_NUMBERS = {outcome.kind: number for number, outcome in _OUTCOMES.items()}


def key_of(call: int) -> str:
    """The idempotency key of a call."""
    return f"call-{call}"


@cache
def digest_of(call: int) -> str:
    """The digest of a call's tool and arguments, which are none."""
    return call_digest(key_of(call), tool=TOOL, arguments={})


def outcome_of(number: int) -> ToolOutcome:
    """An outcome as the tables see it."""
    return _OUTCOMES[number]


def permit_of(request: int) -> str:
    """The id of a request, which are numbered from 1; below 0, that of a grant."""
    return f"req-{request}" if request > 0 else f"grant-{-request}"


@cache
def intent_of(start: Start) -> Intent:
    """The intent of a call that is to be begun."""
    return Intent(
        key_of(start.number),
        digest_of(start.number),
        TOOL,
        take_over=str(start.seen) if start.seen else None,
        permit=permit_of(start.request) if start.request else None,
    )


def claim_of(number: int, call: Call) -> Claim:
    """The claim as the tables see it."""
    settled = call.outcome != NOTHING
    state = ClaimState.NEVER_RAN if call.never_ran else ClaimState.SETTLED if settled else ClaimState.IN_FLIGHT
    return Claim(
        "acme",
        key_of(number),
        str(call.owner),
        digest_of(number),
        state,
        outcome=_OUTCOMES[call.outcome] if settled else None,
        settled_by=(BY_OWNER if call.by_owner else "somebody") if settled else None,
        dead_seen_at=0.0 if call.dead_seen else None,
        former=tuple(str(owner) for owner in call.former),
        late=tuple(_OUTCOMES[outcome] for outcome in call.late),
    )


def call_of(claim: Claim, before: Call | None) -> Call:
    """The claim as the model keeps it."""
    dead_seen = claim.dead_seen_at is not None
    return Call(
        int(claim.owner),
        NOTHING if claim.outcome is None else _NUMBERS[claim.outcome.kind],
        claim.settled_by == BY_OWNER,
        tuple(int(owner) for owner in claim.former),
        dead_seen,
        dead_seen and before is not None and before.quiet and before.owner == int(claim.owner),
        tuple(_NUMBERS[outcome.kind] for outcome in claim.late),
        claim.state is ClaimState.NEVER_RAN,
    )
