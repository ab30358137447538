"""Hops a second of the bare chain, and iterations a second of the fleet, one worker each, in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import redis
from celery import Celery

from benchmarks import bare
from benchmarks.bed import PATIENCE, TENANT, Bed, Servers, bed, cpu_seconds
from tests.acceptance.fleet import Process

HOPS_PER_STEP = 20
"""How many hops of the bare chain are made for each step of a run, so that both sides are measured for as long."""

COMMITS = "SELECT pg_current_xact_id()::text::bigint"
"""Rises by one with every transaction that writes or locks, this one included; one that only reads takes no number."""


@dataclass(frozen=True, slots=True)
class Load:
    """How many chains run side by side, and how long each of them is."""

    rounds: int
    chains: int
    steps: int


@dataclass(frozen=True, slots=True)
class Rate:
    """What one round came to: links of chains a second, and processor time of the worker for each, in ms."""

    per_second: float
    worker_ms: float
    commits: float | None = None
    """Writing transactions for each, by the server's own count."""

    @classmethod
    def median_of(cls, rounds: list[Rate]) -> Rate:
        """The median of each figure on its own."""
        commits = [one.commits for one in rounds if one.commits is not None]
        return cls(
            median(one.per_second for one in rounds),
            median(one.worker_ms for one in rounds),
            median(commits) if commits else None,
        )


def measure(on: Servers, load: Load) -> Mapping[str, list[Rate]]:
    """All rounds, by what was measured: ``bare``, ``observed``, ``look`` and ``act``."""
    with bed(on) as made:
        plain = _Bare(made, bare.bare)
        observed = _Bare(made, bare.observed)
        fleet = Runs(made, on, made.worker("fleet", "tasks.app", "adk"))
        measured: Mapping[str, Callable[[str, Load], Rate]] = {
            "bare": plain.round,
            "observed": observed.round,
            "look": fleet.round,
            "act": fleet.round,
        }
        warm = Load(1, chains=load.chains, steps=2)
        for name, measure_one in measured.items():
            measure_one(name, warm)
        rounds: dict[str, list[Rate]] = {name: [] for name in measured}
        for _ in range(load.rounds):
            for name, measure_one in measured.items():
                rounds[name].append(measure_one(name, load))
        return rounds


class _Bare:
    """A worker of a bare app, and its chains."""

    def __init__(self, made: Bed, app: Celery) -> None:
        app.conf.broker_url = made.broker_url
        self._app = app
        self._broker = redis.Redis.from_url(made.broker_url, socket_timeout=2 * PATIENCE)
        self._worker = made.worker(f"bare-{app.main}", f"benchmarks.bare:{app.main}", bare.queue_of(app))

    def round(self, _: str, load: Load) -> Rate:
        hops = load.steps * HOPS_PER_STEP
        before, began = cpu_seconds(self._worker.pid), time.perf_counter()
        for _chain in range(load.chains):
            bare.start(self._app, hops=hops)
        for _chain in range(load.chains):
            if self._broker.blpop([bare.DONE], timeout=PATIENCE) is None:
                raise AssertionError(f"a chain did not end:\n{self._worker.log()[-2000:]}")
        seconds = time.perf_counter() - began
        spent = cpu_seconds(self._worker.pid) - before
        return _rate(load.chains * hops, seconds, spent)


class Runs:
    """A worker of the fleet, and its runs. A run's iterations are its steps and one more, which is its final answer."""

    def __init__(self, made: Bed, on: Servers, worker: Process, *, prefix: str = "") -> None:
        self._bed = made
        self._postgres = on.postgres
        self._worker = worker
        self._prefix = prefix
        self._submitted = 0

    def round(self, tool: str, load: Load) -> Rate:
        """What one round of runs comes to; each makes so many calls of that tool."""
        before, commits = cpu_seconds(self._worker.pid), self._commits()
        runs = [self._submit(tool, load.steps) for _ in range(load.chains)]
        for run_id in runs:
            run = self._bed.sync.wait(run_id, tenant=TENANT, timeout=PATIENCE)
            assert run.output == "Done.", f"{run}\n{self._worker.log()[-2000:]}"
        spent = cpu_seconds(self._worker.pid) - before
        # Its own, and a submit's for each run.
        commits = self._commits() - commits - 1 - load.chains
        return _rate(load.chains * (load.steps + 1), self._seconds(runs), spent, commits)

    def _submit(self, tool: str, steps: int) -> str:
        self._submitted += 1
        run_id = f"{self._prefix}{tool}-{self._submitted:06}"
        self._bed.submit(run_id, tool=tool, steps=steps)
        return run_id

    def _seconds(self, runs: list[str]) -> float:
        """From the first take to the last end, by the store's clock."""
        began = min(self._bed.events(run_id, "taken")[0].at for run_id in runs)
        ended = max(self._bed.events(run_id, "completed")[0].at for run_id in runs)
        return ended - began

    def _commits(self) -> int:
        return int(self._postgres.execute(COMMITS)[0][0])


def _rate(links: int, seconds: float, spent: float, commits: int | None = None) -> Rate:
    return Rate(links / seconds, 1000 * spent / links, None if commits is None else commits / links)
