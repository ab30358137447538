"""The fleet's scribe: every write carries the fence and is certain before it returns (F1, F5, C3)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_random_exponential

from adk_worker import events
from adk_worker.approvals.store import Asked
from adk_worker.checkpoint import Checkpoint, encode_checkpoint
from adk_worker.errors import CheckpointTooLargeError, ClaimOwnerError, StoreUnavailableError
from adk_worker.events import NewEvent
from adk_worker.history import Handle, Segment
from adk_worker.idempotency import Claim, Intent
from adk_worker.interruption import Cause, Interruption
from adk_worker.lease import RunLease
from adk_worker.ledger.booking import Reservation
from adk_worker.ledger.spending import Spending
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Boundary, Committed, Stores
from adk_worker.scribes.port import Standing, Turnover, Wrapped
from adk_worker.transitions.runs import Attention, FleetPolicy, Then, Verdict

T = TypeVar("T")

_EVIDENCE_SECONDS = 60.0
"""How long the store is asked to take an outcome: longer than state, for no lease has to be live for it (F4)."""


class FleetScribe:
    """Writes for one acquisition. ``handle`` is the transcript stored so far."""

    def __init__(
        self,
        stores: Stores,
        lease: RunLease,
        interruption: Interruption,
        *,
        handle: Handle,
        policy: FleetPolicy,
        max_bytes: int,
        spending: Spending,
    ) -> None:
        self._stores = stores
        self._lease = lease
        self._interruption = interruption
        self._handle = handle
        self._policy = policy
        self._max_bytes = max_bytes
        self._spending = spending
        self._ahead = False
        self.ticket: int | None = None
        """What is to be dispatched after the last write."""

    @property
    def owner(self) -> str:
        return self._lease.holder

    @property
    def fence(self) -> int | None:
        return self._lease.fence

    @property
    def keyed(self) -> bool:
        return True

    @property
    def now(self) -> float | None:
        # The store's clock when it granted the lease.
        return self._lease.expires_at - self._policy.lease_ttl

    async def boundary(self, wrapped: Wrapped) -> Standing:
        new = wrapped.frontier.messages[self._handle.count :]
        segment = Segment.extend(self._handle, new) if new else None
        handle = segment.handle if segment else self._handle
        stored = wrapped.frontier.updated(messages=(), history_handle=str(handle))
        payload, then = self._payload(stored, wrapped)
        attention = wrapped.attention
        if then is Then.PARK:
            attention = Attention.FRONTIER_LOST
        boundary = Boundary(
            checkpoint=stored,
            payload=payload,
            then=then,
            segment=segment,
            settled=tuple(wrapped.settled),
            requests=tuple(wrapped.requests) if then is Then.WAIT_APPROVAL else (),
            denials=tuple(wrapped.denials),
            charge=self._spending.charge,
            attention=attention,
            detail=wrapped.detail,
            events=_events(wrapped),
        )
        committed = await self._certain(lambda: self._stores.runs.commit(self._lease, boundary, policy=self._policy))
        self._handle = handle
        self._ahead = payload is None
        self._spending.booked()
        if then is Then.PARK:
            return Standing.LOST if committed.verdict is not Verdict.CANCELLED else Standing.CANCELLED
        return self._standing(committed, kept=then is Then.KEEP)

    def _payload(self, stored: Checkpoint, wrapped: Wrapped) -> tuple[str | None, Then]:
        """The payload, or ``None`` for a tombstone; and what becomes of the lease.

        A run whose frontier could not be stored stays with this worker, which has it in memory; where it would have
        to rest, it is parked as lost instead (C3).
        """
        then = {
            Turnover.ON: Then.HAND_OVER if wrapped.last else Then.KEEP,
            Turnover.WAIT_APPROVAL: Then.WAIT_APPROVAL,
            Turnover.COMPLETE: Then.COMPLETE,
            Turnover.FAIL: Then.FAIL,
        }[wrapped.turnover]
        if then is Then.COMPLETE:
            return encode_checkpoint(stored), then
        try:
            return encode_checkpoint(stored, max_bytes=self._max_bytes), then
        except CheckpointTooLargeError:
            return None, {Then.HAND_OVER: Then.KEEP, Then.WAIT_APPROVAL: Then.PARK}.get(then, then)

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        return await self._certain(lambda: self._stores.idempotency.peek(keys, tenant=tenant))

    async def approvals(self, frontier: Checkpoint) -> Asked:
        run_id, tenant = frontier.run_id, frontier.tenant
        return await self._certain(lambda: self._stores.runs.approvals(run_id, tenant=tenant))

    async def begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:
        committed, claims = await self._certain(
            lambda: self._stores.runs.begin(self._lease, intents, owner=self.owner, ahead=self._ahead)
        )
        return self._standing(committed, kept=True), claims

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        await _retried(
            lambda: self._stores.idempotency.record(claim, outcome), stop=stop_after_delay(_EVIDENCE_SECONDS)
        )

    async def abandon(self, claim: Claim) -> None:
        def given_up(state: RetryCallState) -> bool:
            return self._interruption.cause is Cause.TIMEOUT or within(state)

        within = stop_after_delay(_EVIDENCE_SECONDS)
        # Also where an answer was lost and the claim is gone already (F5).
        with contextlib.suppress(ClaimOwnerError):
            await _retried(lambda: self._stores.idempotency.abandon(claim), stop=given_up)

    async def settle(self, claim: Claim, outcome: ToolOutcome, *, by: str) -> None:
        await self._certain(lambda: self._stores.runs.settle(self._lease, claim, outcome, by=by))

    async def note_dead(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        return await self._certain(lambda: self._stores.runs.note_dead(self._lease, claims))

    async def park(self, *, attention: Attention, detail: str, undecided: Sequence[Claim] = ()) -> Standing:
        committed = await self._certain(
            lambda: self._stores.runs.park(self._lease, attention=attention, detail=detail, undecided=undecided)
        )
        if committed.verdict is Verdict.REFUSED:
            return Standing.KEPT
        return self._standing(committed, kept=False)

    async def reserve(self, asked: Reservation) -> tuple[Standing, str | None]:
        committed = await self._certain(lambda: self._stores.runs.reserve(self._lease, asked))
        return self._standing(committed, kept=committed.verdict is Verdict.DONE), committed.detail

    async def fail(self, *, detail: str) -> Standing:
        asked = self._spending.asked
        committed = await self._certain(lambda: self._stores.runs.fail(self._lease, detail=detail, asked=asked))
        return self._standing(committed, kept=False)

    def _standing(self, committed: Committed, *, kept: bool) -> Standing:
        self.ticket = committed.ticket
        if committed.verdict is Verdict.CANCELLED:
            return Standing.CANCELLED
        return Standing.KEPT if kept else Standing.LEFT

    async def _certain(self, write: Callable[[], Awaitable[T]]) -> T:
        return await certain(write, self._interruption)


async def certain(write: Callable[[], Awaitable[T]], interruption: Interruption) -> T:
    """Repeat while the store is away and the lease can still be live (C3). Every such write finds itself done (F5)."""

    def given_up(_: RetryCallState) -> bool:
        return interruption.cause in {Cause.SUPERSEDED, Cause.TIMEOUT}

    return await _retried(write, stop=given_up)


async def _retried(write: Callable[[], Awaitable[T]], *, stop: Callable[[RetryCallState], bool] | Any) -> T:
    retrying = AsyncRetrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        wait=wait_random_exponential(multiplier=0.1, max=2.0),
        stop=stop,
        reraise=True,
    )
    return await retrying(shielded, write)


async def shielded(write: Callable[[], Awaitable[T]]) -> T:
    """Await a write to its end, even when cancelled meanwhile; the cancellation is raised then (F5)."""
    task = asyncio.ensure_future(write())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        raise


def _events(wrapped: Wrapped) -> tuple[NewEvent, ...]:
    if wrapped.left is None:
        return (_event(wrapped),)
    return _event(wrapped), events.continued(wrapped.frontier.execution, wrapped.left)


def _event(wrapped: Wrapped) -> NewEvent:
    frontier = wrapped.frontier
    data: dict[str, Any] = {"sequence": frontier.sequence, "iteration": frontier.iteration}
    if frontier.calls:
        data["calls"] = [call.tool for call in frontier.calls]
    if wrapped.detail:
        data["detail"] = wrapped.detail
    return NewEvent(wrapped.turnover if wrapped.turnover is not Turnover.ON else frontier.boundary, data)
