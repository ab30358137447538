"""Seconds from the SIGTERM to a worker full of waiting model calls until it is empty, by the store's clock."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import psutil

from adk_worker.liveness import Holder
from benchmarks.bed import PATIENCE, Bed, Servers, bed
from tests.acceptance.fleet import Process
from tests.waiting import wait_until

TIMES = {"ADK_LEASE_TTL": "300", "ADK_LEASE_RENEW_WITHIN": "60", "ADK_DISPATCH_GRACE": "300"}
"""So long that nothing is carried on by a lease that lapses; nothing reaps either."""

SLOTS = {"threads": 50, "prefork": 4}

_LONG = 3600.0
"""Seconds that the model thinks."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Seconds until the last run was handed over, until the last was taken elsewhere, until the worker had ended."""

    handed_over: float
    taken: float
    ended: float


def measure(on: Servers, *, pool: str, rounds: int) -> list[Drain]:
    """A full worker is told to leave, and another one, as large and idle, stands by."""
    return [_round(on, pool) for _ in range(rounds)]


def _round(on: Servers, pool: str) -> Drain:
    slots = SLOTS[pool]
    names = [f"run-{number}" for number in range(slots)]
    with bed(on, **TIMES) as made:
        leaving = _ready(made, "leaving", pool)
        for name in names:
            made.submit(name, tool="look", steps=1, think=_LONG)
        _taken(made, names, times=1)
        heir = _ready(made, "heir", pool)
        told = time.time()
        os.kill(leaving.pid, signal.SIGTERM)
        process = psutil.Process(leaving.pid)
        wait_until(lambda: process.status() == psutil.STATUS_ZOMBIE, within=PATIENCE, what="the worker to end")
        ended = time.time() - told
        _taken(made, names, times=2)
        handed_over = max(made.events(name, "given_back")[0].at for name in names) - told
        taken = max(made.events(name, "taken")[1].at for name in names) - told
        holders = {_pid(str(made.events(name, "taken")[1].data["holder"])) for name in names}
        assert holders <= {heir.pid, *(child.pid for child in heir.children())}
        return Drain(handed_over, taken, ended)


def _ready(made: Bed, name: str, pool: str) -> Process:
    worker = made.worker(name, "tasks.app", "adk", pool=pool, slots=SLOTS[pool], level="INFO")
    wait_until(lambda: worker.says(f"{name}@bench ready"), within=PATIENCE, what=f"{name} to be ready")
    return worker


def _taken(made: Bed, names: list[str], *, times: int) -> None:
    wait_until(
        lambda: all(len(made.events(name, "taken")) == times for name in names),
        within=PATIENCE,
        what="every run to be taken",
    )


def _pid(holder: str) -> int:
    named = Holder.parse(holder)
    assert named is not None
    return named.process.pid
