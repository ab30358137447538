"""``adk alive`` beside real workers: idle, busy, suspended, cut off, and none at all."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest
from celery import Celery

from tasks.config import celery_config
from tests.acceptance.fleet import PATIENCE
from tests.architecture.packages import ROOT
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def broker(request):
    """A broker's URL, and the proxy in front of it; the parameter says which."""
    return request.getfixturevalue(f"{request.param}_url"), request.getfixturevalue(f"{request.param}_proxy")


@pytest.fixture
def fleet(tmp_path, broker, orphan_guard):
    fleet = CeleryFleet(tmp_path, broker[0], orphan_guard)
    # What a worker may take for silence is a multiple of it, and some seconds.
    fleet.times |= {"ADK_ALIVE_DIR": str(tmp_path / "alive"), "ADK_SOCKET_TIMEOUT": "1"}
    fleet.make_store()
    yield fleet
    fleet.close()


def alive(fleet, *arguments, **environment):
    """The exit code of `adk alive`, what it said of each worker, and its notes."""
    ran = subprocess.run(
        [sys.executable, "-m", "adk_worker.cli", "alive", "--json", *arguments],
        check=False,
        cwd=ROOT,
        env=fleet.environment(**environment),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    return ran.returncode, [json.loads(line) for line in ran.stdout.splitlines()], ran.stderr


def signs(fleet, *arguments, **environment):
    code, found, _ = alive(fleet, *arguments, **environment)
    return code, [worker["sign"] for worker in found]


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_without_a_worker_it_says_that_there_is_none(fleet):
    """And needs neither store nor broker to say it."""
    code, found, said = alive(fleet, ADK_STORE_URL=None, ADK_BROKER_URL=None)
    assert (code, found, "no worker runs here" in said) == (1, [], True)


@pytest.mark.parametrize(("broker", "pool"), [("redis", "prefork"), ("rabbitmq", "threads")], indirect=["broker"])
def test_a_worker_with_nothing_to_do_is_told_from_one_that_does_not_consume(fleet, broker, pool):
    """Idle; in the middle of a step; its broker is gone for everybody; then for the worker alone; then it is back."""
    url, proxy = broker
    worker = fleet.worker(pool=pool, ADK_BROKER_URL=proxy.url(url))
    wait_until(lambda: signs(fleet, "--consuming", "--backlog") == (0, ["idle"]), within=PATIENCE, what="it to idle")

    fleet.submit("look")
    fleet.begun()
    wait_until(lambda: signs(fleet, "--consuming") == (0, ["working"]), within=PATIENCE, what="it to work")
    fleet.release()
    fleet.rests()

    proxy.pause()
    away = {"ADK_BROKER_URL": proxy.url(url)}
    wait_until(
        lambda: signs(fleet, "--consuming", **away) == (69, ["broker away"]), within=PATIENCE, what="it to be missed"
    )
    assert signs(fleet, **away) == (0, ["broker away"])
    wait_until(lambda: signs(fleet) == (75, ["not consuming"]), within=PATIENCE, what="it to be in doubt for long")

    proxy.resume()
    wait_until(lambda: signs(fleet, "--consuming") == (0, ["idle"]), within=PATIENCE, what="it to consume again")
    assert worker.stop() == 0
    assert signs(fleet) == (1, [])


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_passes_over_what_waits_is_told_by_asking_the_broker(fleet):
    """It hears its broker, and looks idle: somebody has told it to consume no more, and forgotten."""
    fleet.worker()
    with Celery("adk", set_as_current=False, config_source=celery_config(fleet.settings)) as app:
        app.control.cancel_consumer("adk", reply=True)
    fleet.submit("book")
    wait_until(lambda: signs(fleet, "--backlog") == (75, ["not consuming"]), within=PATIENCE, what="it to be found out")
    assert signs(fleet) == (0, ["idle"])


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_is_suspended_is_told_and_one_that_was_killed_is_none(fleet):
    """SIGSTOP to its main process; a second worker beside it is fine, and can be asked for alone."""
    worker = fleet.worker()
    fleet.worker(name="other")
    host = alive(fleet)[1][0]["name"].partition("@")[2]
    psutil.Process(worker.pid).send_signal(signal.SIGSTOP)
    wait_until(
        lambda: signs(fleet, f"worker@{host}") == (75, ["stopped"]), within=PATIENCE, what="it to be found suspended"
    )
    assert signs(fleet, f"other@{host}") == (0, ["idle"])
    assert alive(fleet)[0] == 75
    psutil.Process(worker.pid).send_signal(signal.SIGCONT)
    wait_until(lambda: signs(fleet) == (0, ["idle", "idle"]), within=PATIENCE, what="it to go on")
    worker.kill()
    assert signs(fleet) == (0, ["idle"])


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_waits_for_its_store_starts(fleet):
    """Which a restart would not hasten."""
    fleet.worker(ready="store_away", ADK_STORE_URL=f"sqlite:///{fleet.folder}/later/runs.db")
    assert signs(fleet) == (0, ["starting"])
    assert signs(fleet, "--consuming") == (69, ["starting"])


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_worker_that_cannot_write_its_file_works_all_the_same(fleet):
    (fleet.folder / "alive").write_text("in the way")
    worker = fleet.worker()
    assert worker.log().count("pulse_not_written") == 1
