"""The Procfile's commands, as a process manager runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.acceptance.fleet import PATIENCE
from tests.architecture.packages import ROOT
from tests.flower import Flower
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def commands():
    lines = (ROOT / "Procfile").read_text().splitlines()
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


@pytest.fixture
def fleet(tmp_path, redis_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    fleet.make_store()
    yield fleet
    fleet.close()


@pytest.fixture
def run(fleet, orphan_guard):
    """Start a command of the Procfile; its log."""
    started = []

    def start(name, **environment):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        log = fleet.folder / f"{name}.log"
        with log.open("ab") as file:
            process = subprocess.Popen(
                ["/bin/sh", "-c", commands()[name]],
                cwd=ROOT,
                env=fleet.environment(PATH=path, **environment),
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        orphan_guard.watch(process.pid)
        started.append(process)
        return process, log

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_fleet_started_from_it_carries_runs_on(fleet, run):
    for name in ("worker", "control", "beat"):
        run(name, ADK_DISPATCH_GRACE="0.5")
    fleet.submit("book", published=False)
    fleet.lapse("run_1")
    assert fleet.rests().output == "Done."
    assert not list(ROOT.glob("celerybeat*"))


class TestFlower:
    def test_does_not_start_without_a_password(self, run):
        process, log = run("flower", FLOWER_BASIC_AUTH=None)
        assert process.wait(PATIENCE) != 0
        assert "user:password" in log.read_text()

    def test_listens_on_the_loopback_and_asks_for_it(self, run):
        flower = Flower()
        process, _ = run("flower", **flower.environment)
        wait_until(lambda: flower.ask("/workers")[0] == 200, within=PATIENCE, what="Flower to answer")
        assert flower.ask("/workers", password=None)[0] == flower.ask("/workers", password="wrong")[0] == 401
        listening = [
            c.laddr.ip for c in psutil.Process(process.pid).net_connections() if c.status == psutil.CONN_LISTEN
        ]
        assert listening == ["127.0.0.1"]
