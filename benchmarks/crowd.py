"""Measures one worker process with many model calls waiting in it, beside the same worker with few.

    python -m benchmarks.crowd [--few 10] [--many 500] [--think 20] [--steps 3] [--rounds 3] [--only waiting|…]

Needs PostgreSQL and Redis installed; both are started for it, on loopback. The worker has a slot for each of the many,
and the default times. What the figures say is in docs/measurements.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

import psutil
import psycopg2
import structlog
from rich.console import Console
from rich.table import Table

from adk_worker.lease import RunLease
from adk_worker.runs import NewRun
from benchmarks.bed import PATIENCE, TENANT, Bed, Servers, bed, cpu_seconds, servers
from benchmarks.show import machine, table
from stores import open_stores
from tests.acceptance.fleet import Process
from tests.integration.bench import POLICY
from tests.waiting import wait_until

_LONG = 3600.0
_WINDOW = 60.0
"""Seconds over which a worker is watched whose runs do nothing but wait: three times ADK_LEASE_RENEW_WITHIN."""

_HELD = "SELECT count(*) FROM adk_run_leases WHERE holding = 'worker'"
_BATCHES = "SELECT count(DISTINCT expires_at) FROM adk_run_leases WHERE holding = 'worker'"
"""In how many transactions all leases were renewed last: each gives its leases one expiry."""
_TAKEN = "SELECT count(*) FROM adk_events WHERE kind = 'taken'"
_LEASES_WRITTEN = "SELECT coalesce(sum(n_tup_upd), 0) FROM pg_stat_user_tables WHERE relname = 'adk_run_leases'"


@dataclass(frozen=True, slots=True)
class Crowds:
    """How many runs are few, and how many are many; how long a model call takes, in s, and how many a run makes."""

    few: int
    many: int
    think: float
    steps: int
    rounds: int


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    parts: Mapping[str, Callable[[Servers, Crowds], Table]] = {
        "waiting": _waiting,
        "stepping": _stepping,
        "draining": _draining,
        "renewing": _renewing,
    }
    chosen = _parse(arguments, list(parts))
    crowds = Crowds(chosen.few, chosen.many, chosen.think, chosen.steps, chosen.rounds)
    console = Console(width=120)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with servers() as on:
        console.print(machine(on))
        for name in chosen.only or parts:
            console.print(parts[name](on, crowds))


def _parse(arguments: Sequence[str] | None, parts: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowd", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--few", type=int, default=10, help="runs that are few (10)")
    parser.add_argument("--many", type=int, default=500, help="runs that are many, and the worker's slots (500)")
    parser.add_argument("--think", type=float, default=20, help="seconds that a model call takes, more or less (20)")
    parser.add_argument("--steps", type=int, default=3, help="tool calls of a run (3)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of what is timed (3)")
    parser.add_argument("--only", nargs="+", choices=parts, help="a part")
    return parser.parse_args(arguments)


# --- runs that wait -----------------------------------------------------------------------------------------------


def _waiting(on: Servers, crowds: Crowds) -> Table:
    """What it takes to have them wait, and nothing else."""
    title = f"A worker with {crowds.many} slots whose runs wait for their models, watched for {_WINDOW:.0f} s"
    columns = ("memory, MiB", "threads", "to the store", "to the broker", "CPU", "renewals/s", "in batches")
    shown = table(title, "runs", *columns, "until all wait")
    for runs in (0, crowds.few, crowds.many):
        with _worker(on, crowds.many) as (made, worker):
            began = time.perf_counter()
            _have_wait(made, worker, runs)
            until = time.perf_counter() - began
            process = psutil.Process(worker.pid)
            # An idle connection of PostgreSQL 15 tells its counts up to ten seconds late.
            time.sleep(12)
            spent, written = cpu_seconds(worker.pid), _of(made, _LEASES_WRITTEN)
            time.sleep(_WINDOW)
            shown.add_row(
                str(runs),
                f"{process.memory_info().rss / 2**20:.0f}",
                str(process.num_threads()),
                str(_connections(process, on.postgres.port)),
                str(_connections(process, on.redis.port)),
                f"{(cpu_seconds(worker.pid) - spent) / _WINDOW:.1%}",
                f"{(_of(made, _LEASES_WRITTEN) - written) / _WINDOW:.1f}",
                str(_of(made, _BATCHES)),
                f"{until:.1f} s",
            )
    return shown


def _draining(on: Servers, crowds: Crowds) -> Table:
    """How long it takes to hand all of them over."""
    shown = table(
        f"SIGTERM to a worker whose runs wait, {crowds.rounds} rounds",
        "runs",
        "s until it has ended",
        "each",
        "left held",
    )
    for runs in (crowds.few, crowds.many):
        seconds, held = [], 0
        for _ in range(crowds.rounds):
            with _worker(on, crowds.many) as (made, worker):
                _have_wait(made, worker, runs)
                began = time.perf_counter()
                worker.stop()
                seconds.append(time.perf_counter() - began)
                held += _of(made, _HELD)
        each = ", ".join(f"{one:.1f}" for one in seconds)
        shown.add_row(str(runs), f"{median(seconds):.1f}", each, str(held))
    return shown


def _have_wait(made: Bed, worker: Process, runs: int) -> None:
    """Return once so many runs wait for a model that does not answer."""
    for number in range(runs):
        made.submit(f"run-{number:05}", tool="look", steps=1, think=_LONG)
    wait_until(lambda: _of(made, _HELD) == runs, within=PATIENCE, what=f"{runs} runs to wait\n{worker.log()[-2000:]}")


# --- runs that step -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Round:
    """``added`` is, for each step, the time from its take to the next one less what its model took, in s."""

    added: list[float]
    per_second: float
    cpu: float


def _stepping(on: Servers, crowds: Crowds) -> Table:
    title = (
        f"Steps of runs whose models take {0.75 * crowds.think:.0f} to {1.25 * crowds.think:.0f} s, in {crowds.many} "
        f"slots: what is added to that, {crowds.rounds} rounds"
    )
    shown = table(title, "runs", "steps/s", "added, median, ms", "each", "95 %", "99 %", "worker's CPU")
    rounds: dict[int, list[_Round]] = {crowds.few: [], crowds.many: []}
    with _worker(on, crowds.many) as (made, worker):
        for number in range(crowds.rounds):
            for runs, of in rounds.items():
                of.append(_step(made, worker, crowds, runs, name=f"{runs}-{number}"))
    for runs, of in rounds.items():
        medians = [1000 * median(one.added) for one in of]
        tails = [quantiles(one.added, n=100) for one in of]
        shown.add_row(
            str(runs),
            f"{median(one.per_second for one in of):.1f}",
            f"{median(medians):.0f}",
            ", ".join(f"{one:.0f}" for one in medians),
            f"{1000 * median(tail[94] for tail in tails):.0f}",
            f"{1000 * median(tail[98] for tail in tails):.0f}",
            f"{median(one.cpu for one in of):.0%}",
        )
    return shown


def _step(made: Bed, worker: Process, crowds: Crowds, runs: int, *, name: str) -> _Round:
    chance = random.Random(name)  # noqa: S311 - the same models in every run of this program
    thinks = {f"{name}-{number:05}": crowds.think * chance.uniform(0.75, 1.25) for number in range(runs)}
    for run_id, think in thinks.items():
        made.submit(run_id, tool="act", steps=crowds.steps, think=think)
    began, spent, steps = time.perf_counter(), cpu_seconds(worker.pid), _of(made, _TAKEN)
    # Until the quickest of them make their last call: all are under way.
    time.sleep(0.75 * crowds.think * crowds.steps)
    seconds = time.perf_counter() - began
    cpu, per_second = (cpu_seconds(worker.pid) - spent) / seconds, (_of(made, _TAKEN) - steps) / seconds
    for run_id in thinks:
        made.sync.wait(run_id, tenant=TENANT, timeout=PATIENCE + crowds.think * (crowds.steps + 1))
    added = []
    for run_id, think in thinks.items():
        taken = [event.at for event in made.events(run_id, "taken")]
        # The first ones came all at once, and waited for each other.
        added += [after - before - think for before, after in pairwise(taken[1:])]
    return _Round(added, per_second, cpu)


# --- renewals -----------------------------------------------------------------------------------------------------


def _renewing(on: Servers, crowds: Crowds) -> Table:
    """One batch of renewals, as the keeper asks for it, by its size."""
    shown = table(
        "One batch of renewals, in a database with nothing else to do", "leases", "wall, ms", "client's CPU, ms"
    )
    with on.postgres.database(template=on.template()) as url:
        for size, (wall, cpu) in asyncio.run(_renewals(url, (1, crowds.few, 100, crowds.many))).items():
            shown.add_row(str(size), f"{1000 * wall:.1f}", f"{1000 * cpu:.1f}")
    return shown


async def _renewals(url: str, sizes: Sequence[int]) -> dict[int, tuple[float, float]]:
    stores = open_stores(url, pool_size=2)
    held: list[RunLease] = []
    for number in range(max(sizes)):
        new = NewRun(tenant=TENANT, run_id=f"run-{number:05}", agent="bench", input="Begin.")
        ticket = (await stores.runs.submit(new, policy=POLICY)).ticket
        assert ticket is not None
        taken = await stores.runs.take(new.run_id, tenant=TENANT, ticket=ticket, holder="bench", ttl_seconds=60)
        assert taken is not None
        held.append(taken.lease)
    found = {}
    for size in sizes:
        walls, cpus = [], []
        for _ in range(30):
            wall, cpu = time.perf_counter(), time.process_time()
            renewals = await stores.runs.renew_many(held[:size], ttl_seconds=60)
            walls.append(time.perf_counter() - wall)
            cpus.append(time.process_time() - cpu)
            assert all(renewal.lease for renewal in renewals)
        found[size] = median(walls), median(cpus)
    await stores.lifecycle.close()
    return found


# --- the bed ------------------------------------------------------------------------------------------------------


@contextmanager
def _worker(on: Servers, slots: int) -> Iterator[tuple[Bed, Process]]:
    with bed(on) as made:
        worker = made.worker("worker", "tasks.app", "adk", slots=slots, level="INFO")
        wait_until(lambda: worker.says("worker@bench ready"), within=PATIENCE, what="the worker to be ready")
        yield made, worker


def _connections(process: psutil.Process, port: int) -> int:
    return sum(1 for connection in process.net_connections() if connection.raddr and connection.raddr.port == port)


def _of(made: Bed, query: str) -> int:
    connection = psycopg2.connect(made.store_url, application_name="benchmark")
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(query)
            return int(cursor.fetchone()[0])  # type: ignore[index]
    finally:
        connection.close()


if __name__ == "__main__":
    main()
