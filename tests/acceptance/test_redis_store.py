"""The fleet's state in Redis, the broker in another: kills and pauses end as they do with a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance import scenarios
from tests.acceptance.fleet import PATIENCE, FleetUnderTest
from tests.redis_stores import made, naming
from tests.servers import OrphanGuard, Proxy, RedisCluster, RedisServer
from tests.travel import TravelService

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def store(orphan_guard: OrphanGuard) -> Iterator[RedisServer]:
    """The store's own server, which a test may injure; the broker's is another."""
    with RedisServer(guard=orphan_guard) as server:
        yield server


@pytest.fixture
def make_fleet(
    tmp_path: Path, redis_url: str, travel: TravelService, orphan_guard: OrphanGuard
) -> Iterator[Callable[[str], FleetUnderTest]]:
    """Make a fleet on a store in Redis, with short times, reaped; all of it ends with the test."""
    with ExitStack() as stack:

        def make(store_url: str, *, reaped: bool = True) -> FleetUnderTest:
            fleet = FleetUnderTest(
                tmp_path, store_url=made(store_url), broker_url=redis_url, travel=travel, guard=orphan_guard
            )
            stack.callback(fleet.close)
            if reaped:
                fleet.backstage()
            return fleet

        yield make


@pytest.fixture
def fleet(make_fleet: Callable[[str], FleetUnderTest], store: RedisServer) -> FleetUnderTest:
    """A fleet on one server."""
    return make_fleet(store.url())


def test_a_worker_killed_in_a_model_call(fleet):
    """The frontier before it is carried on; no call of a tool is repeated."""
    scenarios.killed_in_a_model_call(fleet, pool="threads")


def test_a_raise_whose_program_is_killed_is_carried_through(make_fleet, store):
    """P3: between the write of a tenant's limit and the runs that were parked on it."""
    with Proxy(store.port) as proxy:
        scenarios.killed_in_a_raise(make_fleet(store.url(), reaped=False), store=proxy, at=b":waiting:")


def test_a_worker_killed_between_effect_and_record(fleet):
    """I2, I7: the probe finds the booking; its outcome is recorded and the call not made again."""
    scenarios.killed_between_effect_and_record(fleet, pool="threads")


def test_a_worker_paused_past_its_lease_writes_no_state_and_its_late_outcome_heals(fleet):
    """F1, F4: SIGSTOP past the TTL, SIGCONT afterwards; its outcome is evidence, and the run goes on by itself."""
    scenarios.paused_past_its_lease(fleet, pool="threads")


def test_on_a_cluster_a_worker_killed_between_effect_and_record(make_fleet, redis_cluster: RedisCluster):
    """I2, I7: the same, with a run's keys on one node and the next run's on another."""
    redis_cluster.empty()
    fleet = make_fleet(redis_cluster.url)
    scenarios.killed_between_effect_and_record(fleet, pool="threads")


def test_a_store_that_restarts_in_mid_run_is_waited_for(fleet, store: RedisServer):
    """C3, F5: workers, reaper and client go on by themselves, and nothing is made twice."""
    fleet.worker("worker")
    held = fleet.travel.hold("book", run_id="restarted", at="before_answer")
    fleet.submit("restarted")
    held.wait(within=PATIENCE)
    store.kill()
    store.start()
    held.release()
    fleet.done_once("restarted")


def test_an_answer_lost_in_a_write_doubles_nothing(fleet, store: RedisServer):
    """F5: every seventh write is answered into the void; it is read again and found done."""
    write = naming("apply")
    seen = 0

    def seventh(request: bytes) -> bool:
        nonlocal seen
        if write not in request:
            return False
        seen += 1
        return seen % 7 == 0

    with Proxy(store.port) as proxy:
        fault = proxy.lose_answer(to=seventh, times=6)
        fleet.worker("worker", ADK_STORE_URL=proxy.url(fleet.store_url))
        names = [f"unsure-{number}" for number in range(4)]
        for name in names:
            fleet.submit(name)
        fleet.done_once(*names)
        fleet.close()
        assert fault.count > 0
