"""The demo as whoever tries this first meets it: a process, its exit code, and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from examples.travel.journal import judge, read_journal
from examples.travel.performance import BOOKER, PASSENGERS, TENANT
from tests.servers import OrphanGuard
from tests.travel import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE = 180.0


class Demo:
    """A demo that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "stage"
        self._printed = folder / "printed"
        # Settings of some other fleet, which it must not take for its own.
        strange = {"ADK_STORE_URL": "postgresql://nobody@127.0.0.1:1/nothing", "ADK_AGENTS": "no.such.module"}
        with self._printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "examples.travel.demo", "--folder", str(self.folder)],
                cwd=ROOT,
                env={**{name: value for name, value in os.environ.items() if name != "FORCE_COLOR"}, **strange},
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return self._printed.read_text()

    def says(self, what: str) -> bool:
        assert self.process.poll() is None, self.printed
        return what in self.printed

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def processes(self) -> list[str]:
        """What still runs of it: everything that works in its folder or was told of it."""
        found = []
        for process in psutil.process_iter():
            try:
                known = [*process.cmdline(), *process.environ().values()]
            except psutil.Error:
                continue
            if process.pid != self.process.pid and any(str(self.folder) in one for one in known):
                found.append(f"{process.pid}: {process.cmdline()}")
        return found


@pytest.fixture
def demo(tmp_path: Path, orphan_guard: OrphanGuard) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    orphan_guard.watch(demo.process.pid)
    yield demo
    if demo.process.poll() is None:
        demo.process.terminate()
        demo.process.wait(PATIENCE)


def test_the_demo_shows_what_it_says(demo):
    """I7, F1: two workers die, and the service's own journal has every seat booked once and paid once."""
    assert demo.end() == 0, demo.printed

    said = demo.printed
    assert "kill -9 in the middle of a model call" in said
    assert "kill -9 in the middle of a booking" in said
    assert said.count("worker that holds") == 2
    # As a rule by the worker that is started in a dead one's place, and if that takes long by the reaper.
    assert "queues the run again" in said
    assert "book_seat settled by the tool's probe" in said
    assert f"{len(PASSENGERS)} seats booked, each of them once" in said
    assert "How to go on" in said
    assert "\x1b" not in said, "it goes to no terminal"
    runs = [(TENANT, run_id) for run_id in PASSENGERS]
    assert judge(read_journal(demo.folder / "travel.jsonl"), runs=runs).ok
    assert not demo.processes()
    assert inspected(demo, BOOKER).count("recovered") >= 1


def inspected(demo: Demo, run_id: str) -> str:
    """What one of the commands says with which the demo goes on."""
    command = [sys.executable, "-m", "adk_worker.cli", "inspect", run_id, "--tenant", TENANT, "--events"]
    store = {"ADK_STORE_URL": f"sqlite:///{demo.folder}/adk.db"}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **store}
    ).stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_stopped_leaves_nothing_running(demo, number, code):
    wait_until(lambda: demo.says("submitted:"), within=PATIENCE, what="the runs to be submitted")

    demo.process.send_signal(number)

    assert demo.end() == code, demo.printed
    assert not demo.processes()


def test_a_demo_that_is_killed_leaves_nothing_running(demo):
    wait_until(lambda: demo.says("submitted:"), within=PATIENCE, what="the runs to be submitted")

    demo.process.kill()

    demo.end()
    wait_until(lambda: not demo.processes(), within=PATIENCE, what="what it had started to end")
