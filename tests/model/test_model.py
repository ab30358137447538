"""The protocol within the bounds of the tests: nothing that must not be can be reached, and every rule is needed."""

from __future__ import annotations

import pytest

from tests.model.asked_mutants import ASKED_MUTANTS
from tests.model.bounds import TESTED, Bounds, Fault
from tests.model.mutants import MUTANTS
from tests.model.rules import Rules
from tests.model.search import search

_WITHOUT = (*MUTANTS, *ASKED_MUTANTS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("bounds", "states"), TESTED.values(), ids=TESTED)
def test_the_protocol_holds_whatever_happens(bounds, states):
    """F1, F4, F5, C3, C5, I2, I4, I7, I8, I10, L2, L3, L10, P2.

    No effect twice, nothing false on record, one commit per sequence, no message and no write from before carries a run
    on, no frontier is older than what ran, no cancel is lost, and each state leads to an end, or a rest that says why.
    """
    found = search(Rules(), bounds)

    assert found.violation is None, str(found)
    # Not one state more or less: whoever changes the protocol or the model has to look again at how far it reaches.
    assert found.states == states


@pytest.mark.parametrize("mutant", _WITHOUT, ids=lambda mutant: mutant.rule)
def test_without_any_one_rule_it_does_not_hold(mutant):
    """The trace that the search prints leads to what the rule prevents."""
    found = search(mutant.rules, mutant.bounds)

    print(f"\nwithout {mutant.rule}: {found}")  # noqa: T201 - shown with `pytest -s`, and when the test fails
    assert found.violation is not None, f"without {mutant.rule}, nothing was found in {found.states} states"
    assert mutant.finds in found.violation, str(found)
    # What is found is the missing rule's doing: with it, the same bounds show nothing.
    assert search(Rules(), mutant.bounds).violation is None


def test_a_rule_is_taken_out_once():
    assert len({mutant.rule for mutant in _WITHOUT}) == len(_WITHOUT)


def test_the_shortest_trace_is_told():
    """A superseded worker that was never dead writes again: lost lease, stale write, nothing in between."""
    (mutant,) = (mutant for mutant in MUTANTS if mutant.rule == "F1: an equal fence")

    found = search(mutant.rules, mutant.bounds)

    assert found.trace == (
        "ticket 1 is presented",
        "worker 2 is paused, and its lease lapses",
        "the reaper finds a worker gone, and publishes ticket 3",
        "ticket 3 is presented",
        "worker 2: commits 1 (stage 1, keep) under 2",
    )
    assert "5. worker 2: commits 1" in str(found)


def test_more_of_everything_reaches_more():
    """The bounds bound: each of them, raised by one, lets the search see states that it did not see before."""
    kinds = frozenset({Fault.CRASH})
    small = Bounds(faults=1, kinds=kinds)
    larger = [
        Bounds(faults=2, kinds=kinds),
        Bounds(faults=1, kinds=kinds | {Fault.LAPSE}),
        Bounds(faults=1, kinds=kinds, calls=2),
        Bounds(faults=1, kinds=kinds, acts=1),
        Bounds(faults=1, kinds=kinds, asks=1),
        Bounds(faults=1, kinds=kinds, beside=True),
    ]

    reached = search(Rules(), small).states

    assert all(search(Rules(), bounds).states > reached for bounds in larger)
