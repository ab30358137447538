"""The scenarios have teeth: on a build with its rule taken out, each fails, for the reason that the rule is there."""

from __future__ import annotations

import pytest

from adk_worker.runs import RunStatus
from tests.acceptance import scenarios
from tests.acceptance.fleet import LONG, PATIENCE, SHORT
from tests.acceptance.mutants import (
    WITH_INTENT_AFTER_EFFECT,
    WITH_THE_MESSAGE_BEFORE_THE_COMMIT,
    WITHOUT_THE_FENCE_CHECK,
)
from tests.servers import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


def test_without_the_fence_check_a_late_commit_overwrites_the_run(make_fleet, tmp_path, postgres_proxy: Proxy):
    """F1: it commits over the park of its successor."""
    fleet = make_fleet(times=SHORT, root=WITHOUT_THE_FENCE_CHECK.build(tmp_path))
    with pytest.raises(AssertionError):
        scenarios.committing_past_its_lease(fleet, pool="threads", store=postgres_proxy)
    with pytest.raises(AssertionError, match="written by a superseded worker"):
        fleet.nobody_wrote_after_being_superseded("late-commit")


def test_with_the_intent_after_the_effect_a_kill_books_twice(make_fleet, tmp_path):
    """I2: nobody wrote down that the call was under way, so it is taken for one that never ran."""
    fleet = make_fleet(times=SHORT, root=WITH_INTENT_AFTER_EFFECT.build(tmp_path))
    with pytest.raises(AssertionError, match="happened 2 times"):
        scenarios.killed_between_effect_and_record(fleet, pool="threads")


def test_with_the_message_before_the_commit_it_is_taken_for_a_duplicate(make_fleet, tmp_path, postgres_proxy: Proxy):
    """The message comes to a worker before its ticket is in the store and is refused: nothing moves the run."""
    root = WITH_THE_MESSAGE_BEFORE_THE_COMMIT.build(tmp_path)
    fleet = make_fleet(times=LONG, root=root)
    with pytest.raises(AssertionError, match="slow-commit's message came before its commit"):
        scenarios.slow_to_commit_its_hand_over(fleet, pool="threads", store=postgres_proxy)
    wait_until(lambda: fleet.run("slow-commit").status is RunStatus.QUEUED, within=PATIENCE, what="the commit")
    wait_until(lambda: fleet.backlog() == 0, within=PATIENCE, what="the broker to be empty")
    assert fleet.run("slow-commit").status is RunStatus.QUEUED
