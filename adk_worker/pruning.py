"""Removing runs that are over: which ones, and what it came to.

A run goes whole, with its frontier, transcript, claims and events; what stays is its lease's row, some hundred bytes,
because its fence must never be given again (L2): a message or a worker from the run's old days is refused under its
name for ever. Its id is free again, but not fresh: a run under the same id makes the same idempotency keys (I1).
"""

from __future__ import annotations

from dataclasses import dataclass

from adk_worker.errors import ConfigurationError
from adk_worker.transitions.runs import Phase


@dataclass(frozen=True, slots=True)
class Prune:
    """Which runs to remove: those that completed or were cancelled, and were written last ``older_than`` seconds ago.

    ``failed`` takes failed ones too, which could still be carried on (C5). A run with a call that nobody has decided is
    never removed: its claims are all the evidence there is.
    """

    older_than: float
    failed: bool = False

    def __post_init__(self) -> None:
        if not self.older_than >= 0:
            raise ConfigurationError(
                f"runs cannot be older than {self.older_than} s; give the seconds as a number ≥ 0."
            )

    @property
    def phases(self) -> frozenset[Phase]:
        """The phases in which a run is removed."""
        over = frozenset({Phase.COMPLETED, Phase.CANCELLED})
        return over | {Phase.FAILED} if self.failed else over

    def due(self, phase: Phase, *, updated_at: float, now: float) -> bool:
        """Whether a run in ``phase``, written last at ``updated_at``, is to go. Times are the store's (L1)."""
        return phase in self.phases and updated_at <= now - self.older_than


@dataclass(frozen=True, slots=True)
class Pruned:
    """What one batch came to: how many runs were removed, how many that are due were kept for an undecided call.

    ``cursor`` is where the next batch begins; ``None`` once there is nothing older left to look at.
    """

    removed: int
    undecided: int
    cursor: str | None
