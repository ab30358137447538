"""The rules of a claim, where no fence helps: two processes carry one run on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.idempotency import ClaimState
from adk_worker.transitions import claims as claim_transitions
from tests.model.bounds import Bounds, Fault
from tests.model.lone import search_lone
from tests.model.rules import Rules
from tests.model.search import search


def _begins_for_whoever_asks(stored, intent, *, owner, **fields):
    if stored is not None and stored.state is ClaimState.IN_FLIGHT and intent.take_over is None:
        return replace(stored, owner=owner, former=(*stored.former, stored.owner))
    return claim_transitions.begin(stored, intent, owner=owner, **fields)


def _takes_over_from_whoever_has_it(stored, *, seen, **fields):
    del seen
    return claim_transitions.take_over(stored, seen=stored.owner, **fields)


def _begins_over_whoever_has_it(stored, intent, **fields):
    if stored is not None and intent.take_over is not None:
        intent = replace(intent, take_over=stored.owner)
    return claim_transitions.begin(stored, intent, **fields)


def _settles_whatever_stands(stored, *, seen, outcome, by):
    del seen
    return replace(stored, state=ClaimState.SETTLED, outcome=outcome, settled_by=by)


TWICE = "has had its effect twice"
WITHOUT = {
    "I3: begin is exclusive": (
        Rules(begin_claim=_begins_for_whoever_asks),
        TWICE,
        ("process 2: plan, then begin", "process 3: plan, then begin", "process 2: begin, then call"),
    ),
    "I3: a take-over names whom it takes from": (
        Rules(take_over=_takes_over_from_whoever_has_it, begin_claim=_begins_over_whoever_has_it),
        TWICE,
        ("process 2: plan, then take_over", "process 3: plan, then take_over", "process 2: take_over, then call"),
    ),
    "I7, I8: a decision stands on what was seen": (
        Rules(settle=_settles_whatever_stands),
        "did not happen, and it did",
        ("process 2: plan, then take_over", "process 3: plan, then settle"),
    ),
}


def test_two_processes_make_a_call_once():
    """I2, I3, I4, I7, I8: with the rules of a claim alone."""
    found = search_lone(Rules())

    assert found.violation is None, str(found)
    # Not one state more or less, as in the larger model.
    assert found.states == 62


@pytest.mark.parametrize("rule", WITHOUT)
def test_without_any_one_rule_of_a_claim_they_do_not(rule):
    """Two that have seen the same act on it."""
    rules, finds, begins = WITHOUT[rule]

    found = search_lone(rules)

    assert found.violation is not None, f"without {rule}, nothing was found in {found.states} states"
    assert finds in found.violation, str(found)
    assert found.trace[: len(begins)] == begins, str(found)


@pytest.mark.parametrize("rule", WITHOUT)
def test_on_the_fleet_the_fence_stands_before_them(rule):
    """F1: only whoever holds the run gets as far as its claims, so none of them is missed there within these bounds."""
    rules, _, _ = WITHOUT[rule]

    assert search(rules, Bounds(faults=1, kinds=frozenset({Fault.LAPSE, Fault.CRASH}))).violation is None
