"""No child is forked while a thread does what a child must not inherit half done."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys, threading
from tasks.forking import ForkLock

lock, held, forking, told = ForkLock(sys.argv[1]), threading.Event(), threading.Event(), []
# Hooks are called in the reverse of their order: this one before the lock's, on the way into the fork.
os.register_at_fork(before=forking.set)

def work():
    with lock:
        held.set()
        forking.wait(30)
        for _ in range(100_000):
            pass
        told.append("closed")

thread = threading.Thread(target=work)
thread.start()
held.wait(30)
child = os.fork()
if child == 0:
    with lock:
        os._exit(0 if told == ["closed"] else 1)
thread.join(30)
with lock:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("url", ["sqlite:///adk.db", "postgresql://db/adk"])
def test_a_fork_waits_for_what_a_child_must_not_inherit_half_done(url):
    """And afterwards parent and child may each hold it again."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM, url], check=False, timeout=60)
    assert ran.returncode == 0


_AWAY = """
import os, sys, threading
from tasks import forking

forking._LONGEST = 0.01
lock, held, forked = forking.ForkLock("postgresql://db/adk"), threading.Event(), threading.Event()

def work():
    with lock:
        held.set()
        forked.wait(30)

thread = threading.Thread(target=work)
thread.start()
held.wait(30)
child = os.fork()
if child == 0:
    with lock:
        os._exit(0)
forked.set()
thread.join(30)
with lock:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_does_not_wait_for_ever_for_a_server_that_is_away():
    """The loop that forks also consumes. What the other thread holds meanwhile stays its own."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", _AWAY], check=False, timeout=60)
    assert ran.returncode == 0
