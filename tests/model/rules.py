"""The rules that the model runs over: the tables of the product, each function replaceable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adk_worker.approvals import asking
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import leases as lease_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions import settling as settle_transitions

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

    submit: Rule = run_transitions.submit
    take: Rule = run_transitions.take
    begin: Rule = run_transitions.begin
    commit: Rule = run_transitions.commit
    park: Rule = run_transitions.park
    fail: Rule = run_transitions.fail
    give_back: Rule = run_transitions.give_back
    reap: Rule = run_transitions.reap
    requeue: Rule = run_transitions.requeue
    answered: Rule = run_transitions.answered
    heal: Rule = run_transitions.heal
    cancel: Rule = run_transitions.cancel
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

    bound: Rule = approval_transitions.bound
    permit: Rule = approval_transitions.permit
    answer: Rule = approval_transitions.answer
    expire: Rule = approval_transitions.expire
    withdraw: Rule = approval_transitions.withdraw
    revoke: Rule = approval_transitions.revoke
    answers_to: Rule = asking.answers_to
    under_grants: Rule = asking.under_grants

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
    siblings_wait: bool = True
    """P1: before any call of a turn is dispatched, those that a person has to approve are asked about."""
    siblings_survive: bool = True
    """P1: all calls of a turn survive the wait."""
    undecided_first: bool = True
    """I5: nothing of a turn is dispatched while a call of it is undecided."""
    record_before_denial: bool = True
    """F4, P1: what is on record of a call is told, whatever was denied."""
    last_answer: bool = True
    """P1: the last answer of a turn queues the run."""
    asks_first: bool = True
    """P1: before any call of a turn is dispatched."""
    begins_permitted: bool = True
    """P1: a worker begins no call that a person has to approve without naming what lets it."""
    known_dead: Rule = _known_dead
    not_yet_permits: Rule = _not_yet_permits
