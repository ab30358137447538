"""What a memory store holds: rows behind one lock, kept as a database keeps them, so that it behaves like one.

Rows are immutable, and whatever came in as JSON is kept as text: nothing that a caller still holds can change what is
stored, and nothing that is read out can either.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import TypeVar

from adk_worker.errors import StaleFenceError
from adk_worker.fences import check_fence
from adk_worker.history import StoredSegment
from adk_worker.lease import QUEUE, RunLease
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount
from adk_worker.ledger.booking import Ledger, Reservation
from adk_worker.transitions.claims import ResumeClaim
from adk_worker.transitions.leases import Holding, LeaseState, StoreTime
from adk_worker.transitions.runs import State

T = TypeVar("T")

RunKey = tuple[str, str]
"""(tenant, run id): a pair, never a joined string (T1)."""
ClaimKey = tuple[str, str]
"""(tenant, idempotency key)"""


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """A claim's row: its JSON, and the run that it was begun for, where one was named."""

    text: str
    run: RunKey | None = None


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A frontier's row."""

    payload: str
    sequence: int
    agent: str


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run's row. Its lease stands in a row of its own, as in every store: ``state.lease`` is filled in on reading."""

    submitted: str
    """JSON of what was submitted: agent, input, metadata, masks."""
    state: State
    number: int
    """Rises with every submit, for the order of a listing."""
    revision: str
    created_at: float
    updated_at: float
    detail: str | None = None
    iteration: int = 0
    execution: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    output: str | None = None
    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class StoredApprovals:
    """The row of what a run's people were asked: its JSON, and when the first that waits for an answer is over."""

    text: str
    due: float | None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event's row; ``data`` is JSON."""

    at: float
    kind: str
    fence: int
    data: str


@dataclass(frozen=True, slots=True)
class StoredWait:
    """The row of a run that its tenant's account has turned away: its number, and what it asked for under which fence.

    It is no more than a hint where to look: the run itself says whether it is parked.
    """

    number: int
    fence: int
    wanted: Amount


class MemoryData:
    """All rows of one memory store. Stores made over the same data share it, as tables of one database do.

    ``clock`` is the store's clock, in seconds since the epoch (L1).
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        self.epoch = 0
        self.leases: MutableMapping[RunKey, LeaseState] = {}
        self.fences_seen: MutableMapping[RunKey, int] = {}
        self.checkpoints: MutableMapping[RunKey, StoredCheckpoint] = {}
        self.claims: MutableMapping[ClaimKey, StoredClaim] = {}
        self.resumes: MutableMapping[RunKey, ResumeClaim] = {}
        self.segments: MutableMapping[RunKey, MutableMapping[tuple[int, str], StoredSegment]] = defaultdict(dict)
        self.runs: MutableMapping[RunKey, StoredRun] = {}
        self.events: MutableMapping[RunKey, list[StoredEvent]] = defaultdict(list)
        self.approvals: MutableMapping[RunKey, StoredApprovals] = {}
        self.last_sweep: float | None = None
        self.accounts: MutableMapping[str, Account] = {}
        self.opened: MutableMapping[RunKey, Reservation] = {}
        """What is reserved for a run on its tenant's account."""
        self.waiting: MutableMapping[RunKey, StoredWait] = {}
        """Runs that a tenant's account has turned away."""

    def at(self) -> StoreTime:
        """The time of one operation: read once, under the lock."""
        return StoreTime(self.clock(), self.epoch)

    def lease(self, key: RunKey) -> LeaseState:
        """The lease's row; one that was never granted is free under fence 0."""
        return self.leases.get(key, LeaseState())

    def submitted(self, key: RunKey) -> str:
        """What was submitted, as its row has it."""
        return self.runs[key].submitted

    def next_number(self) -> int:
        """The number of the next run that is submitted."""
        return 1 + max((row.number for row in self.runs.values()), default=0)

    def claims_of(self, key: RunKey) -> Iterable[StoredClaim]:
        """The rows of the run's claims in the order in which they began."""
        return [row for row in self.claims.values() if row.run == key]

    def ends_at(self, key: RunKey, count: int) -> list[str]:
        """The digests of the run's segments that end at message ``count``, the newest last."""
        return [digest for end, digest in self.segments.get(key, {}) if end == count]

    def on_account(self, run: RunKey, work: Callable[[MemoryData], T]) -> T:
        """Do something to the account of a run's tenant, before the run is written."""
        return work(self)

    def then_on_account(self, run: RunKey, work: Callable[[MemoryData], object]) -> None:
        """Do something to the account of a run's tenant, once the run has been written."""
        work(self)

    def waiting_of(self, tenant: str, *, behind: int, limit: int) -> tuple[list[tuple[RunKey, StoredWait]], int | None]:
        """Up to ``limit`` of the tenant's runs in :attr:`waiting`, with a number above ``behind``, the oldest first.

        And the number to go on behind; ``None`` if there are no more.
        """
        found = [(key, wait) for key, wait in self.waiting.items() if key[0] == tenant and wait.number > behind]
        found.sort(key=lambda one: one[1].number)
        return found[:limit], found[limit - 1][1].number if len(found) > limit else None

    def accept_fence(self, key: RunKey, fence: int | None) -> None:
        """Let a write of a checkpoint or a transcript pass, or refuse it; without a fence it passes (F1, F2).

        :raises StaleFenceError: ``fence`` may not write.
        """
        if fence is not None:
            tenant, run_id = key
            seen = self.fences_seen.get(key, 0)
            highest = check_fence(self.leases.get(key), tenant=tenant, run_id=run_id, fence=fence, seen=seen)
            self.fences_seen[key] = highest


def as_run_lease(key: RunKey, lease: LeaseState) -> RunLease:
    """The row as callers see it."""
    tenant, run_id = key
    holder = lease.holder if lease.holding is Holding.WORKER and lease.holder is not None else QUEUE
    return RunLease(tenant, run_id, holder, lease.fence, lease.expires_at)


def stale(key: RunKey, *, presented: int, current: int) -> StaleFenceError:
    """The refusal of a write under ``presented``."""
    tenant, run_id = key
    return StaleFenceError(tenant=tenant, run_id=run_id, presented=presented, current=current)
