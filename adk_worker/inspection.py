"""What is known of a run, and whether it may be carried on: read without a lease, or by whoever holds it.

``adk inspect``, ``adk run --resume`` and the client look here, and :func:`adk_worker.describe.describe` puts it into
words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from adk_worker.approvals.requests import Approvals
from adk_worker.checkpoint import Checkpoint, decode_checkpoint
from adk_worker.errors import (
    AdkError,
    CallKeyReusedError,
    CheckpointFormatError,
    ConfigurationError,
    FrontierLostError,
    HistoryUnavailableError,
    IndeterminateToolCallError,
    RevisionMismatchError,
)
from adk_worker.idempotency import Claim
from adk_worker.lease import QUEUE, RunLease
from adk_worker.ledger.booking import Refusal
from adk_worker.names import check_run
from adk_worker.refusals import requeue_refused
from adk_worker.resume import PlannedCall, ResumePlan, is_marked, plan_resume
from adk_worker.runs import Run, RunStatus, Stores
from adk_worker.transitions.runs import Attention

if TYPE_CHECKING:
    from adk_worker.agent import Agent
    from adk_worker.registry import Registry

_LOOKS: Final = 3
"""A run may move while it is read, part by part. After so many looks the newest has to do."""


@dataclass(frozen=True, slots=True)
class Afford:
    """Of a run that is parked over budget: what stands against its next call now; ``None`` if nothing does any more.

    As far as is known without a worker: the call may take as much as when the run was parked.
    """

    refusal: Refusal | None


@dataclass(frozen=True, slots=True)
class Inspection:
    """A run as it stood. ``run`` is ``None`` for one that a process carries by itself, outside the fleet.

    ``lease`` is who holds it, the queue included, and ``None`` if it is free or has lapsed. ``obstacle`` says why the
    run must not be carried on; it is looked for only while nobody else has the lease.
    """

    tenant: str
    run_id: str
    run: Run | None
    lease: RunLease | None = None
    frontier: Checkpoint | None = None
    plan: ResumePlan | None = None
    approvals: Approvals = field(default_factory=Approvals)
    """What its people were asked, and grant (P1)."""
    obstacle: AdkError | None = None
    to_probe: tuple[PlannedCall, ...] = ()
    """Of the calls that may have happened, those whose tool has a probe: whoever carries the run on asks it."""
    adrift: tuple[Claim, ...] = ()
    """Claims in flight of a resting run that its frontier does not show: it is behind, or cannot be read (C3)."""
    agent: Agent | None = None
    """The agent of the run's revision, if this process knows it: what its tools declare."""
    afford: Afford | None = None
    """Of a run that is parked over budget, while nobody else has the lease."""

    @property
    def subject(self) -> Run | Checkpoint | None:
        """Where the run's agent, numbers and usage are read from; ``None`` if all there is cannot be read."""
        return self.run or self.frontier

    @property
    def held_by_worker(self) -> RunLease | None:
        """The lease, if a worker (or another process) has it, and not the queue."""
        return None if self.lease is None or self.lease.holder == QUEUE else self.lease

    @property
    def over(self) -> bool:
        """Whether the run ended and there is nothing to carry on: it completed, or was cancelled."""
        return self.run is not None and self.run.status in {RunStatus.COMPLETED, RunStatus.CANCELLED}


async def inspect_run(
    stores: Stores, run_id: str, *, tenant: str, registry: Registry | None = None, under: RunLease | None = None
) -> Inspection | None:
    """Read all that is known of the run; ``None`` if that is nothing. Only reads.

    :param registry: the agents that this process knows: a call that may have happened stands in the way unless its
        tool is known here to have a probe.
    :param under: the caller's own lease, under which nothing moves.
    :raises InvalidNameError: a name that cannot be one.
    :raises StoreUnavailableError: the store did not answer.
    """
    check_run(tenant, run_id)
    found = await _look(stores, run_id, tenant=tenant, registry=registry, under=under)
    for _ in range(_LOOKS - 1):
        if found is None or under is not None:
            break
        again = await stores.runs.get(run_id, tenant=tenant)
        if _same(found.run, again):
            break
        found = await _look(stores, run_id, tenant=tenant, registry=registry, under=under)
    return found


async def _look(
    stores: Stores, run_id: str, *, tenant: str, registry: Registry | None, under: RunLease | None
) -> Inspection | None:
    run = await stores.runs.get(run_id, tenant=tenant)
    payload = await stores.runs.payload(run_id, tenant=tenant)
    if run is None and payload is None:
        return None
    lease = await stores.leases.held(run_id, tenant=tenant)
    asked = await stores.runs.approvals(run_id, tenant=tenant)
    found = Inspection(tenant, run_id, run, lease, approvals=asked.approvals)
    if payload is not None:
        found = await _with_frontier(found, payload, stores, registry)
    if run is not None and run.status.resting:
        found = replace(found, adrift=_adrift(found, await stores.runs.claims(run_id, tenant=tenant)))
    others = lease is not None and (under is None or lease.fence != under.fence)
    if found.over or others:
        return replace(found, obstacle=None)
    return replace(
        found, obstacle=found.obstacle or await _obstacle(found, stores), afford=await _afford(found.run, stores)
    )


async def _with_frontier(found: Inspection, payload: str, stores: Stores, registry: Registry | None) -> Inspection:
    try:
        frontier = decode_checkpoint(payload)
    except CheckpointFormatError as error:
        return replace(found, obstacle=error)
    try:
        plan = await plan_resume(frontier, stores.idempotency)
    except CallKeyReusedError as error:
        return replace(found, frontier=frontier, obstacle=error)
    agent = agent_of(frontier, registry)
    return replace(found, frontier=frontier, plan=plan, to_probe=with_probe(plan, agent), agent=agent)


def _adrift(found: Inspection, claims: Sequence[Claim]) -> tuple[Claim, ...]:
    shown = {planned.call.key for planned in found.plan.calls} if found.plan else set()
    return tuple(claim for claim in claims if claim.in_flight and claim.key not in shown)


async def _obstacle(found: Inspection, stores: Stores) -> AdkError | None:
    """Why the run must not be carried on, whoever asks for it."""
    run, frontier = found.run, found.frontier
    if run is not None and run.status is RunStatus.WAITING_APPROVAL:
        return requeue_refused(run, stored=frontier.sequence if frontier else 0)
    if run.behind if run else await is_marked(stores.idempotency, tenant=found.tenant, run_id=found.run_id):
        sequence = frontier.sequence if frontier else 0
        return FrontierLostError(tenant=found.tenant, run_id=found.run_id, sequence=sequence)
    if frontier is None or found.plan is None:
        return None
    return await missing_history(frontier, stores) or undecidable(found.plan, found.to_probe)


async def _afford(run: Run | None, stores: Stores) -> Afford | None:
    if run is None or run.attention is not Attention.OVER_BUDGET or run.ledger.refused is None:
        return None
    wanted = run.ledger.refused.wanted
    refusal = run.ledger.refusal(wanted)
    if refusal is None:
        account = await stores.runs.account(run.tenant)
        refusal = None if account is None else account.refusal(wanted)
    return Afford(refusal)


async def missing_history(frontier: Checkpoint, stores: Stores) -> HistoryUnavailableError | None:
    """Why the frontier's transcript cannot be had (H2); ``None`` if it can."""
    handle = frontier.history_handle
    if handle is None:
        return None
    try:
        messages = await stores.history.fetch(handle, tenant=frontier.tenant)
    except HistoryUnavailableError as error:
        return error
    if messages is None:
        return HistoryUnavailableError(handle=handle, reason="the store has no such transcript")
    return None


def undecidable(plan: ResumePlan, to_probe: tuple[PlannedCall, ...]) -> IndeterminateToolCallError | None:
    """The error that names the calls which neither claims nor probes can decide; ``None`` if there are none."""
    asked = {planned.call.index for planned in to_probe}
    left = [planned.call for planned in plan.indeterminate if planned.call.index not in asked]
    if not left:
        return None
    calls = tuple((call.call_id, call.tool, call.key) for call in left)
    return IndeterminateToolCallError(tenant=plan.tenant, run_id=plan.run_id, calls=calls)


def with_probe(plan: ResumePlan, agent: Agent | None) -> tuple[PlannedCall, ...]:
    """Of the calls that may have happened, those whose tool has a probe."""
    if agent is None:
        return ()
    tools = {planned.call.tool: agent.tool(planned.call.tool) for planned in plan.indeterminate}
    return tuple(
        planned
        for planned in plan.indeterminate
        # Without a claim nobody knows under which key the call was made: there is nothing to ask about (I6).
        if planned.claim is not None and (tool := tools[planned.call.tool]) is not None and tool.probe is not None
    )


def agent_of(frontier: Checkpoint, registry: Registry | None) -> Agent | None:
    """The agent of the run's revision, if this process knows it."""
    if registry is None:
        return None
    try:
        return registry.resolve(frontier.agent, frontier.revision)
    except (ConfigurationError, RevisionMismatchError):
        return None


def _same(one: Run | None, other: Run | None) -> bool:
    if one is None or other is None:
        return one is other
    return (one.status, one.sequence, one.fence) == (other.status, other.sequence, other.fence)
