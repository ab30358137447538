"""Runs in process: :class:`AgentRunner` drives the same iterations as the fleet, with nothing else running."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Self

from adk_worker.actors import Actor
from adk_worker.agent import Agent
from adk_worker.approvals.answers import ApprovalDecision
from adk_worker.approvals.asking import check_decisions, waiting_for
from adk_worker.approvals.requests import NewRequest
from adk_worker.checkpoint import Checkpoint, Checkpointer
from adk_worker.continuation import DEFAULT_CONTINUATION, ContinuationPolicy
from adk_worker.errors import (
    ConfigurationError,
    IndeterminateToolCallError,
    LeaseLostError,
    NoCheckpointError,
    ResumeConflictError,
    RevisionMismatchError,
    RunExistsError,
    StoreUnavailableError,
)
from adk_worker.history import Handle, HistoryStore
from adk_worker.idempotency import Claim, IdempotencyStore, ResumeClaims, resume_claims
from adk_worker.inspection import Inspection
from adk_worker.interruption import Interrupted, Interruption
from adk_worker.iteration import Iterated, Iteration, IterationEnd
from adk_worker.keeping.leaseholder import Leaseholder
from adk_worker.lease import LeasePolicy, LeaseStore, RunLease
from adk_worker.ledger.amounts import Budget
from adk_worker.ledger.spending import Spending
from adk_worker.liveness import Holder
from adk_worker.log import get_logger
from adk_worker.memory.lone_ledgers import MemoryLedgers
from adk_worker.messages import Message, Usage
from adk_worker.model import ModelProvider
from adk_worker.names import check_run
from adk_worker.providers import ModelPolicy, Providers
from adk_worker.redaction.masking import Redactor
from adk_worker.resumer import Carried, read_frontier
from adk_worker.runs import RunStatus
from adk_worker.scribes.local import LocalScribe
from adk_worker.settling.deciding import Word, done, meant
from adk_worker.settling.settlement import UNSAID, takes_decisions
from adk_worker.surroundings import Surroundings
from adk_worker.transitions.runs import Attention

DEFAULT_TOOL_THREADS: Final = 8

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RunResult:
    """Where a run in process stands when its runner returns. ``detail`` says why it failed or rests, for people."""

    tenant: str
    run_id: str
    status: RunStatus
    output: str | None
    iteration: int
    sequence: int
    usage: Usage
    cost_micros: int
    messages: tuple[Message, ...]
    attention: Attention | None = None
    detail: str | None = None
    execution: int = 1
    asked: tuple[NewRequest, ...] = ()
    """What people are to decide before the run can go on (P1)."""


@dataclass(frozen=True, slots=True)
class _Held:
    """What a run is driven under: its interruption, and its lease where there is one."""

    interruption: Interruption
    owner: str
    lease: RunLease | None = None


class AgentRunner:
    """Drives runs to their end in this process.

    Whatever is left out is not there: without ``checkpoints`` nothing can be resumed, without ``idempotency`` calls
    have no keys and an interrupted one is indeterminate (I6), without ``leases`` nothing keeps two processes apart but
    the claim of a resume (I9).

    :param provider: makes the model calls; by default whatever the agent's ``model`` names.
    :param models: how the calls of real models are made, where ``provider`` or the agent does not say.
    :param redactor: masks what enters the run (R1); ``Redactor(enabled=False)`` leaves everything as it is, and one
        with ``seal_keys`` keeps the originals for the tools (R2).
    :param ledgers: what runs may spend, and what they have; it lives as long as this process, and so do its limits.
        Without it a run has no budget.
    :param tool_threads: how many sync tools run at once.
    :param continuation: when a run crosses into a new execution (K1).

    A runner that makes calls of real models keeps their connections; ``async with`` gives them back, as does
    :meth:`close`.
    """

    def __init__(  # noqa: PLR0913 - what there is, and what is left out is not there
        self,
        *,
        provider: ModelProvider | None = None,
        idempotency: IdempotencyStore | None = None,
        checkpoints: Checkpointer | None = None,
        history: HistoryStore | None = None,
        leases: LeaseStore | None = None,
        lease_policy: LeasePolicy | None = None,
        models: ModelPolicy | None = None,
        redactor: Redactor | None = None,
        ledgers: MemoryLedgers | None = None,
        tool_threads: int = DEFAULT_TOOL_THREADS,
        continuation: ContinuationPolicy = DEFAULT_CONTINUATION,
    ) -> None:
        self._provider = provider
        self._providers = Providers(models)
        self._idempotency = idempotency
        self._checkpoints = checkpoints
        self._history = history
        self._leases = leases
        self._lease_policy = lease_policy or LeasePolicy()
        self._ledgers = ledgers
        self._redactor = redactor or Redactor()
        self._continuation = continuation
        # Threads are started by the first sync tool, and idle ones end with the interpreter.
        self._executor = ThreadPoolExecutor(tool_threads, thread_name_prefix="adk-tool")
        self._late: set[asyncio.Task[None]] = set()
        self._resuming: set[tuple[str, str]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give back the connections to models that runs in this event loop have opened."""
        await self._providers.close()

    async def run(
        self,
        agent: Agent,
        input: str,  # noqa: A002 - the name that callers read best
        *,
        tenant: str,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> RunResult:
        """Start a run and drive it until it ends or rests.

        One that is over its ``budget`` is parked before the model call that it does not allow, and goes on when it is
        resumed after :meth:`MemoryLedgers.change` (P3).

        :raises RunExistsError: a frontier is stored under that name: resume it.
        :raises RunLeaseError: somebody else holds the lease (L5).
        :raises IndeterminateToolCallError: it is not known whether a call happened; the frontier is kept (I5).
        :raises LeaseLostError: the lease was lost on the way; whoever has it now carries the run on.
        :raises StaleFenceError: the same, found out by a write.
        :raises ModelError: a model call failed for now; the frontier is kept, to be resumed.
        """
        run_id = run_id if run_id is not None else uuid.uuid4().hex
        check_run(tenant, run_id)
        if budget is not None and self._ledgers is None:
            raise ConfigurationError("to give a run a budget, give AgentRunner(ledgers=MemoryLedgers()).")
        masker = self._redactor.masker(of=(tenant, run_id))
        frontier = Checkpoint(
            tenant=tenant,
            run_id=run_id,
            agent=agent.name,
            revision=agent.revision,
            messages=(Message.user(masker.text(input)),),
            metadata=masker.json(dict(metadata or {})),
            masks=masker.state(),
        )
        async with self._holding(tenant, run_id, label="run") as held:
            if self._checkpoints is not None:
                stored = await self._checkpoints.latest(run_id, tenant=tenant)
                if stored is not None:
                    raise RunExistsError(tenant=tenant, run_id=run_id, agent=stored.agent)
            if budget is not None and self._ledgers is not None:
                self._ledgers.limit(run_id, tenant=tenant, budget=budget)
            return await self._drive(agent, frontier, held, stored=Handle.empty(run_id))

    async def resume(
        self,
        agent: Agent,
        run: str | Carried,
        *,
        tenant: str | None = None,
        decisions: Mapping[str, ApprovalDecision] = MappingProxyType({}),
    ) -> RunResult:
        """Carry a run on from its stored frontier: by its id and ``tenant``, or as a :class:`Resumer` carried it.

        Completed calls are replayed and those that never ran are made; a call that nobody can decide is refused.
        A carried run's lease is released when this returns.

        A run that waits for approvals goes on once all that it asked (:attr:`RunResult.asked`) is decided here, by
        ``decisions``, whose keys are the calls' ids; being resumed without them is no approval (P1). What is decided
        is kept nowhere but with the calls that it lets be made.

        :raises ApprovalRefusedError: a decision is about a call that does not wait, or about other arguments.
        :raises NotAllowedError: it is not theirs to decide.
        :raises NoCheckpointError: nothing is stored under that name.
        :raises RevisionMismatchError: the run was begun by another revision of the agent (C7).
        :raises ResumeConflictError: another resume of the run is under way (I9).
        :raises SealKeyMissingError: what the run has sealed does not open with the redactor's keys (R2).

        and whatever :meth:`run` and :meth:`Resumer.resume` raise.
        """
        if isinstance(run, Carried):
            async with run:
                lease = run.lease
                held = _Held(run.leaseholder.interruption, lease.holder, lease)
                async with self._resume_claim(lease.tenant, lease.run_id, held):
                    return await self._resume(agent, run.checkpoint, held, decisions)
        if self._checkpoints is None or tenant is None:
            missing = "tenant=…" if tenant is None else "AgentRunner(checkpoints=…)"
            raise ConfigurationError(f"to resume a run by its id, give {missing}.")
        check_run(tenant, run)
        async with self._holding(tenant, run, label="resume") as held, self._resume_claim(tenant, run, held):
            frontier = await read_frontier(
                run,
                tenant=tenant,
                checkpoints=self._checkpoints,
                idempotency=self._idempotency,
                history=self._history,
            )
            return await self._resume(agent, frontier, held, decisions)

    async def settle(  # noqa: PLR0913 - what has to be said, each by its name
        self,
        agent: Agent,
        run_id: str,
        call: str,
        *,
        tenant: str,
        completed: object = UNSAID,
        never_ran: bool = False,
        why: str,
        by: str,
        owner_may_live: bool = False,
    ) -> Claim:
        """Settle a call that :meth:`resume` has refused to guess at; as :meth:`Fleet.settle`, for runs in process.

        The parameters and what is raised are the same. Nothing is carried on: resume the run.

        :raises NoCheckpointError: nothing is stored under that name.
        :raises ConfigurationError: there is no store of checkpoints, or none of claims that takes decisions.
        """
        word = Word.given(completed=completed, never_ran=never_ran, why=why, owner_may_live=owner_may_live)
        actor = Actor.here(by)
        store = takes_decisions(self._idempotency)
        if self._checkpoints is None or store is None or self._idempotency is None:
            missing = "checkpoints" if self._checkpoints is None else "idempotency"
            raise ConfigurationError(f"to settle a call, give AgentRunner({missing}=…) a store that can keep it.")
        frontier = await self._checkpoints.latest(run_id, tenant=tenant)
        if frontier is None:
            raise NoCheckpointError(tenant=tenant, run_id=run_id)
        keys = [one.key for one in frontier.calls if one.key is not None]
        stand = await self._idempotency.peek(keys, tenant=tenant)
        found = Inspection(tenant, run_id, None, frontier=frontier, agent=agent)
        target = meant(call, found, [claim for claim in stand.values() if claim is not None])
        masker = self._redactor.masker(target.masks, of=(tenant, run_id))
        return done(await store.decide(target.claim, target.asked(word, by=actor, masker=masker))).claim

    async def _resume(
        self, agent: Agent, frontier: Checkpoint, held: _Held, decisions: Mapping[str, ApprovalDecision]
    ) -> RunResult:
        if (frontier.agent, frontier.revision) != (agent.name, agent.revision):
            raise RevisionMismatchError(agent=frontier.agent, pinned=frontier.revision, registered=(agent.revision,))
        handle = frontier.history_handle
        stored = Handle.empty(frontier.run_id) if handle is None else Handle.parse(handle)
        check_decisions(frontier, agent, decisions)
        return await self._drive(agent, frontier, held, stored=stored, decisions=decisions)

    @asynccontextmanager
    async def _holding(self, tenant: str, run_id: str, *, label: str) -> AsyncIterator[_Held]:
        owner = str(Holder.new(label))
        if self._leases is None:
            yield _Held(Interruption(), owner)
            return
        async with Leaseholder(
            self._leases, run_id, tenant=tenant, holder=owner, policy=self._lease_policy
        ) as leaseholder:
            yield _Held(leaseholder.interruption, owner, leaseholder.lease)

    @asynccontextmanager
    async def _resume_claim(self, tenant: str, run_id: str, held: _Held) -> AsyncIterator[None]:
        """At most one resume at a time: in the store if it can keep such claims, in this runner in any case (I9)."""
        if (tenant, run_id) in self._resuming:
            raise ResumeConflictError(tenant=tenant, run_id=run_id)
        claims = resume_claims(self._idempotency)
        self._resuming.add((tenant, run_id))
        try:
            if claims is not None:
                fence = held.lease.fence if held.lease else None
                await claims.claim_resume(run_id, tenant=tenant, owner=held.owner, fence=fence)
            try:
                yield
            finally:
                if claims is not None:
                    await _end_resume(claims, run_id, tenant=tenant, owner=held.owner)
        finally:
            self._resuming.discard((tenant, run_id))

    async def _drive(
        self,
        agent: Agent,
        frontier: Checkpoint,
        held: _Held,
        *,
        stored: Handle,
        decisions: Mapping[str, ApprovalDecision] = MappingProxyType({}),
    ) -> RunResult:
        limits = self._ledgers.get(frontier.run_id, tenant=frontier.tenant).limits if self._ledgers else Budget()
        spending = Spending(limited=limits.limited)
        scribe = LocalScribe(
            tenant=frontier.tenant,
            run_id=frontier.run_id,
            owner=held.owner,
            checkpoints=self._checkpoints,
            idempotency=self._idempotency,
            history=self._history,
            handle=stored,
            lease=held.lease,
            decisions=decisions,
            ledgers=self._ledgers,
            spending=spending,
        )
        masker = self._redactor.masker(frontier.masks, of=(frontier.tenant, frontier.run_id))
        masker.check_seals()
        iteration = Iteration(
            Surroundings(
                agent=agent,
                provider=self._providers.resolve(self._provider or agent.model),
                scribe=scribe,
                masker=masker,
                interruption=held.interruption,
                executor=self._executor,
                keep_late=self._keep_late,
                continuation=self._continuation,
                spending=spending,
            )
        )
        iterated = Iterated(frontier, IterationEnd.KEPT)
        try:
            while iterated.end is IterationEnd.KEPT:
                iterated = await iteration.run(iterated.frontier)
        except Interrupted as interrupted:
            fence = held.lease.fence if held.lease else 0
            raise LeaseLostError(
                tenant=frontier.tenant, run_id=frontier.run_id, fence=fence, reason=interrupted.cause.value
            ) from None
        finally:
            scribe.leave()
        return _result(iterated, scribe.rests, agent)

    def _keep_late(self, task: asyncio.Task[None]) -> None:
        self._late.add(task)
        task.add_done_callback(self._late.discard)


async def _end_resume(claims: ResumeClaims, run_id: str, *, tenant: str, owner: str) -> None:
    try:
        await claims.end_resume(run_id, tenant=tenant, owner=owner)
    except StoreUnavailableError as error:
        # It expires by itself (I9), and what came of the run is not to be lost over it.
        _log.warning("resume_claim_left", run_id=run_id, error=str(error))


def _result(iterated: Iterated, rests: tuple[Attention, str] | None, agent: Agent) -> RunResult:
    frontier = iterated.frontier
    if iterated.undecided is not None:
        calls = tuple((p.call.call_id, p.call.tool, p.call.key) for p in iterated.undecided.calls)
        raise IndeterminateToolCallError(tenant=frontier.tenant, run_id=frontier.run_id, calls=calls)
    return RunResult(
        tenant=frontier.tenant,
        run_id=frontier.run_id,
        status=RunStatus(iterated.end.value),
        output=frontier.output,
        iteration=frontier.iteration,
        sequence=frontier.sequence,
        execution=frontier.execution,
        usage=frontier.usage,
        cost_micros=frontier.cost_micros,
        messages=frontier.messages,
        attention=rests[0] if rests else None,
        detail=iterated.detail,
        asked=waiting_for(frontier, agent) if iterated.end is IterationEnd.WAITING_APPROVAL else (),
    )
