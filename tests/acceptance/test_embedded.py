"""The embedded default, SQLite and the loopback broker, with real workers: it survives what the big one survives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from stores.sql.migrate import upgrade
from tests.acceptance import scenarios
from tests.acceptance.conftest import MakeFleet
from tests.acceptance.fleet import PATIENCE, POOLS, SHORT, FleetUnderTest, Process
from tests.acceptance.write_lock import WriteLock
from tests.servers import Proxy
from tests.servers.daemon import free_port
from tests.travel import ROOT, TravelService
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

pools = pytest.mark.parametrize("pool", list(POOLS))


class Broker:
    """The loopback broker's process, which a test may kill and start again on its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._process: Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        ready = self._folder / "broker.ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "tasks.embedded", "--port", str(self.port), "--ready-file", str(ready)]
        self._process = Process(
            "broker", command, log=self._folder / "broker.log", environment={"PYTHONPATH": str(ROOT)}
        )
        wait_until(ready.exists, within=PATIENCE, what="the broker to listen")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def embedded(tmp_path: Path, broker: Broker, travel: TravelService, orphan_guard) -> Iterator[MakeFleet]:
    with ExitStack() as stack:

        def make(*, times=SHORT, patience=PATIENCE) -> FleetUnderTest:
            store_url = f"sqlite:///{tmp_path / 'adk.db'}"
            upgrade(store_url)
            fleet = FleetUnderTest(
                tmp_path,
                store_url=store_url,
                broker_url=broker.url,
                travel=travel,
                guard=orphan_guard,
                times=times,
                patience=patience,
            )
            stack.callback(fleet.close)
            fleet.backstage()
            return fleet

        yield make


def write_lock(fleet: FleetUnderTest) -> WriteLock:
    return WriteLock(fleet.store_url.removeprefix("sqlite:///"))


@pools
def test_a_kill_in_a_model_call(embedded, pool):
    """The frontier before it is carried on; no call of a tool is repeated."""
    scenarios.killed_in_a_model_call(embedded(), pool=pool)


@pools
def test_a_kill_before_the_intent(embedded, pool):
    """I2: the claim was about to be written; the call never ran, so it is made, once."""
    fleet = embedded()
    scenarios.killed_before_the_intent(fleet, pool=pool, store=write_lock(fleet))


@pools
def test_a_kill_between_effect_and_record(embedded, pool):
    """I2, I7: the probe finds the booking."""
    scenarios.killed_between_effect_and_record(embedded(), pool=pool)


@pools
def test_a_kill_between_intent_and_effect(embedded, pool):
    """I2, I7: the probe bars the key."""
    scenarios.killed_between_intent_and_effect(embedded(), pool=pool)


@pools
def test_kills_at_random_moments(embedded, pool):
    """I2-I4, F1: nobody chose what was going on."""
    fleet = embedded(times={**SHORT, "ADK_MAX_CRASHES": "50"})
    scenarios.killed_at_random(fleet, pool=pool, campaign=scenarios.Campaign.asked_for())


@pools
def test_a_pause_past_the_lease(embedded, pool):
    """F1, F4: the late outcome heals the run."""
    fleet = embedded()
    scenarios.paused_past_its_lease(fleet, pool=pool, store=write_lock(fleet))


@pools
def test_a_kill_between_commit_and_publish(embedded, broker: Broker, pool):
    """The store has handed over, and no message was sent: the queued lease lapses and the reaper publishes."""
    with Proxy(broker.port) as proxy:
        scenarios.killed_between_commit_and_publish(embedded(), pool=pool, behind=proxy)


@pools
def test_doubled_and_very_late_messages(embedded, pool):
    """A ticket is spent once."""
    scenarios.doubled_and_very_late(embedded(), pool=pool)


@pools
def test_an_emptied_broker(embedded, pool):
    """Nothing is lost but time."""
    scenarios.broker_emptied(embedded(), pool=pool)


@pools
def test_the_brokers_death_loses_nothing_but_time(embedded, broker: Broker, pool):
    """Its messages are gone with it; the reaper publishes them again from the store."""
    fleet = embedded()
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    names = [f"embedded-{number}" for number in range(3)]
    fleet.worker("worker", pool=pool, slots=len(names))
    for name in names:
        fleet.submit(name)
    held.wait(at_least=len(names), within=PATIENCE)
    broker.kill()
    held.release()
    broker.start()
    fleet.done_once(*names)
