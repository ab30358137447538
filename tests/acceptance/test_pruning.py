"""Removing what is over while the fleet works on what is not."""

from __future__ import annotations

import pytest

from adk_worker.errors import RunNotFoundError
from tests.acceptance.fleet import FleetUnderTest
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


def test_runs_are_removed_beside_a_fleet_that_works(fleet):
    """F1, L2: each as soon as it is over; the others are carried to their end, and nothing is made twice."""
    names = [f"short-lived-{number}" for number in range(12)]
    victim = fleet.worker("victim")
    held = fleet.travel.hold("book", run_id=names[5], at="before_answer")
    for name in names:
        fleet.submit(name)
    held.wait(within=fleet.patience)
    victim.kill()
    held.release(then="drop")
    fleet.worker("heir")

    wait_until(lambda: _pruned(fleet) and _gone(fleet, names), within=fleet.patience, what="all runs to be removed")

    verdict = fleet.travel.verdict(runs=[("acme", name) for name in names])
    assert verdict.ok, f"{verdict}\n{fleet.logs()}"


def _pruned(fleet: FleetUnderTest) -> bool:
    return bool(list(fleet.sync.prune(older_than=0.0, batch=5, by="ana")))


def _gone(fleet: FleetUnderTest, names: list[str]) -> bool:
    for name in names:
        try:
            fleet.run(name)
        except RunNotFoundError:
            continue
        return False
    return True
