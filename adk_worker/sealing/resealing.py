"""Replacing what a run has sealed by seals of the same originals under another key, beside a fleet that works (R2).

A seal stands in three places: in the run's row, as it was submitted; in its frontier; and in the outcomes of calls
whose turn is not over. Whoever carries a run on seals anew what they can open, so only runs that rest, or wait in the
queue, need this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from adk_worker.outcomes import ToolOutcome
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Phase, State


@dataclass(frozen=True, slots=True)
class Reseal:
    """What to replace of a run, each part as it was seen and as it shall be.

    ``fence`` is the run's as it was seen, ``masks`` are those of its row, ``payload`` is its checkpoint (``None``
    before the first), ``outcomes`` are those of its claims by their keys. A part that does not change is in it twice.
    """

    fence: int
    masks: tuple[Mapping[str, Any], Mapping[str, Any]]
    payload: tuple[str | None, str | None] = (None, None)
    outcomes: Mapping[str, tuple[ToolOutcome, ToolOutcome]] = field(default_factory=lambda: MappingProxyType({}))

    def fits(
        self,
        state: State,
        *,
        masks: Mapping[str, Any],
        payload: str | None,
        outcomes: Mapping[str, ToolOutcome | None],
    ) -> bool:
        """Whether it may be written: all still is as it was seen, and the run is in nobody's hands.

        A worker that holds it has the seals in its memory and would put them back; a run that is over, or is about to
        be, needs none.
        """
        if state.phase in {Phase.COMPLETED, Phase.CANCELLED} or state.cancel_requested:
            return False
        if state.lease.holding is Holding.WORKER or state.lease.fence != self.fence:
            return False
        if dict(masks) != dict(self.masks[0]) or payload != self.payload[0]:
            return False
        return all(outcomes.get(key) == before for key, (before, _) in self.outcomes.items())


class Reseals(Protocol):
    """The part of a run store that replaces seals."""

    async def reseal(self, run_id: str, *, tenant: str, change: Reseal) -> bool:
        """Replace what ``change`` says, all of it or nothing; whether that was done (:meth:`Reseal.fits`).

        Nothing else of the run changes: neither its sequence nor its fence, nor where it stands, and no event tells of
        it. Doing it again after an unknown outcome is refused, and reading tells that it was done (F5).
        """
        ...
