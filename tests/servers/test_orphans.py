from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.servers import OrphanGuard
from tests.servers.orphans import end_what_is_left, started_at
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def child():
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_what_a_killed_session_left_is_ended_and_removed(tmp_path):
    folder = tmp_path / "left"
    folder.mkdir()
    session = textwrap.dedent(
        """
        import os, pathlib, signal, subprocess, sys
        from tests.servers import OrphanGuard

        guard = OrphanGuard()
        left = subprocess.Popen(["sleep", "600"])
        guard.watch(left.pid)
        guard.watch_folder(pathlib.Path(sys.argv[1]))
        print(left.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )

    told = subprocess.run(
        [sys.executable, "-c", session, str(folder)], check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )

    left = int(told.stdout)
    wait_until(lambda: started_at(left) is None, what=f"process {left} to be ended")
    wait_until(lambda: not folder.exists(), what=f"{folder} to be removed")


def test_a_guard_that_is_closed_ends_what_is_left_too(child):
    with OrphanGuard() as guard:
        guard.watch(child.pid)

    assert child.wait(timeout=60) == -9


def test_a_process_that_only_got_the_same_number_is_left_alone(child):
    start = started_at(child.pid)

    end_what_is_left([json.dumps(["process", [child.pid, start - 1]]).encode()])

    assert child.poll() is None


def test_a_process_that_ended_before_it_was_registered_is_nothing_to_end():
    with subprocess.Popen(["true"]) as ended:
        ended.wait()

    assert started_at(ended.pid) is None
    end_what_is_left([json.dumps(["process", [ended.pid, None]]).encode()])
