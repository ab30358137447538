"""What the benchmarks stand on: PostgreSQL and Redis of their own, and real Celery processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from adk_worker.client import Fleet
from adk_worker.events import Event
from adk_worker.settings import Settings
from adk_worker.wiring import make_fleet
from stores.sql import migrate
from tests.acceptance.fleet import Process
from tests.servers import OrphanGuard, PostgresServer, RedisServer
from tests.travel import ROOT

PATIENCE = 120.0
"""Seconds that anything is waited for, on a machine that may be busy."""

TENANT = "bench"

POOLS: Mapping[str, Sequence[str]] = {
    "threads": ("--pool", "threads", "--concurrency", "8"),
    "prefork": ("--pool", "prefork", "--concurrency", "2"),
}
# What workers tell one another is left out on both sides: there is but one.
_ALONE = ("--without-gossip", "--without-mingle", "--without-heartbeat")


@dataclass(frozen=True, slots=True)
class Servers:
    """A PostgreSQL as it comes, fsync and all, and a Redis that keeps nothing on the disk."""

    postgres: PostgresServer
    redis: RedisServer
    guard: OrphanGuard

    def template(self) -> str:
        """The name of a database with our tables, to be copied."""
        return self.postgres.template("adk_migrated", migrate.upgrade)


@contextmanager
def servers() -> Iterator[Servers]:
    """Start both, on loopback."""
    with ExitStack() as stack:
        guard = stack.enter_context(OrphanGuard())
        postgres = stack.enter_context(PostgresServer(durable=True, guard=guard))
        redis = stack.enter_context(RedisServer(settings={"appendonly": "no"}, guard=guard))
        yield Servers(postgres, redis, guard)


class Bed:
    """One store, one broker, and the processes started on them; all end with the bed."""

    def __init__(self, folder: Path, guard: OrphanGuard, *, store_url: str, broker_url: str, **times: str) -> None:
        self.store_url = store_url
        self.broker_url = broker_url
        self._folder = folder
        self._guard = guard
        self._times = times
        self._processes: list[Process] = []
        self._fleet: Fleet | None = None

    @property
    def sync(self) -> Any:
        """The client of the fleet on this bed."""
        if self._fleet is None:
            given = {name.removeprefix("ADK_").lower(): value for name, value in self._times.items()}
            self._fleet = make_fleet(Settings.load(store_url=self.store_url, broker_url=self.broker_url, **given))
        return self._fleet.sync

    def celery(self, name: str, app: str, *arguments: str) -> Process:
        """Start a Celery program."""
        command = [sys.executable, "-m", "celery", "-A", app, *arguments]
        process = Process(name, command, log=self._folder / f"{name}.log", environment=self._environment())
        self._processes.append(process)
        self._guard.watch(process.pid)
        return process

    def worker(
        self,
        name: str,
        app: str,
        queue: str,
        *,
        pool: str = "threads",
        slots: int | None = None,
        level: str = "WARNING",
    ) -> Process:
        """Start a worker. Whoever needs to know that it consumes gives it something to do."""
        arguments = ["worker", "-Q", queue, "-n", f"{name}@bench", *POOLS[pool], *_ALONE, "-l", level]
        if slots is not None:
            arguments += ["--concurrency", str(slots)]
        return self.celery(name, app, *arguments)

    def backstage(self) -> None:
        """Start what reaps."""
        self.celery("beat", "tasks.app", "beat", "-l", "WARNING", "--pidfile", "")
        self.worker("control", "tasks.app", "adk.control")

    def submit(self, run_id: str, **metadata: Any) -> None:
        """Submit a run of the benchmarks' agent."""
        self.sync.submit("bench", "Begin.", tenant=TENANT, run_id=run_id, metadata=metadata)

    def events(self, run_id: str, kind: str) -> list[Event]:
        """The run's events of one kind."""
        return [event for event in self.sync.events(run_id, tenant=TENANT) if event.kind == kind]

    def close(self) -> None:
        """End every process, the youngest first."""
        for process in reversed(self._processes):
            process.kill()
        if self._fleet is not None:
            self._fleet.sync.close()

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ADK_", "CELERY_"))}
        return {
            **kept,
            **self._times,
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "ADK_STORE_URL": self.store_url,
            "ADK_BROKER_URL": self.broker_url,
            "ADK_AGENTS": "benchmarks.agents",
            "CELERY_BROKER_URL": self.broker_url,
        }


@contextmanager
def bed(on: Servers, *, broker_url: str | None = None, **times: str) -> Iterator[Bed]:
    """Make a bed on a database of its own, and on that broker, else on a Redis database of its own.

    ``times`` are settings of the fleet, by their variables.
    """
    with (
        tempfile.TemporaryDirectory(prefix="adk-bench-") as folder,
        on.postgres.database(template=on.template()) as store_url,
    ):
        broker_url = broker_url or on.redis.fresh_database()
        made = Bed(Path(folder), on.guard, store_url=store_url, broker_url=broker_url, **times)
        try:
            yield made
        finally:
            made.close()


def cpu_seconds(pid: int) -> float:
    """How long a process, with all below it, has been on a processor so far."""
    process = psutil.Process(pid)
    family = [process, *process.children(recursive=True)]
    return sum(times.user + times.system for times in (one.cpu_times() for one in family))
