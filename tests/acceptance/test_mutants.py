"""The scenarios have teeth: on a build with its rule taken out, each fails, for the reason that the rule is there."""

from __future__ import annotations

import pytest

from tests.acceptance import scenarios
from tests.acceptance.fleet import LONG, SHORT
from tests.acceptance.mutants import (
    WITH_INTENT_AFTER_EFFECT,
    WITH_THE_MESSAGE_BEFORE_THE_COMMIT,
    WITHOUT_THE_FENCE_CHECK,
)
from tests.servers import Proxy

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

ENOUGH = 40.0
"""Seconds after which a mutant has had its chance: several times what the same scenario takes on the real build."""


def test_without_the_fence_check_a_late_commit_overwrites_the_run(make_fleet, tmp_path, postgres_proxy: Proxy):
    """F1: it commits over the park of its successor."""
    fleet = make_fleet(times=SHORT, root=WITHOUT_THE_FENCE_CHECK.build(tmp_path), patience=ENOUGH)
    with pytest.raises(AssertionError):
        scenarios.committing_past_its_lease(fleet, pool="threads", store=postgres_proxy)
    with pytest.raises(AssertionError, match="written by a superseded worker"):
        fleet.nobody_wrote_after_being_superseded("late-commit")


def test_with_the_intent_after_the_effect_a_kill_books_twice(make_fleet, tmp_path):
    """I2: nobody wrote down that the call was under way, so it is taken for one that never ran."""
    fleet = make_fleet(times=SHORT, root=WITH_INTENT_AFTER_EFFECT.build(tmp_path), patience=ENOUGH)
    with pytest.raises(AssertionError, match="happened 2 times"):
        scenarios.killed_between_effect_and_record(fleet, pool="threads")


def test_with_the_message_before_the_commit_it_is_taken_for_a_duplicate(make_fleet, tmp_path, postgres_proxy: Proxy):
    """The message comes to a worker before its ticket is in the store, is refused, and is gone."""
    root = WITH_THE_MESSAGE_BEFORE_THE_COMMIT.build(tmp_path)
    fleet = make_fleet(times=LONG, root=root, patience=ENOUGH)
    with pytest.raises(AssertionError, match="slow-commit to rest"):
        scenarios.slow_to_commit_its_hand_over(fleet, pool="threads", store=postgres_proxy)
    assert fleet.printed("event=step_duplicate tenant=acme run_id=slow-commit ")
