"""What the file holds: the rows of a store in memory, as JSON. A key is a pair, never a joined string (T1)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel

from adk_worker.history import StoredSegment
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.booking import Reservation
from adk_worker.memory import MemoryData
from adk_worker.memory.data import (
    ClaimKey,
    RunKey,
    StoredApprovals,
    StoredCheckpoint,
    StoredClaim,
    StoredEvent,
    StoredRun,
    StoredWait,
)
from adk_worker.transitions.claims import ResumeClaim
from adk_worker.transitions.leases import LeaseState


class Rows(BaseModel):
    """Everything. ``clock`` is the time of the newest write: no later one is before it."""

    version: Literal[1] = 1
    clock: float = 0.0
    epoch: int = 0
    last_sweep: float | None = None
    leases: list[tuple[RunKey, LeaseState]] = []
    fences_seen: list[tuple[RunKey, int]] = []
    checkpoints: list[tuple[RunKey, StoredCheckpoint]] = []
    claims: list[tuple[ClaimKey, StoredClaim]] = []
    resumes: list[tuple[RunKey, ResumeClaim]] = []
    segments: list[tuple[RunKey, list[tuple[tuple[int, str], StoredSegment]]]] = []
    runs: list[tuple[RunKey, StoredRun]] = []
    events: list[tuple[RunKey, list[StoredEvent]]] = []
    approvals: list[tuple[RunKey, StoredApprovals]] = []
    accounts: list[tuple[str, Account]] = []
    opened: list[tuple[RunKey, Reservation]] = []
    waiting: list[tuple[RunKey, StoredWait]] = []

    @classmethod
    def read(cls, path: Path) -> Self:
        """What the file holds; nothing if there is none."""
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()

    @classmethod
    def of(cls, data: MemoryData, *, clock: float) -> Self:
        """The rows that an operation has left."""
        return cls(
            clock=clock,
            epoch=data.epoch,
            last_sweep=data.last_sweep,
            leases=list(data.leases.items()),
            fences_seen=list(data.fences_seen.items()),
            checkpoints=list(data.checkpoints.items()),
            claims=list(data.claims.items()),
            resumes=list(data.resumes.items()),
            segments=[(key, list(segments.items())) for key, segments in data.segments.items()],
            runs=list(data.runs.items()),
            events=list(data.events.items()),
            approvals=list(data.approvals.items()),
            accounts=list(data.accounts.items()),
            opened=list(data.opened.items()),
            waiting=list(data.waiting.items()),
        )

    def data(self, clock: Callable[[], float]) -> MemoryData:
        """The same as a store in memory has them."""
        data = MemoryData(clock)
        data.epoch = self.epoch
        data.last_sweep = self.last_sweep
        data.leases.update(self.leases)
        data.fences_seen.update(self.fences_seen)
        data.checkpoints.update(self.checkpoints)
        data.claims.update(self.claims)
        data.resumes.update(self.resumes)
        data.segments.update({key: dict(segments) for key, segments in self.segments})
        data.runs.update(self.runs)
        data.events.update({key: list(events) for key, events in self.events})
        data.approvals.update(self.approvals)
        data.accounts.update(self.accounts)
        data.opened.update(self.opened)
        data.waiting.update(self.waiting)
        return data

    def same_as(self, before: Rows) -> bool:
        """Whether an operation has changed nothing, so that nothing has to be written."""
        return self.model_copy(update={"clock": before.clock}) == before
