"""Visits every state within the bounds, breadth first: the first violation that it finds has a shortest trace."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass

from tests.model.bounds import Bounds
from tests.model.fairness import Continuation, Way
from tests.model.moves import Protocol
from tests.model.rules import Rules
from tests.model.world import Violation, World


@dataclass(frozen=True)
class Found:
    """What a search came to. ``violation`` is ``None`` where all that must be true is; ``trace`` leads to it."""

    states: int
    depth: int
    violation: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.states} states, {self.depth} steps deep: nothing found"
        steps = "\n".join(f"  {number:2}. {step}" for number, step in enumerate(self.trace, 1))
        return f"{self.violation}, after {len(self.trace)} steps ({self.states} states looked at):\n{steps}"


def search(
    rules: Rules,
    bounds: Bounds,
    *,
    ways: tuple[Way, ...] = tuple(Way),
    progress: Callable[[int, int], None] | None = None,
) -> Found:
    """Look at every state that can be reached within ``bounds``.

    :param ways: how the run is carried on from each state, to see that it comes to rest.
    :param progress: called after each depth with the number of states so far, and the depth.
    """
    protocol = Protocol(rules, bounds)
    continuations = [Continuation(protocol, way) for way in ways]
    first = protocol.first()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    layer, depth = [first], 0
    world, step = first, ""
    followed: set[World] = set()
    collects = gc.isenabled()
    gc.disable()  # there are no cycles in what is kept, and it would look through all of it again and again
    try:
        while layer:
            following: list[World] = []
            for world in layer:
                step = ""
                protocol.check(world)
                moves = 0
                for move in protocol.after(world):
                    moves += 1
                    step = move.label
                    if move.world not in came_from:
                        came_from[move.world] = (world, step)
                        following.append(move.world)
                step = ""
                protocol.check_end(world, moves)
                calm = world._replace(faults=0, acts=0)
                if calm not in followed:
                    followed.add(calm)
                    for continuation in continuations:
                        continuation.check(calm)
            layer = following
            depth += bool(following)
            if progress is not None:
                progress(len(came_from), depth)
    except Violation as violation:
        return Found(len(came_from), depth, str(violation), (*_trace(came_from, world), *violation.steps))
    finally:
        if collects:
            gc.enable()
    return Found(len(came_from), depth)


def _trace(came_from: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    steps: list[str] = []
    while (before := came_from[world]) is not None:
        world, step = before
        steps.append(step)
    return tuple(reversed(steps))
