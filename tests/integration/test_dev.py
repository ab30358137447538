"""`adk dev`, end to end: a fleet that other terminals find, that outlives its parts, and of which nothing stays."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys

import psutil
import pytest

from adk_worker.liveness import Holder
from tests.architecture.packages import ROOT
from tests.integration.test_cli import Adk
from tests.waiting import wait_until

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow]

_PATIENCE = 180

# An agent that looks twice, for as long as there is one file, so that it can be killed in the middle; with another it
# fails, until somebody mends it.
_SHOP = """
from __future__ import annotations

import asyncio
from pathlib import Path

from adk_worker import Agent, ModelError, ToolContext, tool


def turns(request):
    if Path("broken").exists():
        raise ModelError("there is no such model")
    return f"looked {request.iteration - 1} times" if request.iteration == 3 else ("look", {})


@tool(effect="read_only", timeout=300)
async def look(ctx: ToolContext) -> str:
    Path(f"looked-{ctx.run_id}").touch()
    while Path("hold").exists():
        await asyncio.sleep(0.05)
    return "nothing to be seen"


looker = Agent(name="looker", instructions="Look.", model="scripted:shop:turns", tools=[look])
"""


class Dev:
    """An ``adk dev`` in a folder of its own, with its output in a file outside of it."""

    def __init__(self, folder, *options):
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "shop.py").write_text(_SHOP)
        runtime = folder / "runtime"
        runtime.mkdir()
        self.runtime = runtime
        # Bytecode would be one more thing that the project's folder has afterwards.
        environment = {"XDG_RUNTIME_DIR": str(runtime), "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        environment |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{self.project}"}
        self.adk = Adk(self.project, **environment)
        self.adk.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        self._log = folder / "dev.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "adk_worker.cli", "dev", "--agents", "shop", *options],
                cwd=self.project,
                env=self.adk.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self):
        return self._log.read_text(errors="replace")

    def await_ready(self):
        def ready():
            assert self.process.poll() is None, self.log()
            return re.search("^ready: ", self.log(), re.MULTILINE)

        wait_until(ready, within=_PATIENCE, what="adk dev to be ready")

    def pids(self, name):
        """The process ids of one program, one for each of its lives."""
        return [int(pid) for pid in re.findall(rf"^ *{name} \| runs as pid (\d+)$", self.log(), re.MULTILINE)]

    def below(self):
        """All processes below it now."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def looks(self, run_id):
        """Submit a run, and wait until it looks for the first time."""
        ran = self.adk("run", "looker", "look", "--tenant", "acme", "--run-id", run_id)
        assert ran.returncode == 0, ran.stderr
        looked = self.project / f"looked-{run_id}"
        wait_until(looked.exists, within=_PATIENCE, what=f"{run_id} to look\n{self.log()[-3000:]}")

    def completes(self, run_id):
        """Submit the very same run again, which finds it, and wait for its end."""
        ran = self.adk(
            "run", "looker", "look", "--tenant", "acme", "--run-id", run_id, "--wait", "--timeout", str(_PATIENCE)
        )
        assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}{self.log()[-3000:]}"
        # Behind it, what a killed worker's model call cost, if one was cut off, is said to be unaccounted for (C6).
        assert "completed\n    looked 2 times\n" in ran.stdout

    def inspected(self, run_id):
        return json.loads(self.adk("inspect", run_id, "--tenant", "acme", "--json", "--events").stdout)

    def end(self):
        for process in [*self.below(), self.process] if self.process.poll() is None else []:
            process.kill()
        self.process.wait()


@pytest.fixture
def make_dev(tmp_path, orphan_guard):
    started = []

    def make(*options):
        dev = Dev(tmp_path, *options)
        started.append(dev)
        orphan_guard.watch(dev.process.pid)
        return dev

    yield make
    for dev in started:
        dev.end()


def test_a_fleet_that_is_found_outlives_its_parts_and_leaves_only_the_database(make_dev):
    """One fleet for all of it, since each takes seconds to start: the story of an afternoon at a desk."""
    dev = make_dev("--port-file", "broker.port", "--workers", "2")
    dev.await_ready()
    assert dev.project.joinpath("broker.port").read_text().strip().isdigit()
    keys = dev.project / "adk.db.keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert f"seal keys: made {keys}" in dev.log()
    key = keys.read_text().splitlines()[-1]
    assert key not in dev.log()

    # another terminal finds it, without a setting, and no second fleet is started beside it
    dev.completes("first")
    second = dev.adk("dev", "--agents", "shop")
    assert second.returncode == 78
    assert f"the adk dev of pid {dev.process.pid} works on" in second.stderr

    # a run that failed is carried on once its cause is gone
    broken = dev.project / "broken"
    broken.touch()
    asked = ("--tenant", "acme", "--run-id", "mended")
    assert dev.adk("run", "looker", "look", *asked, "--wait").returncode == 65
    broken.unlink()
    carried = dev.adk("run", "--resume", "mended", "--tenant", "acme", "--timeout", str(_PATIENCE))
    assert carried.returncode == 0, f"{carried}{dev.log()[-3000:]}"
    assert re.search(r"^holding its lease under fence \d+\ncarried on: sequence ", carried.stdout, re.MULTILINE)
    dev.completes("mended")

    # kill -9 of a worker in the middle of an iteration: another carries the run on
    hold = dev.project / "hold"
    hold.touch()
    dev.looks("of-a-dead-worker")
    victim = Holder.parse(dev.inspected("of-a-dead-worker")["lease"]["holder"]).process.pid
    assert victim in dev.pids("worker-1") + dev.pids("worker-2")
    os.kill(victim, signal.SIGKILL)
    hold.unlink()
    dev.completes("of-a-dead-worker")
    assert "recovered" in [event["kind"] for event in dev.inspected("of-a-dead-worker")["events"]]

    # kill -9 of the broker, with messages in it: nothing is lost but time
    hold.touch()
    dev.looks("of-a-dead-broker")
    (broker,) = dev.pids("broker")
    os.kill(broker, signal.SIGKILL)
    wait_until(lambda: len(dev.pids("broker")) == 2, within=_PATIENCE, what="the broker to be started again")
    hold.unlink()
    dev.completes("of-a-dead-broker")
    dev.completes("after-it")

    # Ctrl-C
    everything = dev.below()
    dev.process.send_signal(signal.SIGINT)
    assert dev.process.wait(_PATIENCE) == 0, dev.log()
    assert [process for process in everything if process.is_running()] == []
    assert "killing it" not in dev.log()
    left = {path.name for path in dev.project.iterdir() if not path.name.startswith("looked-")}
    assert left == {"shop.py", "adk.db", "adk.db.keys"}
    assert [path for path in dev.runtime.rglob("*") if path.is_file()] == []
    assert "\nTraceback" not in dev.log()


def test_no_part_of_it_outlives_a_supervisor_that_was_killed(make_dev):
    """Children of a prefork worker neither, which no one has on a leash but their parent."""
    dev = make_dev("--workers", "1", "--pool", "prefork", "--concurrency", "1")
    dev.await_ready()
    dev.completes("first")
    everything = dev.below()
    assert len(everything) == 5, everything  # broker, control, beat, worker, and its child

    dev.process.kill()
    dev.process.wait()

    wait_until(
        lambda: not [process for process in everything if process.is_running()], within=_PATIENCE, what="all to be gone"
    )


@pytest.fixture
def adk(tmp_path):
    (tmp_path / "shop.py").write_text(_SHOP)
    return Adk(tmp_path)


def test_a_store_that_it_does_not_use_is_named(adk):
    """Other terminals with the same environment would not find it."""
    ran = adk("dev", "--agents", "broken", ADK_STORE_URL="postgresql://app:tiger@db/x", ADK_BROKER_URL="")
    assert "not used here: ADK_STORE_URL. adk dev has a store and a broker of its own" in ran.stderr
    assert "tiger" not in ran.stderr


def test_what_cannot_work_is_said_before_anything_is_started(adk):
    (adk.folder / "broken.py").write_text("import no_such_module")
    (adk.folder / "hermit.py").write_text("")
    for argv, said in [
        ([], "adk dev needs agents"),
        (["--agents", "broken"], "'broken' does not import: ModuleNotFoundError"),
        (["--agents", "hermit"], "module 'hermit' of ADK_AGENTS has no agents"),
        (["--agents", "shop", "--db", "nowhere/adk.db"], "there is no folder"),
    ]:
        ran = adk("dev", *argv)
        assert (ran.returncode, ran.stdout) == (78, ""), ran
        assert said in ran.stderr
    ran = adk("dev", "--agents", "shop", ADK_LEASE_TTL="soon")
    assert ran.returncode == 78
    assert "ADK_LEASE_TTL" in ran.stderr
    assert not (adk.folder / "adk.db").exists()
