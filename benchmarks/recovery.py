"""Seconds from a SIGKILL until the run is taken again, by the store's clock, which is this machine's."""

from __future__ import annotations

import os
import signal
import time

from adk_worker.events import Event
from adk_worker.liveness import Holder
from benchmarks.bed import PATIENCE, Bed, Servers, bed
from tests.acceptance.fleet import Process
from tests.waiting import wait_until

LAPSE = {"ADK_LEASE_TTL": "6", "ADK_LEASE_RENEW_WITHIN": "2", "ADK_REAP_EVERY": "1"}
"""The times of the fleet whose worker is killed whole: nobody can tell, so its lease has to lapse."""

NOTICE = {"ADK_LEASE_TTL": "300", "ADK_LEASE_RENEW_WITHIN": "60", "ADK_REAP_EVERY": "5"}
"""The times of the fleet of which one child is killed: its parent notices, whatever the lease says."""

_LONG = 3600.0
"""Seconds that the model thinks; it is killed in the middle of that."""


def whole_workers(on: Servers, *, rounds: int) -> list[float]:
    """A worker with a pool of threads is killed, parent and all, in a model call; another one stands by."""
    with bed(on, **LAPSE) as made:
        made.backstage()
        workers = [_ready(made, f"worker-{n}", pool="threads") for n in range(2)]
        seconds = []
        for n in range(rounds):
            taken = _begin(made, f"run-{n}")
            victim = next(worker for worker in workers if worker.pid == _pid(taken))
            killed = time.time()
            victim.kill()
            seconds.append(_taken_again(made, f"run-{n}") - killed)
            workers = [worker for worker in workers if worker is not victim]
            workers.append(_ready(made, f"worker-{n + 2}", pool="threads"))
        return seconds


def lone_children(on: Servers, *, rounds: int) -> list[float]:
    """A child of a prefork worker is killed in a model call."""
    with bed(on, **NOTICE) as made:
        made.backstage()
        seconds = []
        for n in range(rounds):
            worker = _ready(made, f"worker-{n}", pool="prefork")
            taken = _begin(made, f"run-{n}")
            killed = time.time()
            os.kill(_pid(taken), signal.SIGKILL)
            seconds.append(_taken_again(made, f"run-{n}") - killed)
            worker.kill()
        return seconds


def _ready(made: Bed, name: str, *, pool: str) -> Process:
    worker = made.worker(name, "tasks.app", "adk", pool=pool, level="INFO")
    wait_until(lambda: worker.says(f"{name}@bench ready"), within=PATIENCE, what=f"{name} to be ready")
    return worker


def _begin(made: Bed, run_id: str) -> Event:
    made.submit(run_id, tool="look", steps=1, think=_LONG)
    return wait_until(lambda: made.events(run_id, "taken"), within=PATIENCE, what=f"{run_id} to be taken")[0]


def _taken_again(made: Bed, run_id: str) -> float:
    taken = wait_until(lambda: made.events(run_id, "taken")[1:], within=PATIENCE, what=f"{run_id} to be taken again")
    return taken[0].at


def _pid(taken: Event) -> int:
    holder = Holder.parse(str(taken.data["holder"]))
    assert holder is not None
    return holder.process.pid
