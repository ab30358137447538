"""The broker of the first run, as a process of its own, under a real fleet."""

from __future__ import annotations

import subprocess
import sys

import pytest

from adk_worker.runs import RunStatus
from tests.acceptance.fleet import PATIENCE
from tests.architecture.packages import ROOT
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(tmp_path, orphan_guard):
    fleet = CeleryFleet(tmp_path, None, orphan_guard)
    fleet.make_store()
    fleet.times["ADK_DISPATCH_GRACE"] = "0.5"
    yield fleet
    fleet.close()


def start_broker(fleet, name, *arguments):
    """Start the broker and take its address from its file."""
    ready = fleet.folder / f"{name}.url"
    broker = fleet.program("tasks.embedded", "--ready-file", str(ready), *arguments, name=name, ADK_BROKER_URL=None)
    wait_until(ready.exists, within=PATIENCE, what="the broker's address")
    fleet.broker_url = ready.read_text().strip()
    return broker


def test_a_fleet_works_on_it_and_its_death_loses_nothing_but_time(fleet):
    """It keeps nothing: the reaper publishes again what was on it when it died, from the store."""
    broker = start_broker(fleet, "broker")
    fleet.backstage()
    fleet.worker()
    fleet.submit("book")
    assert fleet.rests().status is RunStatus.COMPLETED
    broker.kill()
    fleet.submit("book", "run_2", published=False)
    start_broker(fleet, "broker-again", "--port", fleet.broker_url.rpartition(":")[2].partition("/")[0])
    fleet.lapse("run_2")
    assert fleet.rests("run_2").status is RunStatus.COMPLETED
    assert fleet.written("booked") == ["run_1", "run_2"]


def test_it_ends_on_a_signal(fleet):
    broker = start_broker(fleet, "broker")
    assert broker.stop() == 0


def test_it_ends_together_with_whoever_started_it(fleet):
    """A supervisor that is killed cannot stop it; its end of a pipe closes all the same."""
    starter = subprocess.Popen(
        [sys.executable, "-m", "tasks.embedded", "--until-stdin-ends"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=fleet.environment(ADK_BROKER_URL=None),
    )
    assert starter.stdout.readline().startswith(b"ready: redis://127.0.0.1:")
    starter.stdin.close()
    assert starter.wait(PATIENCE) == 0
    starter.stdout.close()


def test_a_port_that_is_taken_is_named(fleet):
    start_broker(fleet, "broker")
    port = fleet.broker_url.rpartition(":")[2].partition("/")[0]
    command = [sys.executable, "-m", "tasks.embedded", "--port", port]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert ran.returncode == 1
    assert ran.stderr == f"Error: cannot listen on 127.0.0.1:{port}: Address already in use.\n"
