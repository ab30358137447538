"""What a person decides about a call that may have happened (I8): what is asked, and what came of it.

The rules are in :mod:`adk_worker.transitions.settling`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from adk_worker.actors import Actor
from adk_worker.idempotency import Claim
from adk_worker.outcomes import ToolOutcome

if TYPE_CHECKING:
    from adk_worker.runs import Run


class _Unsaid:
    def __repr__(self) -> str:
        return "UNSAID"


UNSAID: Final = _Unsaid()
"""Stands where nothing was said: ``None`` is an outcome like any other."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person says of a call, with why. Text and outcome have been masked (R1)."""

    by: Actor
    why: str
    outcome: ToolOutcome | None = None
    """What the call returned; ``None`` says that it never ran."""
    owner_may_live: bool = False
    """They say that nothing of the call is under way any more, although its owner may be alive or has just died."""
    owner_dead: bool = False
    """Whether the claim's owner is known dead from where they ask (I11)."""
    max_in_flight: float | None = None
    """What the asker knows of the tool's declaration, where the claim has none on record; in seconds."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What a settlement came to: the claim as it stands, and what follows for its run, where it is one of the fleet.

    ``refused`` says why nothing was settled: a request of the call's owner may be under way.
    """

    claim: Claim
    run: Run | None = None
    ticket: int | None = None
    """To be dispatched; ``None`` if there is nothing to dispatch."""
    refused: str | None = None


@runtime_checkable
class TakesDecisions(Protocol):
    """An idempotency store that takes what a person decides. Those here do."""

    async def decide(self, claim: Claim, asked: Settlement) -> Settled:
        """Settle a call that may have happened as a person says, if its claim still is as ``claim`` shows it (I8).

        One atomic write. Who, when, through which user, and why are kept in :attr:`Claim.decisions`. ``never ran``
        needs a proof that nothing is under way: the claim's owner has been known dead for longer than the tool's
        ``max_in_flight``, or ``asked.owner_may_live`` says so. Where it is refused for that, what is known of the
        owner's death is kept all the same. Asking the very same again finds it done (F5).

        For a call of the fleet's see :meth:`adk_worker.runs.RunStore.decide`, which this does then.

        :raises CallDecidedError: it is settled already; says how, by whom and when.
        :raises CallStateError: it was never begun, or its claim has moved on.
        """
        ...


def takes_decisions(store: object) -> TakesDecisions | None:
    """The store as one that takes what a person decides, if it is one."""
    return store if isinstance(store, TakesDecisions) else None
