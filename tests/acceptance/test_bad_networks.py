"""Connections that die between a worker and its servers: it goes on consuming afterwards, and nobody restarts it.

The worker stands behind a proxy; the reaper, the client and the booking service do not. Each injury strikes in the
middle of a step. The worker's time-outs are short, so that each lasts several of them; ``ADK_TEST_BLACK_HOLE`` makes
the longest one last for so many seconds, with the time-outs that a fleet has by default.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.acceptance.fleet import PATIENCE, SHORT, FleetUnderTest, Process
from tests.servers import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(400)]

HOLE = float(os.environ.get("ADK_TEST_BLACK_HOLE", "5"))
TIMES = SHORT if "ADK_TEST_BLACK_HOLE" in os.environ else {**SHORT, "ADK_SOCKET_TIMEOUT": "1"}
PATIENT = PATIENCE + HOLE


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request) -> tuple[str, Proxy]:
    """A broker's URL, and the proxy in front of it."""
    return request.getfixturevalue(f"{request.param}_url"), request.getfixturevalue(f"{request.param}_proxy")


class Injured:
    """A fleet of one worker, whose steps are under way when something is done to its network."""

    def __init__(self, fleet: FleetUnderTest, worker: Process) -> None:
        self.fleet = fleet
        self.worker = worker

    def goes_on(self, name: str, injure, mend=lambda: None) -> None:
        """One run is in the middle of a booking as its network is injured, the next is submitted when it is mended."""
        held = self.fleet.travel.hold("book", run_id=name, at="before_answer")
        self.fleet.submit(name)
        held.wait(within=PATIENCE)
        injure()
        held.release()
        mend()
        self.fleet.submit(f"{name}-next")
        self.fleet.done_once(name, f"{name}-next")


def lasting(seconds: float) -> None:
    """Let so much time pass: here it is what the test is about."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= end, within=seconds + 10, what="the black hole to have lasted")


def test_a_broker_whose_connections_die(make_fleet_on, broker):
    """Cut, slow, half-open, and swallowed for many time-outs: consumer, events and publishers alike."""
    url, proxy = broker
    fleet = make_fleet_on(url, times=TIMES, patience=PATIENT)
    injured = Injured(fleet, fleet.worker("worker", ADK_BROKER_URL=proxy.url(url)))

    injured.goes_on("cut", proxy.cut)
    injured.goes_on("slow", lambda: proxy.delay(0.2), lambda: proxy.delay(0))
    injured.goes_on("half-open", proxy.half_open)

    def swallow() -> None:
        proxy.pause()
        lasting(HOLE)
        wait_until(lambda: injured.worker.says("Cannot connect"), within=PATIENT, what="it to notice while it lasts")

    injured.goes_on("swallowed", swallow, proxy.resume)
    assert not injured.worker.says("Unrecoverable")


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_is_told_to_end_does_so_while_its_broker_swallows_everything(make_fleet_on, broker):
    """Within the grace that a platform is to allow, which is less than a single one of its time-outs here."""
    url, proxy = broker
    fleet = make_fleet_on(url, times={**SHORT, "ADK_SOCKET_TIMEOUT": str(2 * PATIENCE), "ADK_DRAIN_TIMEOUT": "1"})
    worker = fleet.worker("worker", ADK_BROKER_URL=proxy.url(url))
    held = fleet.travel.hold("hold", run_id="leaving", at="before_answer")
    fleet.submit("leaving")
    held.wait(within=PATIENCE)
    proxy.pause()
    held.release()
    assert worker.stop() == 0
    fleet.worker("heir")
    fleet.done_once("leaving")


def test_a_store_whose_connections_die(make_fleet, postgres_proxy: Proxy):
    """F1, F5: what was under way is looked up or fenced off, and the worker's next run is like any other."""
    fleet = make_fleet(times=TIMES, patience=PATIENT)
    store = postgres_proxy.url(fleet.store_url)
    injured = Injured(fleet, fleet.worker("worker", ADK_STORE_URL=store))

    injured.goes_on("cut", postgres_proxy.cut)
    injured.goes_on("slow", lambda: postgres_proxy.delay(0.02), lambda: postgres_proxy.delay(0))
    injured.goes_on("half-open", postgres_proxy.half_open)

    def swallow() -> None:
        postgres_proxy.pause()
        lasting(HOLE)

    injured.goes_on("swallowed", swallow, postgres_proxy.resume)
