"""Where an iteration writes: one port, so that the fleet and a run in process share every line of the iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from adk_worker.approvals.requests import NewRequest
from adk_worker.approvals.store import Asked
from adk_worker.checkpoint import Checkpoint, Journal
from adk_worker.idempotency import Claim, Intent
from adk_worker.ledger.booking import Reservation
from adk_worker.outcomes import ToolOutcome
from adk_worker.transitions.runs import Attention


class Turnover(StrEnum):
    """What a boundary means for the run. All but ``ON`` name the boundary's event."""

    ON = "on"
    """More is to come: the next iteration, or this turn's calls."""
    WAIT_APPROVAL = "waiting_approval"
    COMPLETE = "completed"
    FAIL = "failed"


class Standing(StrEnum):
    """Where the writer stands after a write."""

    KEPT = "kept"
    """It may go on."""
    LEFT = "left"
    """The run was handed over, has ended, or rests: it may not."""
    CANCELLED = "cancelled"
    """A cancel was requested, and the write ended the run (P2)."""
    LOST = "lost"
    """It had to rest without a stored frontier, and was parked for that (C3)."""


@dataclass(frozen=True, slots=True)
class Wrapped:
    """All that a boundary says. ``frontier`` has the whole transcript, with the messages that the boundary adds.

    ``settled`` are outcomes recorded in the same write: a lone call's, which saves a write of its own.
    """

    frontier: Checkpoint
    turnover: Turnover
    last: bool = False
    """Whether the iteration ends here: on the fleet, the moment to hand over."""
    settled: Sequence[tuple[Claim, ToolOutcome]] = ()
    requests: Sequence[NewRequest] = ()
    """What people are asked, where the run is to wait for them (P1)."""
    denials: Sequence[str] = ()
    """The requests of whose denial the frontier tells the model."""
    attention: Attention | None = None
    detail: str | None = None
    left: Journal | None = None
    """What is left behind where the run crosses into a new execution, whose frontier this is (K1)."""


class Scribe(Protocol):
    """Writes for one run under one acquisition. Losing the lease is raised as ``StaleFenceError`` by every method.

    A method returns only when its write is certain: it retries while the store is away, and reads again after an
    unknown outcome (F5).
    """

    @property
    def owner(self) -> str:
        """The token that owns the claims begun here: unique per acquisition (L4)."""
        ...

    @property
    def fence(self) -> int | None:
        """The number that reaches tools (F3); ``None`` without a lease."""
        ...

    @property
    def keyed(self) -> bool:
        """Whether intents can be recorded, so that calls get keys (I6)."""
        ...

    @property
    def now(self) -> float | None:
        """A time, by the store's clock, that has passed for certain; ``None`` where there is no such clock."""
        ...

    async def boundary(self, wrapped: Wrapped) -> Standing:
        """Write a boundary."""
        ...

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        """The claims on ``keys``. Only reads."""
        ...

    async def approvals(self, frontier: Checkpoint) -> Asked:
        """What people were asked about the run, and have said. Only reads, under the lease (P1)."""
        ...

    async def begin(self, intents: Sequence[Intent]) -> tuple[Standing, Sequence[Claim]]:
        """Record intents, in order; each claim that stands says by its owner whether its call may be made (I3).

        :raises CallKeyReusedError: nothing was begun (I1).
        :raises NotApprovedError: nothing was begun: what permits one of them is over (P1).
        """
        ...

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        """Record an outcome. Never refused for the lease's sake (F4)."""
        ...

    async def abandon(self, claim: Claim) -> None:
        """Take back a claim begun here whose call was not sent and will not be. Never refused for the lease's sake.

        One that was taken over is its former owner's again; a claim that is somebody else's by now is left alone.
        """
        ...

    async def settle(self, claim: Claim, outcome: ToolOutcome, *, by: str) -> None:
        """Settle another's claim in flight, for a probe that answered. A claim that moved on is left alone."""
        ...

    async def note_dead(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Keep that the owners of ``claims`` are known dead now; the claims as they stand (I11)."""
        ...

    async def park(self, *, attention: Attention, detail: str, undecided: Sequence[Claim] = ()) -> Standing:
        """Park without a boundary. ``KEPT`` says that an undecided call was decided meanwhile: plan again."""
        ...

    async def reserve(self, asked: Reservation) -> tuple[Standing, str | None]:
        """Reserve what a model call may take; or the run is parked over its budget, and the text says why (P3)."""
        ...

    async def fail(self, *, detail: str) -> Standing:
        """End as failed without a boundary; the frontier is kept."""
        ...
