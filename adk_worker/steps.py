"""One message of the queue, carried out: take, iterate, hand over, dispatch.

This is all that a Celery task of the fleet does; the task itself only finds its process's :class:`Stepper`. Every way
out of a step leaves the lease with the queue, free with a run that rests, or with whoever superseded this worker; only
where the store is away does it stay, to lapse.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from adk_worker.agent import Agent
from adk_worker.approvals.requests import EXPIRES_IN
from adk_worker.checkpoint import Checkpoint
from adk_worker.continuation import DEFAULT_CONTINUATION, ContinuationPolicy
from adk_worker.deployment import CONFLICTS, accepted
from adk_worker.errors import (
    CheckpointFormatError,
    HistoryUnavailableError,
    ModelUnavailableError,
    SealKeyMissingError,
    StaleFenceError,
    StoreUnavailableError,
)
from adk_worker.history import Handle
from adk_worker.idempotency import resume_claims
from adk_worker.interruption import Cause, Interrupted, Interruption
from adk_worker.iteration import Iteration, IterationEnd, Waiting
from adk_worker.lease import RunLease
from adk_worker.ledger.spending import Spending
from adk_worker.liveness import Holder
from adk_worker.log import get_logger
from adk_worker.messages import Message
from adk_worker.providers import Providers
from adk_worker.redaction.masking import Masker, Redactor
from adk_worker.registry import Registry
from adk_worker.results import MAX_RESULT_BYTES, text_of
from adk_worker.runs import Committed, Dispatch, Run, Stores, Taken
from adk_worker.scribes.fleet import FleetScribe, certain, shielded
from adk_worker.surroundings import Surroundings
from adk_worker.transitions.runs import Attention, FleetPolicy, Reason, Verdict

_LONGEST_TRACEBACK: Final = 50_000
"""In characters. A longer one is told without the error's own words, which are what makes it long."""

_log = get_logger(__name__)


class Dispatcher(Protocol):
    """Publishes messages. Called after the commit that made the ticket, never before."""

    async def dispatch(self, message: Dispatch) -> None:
        """Publish. An error is logged by the caller and mended by the reaper."""
        ...


class LeaseWatch(Protocol):
    """What a step needs of its process's keeper."""

    def enter(self, lease: RunLease, interruption: Interruption, *, since: float) -> None:
        """Renew ``lease`` from now on; tell the work to stop if it is lost, or its run cancelled, or on a drain.

        ``since`` is ``time.monotonic()`` before the lease was asked for: it can have been granted no earlier (L9).
        """
        ...

    def leave(self, lease: RunLease) -> None:
        """Renew it no more. Harmless for a lease that is not kept."""
        ...


class StepEnd(StrEnum):
    """What came of a message."""

    DUPLICATE = "duplicate"
    HANDED_OVER = "handed_over"
    COMPLETED = "completed"
    FAILED = "failed"
    PARKED = "parked"
    WAITING_APPROVAL = "waiting_approval"
    CANCELLED = "cancelled"
    GIVEN_BACK = "given_back"
    SUPERSEDED = "superseded"
    STORE_AWAY = "store_away"
    """The store did not answer for as long as the lease could be live; the reaper recovers the run."""


@dataclass(frozen=True, slots=True)
class _Back:
    """Why a step gives its run back without a boundary."""

    reason: Reason
    detail: str
    attention: Attention | None = None
    delay: float | None = None


@dataclass(slots=True)
class _Said:
    """What is needed to tell of a step. ``masker`` masks it: the submit's, then the frontier's once that is read."""

    masker: Masker
    spending: Spending
    """What is known of its model calls."""


class Stepper:
    """Carries out messages in one process. Its steps run concurrently, all in the event loop that calls them."""

    def __init__(  # noqa: PLR0913 - each part of the composition, once
        self,
        *,
        stores: Stores,
        registry: Registry,
        dispatcher: Dispatcher,
        watch: LeaseWatch,
        policy: FleetPolicy,
        checkpoint_max_bytes: int,
        tool_executor: Executor,
        providers: Providers | None = None,
        redactor: Redactor | None = None,
        tool_result_max_bytes: int = MAX_RESULT_BYTES,
        continuation: ContinuationPolicy = DEFAULT_CONTINUATION,
        approval_expires: float = EXPIRES_IN,
    ) -> None:
        self._stores = stores
        self._registry = registry
        self._dispatcher = dispatcher
        self._watch = watch
        self._policy = policy
        self._max_bytes = checkpoint_max_bytes
        self._executor = tool_executor
        self._providers = providers or Providers()
        self._redactor = redactor or Redactor()
        self._max_result_bytes = tool_result_max_bytes
        self._continuation = continuation
        self._approval_expires = approval_expires
        self._late: set[asyncio.Task[None]] = set()

    async def step(self, message: Dispatch, *, label: str) -> StepEnd:
        """Carry out one message under a lease of its own. ``label`` names the task in the holder's name.

        Raises nothing but ``CancelledError``: whatever goes wrong is in the run's row, or in the log.
        """
        log = _log.bind(tenant=message.tenant, run_id=message.run_id, ticket=message.ticket)
        asked_at = time.monotonic()
        try:
            taken = await self._take(message, str(Holder.new(label)))
        except StoreUnavailableError as error:
            log.warning("step_not_taken", error=str(error))
            return StepEnd.STORE_AWAY
        if taken is None:
            log.info("step_duplicate")
            return StepEnd.DUPLICATE
        interruption = Interruption()
        self._watch.enter(taken.lease, interruption, since=asked_at)
        try:
            end, ticket = await self._carry(taken, interruption)
        except StaleFenceError as error:
            end, ticket = StepEnd.SUPERSEDED, None
            log.warning("step_superseded", presented=error.presented, current=error.current)
        except StoreUnavailableError as error:
            end, ticket = StepEnd.STORE_AWAY, None
            log.warning("step_store_away", error=str(error))
        finally:
            self._watch.leave(taken.lease)
        if ticket is not None:
            await self._dispatch(Dispatch(message.tenant, message.run_id, ticket))
        log.info("step_ended", end=end.value, fence=taken.lease.fence)
        return end

    async def settle_late(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds for calls that outlived their time-out to record what came of them (F4)."""
        if self._late:
            await asyncio.wait(set(self._late), timeout=timeout)

    async def _take(self, message: Dispatch, holder: str) -> Taken | None:
        runs = self._stores.runs

        async def take() -> Taken | None:
            return await runs.take(
                message.run_id,
                tenant=message.tenant,
                ticket=message.ticket,
                holder=holder,
                ttl_seconds=self._policy.lease_ttl,
            )

        try:
            return await shielded(take)
        except StoreUnavailableError:
            # The answer may be lost and the lease ours: the holder's name is nobody else's, so it tells (F5).
            held = await runs.held_by(message.run_id, tenant=message.tenant, holder=holder)
            if held is None:
                raise
            return held

    async def _carry(self, taken: Taken, interruption: Interruption) -> tuple[StepEnd, int | None]:
        said = _Said(self._first_masker(taken.run), Spending(limited=taken.limited))
        try:
            return await self._advance(taken, interruption, said)
        except (StaleFenceError, StoreUnavailableError):
            raise
        except HistoryUnavailableError as error:
            return await self._park(taken, interruption, Attention.HISTORY_UNAVAILABLE, str(error))
        except SealKeyMissingError as error:
            return await self._park(taken, interruption, Attention.SEAL_KEY_MISSING, str(error))
        except Interrupted as interrupted:
            if interrupted.cause is Cause.SUPERSEDED:
                return StepEnd.SUPERSEDED, None
            back = _interrupted(interrupted.cause, draining=interruption.draining)
            return await self._give_back(taken, interruption, back, said)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes back to the queue, and it counts
            back = _back(error)
            _tell(taken.run, back, error, said.masker)
            return await self._give_back(taken, interruption, back, said)

    def _first_masker(self, run: Run) -> Masker:
        try:
            return self._masker(run, run.masks)
        except CheckpointFormatError:  # a newer version's; what is said of the run is still masked
            return self._redactor.masker()

    def _masker(self, run: Run, state: Mapping[str, Any]) -> Masker:
        return self._redactor.masker(state, of=(run.tenant, run.run_id))

    async def _advance(self, taken: Taken, interruption: Interruption, said: _Said) -> tuple[StepEnd, int | None]:
        run, lease = taken.run, taken.lease
        agent, stored = accepted(run, taken.payload, self._registry)
        frontier, handle = await certain(lambda: self._resolved(run, agent, stored), interruption)
        said.masker = masker = self._masker(run, frontier.masks)
        masker.check_seals()
        scribe = FleetScribe(
            self._stores,
            lease,
            interruption,
            handle=handle,
            policy=self._policy,
            max_bytes=self._max_bytes,
            spending=said.spending,
        )
        surroundings = Surroundings(
            agent=agent,
            provider=self._providers.resolve(agent.model),
            scribe=scribe,
            masker=masker,
            interruption=interruption,
            executor=self._executor,
            keep_late=self._keep_late,
            max_result_bytes=self._max_result_bytes,
            continuation=self._continuation,
            approval_expires=self._approval_expires,
            spending=said.spending,
        )
        resuming = bool(frontier.calls)
        if resuming:
            await certain(lambda: self._claim_resume(lease), interruption)
        try:
            iterated = await Iteration(surroundings).run(frontier)
            # A frontier over the cap is in this worker's memory alone: it carries on in the same task (C3).
            while iterated.end is IterationEnd.KEPT:
                iterated = await Iteration(surroundings).run(iterated.frontier)
        finally:
            if resuming:
                await self._end_resume(lease)
        return StepEnd(iterated.end.value), scribe.ticket

    async def _resolved(self, run: Run, agent: Agent, frontier: Checkpoint | None) -> tuple[Checkpoint, Handle]:
        """The frontier with its transcript, and the handle of what is stored of that."""
        if frontier is None:
            first = Checkpoint(
                tenant=run.tenant,
                run_id=run.run_id,
                agent=run.agent,
                revision=agent.revision,
                sequence=run.sequence,
                messages=(Message.user(run.input),),
                metadata=run.metadata,
                masks=run.masks,
            )
            return first, Handle.empty(run.run_id)
        if frontier.history_handle is None:
            return frontier, Handle.empty(run.run_id)
        messages = await self._stores.history.fetch(frontier.history_handle, tenant=run.tenant)
        if messages is None:
            raise HistoryUnavailableError(handle=frontier.history_handle, reason="the store has no such transcript")
        return frontier.updated(messages=messages), Handle.parse(frontier.history_handle)

    async def _claim_resume(self, lease: RunLease) -> None:
        claims = resume_claims(self._stores.idempotency)
        if claims is not None:
            await claims.claim_resume(lease.run_id, tenant=lease.tenant, owner=lease.holder, fence=lease.fence)

    async def _end_resume(self, lease: RunLease) -> None:
        claims = resume_claims(self._stores.idempotency)
        if claims is not None:
            try:
                await claims.end_resume(lease.run_id, tenant=lease.tenant, owner=lease.holder)
            except StoreUnavailableError as error:
                # It expires by itself, and a higher fence replaces it before that (I9).
                _log.warning("resume_claim_left", run_id=lease.run_id, error=str(error))

    async def _park(
        self, taken: Taken, interruption: Interruption, attention: Attention, detail: str
    ) -> tuple[StepEnd, int | None]:
        committed = await certain(
            lambda: self._stores.runs.park(taken.lease, attention=attention, detail=detail), interruption
        )
        return StepEnd.CANCELLED if committed.verdict is Verdict.CANCELLED else StepEnd.PARKED, None

    async def _give_back(
        self, taken: Taken, interruption: Interruption, back: _Back, said: _Said
    ) -> tuple[StepEnd, int | None]:
        masked = said.masker.text(back.detail)

        async def give_back() -> Committed:
            return await self._stores.runs.give_back(
                taken.lease,
                reason=back.reason,
                detail=masked,
                policy=self._policy,
                attention=back.attention,
                delay=back.delay,
                asked=said.spending.asked,
            )

        committed = await certain(give_back, interruption)
        ends = {Verdict.CANCELLED: StepEnd.CANCELLED, Verdict.PARKED: StepEnd.PARKED}
        return ends.get(committed.verdict, StepEnd.GIVEN_BACK), committed.ticket

    async def _dispatch(self, message: Dispatch) -> None:
        try:
            await self._dispatcher.dispatch(message)
        except Exception as error:  # noqa: BLE001 - the ticket is in the store: the reaper publishes it again
            _log.warning("dispatch_failed", run_id=message.run_id, ticket=message.ticket, error=text_of(error))

    def _keep_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        task.add_done_callback(self._late.discard)


def _tell(run: Run, back: _Back, error: Exception, masker: Masker) -> None:
    told = {"detail": masker.text(back.detail)}
    if back.reason is Reason.EXCEPTION:
        # Not as exc_info: what prints that would print the error's own words, which nobody has masked (R1).
        told["exception"] = masker.text(_traceback(error))
    _log.warning("step_gave_back", tenant=run.tenant, run_id=run.run_id, **told)


def _interrupted(cause: Cause, *, draining: bool) -> _Back:
    if cause is Cause.TIMEOUT and not draining:
        return _Back(Reason.EXCEPTION, "the iteration took longer than ADK_ITERATION_TIMEOUT", Attention.EXCEPTION)
    # A cancel ends the run in the give-back's own write (P2).
    return _Back(Reason.DRAIN, "the worker is leaving")


def _traceback(error: Exception) -> str:
    whole = "".join(traceback.format_exception(error))
    return whole if len(whole) <= _LONGEST_TRACEBACK else "".join(traceback.format_tb(error.__traceback__))


def _back(error: Exception) -> _Back:
    if isinstance(error, Waiting):
        detail = f"waiting to ask about a call again: {error.undecided.detail}"
        return _Back(Reason.CONFLICT, detail, Attention.UNDECIDED_CALL, delay=error.seconds)
    if isinstance(error, ModelUnavailableError):
        return _Back(Reason.CONFLICT, str(error), Attention.MODEL_UNAVAILABLE, delay=error.retry_after or None)
    for kind, attention in CONFLICTS.items():
        if isinstance(error, kind):
            return _Back(Reason.CONFLICT, str(error), attention)
    return _Back(Reason.EXCEPTION, text_of(error), Attention.EXCEPTION)
