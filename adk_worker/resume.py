"""What happened to the calls that were outstanding when a run stopped, and what may be done about each (I5-I7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from adk_worker.checkpoint import Checkpoint, OutstandingCall
from adk_worker.errors import CallKeyReusedError, IndeterminateToolCallError
from adk_worker.idempotency import Claim, ClaimState, call_digest, mark_key
from adk_worker.outcomes import Effect, ToolOutcome


class ToolDisposition(StrEnum):
    """What is known of an outstanding call."""

    COMPLETED = "completed"
    """It has an outcome on record: replay that."""
    NEVER_RAN = "never_ran"
    """No intent is on record, and an intent comes before every dispatch (I2); or a person has said so (I8): make it."""
    INDETERMINATE = "indeterminate"
    """It may have happened. Never guessed at."""


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One outstanding call, what is known of it, and the claim that says so, if there is one."""

    call: OutstandingCall
    disposition: ToolDisposition
    claim: Claim | None = None
    outcome: ToolOutcome | None = None

    @property
    def repeatable(self) -> bool:
        """Whether it may be made again although it may have happened: the tool's author says so, and it has a key."""
        return (
            self.disposition is ToolDisposition.INDETERMINATE
            and self.claim is not None
            and self.call.effect is not Effect.EFFECTFUL
        )


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """All outstanding calls of a frontier, in call order."""

    tenant: str
    run_id: str
    calls: tuple[PlannedCall, ...]

    @property
    def completed(self) -> tuple[PlannedCall, ...]:
        """Calls whose recorded outcome is replayed."""
        return tuple(call for call in self.calls if call.disposition is ToolDisposition.COMPLETED)

    @property
    def to_dispatch(self) -> tuple[PlannedCall, ...]:
        """Calls that never ran."""
        return tuple(call for call in self.calls if call.disposition is ToolDisposition.NEVER_RAN)

    @property
    def repeatable(self) -> tuple[PlannedCall, ...]:
        """Calls that may have happened and may be made again under the same key (I7)."""
        return tuple(call for call in self.calls if call.repeatable)

    @property
    def indeterminate(self) -> tuple[PlannedCall, ...]:
        """Calls that may have happened and must not be made again: for a probe, or a person, to decide."""
        return tuple(
            call for call in self.calls if call.disposition is ToolDisposition.INDETERMINATE and not call.repeatable
        )

    @property
    def safe(self) -> bool:
        """Whether the run can be carried on without anyone deciding anything."""
        return not self.indeterminate

    def refuse_if_undecidable(self) -> None:
        """Raise unless the plan is safe.

        :raises IndeterminateToolCallError: names every undecidable call; nothing of the turn was dispatched.
        """
        undecided = self.indeterminate
        if undecided:
            named = tuple((planned.call.call_id, planned.call.tool, planned.call.key) for planned in undecided)
            raise IndeterminateToolCallError(tenant=self.tenant, run_id=self.run_id, calls=named)


class Peeks(Protocol):
    """The part of an idempotency store that a plan needs: it only reads."""

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        """See :meth:`adk_worker.idempotency.IdempotencyStore.peek`."""
        ...


async def plan_resume(checkpoint: Checkpoint, idempotency: Peeks | None) -> ResumePlan:
    """What to do about each outstanding call of ``checkpoint``. Only reads (I5).

    :raises CallKeyReusedError: a key is on record with another tool or other arguments (I1).
    """
    keys = [call.key for call in checkpoint.calls if call.key is not None and call.outcome is None]
    claims = await idempotency.peek(keys, tenant=checkpoint.tenant) if idempotency is not None and keys else {}
    calls = tuple(_planned(call, claims, recorded=idempotency is not None) for call in checkpoint.calls)
    return ResumePlan(checkpoint.tenant, checkpoint.run_id, calls)


def _planned(call: OutstandingCall, claims: Mapping[str, Claim | None], *, recorded: bool) -> PlannedCall:
    if call.outcome is not None:
        return PlannedCall(call, ToolDisposition.COMPLETED, outcome=call.outcome)
    if call.key is None or not recorded:
        # Nobody wrote down whether it was dispatched (I6).
        return PlannedCall(call, ToolDisposition.INDETERMINATE)
    claim = claims.get(call.key)
    if claim is None:
        return PlannedCall(call, ToolDisposition.NEVER_RAN)
    if claim.digest != call_digest(call.key, tool=call.tool, arguments=call.arguments):
        raise CallKeyReusedError(key=call.key)
    if claim.known is not None:
        return PlannedCall(call, ToolDisposition.COMPLETED, claim, claim.known)
    if claim.state is ClaimState.NEVER_RAN:
        return PlannedCall(call, ToolDisposition.NEVER_RAN, claim)
    return PlannedCall(call, ToolDisposition.INDETERMINATE, claim)


async def is_marked(idempotency: Peeks, *, tenant: str, run_id: str) -> bool:
    """Whether the stored frontier is behind what ran, so that it must not be resumed from (C3)."""
    key = mark_key(tenant=tenant, run_id=run_id)
    claim = (await idempotency.peek([key], tenant=tenant))[key]
    return claim is not None and claim.state is ClaimState.IN_FLIGHT
