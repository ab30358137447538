from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from adk_worker.liveness import Holder, ProcessIdentity, known_dead, short_name
from adk_worker.names import check_name
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="proofs of death come from /proc")

_CHILD = "import sys; from adk_worker.liveness import Holder; print(Holder.new('child'), flush=True); sys.stdin.read()"
_WITHOUT_ITS_FIRST_THREAD = (
    "import ctypes, sys, threading; from adk_worker.liveness import Holder; "
    "threading.Thread(target=sys.stdin.read).start(); print(Holder.new('child'), flush=True); "
    "ctypes.CDLL(None).pthread_exit(None)"
)


@pytest.fixture
def child(request):
    """A process that tells its name and waits; the test may say in which program."""
    with subprocess.Popen(
        [sys.executable, "-c", getattr(request, "param", _CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_living_process_is_not_known_dead(child):
    """I11: nor is this one."""
    _, name = child

    assert not known_dead(name)
    assert not known_dead(str(Holder.new("self")))


def test_a_killed_process_is_known_dead(child):
    """I11: as a zombie, which runs nothing, and when it is gone."""
    process, name = child

    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    as_a_zombie = known_dead(name)
    process.wait()

    assert as_a_zombie
    assert known_dead(name)


def test_a_stopped_process_is_not_known_dead(child):
    """I11: it may go on, and write."""
    process, name = child

    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: _state(process.pid) == "T", what="the child to stop")

    assert not known_dead(name)


@pytest.mark.parametrize("child", [_WITHOUT_ITS_FIRST_THREAD], indirect=True)
def test_a_process_whose_first_thread_alone_has_ended_is_not_known_dead(child):
    """I11: it shows as a zombie, and its other threads work on."""
    process, name = child

    wait_until(lambda: _state(process.pid) == "Z", what="the first thread to end")

    assert not known_dead(name)


def test_a_process_that_proc_hides_is_not_known_dead(tmp_path, monkeypatch):
    """I11: with hidepid, systemd's ProtectProc, other users' processes are not in /proc and live all the same."""
    here = ProcessIdentity.current()
    for visible in ("sys", "self"):
        (tmp_path / visible).symlink_to(f"/proc/{visible}")
    monkeypatch.setattr("adk_worker.liveness._PROC", tmp_path)

    assert not here.known_dead()
    assert not replace(here, pid=10**30).known_dead()
    assert replace(here, pid=2**22 + 1).known_dead()


def test_a_pid_that_was_given_again_is_not_the_same_process():
    """I11: pids come round."""
    here = ProcessIdentity.current()

    assert replace(here, started=str(int(here.started) - 1)).known_dead()


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"boot": "another boot"},
        {"pid_namespace": "1"},
        {"boot": "", "pid": 2**22 + 1},
        {"pid_namespace": "", "pid": 2**22 + 1},
        {"started": "", "pid": 2**22 + 1},
    ],
)
def test_what_cannot_be_seen_from_here_is_unknown(elsewhere):
    """I11: another host, a host that has booted since, another container; or a name that does not say."""
    assert not replace(ProcessIdentity.current(), **elsewhere).known_dead()


def test_another_hosts_name_does_not_matter():
    """I11: containers of one host have names of their own, and one kernel."""
    here = replace(ProcessIdentity.current(), host="another")

    assert replace(here, pid=2**22 + 1).known_dead()
    assert not here.known_dead()


def test_names_are_read_back():
    """L4."""
    holder = Holder.new("task/with/slashes")

    assert Holder.parse(str(holder)) == holder
    assert holder.label == "task_with_slashes"
    assert check_name(str(holder), what="holder")


def test_no_name_is_given_twice():
    """L4: not even to the same process for the same task."""
    assert len({str(Holder.new("task")) for _ in range(100)}) == 100


@pytest.mark.parametrize("label", ["", "/", "x" * 60, "\u00e9"])
def test_every_label_makes_a_name(label):
    """L4."""
    holder = Holder.new(label)

    assert Holder.parse(str(holder)) == holder


@pytest.mark.parametrize(
    "name", ["", "worker-7", "a/b/c", "host/pid/1/boot/ns/label/nonce", "h/1/2/b/n/l/x/y", "queue"]
)
def test_a_name_of_somebody_elses_says_nothing(name):
    """I11."""
    assert Holder.parse(name) is None
    assert not known_dead(name)
    assert short_name(name) == name


def test_people_read_host_and_pid():
    """L5."""
    holder = Holder.new("task")

    assert short_name(str(holder)) == f"{holder.process.host} pid {os.getpid()}"


def _state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
