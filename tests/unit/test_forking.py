"""No child is forked while a thread has a database open that would not survive it."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import os, sys, threading
from tasks.forking import ForkLock

lock, held, forking, told = ForkLock(), threading.Event(), threading.Event(), []
# Hooks are called in the reverse of their order: this one before the lock's, on the way into the fork.
os.register_at_fork(before=forking.set)

def work():
    with lock.over(sys.argv[1]):
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
    with lock.over("sqlite:///its.db"):
        os._exit(0 if told == ["closed"] else 1)
thread.join(30)
with lock.over("sqlite:///its.db"):
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize(("url", "waited"), [("sqlite:///adk.db", True), ("postgresql://db/adk", False)])
def test_a_fork_waits_for_a_database_of_this_process_alone_to_be_closed(url, waited):
    """And afterwards parent and child may each open their own. A server's is not waited for: it may be away."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", _PROGRAM, url], check=False, timeout=60)
    assert (ran.returncode == 0) is waited
