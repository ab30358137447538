"""The model's store and the store in memory, side by side along random ways through the model."""

from __future__ import annotations

import random

import pytest

from adk_worker.transitions.runs import Moved, Phase, Verdict
from tests.model.around import OVER
from tests.model.bounds import Bounds, Probe
from tests.model.memory import Memory, Recorder
from tests.model.moves import Protocol
from tests.model.rules import Rules

_WAYS = 50
_TURNS = (
    (0, False, False),
    (1, False, False),
    (1, False, True),
    (0, True, False),
    (1, True, False),
    (2, True, False),
    (2, True, True),
)
"""How many calls of a turn have to be approved, whether it has two, and whether a grant lets them pass at first."""
_STEPS = 70
_ASKED = {
    "acquire",
    "answer",
    "begin",
    "bury",
    "cancel",
    "commit",
    "decide",
    "expire",
    "fail",
    "give_back",
    "note_dead",
    "park",
    "reap",
    "record",
}
_ASKED |= {"release", "renew", "requeue", "revoke", "settle", "take"}
_PEOPLE = ("a person", "somebody")


def _chosen(protocol, world, choice):
    """One of the moves that are possible, and what the store was asked to do for it."""
    store = protocol.store
    weights = [1 if move.fault or move.label.startswith(_PEOPLE) else 8 for move in protocol.after(world)]
    if not weights:
        return None, []
    (wanted,) = choice.choices(range(len(weights)), weights)
    store.orders.clear()
    for number, move in enumerate(protocol.after(world)):
        if number == wanted:
            # What stands before it in the list was refused, and is so there too.
            return move, list(store.orders)
        store.orders.clear()
    raise AssertionError("the moves of a state are not the same each time")


def _walk(rules, probe, choice, *, asks, beside, granted):
    """Go one way at random in both; the names of what was written."""
    turn = {"asks": asks, "beside": beside, "granted": granted}
    bounds = Bounds(workers=3, calls=2, faults=5, acts=3, insists=True, probe=probe, **turn)
    protocol = Protocol(rules, bounds, store=Recorder(rules, max_crashes=bounds.max_crashes))
    memory = Memory(protocol.store.policy, granted=granted)
    world, steps, written = protocol.first(), [], set()
    try:
        for _ in range(_STEPS):
            move, asked = _chosen(protocol, world, choice)
            if move is None:
                break
            world = move.world
            steps.append(move.label)
            for op in asked:
                memory.do(op)
                written.add(op[0])
            if move.label.endswith("lapses"):
                memory.lapse()
            if move.label == OVER:
                memory.over()
            _compare(memory, protocol, world, steps)
    finally:
        memory.close()
    return written


def _walk_all(rules, choice):
    return set().union(
        *(
            _walk(rules, probe, choice, asks=asks, beside=beside, granted=granted)
            for probe in Probe
            for asks, beside, granted in _TURNS
            for _ in range(_WAYS)
        )
    )


def test_the_models_store_writes_what_the_store_in_memory_writes():
    """F1, F4, F5, C3, I3, I7, L2, P2: the row, its lease and the claims, after each step."""
    choice = random.Random("side by side")

    written = _walk_all(Rules(), choice)

    # Whatever is asked of a store has been asked on the way.
    assert written == _ASKED


def test_a_model_that_differs_is_seen():
    """F4: here one in which no outcome heals."""
    rules = Rules(heal=lambda state, **_: Moved(state, Verdict.REFUSED))
    choice = random.Random("side by side")

    with pytest.raises(AssertionError, match="request"):
        _walk_all(rules, choice)


def _compare(memory, protocol, world, steps):
    told = "\n".join(steps)
    row = protocol.store.rows[world.row]
    assert memory.state() == row, told
    assert memory.approvals() == protocol.store.asked.kept[world.asked], told
    assert memory.calls(world) == [None if call is None else call._replace(quiet=False) for call in world.calls], told
    if row.phase not in {Phase.COMPLETED, Phase.CANCELLED}:
        assert memory.stored() == world.stored[0], told
