"""Runs that cross into a new execution at every turn, on a real fleet, and a SIGKILL at the crossing (K1)."""

from __future__ import annotations

import pytest

from adk_worker.describe import describe
from tests.acceptance import scenarios
from tests.acceptance.fleet import PATIENCE, SHORT, FleetUnderTest
from tests.servers import Proxy

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture
def fleet(make_fleet) -> FleetUnderTest:
    """Each iteration is an execution of its own."""
    return make_fleet(times={**SHORT, "ADK_CONTINUE_AFTER_STEPS": "2"})


def crossed_once_at_each_turn(fleet: FleetUnderTest, run_id: str) -> None:
    """K1, I1: four crossings of a run of five iterations; all happened once, each call under a key of its own."""
    fleet.done_once(run_id)
    told = [(event.data["execution"], event.data["steps"]) for event in fleet.events(run_id, "continued")]
    assert told == [(execution, 2) for execution in (2, 3, 4, 5)], fleet.events(run_id)
    run = fleet.run(run_id)
    assert (run.execution, run.iteration) == (5, 5)
    keys = [entry.key for entry in fleet.travel.entries() if entry.event == "effect" and entry.run.run_id == run_id]
    assert len(keys) == len(set(keys))
    assert "\nexecution 5: " in describe(fleet.sync.inspect(run_id, tenant="acme"))


def test_killed_in_the_write_of_the_crossing(fleet, postgres_proxy: Proxy):
    """K1: what was not committed has not crossed; the heir crosses, once."""
    fault = postgres_proxy.hold_answer(to=b"'continued'")
    victim = fleet.worker("victim", ADK_STORE_URL=postgres_proxy.url(fleet.store_url))
    fleet.submit("in-crossing")
    fault.wait(within=PATIENCE)
    victim.kill()
    fault.release()
    assert fleet.run("in-crossing").execution == 1
    fleet.worker("heir")
    crossed_once_at_each_turn(fleet, "in-crossing")
    assert fleet.events("in-crossing", "recovered")


def test_killed_between_the_crossing_and_its_message(fleet, redis_proxy: Proxy):
    """K1: it has crossed, and nobody was told; the reaper publishes, and the new execution goes on."""
    scenarios.killed_between_commit_and_publish(fleet, pool="threads", behind=redis_proxy)
    crossed_once_at_each_turn(fleet, "gap")


def test_killed_in_a_model_call_of_a_later_execution(fleet):
    """K1: the heir carries it on in the execution that it was in."""
    scenarios.killed_in_a_model_call(fleet, pool="threads")
    crossed_once_at_each_turn(fleet, "in-model")
