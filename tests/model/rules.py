"""The rules that the model runs over: the tables of the product, each function replaceable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adk_worker import claim_transitions, lease_transitions, settle_transitions, transitions

Rule = Callable[..., Any]


def _known_dead(*, dead: bool, superseded: bool) -> bool:
    """I11: a process that is gone. A lapsed lease or a supersession is no proof."""
    del superseded
    return dead


def _not_yet_permits(*, dead_seen: bool, quiet: bool) -> bool:
    """I7: "not yet" is permission only if the owner was known dead, and ``max_in_flight`` has passed since."""
    return dead_seen and quiet


@dataclass(frozen=True)
class Rules:
    """The transition tables, and the few rules that a worker keeps outside them.

    With nothing replaced this is the product. To take a rule out is to replace one function, or to turn one switch.
    """

    submit: Rule = transitions.submit
    take: Rule = transitions.take
    begin: Rule = transitions.begin
    commit: Rule = transitions.commit
    park: Rule = transitions.park
    fail: Rule = transitions.fail
    give_back: Rule = transitions.give_back
    reap: Rule = transitions.reap
    requeue: Rule = transitions.requeue
    heal: Rule = transitions.heal
    cancel: Rule = transitions.cancel
    acquire: Rule = lease_transitions.acquire
    renew: Rule = lease_transitions.renew
    release: Rule = lease_transitions.release

    begin_claim: Rule = claim_transitions.begin
    record: Rule = claim_transitions.record
    take_over: Rule = claim_transitions.take_over
    settle: Rule = claim_transitions.settle
    note_dead: Rule = claim_transitions.note_dead
    still_undecided: Rule = claim_transitions.still_undecided
    decide: Rule = settle_transitions.decide
    settled: Rule = settle_transitions.settled

    intent_before_effect: bool = True
    """I2"""
    commit_before_publish: bool = True
    """Section 2, step 6 of the way of a run."""
    record_without_lease: bool = True
    """F4"""
    death_before_probe: bool = True
    """I7: the owner was known to be dead before the probe was sent."""
    refuses_older_fences: bool = True
    """I7: after "never will", the far side refuses what was sent under an older fence."""
    timeout_is_unknown: bool = True
    """I10: the claim of a call that timed out stays in flight."""
    known_dead: Rule = _known_dead
    not_yet_permits: Rule = _not_yet_permits
