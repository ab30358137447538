"""The scribe of a run in process: lone stores, each of which may be missing, and a checkpoint that may fail (C3)."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from adk_worker.approvals.answers import ApprovalDecision
from adk_worker.approvals.asking import asked_digest, asked_key, needs_person
from adk_worker.approvals.requests import ApprovalRequest, Approvals, RequestState
from adk_worker.approvals.store import Asked
from adk_worker.checkpoint import Checkpoint, Checkpointer, OutstandingCall
from adk_worker.errors import ClaimOwnerError, StaleFenceError
from adk_worker.history import Handle, HistoryStore
from adk_worker.idempotency import Claim, IdempotencyStore, Intent, mark_key
from adk_worker.lease import RunLease
from adk_worker.ledger.booking import Reservation
from adk_worker.ledger.spending import Spending
from adk_worker.memory.lone_ledgers import MemoryLedgers
from adk_worker.outcomes import ToolOutcome
from adk_worker.scribes.port import Standing, Turnover, Wrapped
from adk_worker.transitions.runs import Attention


class LocalScribe:
    """Writes for one run in process. Without an idempotency store calls have no keys (I6).

    A checkpoint that cannot be written is the checkpointer's ``last_error`` and nothing more. While memory is ahead of
    what is stored, the mark is set before anything is dispatched, as a claim of its own that the next stored checkpoint
    takes back: no mark, no dispatch (C3).
    """

    def __init__(  # noqa: PLR0913 - what there is, and what is left out is not there
        self,
        *,
        tenant: str,
        run_id: str,
        owner: str,
        checkpoints: Checkpointer | None,
        idempotency: IdempotencyStore | None,
        history: HistoryStore | None,
        handle: Handle | None = None,
        lease: RunLease | None = None,
        decisions: Mapping[str, ApprovalDecision] = MappingProxyType({}),
        ledgers: MemoryLedgers | None = None,
        spending: Spending | None = None,
    ) -> None:
        self._tenant = tenant
        self._run_id = run_id
        self._owner = owner
        self._checkpoints = checkpoints
        self._idempotency = idempotency
        self._history = history
        self._handle = handle or Handle.empty(run_id)
        self._lease = lease
        self._decisions = decisions
        self._ledgers = ledgers
        self._spending = spending or Spending()
        self._attempt = ledgers.attempt() if ledgers else 0
        self._ahead = False
        self._mark: Claim | None = None
        self.rests: tuple[Attention, str] | None = None
        """Why the run was parked here, if it was."""

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def fence(self) -> int | None:
        return self._lease.fence if self._lease else None

    @property
    def keyed(self) -> bool:
        return self._idempotency is not None

    @property
    def now(self) -> float | None:
        return None

    async def reserve(self, asked: Reservation) -> tuple[Standing, str | None]:
        if self._ledgers is None:
            return Standing.KEPT, None
        asked = replace(asked, fence=self._attempt)
        refusal = self._ledgers.reserve(self._run_id, tenant=self._tenant, asked=asked)
        if refusal is None:
            return Standing.KEPT, None
        why = refusal.reason(tenant=self._tenant)
        self.rests = Attention.OVER_BUDGET, why
        return Standing.LEFT, why

    def _settle(self) -> None:
        charge = self._spending.charge
        if self._ledgers is not None and charge is not None:
            self._ledgers.settle(self._run_id, tenant=self._tenant, charge=charge, attempt=self._attempt)
        self._spending.booked()

    def leave(self) -> None:
        """Let go of the run, also where a model call was cut off."""
        if self._ledgers is not None:
            self._ledgers.leave(self._run_id, tenant=self._tenant, asked=self._spending.asked)

    async def boundary(self, wrapped: Wrapped) -> Standing:
        self._settle()
        for claim, outcome in wrapped.settled:
            await self.record(claim, outcome)
        if self._checkpoints is not None:
            self._ahead = not await self._write(wrapped, self._checkpoints)
            if not self._ahead:
                await self._unmark()
        if wrapped.attention is not None:
            self.rests = wrapped.attention, wrapped.detail or ""
        return Standing.KEPT if wrapped.turnover is Turnover.ON else Standing.LEFT

    async def _store(self, frontier: Checkpoint, checkpoints: Checkpointer) -> bool:
        stored = frontier
        if self._history is not None and frontier.boundary in checkpoints.policy.boundaries:
            try:
                stored = frontier.updated(messages=(), history_handle=await self._append(frontier, self._history))
            except Exception as error:  # noqa: BLE001 - a transcript that is not stored is a checkpoint that is not (C3)
                checkpoints.last_error = error
                _stop_if_superseded(error)
                return False
        written = await checkpoints.write(stored, fence=self.fence)
        _stop_if_superseded(checkpoints.last_error)
        return written

    async def _write(self, wrapped: Wrapped, checkpoints: Checkpointer) -> bool:
        """Store the frontier, or let go of it where the run is over; whether what is stored is current now (C3)."""
        if wrapped.turnover is not Turnover.COMPLETE:
            return await self._store(wrapped.frontier, checkpoints)
        gone = await checkpoints.forget(self._run_id, tenant=self._tenant, fence=self.fence)
        _stop_if_superseded(checkpoints.last_error)
        return gone

    async def _append(self, frontier: Checkpoint, history: HistoryStore) -> str:
        new = frontier.messages[self._handle.count :]
        if new:
            handle = await history.append(
                self._run_id,
                tenant=self._tenant,
                start=self._handle.count,
                messages=new,
                fence=self.fence,
                after=str(self._handle),
            )
            self._handle = Handle.parse(handle)
        return str(self._handle)

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        return {} if self._idempotency is None else await self._idempotency.peek(keys, tenant=tenant)

    async def approvals(self, frontier: Checkpoint) -> Asked:
        """What the caller has decided, and what was: a call that has a claim was approved before it was begun."""
        waiting = [call for call in frontier.calls if needs_person(call)]
        claims = await self.peek([call.key for call in waiting if call.key is not None], tenant=self._tenant)
        requests = [self._answered(call, claims.get(call.key or "")) for call in waiting]
        return Asked(0.0, Approvals(tuple(request for request in requests if request is not None)))

    def _answered(self, call: OutstandingCall, claim: Claim | None) -> ApprovalRequest | None:
        decision = self._decisions.get(call.call_id)
        if decision is None and claim is None:
            return None
        approved = claim is not None or (decision is not None and decision.approved)
        return ApprovalRequest(
            request_id=call.call_id,
            call_id=call.call_id,
            key=asked_key(call),
            tool=call.tool,
            digest=asked_digest(call),
            arguments={},
            approvers=(),
            asked_at=0.0,
            expires_at=0.0,
            state=RequestState.APPROVED if approved else RequestState.DENIED,
            answered_by=None if decision is None else decision.by,
            reason=None if decision is None else decision.reason,
        )

    async def begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:
        if self._idempotency is None:
            return Standing.KEPT, ()
        if self._ahead and self._mark is None:
            key = mark_key(tenant=self._tenant, run_id=self._run_id)
            digest = hashlib.sha256(key.encode()).hexdigest()
            self._mark = await self._idempotency.begin(key, tenant=self._tenant, owner=self._owner, digest=digest)
        return Standing.KEPT, [await self._begin(intent, self._idempotency) for intent in intents]

    async def _begin(self, intent: Intent, idempotency: IdempotencyStore) -> Claim:
        claim = await idempotency.begin(intent.key, tenant=self._tenant, owner=self._owner, digest=intent.digest)
        if intent.take_over is not None and claim.open_after(intent.take_over):
            return await idempotency.take_over(claim, self._owner)
        return claim

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        if self._idempotency is not None:
            await self._idempotency.record(claim, outcome)

    async def abandon(self, claim: Claim) -> None:
        if self._idempotency is not None:
            with contextlib.suppress(ClaimOwnerError):
                await self._idempotency.abandon(claim)

    async def settle(self, claim: Claim, outcome: ToolOutcome, *, by: str) -> None:
        # A lone store has no settlement by others: taking the claim over first leaves the same trace of who owned it.
        if self._idempotency is not None:
            owned = claim
            if claim.owner != self._owner:
                owned = await self._idempotency.take_over(claim, self._owner)
            await self._idempotency.record(owned, outcome)

    async def note_dead(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        # A lone store keeps no time of death, so "not yet" never permits a call in process (I7).
        return claims

    async def park(self, *, attention: Attention, detail: str, undecided: Sequence[Claim] = ()) -> Standing:
        if undecided and self._idempotency is not None:
            stand = await self._idempotency.peek([claim.key for claim in undecided], tenant=self._tenant)
            if any((now := stand[claim.key]) is None or not now.in_flight for claim in undecided):
                return Standing.KEPT
        self.rests = attention, detail
        return Standing.LEFT

    async def fail(self, *, detail: str) -> Standing:
        return Standing.LEFT

    async def _unmark(self) -> None:
        if self._mark is not None and self._idempotency is not None:
            await self._idempotency.abandon(self._mark)
            self._mark = None


def _stop_if_superseded(error: Exception | None) -> None:
    """A refused fence is no failure to be kept: somebody else carries the run on (F1)."""
    if isinstance(error, StaleFenceError):
        raise error
