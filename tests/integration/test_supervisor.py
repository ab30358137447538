"""Programs that are kept running, as real processes that do little."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from adk_worker.cli import leash
from adk_worker.cli.supervisor import Program, Supervisor
from adk_worker.errors import ConfigurationError
from tests.waiting import eventually, wait_until

_WAITS = "import signal; print('ready', flush=True); signal.pause()"
_DEAF = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
while True:
    signal.pause()
"""


def program(name="one", script=_WAITS, **fields):
    return Program(name, [sys.executable, "-c", script], **{"ready": "ready", **fields})


def gone(process):
    """Whether it has ended, seen by somebody or not."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


class Stage:
    """A supervisor at work, and what it has said."""

    def __init__(self, *stages):
        self.lines = []
        self.ready = asyncio.Event()
        self.supervisor = Supervisor(dict(os.environ), lambda *line: self.lines.append(line), pause=0.01)
        self.running = asyncio.create_task(self.supervisor.run(*stages, on_ready=self.ready.set))

    def said(self, name="one"):
        return [text for who, text in self.lines if who == name]

    def pids(self, name="one"):
        return [int(text.rpartition(" ")[2]) for text in self.said(name) if text.startswith("runs as pid")]

    async def is_ready(self):
        await eventually(lambda: self.ready.is_set() or self.running.done(), within=60, what="all to be ready")
        assert self.ready.is_set(), self.running.result()

    async def stop(self):
        self.supervisor.stop()
        await asyncio.wait_for(self.running, 60)


async def test_a_stage_waits_for_the_one_before_and_outlives_the_one_after():
    stage = Stage([program("first")], [program("second"), program("third")])
    await stage.is_ready()
    await stage.stop()
    told = [(name, text.split(" ")[0]) for name, text in stage.lines]
    assert told[:2] == [("first", "runs"), ("first", "ready")]
    assert told[-1] == ("first", "has")
    assert not any(psutil.pid_exists(pid) for name in ("first", "second", "third") for pid in stage.pids(name))


async def test_what_dies_is_started_again():
    stage = Stage([program()])
    await stage.is_ready()
    os.kill(stage.pids()[0], signal.SIGKILL)
    await eventually(lambda: stage.said().count("ready") == 2, within=60, what="a second life")
    assert "has ended (SIGKILL): starting it again" in stage.said()
    await stage.stop()


async def test_what_is_below_a_program_that_died_dies_too():
    """The pool of a prefork worker would carry on with nobody above it."""
    script = (
        "import subprocess, sys; c = subprocess.Popen(['sleep', '600']); print('below', c.pid, flush=True);" + _WAITS
    )
    stage = Stage([program(script=script)])
    await stage.is_ready()
    below = psutil.Process(int(stage.said()[1].split(" ")[1]))
    os.kill(stage.pids()[0], signal.SIGKILL)
    await eventually(lambda: len(stage.pids()) == 2, within=60, what="a second life")
    await eventually(lambda: gone(below), what="what was below it to die")
    await stage.stop()


async def test_what_never_gets_ready_ends_it_all_and_is_named():
    stage = Stage([program("good")], [program("bad", "print('no', flush=True); raise SystemExit(3)")])
    with pytest.raises(ConfigurationError, match=r"bad does not start \(exit code 3\)"):
        await asyncio.wait_for(stage.running, 60)
    assert len(stage.pids("bad")) == 3
    assert not psutil.pid_exists(stage.pids("good")[0])


async def test_what_can_never_work_is_not_tried_again():
    stage = Stage([program(script="raise SystemExit(78)")])
    with pytest.raises(ConfigurationError):
        await asyncio.wait_for(stage.running, 60)
    assert len(stage.pids()) == 1


async def test_what_does_not_end_in_time_is_killed():
    stage = Stage([program(script=_DEAF, patience=0.1)])
    await stage.is_ready()
    await stage.stop()
    assert stage.said()[-2:] == ["does not end: killing it", "has ended (SIGKILL)"]


async def test_to_stop_twice_is_to_kill():
    """The second Ctrl-C."""
    stage = Stage([program(script=_DEAF, patience=600)])
    await stage.is_ready()
    stage.supervisor.stop()
    await stage.stop()
    assert "does not end: killing it" in stage.said()


async def test_it_stops_while_it_starts():
    stage = Stage([program(script="import signal; signal.pause()")], [program("never")])
    await eventually(stage.pids, within=60, what="the first to be started")
    await stage.stop()
    assert not stage.ready.is_set()
    assert stage.pids("never") == []


async def test_output_comes_through_whatever_it_is():
    script = "import sys; sys.stdout.buffer.write(b'\\xff\\n' + b'x' * 300_000 + b'\\nhush now\\n'); " + _WAITS
    stage = Stage([program(script=script, unsaid=("hush",))])
    await stage.is_ready()
    assert stage.said()[1] == "\N{REPLACEMENT CHARACTER}"
    assert sum(text.count("x") for text in stage.said()) == 300_000
    assert "hush now" not in stage.said()
    await stage.stop()


def test_a_program_on_a_leash_does_not_outlive_a_parent_that_was_killed(orphan_guard):
    """However the parent dies."""
    middle = f"""
import subprocess, sys, os
child = subprocess.Popen([sys.executable, "-I", "-S", {leash.__file__!r}, str(os.getpid()), sys.executable, "-c",
    "import signal; print('up', flush=True); signal.pause()"], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE) as parent:
        orphan_guard.watch(parent.pid)
        pid = int(parent.stdout.readline())
        orphan_guard.watch(pid)
        parent.kill()
    wait_until(lambda: not psutil.pid_exists(pid), within=60, what="the program to be gone")


def test_a_program_whose_parent_is_gone_already_is_not_started():
    command = [sys.executable, "-I", "-S", leash.__file__, "1", sys.executable, "-c", "print('up')"]
    ran = subprocess.run(command, check=False, capture_output=True)
    assert (ran.returncode, ran.stdout) == (1, b"")
