"""Runs as the fleet keeps them, and :class:`RunStore`: the one fenced write that a boundary is.

The rules themselves are in :mod:`adk_worker.transitions.runs`. A run store reads a run's row and its lease's under one
lock, asks the table, and writes the answer in the same transaction together with whatever belongs to it: the
checkpoint, the transcript's segment, outcomes, and events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adk_worker.actors import Actor
from adk_worker.approvals.requests import NewRequest
from adk_worker.approvals.store import ApprovalOperations
from adk_worker.checkpoint import Checkpoint, CheckpointStore
from adk_worker.events import Event, NewEvent
from adk_worker.filters import RunFilter
from adk_worker.history import HistoryStore, Segment
from adk_worker.idempotency import Claim, IdempotencyStore, Intent
from adk_worker.lease import LeaseStore, RunLease
from adk_worker.ledger.amounts import Budget
from adk_worker.ledger.booking import Charge, Ledger
from adk_worker.ledger.store import LedgerStore
from adk_worker.lifecycle import Lifecycle
from adk_worker.messages import Usage
from adk_worker.outcomes import ToolOutcome
from adk_worker.pruning import Prune, Pruned
from adk_worker.sealing.resealing import Reseals
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, FleetPolicy, Phase, Reason, Then, Verdict


class RunStatus(StrEnum):
    """Where a run stands, as people see it."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @classmethod
    def of(cls, phase: Phase, holding: Holding) -> RunStatus:
        """The status of a stored phase: a live run is queued or running by who holds its lease."""
        if phase is Phase.LIVE:
            return cls.RUNNING if holding is Holding.WORKER else cls.QUEUED
        return cls(phase.value)

    @property
    def ended(self) -> bool:
        """Whether nothing will happen any more by itself or by an approval: completed, failed or cancelled."""
        return self in {RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED}

    @property
    def resting(self) -> bool:
        """Whether nothing advances the run until somebody acts: ended, parked, or waiting for an approval."""
        return self.ended or self in {RunStatus.PARKED, RunStatus.WAITING_APPROVAL}


class Run(BaseModel):
    """One run, as stored. Times are in seconds since the epoch, by the store's clock."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    run_id: str
    agent: str
    revision: str
    """The agent's revision that the run is pinned to; empty until its first worker pins one (C7)."""
    input: str
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    masks: dict[str, JsonValue] = Field(default_factory=dict)
    status: RunStatus
    attention: Attention | None = None
    detail: str | None = None
    """What stands behind the attention or the failure, for people."""
    parked_on: tuple[str, ...] = ()
    """Idempotency keys of the undecided calls that the run is parked on."""
    sequence: int = 0
    iteration: int = 0
    execution: int = 1
    """Which execution of it the newest boundary belongs to (K1)."""
    usage: Usage = Usage()
    cost_micros: int = 0
    ledger: Ledger = Ledger()
    """What it may spend, and what it has: the limits are held by this alone (C6)."""
    output: str | None = None
    crashes: int = 0
    tries: int = 0
    cancel_requested: bool = False
    behind: bool = False
    holder: str | None = None
    """The worker that holds the lease, ``queue``, or ``None`` while it is free."""
    fence: int = 0
    expires_at: float | None = None
    created_at: float = 0.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a submit says. ``revision`` is empty where the submitter does not know the agent's code."""

    tenant: str
    run_id: str
    agent: str
    input: str
    revision: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    masks: Mapping[str, Any] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)


@dataclass(frozen=True, slots=True)
class Submitted:
    """``ticket`` is what to dispatch; ``None`` if the same request is there already and no longer queued."""

    run: Run
    ticket: int | None


@dataclass(frozen=True, slots=True)
class Taken:
    """A take that was granted: the lease, and what was read under it. The checkpoint is ``None`` before the first."""

    lease: RunLease
    run: Run
    payload: str | None
    """The stored checkpoint, not decoded: a newer format is the task's to give back, not the store's to refuse (C4)."""
    limited: bool = False
    """Whether the run or its tenant has limits, so that each of its model calls has to be reserved (P3)."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """All that one boundary commit writes. ``checkpoint`` is the encoded payload, ``None`` for a tombstone (C3)."""

    checkpoint: Checkpoint
    payload: str | None
    then: Then
    segment: Segment | None = None
    settled: Sequence[tuple[Claim, ToolOutcome]] = ()
    requests: Sequence[NewRequest] = ()
    """What a run that is to wait for an approval waits for (P1)."""
    denials: Sequence[str] = ()
    """The requests of which this boundary tells the model that they were denied."""
    charge: Charge | None = None
    """What the model call took that led to this boundary."""
    attention: Attention | None = None
    detail: str | None = None
    events: Sequence[NewEvent] = ()


@dataclass(frozen=True, slots=True)
class Committed:
    """What a fenced write came to. ``ticket`` is to be dispatched; ``None`` if there is nothing to dispatch."""

    verdict: Verdict
    lease: RunLease | None = None
    """The lease while this acquisition still holds it, else ``None``."""
    ticket: int | None = None
    detail: str | None = None
    """Why the run was parked instead, for people."""


@dataclass(frozen=True, slots=True)
class Renewal:
    """The answer to one lease of a batch: the renewed lease, or ``None`` if it is lost; and whether to cancel.

    ``busy`` says that it was not renewed and is not known to be lost, since its row is in use or out of reach: ask
    again soon.
    """

    lease: RunLease | None
    cancel_requested: bool = False
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Dispatch:
    """A message to publish. ``recovery`` names the task: ``adk.resume`` instead of ``adk.advance``."""

    tenant: str
    run_id: str
    ticket: int
    recovery: bool = False


@dataclass(frozen=True, slots=True)
class Reaped:
    """One lapsed lease that was acted on. ``dispatch`` is ``None`` where the run was parked or cancelled."""

    tenant: str
    run_id: str
    was: Holding
    verdict: Verdict
    dispatch: Dispatch | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What a reaper needs to know before it sweeps: the store's clock, and when the last sweep was, if ever."""

    now: float
    last: float | None


class RunStore(ApprovalOperations, LedgerStore, Reseals, Protocol):
    """The fleet's store. Every method is one atomic operation under the run's lock, by the store's clock (L1, F1).

    Methods that present a ``lease`` raise :class:`~adk_worker.errors.StaleFenceError` when its fence may not write any
    more, and write nothing then. Any method may raise ``StoreUnavailableError`` (nothing was written) or
    ``CommitUnknownError`` (it may have been; asking the same again is safe where the method says so).
    """

    async def submit(self, new: NewRun, *, policy: FleetPolicy, connection: object | None = None) -> Submitted:
        """Create the run, queued under its first ticket. Submitting the very same request again finds the run (F5).

        ``connection`` is a SQLAlchemy connection or session of the caller's, on stores that can join one: the run then
        exists exactly if the caller commits, and is dispatched by the reaper unless the caller does it.

        :raises RunExistsError: the id is taken by another request.
        """
        ...

    async def take(self, run_id: str, *, tenant: str, ticket: int, holder: str, ttl_seconds: float) -> Taken | None:
        """Take the lease from the queue by presenting its ticket; ``None`` refuses a duplicate.

        The run and its checkpoint are read in the same transaction, after the lease is held.
        """
        ...

    async def held_by(self, run_id: str, *, tenant: str, holder: str) -> Taken | None:
        """What ``holder`` took, if it holds the lease now: how a take is found out whose answer was lost (F5)."""
        ...

    async def renew_many(self, leases: Sequence[RunLease], *, ttl_seconds: float) -> Sequence[Renewal]:
        """Renew a process's leases in one batch; the answers are in the order of ``leases``, a lost one among them.

        It waits for no run of the batch, so that none holds up the renewal of the others (L8): one that something else
        has locked is answered as ``busy``, and so is one on a node that does not answer while other nodes do, or one
        that cannot be read.
        """
        ...

    async def begin(
        self, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool = False
    ) -> tuple[Committed, Sequence[Claim]]:
        """Record the intent of several calls, in one write that also sets the mark if ``ahead`` (F1, I2, C3).

        ``CANCELLED`` ends the run and begins nothing. Claims that stand already are returned as they are; a
        ``take_over`` that does not find the owner it names leaves the claim alone. Safe to repeat under one ``owner``.

        Where an intent names its permit, that is looked at and spent in the same write (P1).

        :raises CallKeyReusedError: nothing was written (I1).
        :raises NotApprovedError: of one of them no approval stands; nothing was written (P1).
        """
        ...

    async def commit(self, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
        """Write a boundary, whole or not at all. Repeating it after an unknown outcome finds it done (F5)."""
        ...

    async def park(
        self,
        lease: RunLease,
        *,
        attention: Attention,
        detail: str,
        undecided: Sequence[Claim] = (),
        events: Sequence[NewEvent] = (),
    ) -> Committed:
        """Park without a boundary. With ``undecided`` claims the park commits only if each still is as it was seen.

        ``REFUSED`` says that one was decided meanwhile: nothing was written, plan again.
        """
        ...

    async def fail(
        self, lease: RunLease, *, detail: str, events: Sequence[NewEvent] = (), asked: bool = False
    ) -> Committed:
        """End the run as failed without a boundary; its frontier is kept (C5).

        ``asked``: a model call was made of which nobody knows what it took. It is unaccounted (C6).
        """
        ...

    async def give_back(
        self,
        lease: RunLease,
        *,
        reason: Reason,
        detail: str,
        policy: FleetPolicy,
        attention: Attention | None = None,
        delay: float | None = None,
        asked: bool = False,
    ) -> Committed:
        """End a task without a boundary. ``ticket`` is set only where it has to be published at once (a drain).

        ``asked`` is as for :meth:`fail`.
        """
        ...

    async def settle(self, lease: RunLease, claim: Claim, outcome: ToolOutcome, *, by: str) -> Claim:
        """Settle a claim in flight that is still as ``claim`` shows it, for a probe that answered; fenced (I7).

        Returns the claim that stands now, which may be another's settlement.

        :raises ClaimOwnerError: it is absent.
        """
        ...

    async def note_dead(self, lease: RunLease, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Keep that the owners of these claims are known dead now, unless it is on record; the claims as they stand.

        :raises ClaimOwnerError: one is absent; nothing was written.
        """
        ...

    async def claim_lapsed(self, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
        """Act on up to ``limit`` lapsed leases, each an atomic compare-and-set: any number of reapers may run.

        A run that cannot be read or written is named in the log, and takes no place of ``limit``.
        """
        ...

    async def claim_dead(self, run_id: str, *, tenant: str, holder: str, policy: FleetPolicy) -> Reaped | None:
        """Act on the lease of a ``holder`` known dead (I11) before it lapses; ``None`` if it has it no more."""
        ...

    async def held_on(self, host: str, *, within: float) -> Sequence[RunLease]:
        """Leases of live runs that workers on ``host`` hold, by their names, and that lapse within so many seconds.

        Those that have lapsed are among them. Only reads, and nothing of leases that lapse later: a new worker asks for
        its dead predecessors' (I11), which nobody renews.
        """
        ...

    async def sweep(self) -> Sweep:
        """Note a sweep's beginning, and return when the last one was."""
        ...

    async def requeue(
        self, run_id: str, *, tenant: str, by: Actor, policy: FleetPolicy, seen: Run | None = None
    ) -> Submitted:
        """Queue a parked or failed run again under a new ticket, or at once one that backs off in the queue.

        With ``seen``, only as long as it is as somebody has seen it (:func:`adk_worker.refusals.unless_changed`).

        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it neither rests nor backs off, waits for something that a requeue does not answer, or
            has moved since it was seen.
        :raises RunLeaseError: somebody holds its lease (L5).
        :raises FrontierLostError: its stored frontier is behind what ran (C3).
        """
        ...

    async def cancel(self, run_id: str, *, tenant: str, by: Actor, seen: Run | None = None) -> Run:
        """Ask for the run's end and return it as it stands then (P2). ``seen`` is as for :meth:`requeue`.

        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it has completed or failed, or has moved since it was seen.
        """
        ...

    async def decide(
        self, run_id: str, *, tenant: str, claim: Claim, asked: Settlement, policy: FleetPolicy
    ) -> Settled:
        """Settle a call of a resting run as a person says.

        See :meth:`adk_worker.settling.settlement.TakesDecisions.decide`. A run that was parked on this call and no
        other is queued again in the same write, and so is one that backs off to ask about a call again; a cancelled
        run's frontier is let go with its last undecided call (P2).

        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it is being carried on, or about to be: it finds out by itself.
        :raises CallDecidedError: the call is settled already; says how, by whom and when.
        :raises CallStateError: it was never begun, or its claim has moved on.
        """
        ...

    async def get(self, run_id: str, *, tenant: str) -> Run | None:
        """The run, or ``None``. Only reads, and takes no lease."""
        ...

    async def payload(self, run_id: str, *, tenant: str) -> str | None:
        """The stored checkpoint, not decoded. Only reads."""
        ...

    async def list(self, where: RunFilter, *, limit: int, after: str | None = None) -> tuple[Sequence[Run], str | None]:
        """A page of runs, newest first, and the cursor of the next page or ``None``.

        A run whose row cannot be read is left out, and named in the log: it hides no other.
        """
        ...

    async def events(self, run_id: str, *, tenant: str, after: int = 0, limit: int = 500) -> Sequence[Event]:
        """Events with an id above ``after``, oldest first."""
        ...

    async def claims(self, run_id: str, *, tenant: str) -> Sequence[Claim]:
        """All claims of the run in the order in which they began."""
        ...

    async def prune(self, which: Prune, *, limit: int, after: str | None = None) -> Pruned:
        """Look at up to ``limit`` runs, the oldest first, and remove those that are due, each whole.

        Only the lease's row stays, for its fence (L2). ``after`` is the cursor of the batch before.
        """
        ...

    async def oldest_lapsed(self) -> float | None:
        """For how many seconds the oldest lapsed lease has been so; ``None`` if none has. What to alert on."""
        ...


@dataclass(frozen=True, slots=True)
class Stores:
    """A bundle: all parts stand in one store, so that a boundary is one write."""

    runs: RunStore
    leases: LeaseStore
    checkpoints: CheckpointStore
    idempotency: IdempotencyStore
    history: HistoryStore
    lifecycle: Lifecycle
    max_value_bytes: int | None = None
    """The largest value that the store takes, in bytes; ``None`` without a cap. Checkpoints have to fit (C2)."""
