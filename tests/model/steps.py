"""One step: what it is for people, and the world after it."""

from __future__ import annotations

from typing import NamedTuple

from tests.model.bounds import Fault
from tests.model.claims import permit_of
from tests.model.world import Op, Worker, World


class Move(NamedTuple):
    """One thing that may happen: what it is for people, what follows, and whether it is a fault."""

    label: str
    world: World
    fault: Fault | None = None


def put(world: World, before: Worker, after: Worker) -> World:
    """The world with one worker changed. Workers are interchangeable: they are kept in order (the symmetry)."""
    workers = list(world.workers)
    workers.remove(before)
    workers.append(after)
    workers.sort()
    return world._replace(workers=tuple(workers))


def published(world: World, ticket: int) -> World:
    """The world with a message more, if there is a ticket; a third copy of the same would tell nothing new."""
    if not ticket or world.messages.count(ticket) > 1:
        return world
    return world._replace(messages=tuple(sorted((*world.messages, ticket))))


def publishing(ticket: int) -> str:
    """The words for it, where there is a ticket."""
    return f", and publishes ticket {ticket}" if ticket else ""


def said(op: Op) -> str:
    """A write, for people."""
    match op:
        case ("answer", who, request, approves):
            return f"{who} {'approves' if approves else 'denies'} {permit_of(request)}"
        case ("commit", fence, sequence, stage, then, stored, _):
            what = f"commits {sequence} (stage {stage}, {then})" if stored else f"commits {sequence} as a tombstone"
            return f"{what} under {fence}"
        case ("begin", fence, starts, ahead):
            calls = (f"{start.number}{f' over from {start.seen}' if start.seen else ''}" for start in starts)
            return f"begins call {' and '.join(calls)} under {fence}{', ahead' if ahead else ''}"
        case ("record", fence, number, outcome):
            return f"records call {number} as {'happened' if outcome else 'failed'}, as {fence}"
        case (name, fence, *rest):
            return f"{name} under {fence} {' '.join(str(part) for part in rest)}".rstrip()
    return str(op)
