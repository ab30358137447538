"""Claims where no fence stands behind them: a run in process, whose claims are in a store that knows of no lease.

On the fleet each write of a claim carries the fence too (F1), so that of two workers only one gets as far as the claim,
and no claim's rule can be shown to be needed by taking it out alone. In process there are no leases, and what keeps two
resumes apart expires (I9). Here two processes carry the same run on, each from its one outstanding call, in every order
of their steps: either nobody has begun that call, or somebody has, who is dead and whose request never arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from adk_worker.errors import ClaimOwnerError
from adk_worker.idempotency import Intent
from tests.model.claims import call_of, claim_of, digest_of, key_of, outcome_of
from tests.model.rules import Rules
from tests.model.search import Found
from tests.model.world import FAILED, HAPPENED, NOTHING, Call

DEAD = 1
"""The owner of the claim that was left behind."""


class Place(IntEnum):
    """What a process does next."""

    PLAN = 0
    BEGIN = 1
    TAKE_OVER = 2
    SETTLE = 3
    CALL = 4
    RECORD = 5
    DONE = 6


class Lone(NamedTuple):
    """One state: the claim, where each process is, and how often the call had its effect."""

    call: Call | None
    places: tuple[Place, ...] = (Place.PLAN, Place.PLAN)
    effects: int = 0


class Step(NamedTuple):
    """One thing that may happen."""

    label: str
    after: Lone


def search_lone(rules: Rules) -> Found:
    """Look at every state that can be reached, from a call that nobody has begun and from one that was left behind."""
    firsts = (Lone(None), Lone(Call(DEAD)))
    came_from: dict[Lone, tuple[str, ...]] = dict.fromkeys(firsts, ())
    layer, depth = list(firsts), 0
    while layer:
        following = []
        for world in layer:
            violation = _violation(world)
            if violation is not None:
                return Found(len(came_from), depth, violation, came_from[world])
            for step in _steps(rules, world):
                if step.after not in came_from:
                    came_from[step.after] = (*came_from[world], step.label)
                    following.append(step.after)
        layer = following
        depth += bool(following)
    return Found(len(came_from), depth)


def _violation(world: Lone) -> str | None:
    if world.effects > 1:
        return "the call has had its effect twice"
    if world.call is not None and world.call.outcome == FAILED and world.effects:
        return "the call is on record as one that did not happen, and it did"
    return None


def _steps(rules: Rules, world: Lone) -> Iterator[Step]:
    for index, place in enumerate(world.places):
        owner = DEAD + 1 + index
        for after, call, effects in _moves(rules, world, place, owner):
            places = (*world.places[:index], after, *world.places[index + 1 :])
            yield Step(f"process {owner}: {place.name.lower()}, then {after.name.lower()}", Lone(call, places, effects))


def _moves(  # noqa: C901 - a case for each place
    rules: Rules, world: Lone, place: Place, owner: int
) -> Iterator[tuple[Place, Call | None, int]]:
    """Where the process is after it, the claim then, and how often the call had its effect."""
    call, effects = world.call, world.effects
    stored = None if call is None else claim_of(0, call)
    match place:
        case Place.PLAN if call is None:
            yield Place.BEGIN, call, effects
        case Place.PLAN if call is not None and call.outcome == NOTHING and call.owner == DEAD:
            # The far side was asked: it did not happen. That may be made up for, or put on record.
            yield Place.TAKE_OVER, call, effects
            yield Place.SETTLE, call, effects
        case Place.PLAN:
            yield Place.DONE, call, effects
        case Place.BEGIN:
            intent = Intent(key_of(0), digest_of(0))
            begun = call_of(rules.begin_claim(stored, intent, tenant="acme", owner=str(owner), now=0.0), call)
            mine = begun.outcome == NOTHING and begun.owner == owner
            yield (Place.CALL if mine else Place.PLAN), begun, effects
        case Place.TAKE_OVER:
            try:
                taken = rules.take_over(stored, key=key_of(0), seen=str(DEAD), owner=str(owner), now=0.0)
            except ClaimOwnerError:
                yield Place.PLAN, call, effects
            else:
                yield Place.CALL, call_of(taken, call), effects
        case Place.SETTLE:
            seen = claim_of(0, Call(DEAD))
            settled = rules.settle(stored, seen=seen, outcome=outcome_of(FAILED), by="somebody")
            yield Place.DONE, call_of(settled, call), effects
        case Place.CALL:
            yield Place.RECORD, call, effects + 1
        case Place.RECORD:
            after = rules.record(stored, key=key_of(0), owner=str(owner), outcome=outcome_of(HAPPENED))
            yield Place.DONE, call_of(after, call), effects
