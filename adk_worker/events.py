"""The events that tell what happened to a run, made here so that every run store tells the same of the same thing.

Times, ids and fences are the store's to add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adk_worker.actors import Actor
from adk_worker.approvals.requests import ApprovalRequest, Grant
from adk_worker.checkpoint import Journal
from adk_worker.idempotency import Claim, Intent
from adk_worker.ledger.amounts import Budget
from adk_worker.transitions.runs import Attention, Reason, State, Verdict


class EventKind(StrEnum):
    """What every run store writes about its own transitions, with its ``data``. Boundaries add kinds of their own.

    All stores write the same, each in the write that it tells of.
    """

    SUBMITTED = "submitted"
    """``agent``"""
    TAKEN = "taken"
    """``holder``, ``ticket``"""
    GIVEN_BACK = "given_back"
    """``reason``, ``detail``, ``wait`` (seconds)"""
    RECOVERED = "recovered"
    """The reaper found the holder gone: ``holder``, ``crashes``, ``known_dead``"""
    PUBLISHED_AGAIN = "published_again"
    """The reaper found the message late: ``wait`` (seconds)"""
    PARKED = "parked"
    """``attention``, ``detail``; whoever parked it: a worker, or the reaper"""
    FAILED = "failed"
    """``detail``"""
    REQUEUED = "requeued"
    """``by``, ``os_user``"""
    HEALED = "healed"
    """``key``: the call that the run was parked on has its outcome (F4)"""
    LATE_OUTCOME = "late_outcome"
    """``key``: kept as evidence after a settlement (F4); ``contradicts``: who had said that the call never ran"""
    SETTLED = "settled"
    """A probe has answered: ``key``, ``by``"""
    DECIDED = "decided"
    """A person has: ``key``, ``tool``, ``how`` (``completed`` or ``never_ran``), ``why``, ``owner_may_live``, ``by``,
    ``os_user``"""
    APPROVAL_REQUESTED = "approval_requested"
    """``request``, ``call_id``, ``tool``, ``approvers``, ``expires_at``"""
    APPROVAL_ANSWERED = "approval_answered"
    """``request``, ``tool``, ``answer``, ``by``, ``os_user``, ``reason``; ``grant`` and its ``expires_at``, if one came
    with it"""
    CALL_PERMITTED = "call_permitted"
    """``key``, ``tool``, ``permit``: the request, or the grant, under which a call was begun"""
    GRANT_REVOKED = "grant_revoked"
    """``grant``, ``tool``, ``by``, ``os_user``"""
    BUDGET_CHANGED = "budget_changed"
    """``tokens``, ``cost_micros`` (the limits now; ``null`` is none), ``by``, ``os_user``"""
    CANCEL_REQUESTED = "cancel_requested"
    """``by``, ``os_user``"""
    CANCELLED = "cancelled"
    """No data; the write that ended it tells the rest"""


CONTINUED = "continued"
"""The kind that tells of a crossing, in the boundary's own write (K1)."""


class Event(BaseModel):
    """Something that happened to a run. ``id`` rises in the order in which a run's events were committed."""

    model_config = ConfigDict(frozen=True)

    id: int
    at: float
    kind: str
    fence: int
    data: dict[str, JsonValue] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be written with something else. ``data`` holds names, numbers and masked text only."""

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


def submitted(agent: str) -> NewEvent:
    """A run was submitted."""
    return NewEvent(EventKind.SUBMITTED, {"agent": agent})


def taken(holder: str, ticket: int) -> NewEvent:
    """The message that presented ``ticket`` has the lease now."""
    return NewEvent(EventKind.TAKEN, {"holder": holder, "ticket": ticket})


def given_back(after: State, *, reason: Reason, detail: str) -> NewEvent:
    """A task ended without a boundary, and the run is queued again."""
    return NewEvent(EventKind.GIVEN_BACK, {"reason": reason.value, "detail": detail, "wait": after.lease.wait})


def continued(execution: int, left: Journal) -> NewEvent:
    """The run goes on in a new execution, and ``left`` is the journal of the one before."""
    return NewEvent(CONTINUED, {"execution": execution, "steps": left.steps, "history_bytes": left.history_bytes})


def parked(after: State, detail: str) -> NewEvent:
    """The run is parked."""
    attention = None if after.attention is None else after.attention.value
    return NewEvent(EventKind.PARKED, {"attention": attention, "detail": detail})


def failed(detail: str) -> NewEvent:
    """The run failed without a boundary."""
    return NewEvent(EventKind.FAILED, {"detail": detail})


def reaped(before: State, after: State, verdict: Verdict, *, known_dead: bool = False) -> tuple[NewEvent, ...]:
    """What a reaper found and did, in order. Whatever ends a run for a cancel tells of that itself."""
    told: list[NewEvent] = []
    holder = before.lease.holder
    if holder is not None:
        data = {"holder": holder, "crashes": after.crashes, "known_dead": known_dead}
        told.append(NewEvent(EventKind.RECOVERED, data))
    elif verdict is Verdict.DONE:
        told.append(NewEvent(EventKind.PUBLISHED_AGAIN, {"wait": after.lease.wait}))
    if verdict is Verdict.PARKED:
        told.append(parked(after, parked_detail(after)))
    return tuple(told)


def parked_detail(after: State) -> str:
    """The ``detail`` of a run that its reaper parked, or that stays parked for its lost frontier; for people."""
    if after.attention is Attention.POISONED:
        return f"its worker died {after.crashes} times without a new boundary"
    return f"what ran is ahead of sequence {after.sequence}, the newest frontier that could be stored"


def requeued(by: Actor) -> NewEvent:
    """Somebody queued the run again."""
    return NewEvent(EventKind.REQUEUED, by.told)


def healed(key: str) -> NewEvent:
    """The run is queued again, for the call that it was parked on has its outcome."""
    return NewEvent(EventKind.HEALED, {"key": key})


def late_outcome(after: Claim) -> NewEvent:
    """An outcome came after the settlement, and is kept as evidence with the claim."""
    said = {"contradicts": after.decisions[-1].by} if after.contradicted else {}
    return NewEvent(EventKind.LATE_OUTCOME, {"key": after.key, **said})


def settled(key: str, by: str) -> NewEvent:
    """Somebody other than its owner decided a call."""
    return NewEvent(EventKind.SETTLED, {"key": key, "by": by})


def decided(after: Claim) -> NewEvent:
    """A person has settled a call: the claim's newest decision."""
    decision = after.decisions[-1]
    data = {
        "key": after.key,
        "tool": after.tool,
        "how": "never_ran" if decision.outcome is None else "completed",
        "why": decision.why,
        "owner_may_live": decision.owner_may_live,
        "by": decision.by,
        "os_user": decision.os_user,
    }
    return NewEvent(EventKind.DECIDED, data)


def approval_requested(request: ApprovalRequest) -> NewEvent:
    """A person is asked about a call."""
    data = {
        "request": request.request_id,
        "call_id": request.call_id,
        "tool": request.tool,
        "approvers": list(request.approvers),
        "expires_at": request.expires_at,
    }
    return NewEvent(EventKind.APPROVAL_REQUESTED, data)


def approval_answered(request: ApprovalRequest, grant: Grant | None = None) -> NewEvent:
    """A request has its answer."""
    data = {
        "request": request.request_id,
        "tool": request.tool,
        "answer": request.state.value,
        "by": request.answered_by,
        "os_user": request.os_user,
        "reason": request.reason,
    }
    given = {} if grant is None else {"grant": grant.grant_id, "expires_at": grant.expires_at}
    return NewEvent(EventKind.APPROVAL_ANSWERED, {**data, **given})


def call_permitted(intent: Intent) -> NewEvent:
    """A call that a person has to approve was begun."""
    return NewEvent(EventKind.CALL_PERMITTED, {"key": intent.key, "tool": intent.tool, "permit": intent.permit})


def grant_revoked(grant: Grant, by: Actor) -> NewEvent:
    """Somebody revoked a grant."""
    return NewEvent(EventKind.GRANT_REVOKED, {"grant": grant.grant_id, "tool": grant.tool, **by.told})


def budget_changed(limits: Budget, by: Actor) -> NewEvent:
    """Somebody changed the run's limits."""
    limited = {"tokens": limits.tokens, "cost_micros": limits.cost_micros}
    return NewEvent(EventKind.BUDGET_CHANGED, {**limited, **by.told})


def cancel_requested(by: Actor) -> NewEvent:
    """Somebody asked for the run's end."""
    return NewEvent(EventKind.CANCEL_REQUESTED, by.told)


def cancelled() -> NewEvent:
    """A cancel has ended the run."""
    return NewEvent(EventKind.CANCELLED)
