"""What one iteration asks of the store, measured on one worker's steps in this process: commits, bytes, and time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any, cast

from sqlalchemy import create_engine

from adk_worker.actors import Actor
from adk_worker.history import Handle, Segment
from adk_worker.ledger.amounts import HIGHEST, Budget, BudgetChange, Kind
from adk_worker.messages import Message
from adk_worker.runs import Dispatch, RunStore
from adk_worker.steps import StepEnd
from benchmarks.bed import Servers
from stores import open_stores
from stores.sql import history
from tests.integration.bench import TENANT, Bench, Weighing, is_commit, transcript
from tests.servers import PostgresServer, Proxy

TURNS: dict[str, Any] = {
    "a read-only call": ("look", {"at": "it"}),
    "an effectful call": ("act", {"on": "it"}),
    "three effectful calls": [("act", {"on": "it"})] * 3,
    "a final answer": "Done.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """What an iteration asked of the server."""

    commits: int
    round_trips: int


async def commits(on: Servers) -> dict[str, Asked]:
    """Commits and round trips of an iteration in the middle of a run, by what its turn asks for; seen on the wire."""
    asked = {}
    with (
        on.postgres.database(template=on.template()) as url,
        Proxy(on.postgres.port) as proxy,
        _bench(proxy.url(url)) as bench,
    ):
        for name, turn in TURNS.items():
            run_id = name.replace(" ", "-")
            await bench.step(await bench.submit(run_id), TURNS["a read-only call"])
            counted, all_of_them = proxy.count(is_commit), proxy.count(lambda _: True)
            await bench.step(bench.sent.pop(), turn)
            asked[name] = Asked(counted.count, all_of_them.count)
        await bench.stores.lifecycle.close()
    return asked


@dataclass(frozen=True, slots=True)
class Held:
    """What it costs to hold runs to a budget, in an iteration with one read-only call."""

    commits: int
    round_trips: int
    wall_ms: float
    """How long one iteration took: the median, in ms."""


async def budgets(on: Servers, *, each: int) -> dict[str, Held]:
    """By whose budget there is: iterations in turn, so that all have the same machine; nothing is ever over it."""
    plenty = Budget(tokens=HIGHEST, cost_micros=HIGHEST)
    with (
        on.postgres.database(template=on.template()) as url,
        Proxy(on.postgres.port) as proxy,
        _bench(proxy.url(url)) as bench,
    ):
        change = BudgetChange(to=dict.fromkeys(Kind, HIGHEST))
        await bench.stores.runs.change_account("limited", change=change, by=Actor("bench"))
        next_of = {
            "none": await bench.submit("free"),
            "the run's": await bench.submit("run", budget=plenty),
            "the tenant's": await bench.submit("tenant", tenant="limited"),
            "both": await bench.submit("both", tenant="limited", budget=plenty),
        }
        seen: dict[str, list[tuple[int, int, float]]] = {name: [] for name in next_of}
        for _ in range(each):
            for name, message in list(next_of.items()):
                counted, all_of_them = proxy.count(is_commit), proxy.count(lambda _: True)
                began = time.perf_counter()
                await bench.step(message, TURNS["a read-only call"])
                seen[name].append((counted.count, all_of_them.count, time.perf_counter() - began))
                next_of[name] = bench.sent.pop()
        await bench.stores.lifecycle.close()
    return {
        name: Held(*(round(median(one[place] for one in rows)) for place in (0, 1)), 1000 * median(r[2] for r in rows))
        for name, rows in seen.items()
    }


@dataclass(frozen=True, slots=True)
class Written:
    """What iterations wrote, and how long they took, at a length of the transcript."""

    payload: int
    """Bytes of frontiers, of the transcript's segments and of events, in one iteration."""
    wal_median: float
    """Bytes of PostgreSQL's write-ahead log, in one iteration."""
    wal_mean: float
    cpu_ms: float
    """This process's time on a processor for one iteration, without a broker: the mean, in ms."""
    wall_ms: float
    """How long one iteration took: the median, in ms."""


async def bytes_written(on: Servers, *, turn: str, lengths: Sequence[int], runs: int, each: int) -> dict[int, Written]:
    """By the length of the transcript: so many ``runs`` of that length, carried on by ``each`` iterations in turn."""
    with on.postgres.database(template=on.template()) as url, _bench(url) as bench:
        weighing = Weighing(bench.stores.runs)
        bench.stores = replace(bench.stores, runs=cast("RunStore", weighing))  # it has all methods, most by name
        next_of = {(length, n): await _run_of(bench, url, length, n) for length in lengths for n in range(runs)}
        seen: dict[int, list[_Weight]] = {length: [] for length in lengths}
        for _ in range(each):
            for (length, n), message in list(next_of.items()):
                seen[length].append(await _weigh(bench, weighing, on.postgres, message, turn))
                next_of[length, n] = bench.sent.pop()
        await bench.stores.lifecycle.close()
    return {length: _written(weights) for length, weights in seen.items()}


@dataclass(frozen=True, slots=True)
class _Weight:
    payload: int
    wal: int
    cpu: float
    wall: float


async def _weigh(bench: Bench, weighing: Weighing, postgres: PostgresServer, message: Dispatch, turn: str) -> _Weight:
    weighing.payloads.clear()
    wal, cpu, wall = _wal(postgres), time.process_time(), time.perf_counter()
    end = await bench.step(message, TURNS[turn])
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert end is StepEnd.HANDED_OVER
    return _Weight(sum(map(len, weighing.payloads)), _wal(postgres) - wal, cpu, wall)


def _written(weights: list[_Weight]) -> Written:
    return Written(
        payload=round(median(weight.payload for weight in weights)),
        wal_median=median(weight.wal for weight in weights),
        wal_mean=mean(weight.wal for weight in weights),
        cpu_ms=1000 * mean(weight.cpu for weight in weights),
        wall_ms=1000 * median(weight.wall for weight in weights),
    )


def _wal(postgres: PostgresServer) -> int:
    return int(postgres.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")[0][0])


async def _run_of(bench: Bench, url: str, length: int, number: int) -> Dispatch:
    """A queued run with a transcript of that length, stored as a run's own is: a segment for each message."""
    run_id = f"run_{length:06}_{number:03}"
    messages = transcript(length)
    handle = await asyncio.to_thread(_store, url, run_id, messages[:-1])
    return await bench.submit_with(run_id, messages, handle=handle)


def _store(url: str, run_id: str, messages: Sequence[Message]) -> Handle:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    handle = Handle.empty(run_id)
    with engine.begin() as tx:
        for message in messages:
            segment = Segment.extend(handle, [message])
            history.store(tx, TENANT, segment)
            handle = segment.handle
    engine.dispose()
    return handle


@contextmanager
def _bench(url: str) -> Iterator[Bench]:
    with ThreadPoolExecutor(1) as executor:
        yield Bench(open_stores(url), executor)
