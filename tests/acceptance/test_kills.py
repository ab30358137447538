"""SIGKILL at any moment, on PostgreSQL and a Redis broker: another worker carries the run on, and all happens once."""

from __future__ import annotations

import pytest

from adk_worker.runs import RunStatus
from tests.acceptance import scenarios
from tests.acceptance.fleet import LONG, PATIENCE, POOLS, SHORT
from tests.servers import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

pools = pytest.mark.parametrize("pool", list(POOLS))


@pools
def test_in_a_model_call(fleet, pool):
    """The frontier before it is carried on; no call of a tool is repeated."""
    scenarios.killed_in_a_model_call(fleet, pool=pool)


@pools
def test_between_intent_and_effect(fleet, pool):
    """I2, I7: the probe bars the key, so the dead worker's request, still on its way, books nothing."""
    scenarios.killed_between_intent_and_effect(fleet, pool=pool)


@pools
def test_between_effect_and_record(fleet, pool):
    """I2, I7: the probe finds the booking; its outcome is recorded and the call not made again."""
    scenarios.killed_between_effect_and_record(fleet, pool=pool)


@pools
def test_in_a_booking_that_nobody_can_ask_about(fleet, pool):
    """I5, I7: an indeterminate call is never guessed at: the run parks, and names it."""
    scenarios.killed_in_a_booking_nobody_can_ask_about(fleet, pool=pool)


@pools
def test_before_the_intent(fleet, postgres_proxy: Proxy, pool):
    """I2: the claim was being written and was not committed; it never ran, so it is made, once."""
    fault = postgres_proxy.hold_answer(to=b"INSERT INTO adk_claims")
    victim = fleet.worker("victim", pool=pool, ADK_STORE_URL=postgres_proxy.url(fleet.store_url))
    fleet.submit("before-intent")
    fault.wait(within=PATIENCE)
    victim.kill()
    fault.release()
    fleet.worker("heir", pool=pool)
    fleet.done_once("before-intent")
    assert fleet.events("before-intent", "recovered")


@pools
def test_between_commit_and_publish(fleet, redis_proxy: Proxy, pool):
    """The store has handed over, and no message was sent: the queued lease lapses and the reaper publishes."""
    scenarios.killed_between_commit_and_publish(fleet, pool=pool, behind=redis_proxy)


@pools
def test_at_random_moments(make_fleet, pool):
    """I2-I4, F1: nobody chose what was going on."""
    fleet = make_fleet(times={**SHORT, "ADK_MAX_CRASHES": "50"})
    scenarios.killed_at_random(fleet, pool=pool, campaign=scenarios.Campaign.asked_for())


def test_a_prefork_child_alone(make_fleet):
    """Its parent sees it die and has its run resumed at once: every lease and every wait here is minutes long."""
    fleet = make_fleet(times=LONG)
    fleet.models.hold("child", tenant="acme", iteration=2)
    worker = fleet.worker("worker", pool="prefork")
    fleet.submit("child")
    began = fleet.asked("child", iteration=2)
    (child,) = [process for process in worker.children() if process.pid == began.pid]
    child.kill()
    fleet.models.release("child", tenant="acme", iteration=2)
    fleet.done_once("child")
    (recovered,) = fleet.events("child", "recovered")
    assert recovered.data["known_dead"] is True


def test_a_prefork_child_killed_at_every_attempt_ends_as_poisoned(make_fleet):
    """max_crashes deaths without a new boundary park the run; the worker itself goes on for the others."""
    fleet = make_fleet(times={**LONG, "ADK_MAX_CRASHES": "2"})
    fleet.models.hold("deadly", tenant="acme", iteration=1)
    worker = fleet.worker("worker", pool="prefork")
    fleet.submit("deadly")
    killed: set[int] = set()

    def another() -> bool:
        pids = {c.pid for c in fleet.models.calls("began") if c.run_id == "deadly"} - killed
        for child in worker.children():
            if child.pid in pids:
                child.kill()
                killed.add(child.pid)
        return len(killed) == 2

    wait_until(another, within=PATIENCE, what="two children to have been killed")
    run = fleet.rests("deadly", RunStatus.PARKED)
    assert run.attention == "poisoned"
    fleet.submit("harmless")
    fleet.done_once("harmless")
