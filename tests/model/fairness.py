"""Where a run gets to once nothing goes wrong any more: it ends, or rests with its attention.

From each state one continuation is followed to its end. Nothing fails in it and nobody helps; each worker goes on, each
request arrives, each message is delivered in its turn, the reaper sweeps. It does not depend on luck: if it goes round
in circles, the run is stranded.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from adk_worker.transitions.runs import Phase
from tests.model.moves import Protocol
from tests.model.steps import Move, put
from tests.model.world import IDLE, At, Violation, World

_LONGEST = 300
"""Steps after which a run that is not at rest never will be. Those that come to rest need far fewer."""


class Way(Enum):
    """How the world goes on."""

    PROMPT = "every message comes before its time"
    BACKLOG = "no message comes before the reaper has found it late"
    DOOM = "whoever takes the run dies of it"


class Continuation:
    """Follows one way to its end, from state after state; what was seen to end well is not followed again."""

    def __init__(self, protocol: Protocol, way: Way) -> None:
        self._protocol = protocol
        self._way = way
        self._ends_well: set[tuple[World, bool]] = set()

    def check(self, world: World) -> None:
        """Follow the way from ``world``, in which nothing is left that may go wrong.

        :raises Violation: the run is never at rest, or rests though it was to be cancelled.
        """
        state = (world, False)
        seen: list[tuple[World, bool]] = []
        steps: list[str] = []
        while state not in self._ends_well:
            seen.append(state)
            at, swept = state
            if self._protocol.at_rest(at) and all(worker.at is At.IDLE for worker in at.workers):
                self._check_end(at, steps)
                break
            try:
                move = next(self._moves(at, swept=swept), None)
            except Violation as violation:
                raise Violation(str(violation), steps=(*steps, "…")) from violation
            if move is None or len(seen) > _LONGEST:
                shown = steps if move is None else steps[:20]
                raise Violation(f"the run is stranded: if {self._way.value}, it never rests", steps=tuple(shown))
            steps.append(move.label)
            state = (move.world, self._swept(move, swept=swept))
        self._ends_well.update(seen)

    def _check_end(self, world: World, steps: list[str]) -> None:
        row = self._protocol.store.rows[world.row]
        if world.ghost.cancelled and row.phase is not Phase.CANCELLED:
            raise Violation(f"a cancel was lost: the run ended as {row.phase.value}", steps=tuple(steps))

    def _moves(self, world: World, *, swept: bool) -> Iterator[Move]:
        parts = self._protocol
        for worker in world.workers:
            if worker.at is not At.IDLE and self._way is Way.DOOM:
                yield Move(f"worker {worker.fence} dies", put(world, worker, IDLE))
            yield from parts.workers.moves(world, worker)
        yield from (parts.far_side.arrives(world, request) for request in world.requests)
        yield from parts.time.ages(world)
        if self._way is Way.BACKLOG and not swept:
            yield from parts.time.sweeps(world)
            yield from parts.time.lapses(world)
        yield from parts.broker.moves(world)
        yield from parts.time.sweeps(world)
        yield from parts.time.lapses(world)
        yield from parts.time.expiries(world)

    @staticmethod
    def _swept(move: Move, *, swept: bool) -> bool:
        if move.label.startswith("the reaper"):
            return True
        return swept and not move.label.startswith("ticket")
