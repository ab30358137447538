"""Measures early against late acknowledgements, on Redis and on both kinds of RabbitMQ's queues, in one run.

    python -m benchmarks.acks [--rounds 3] [--chains 8] [--steps 25] [--brokers redis classic quorum]

Needs PostgreSQL, Redis and RabbitMQ installed; all are started for it, on loopback. For each broker: iterations a
second of one worker with eight slots and of one with a single slot, in interleaved rounds; and how long a message waits
that a busy worker would take in advance, with an idle worker beside it, and after the busy one was killed.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks.bed import PATIENCE, Bed, Servers, bed, servers
from benchmarks.rates import Load, Rate, Runs
from tests.acceptance.fleet import Process
from tests.servers import RabbitServer
from tests.waiting import wait_until

CONFIGURATIONS = {"early": "celeryconfig", "late": "benchmarks.late", "none in hand": "benchmarks.unhoarded"}
"""What is measured, and what ``celery --config`` is given for it. The last one is Redis' alone."""

SLOTS = (8, 1)

GRACE = "10"
"""ADK_DISPATCH_GRACE where waiting is measured: after so many seconds the reaper publishes a message again."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.acks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measure (3)")
    parser.add_argument("--chains", type=int, default=8, help="runs side by side (8)")
    parser.add_argument("--steps", type=int, default=25, help="tool calls of a run (25)")
    parser.add_argument("--brokers", nargs="+", choices=list(BROKERS), default=list(BROKERS), help="some of them")
    chosen = parser.parse_args(arguments)
    load = Load(chosen.rounds, chosen.chains, chosen.steps)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    console = Console(width=120)
    rates = _table("Iterations a second, and of early's (medians of rounds)", "broker", "slots", *CONFIGURATIONS)
    waits = _table(f"Seconds until a message is begun (grace {GRACE} s)", "broker", "when", *CONFIGURATIONS)
    with servers() as on:
        for name in chosen.brokers:
            with BROKERS[name](on) as (url, queue_type):
                for slots in SLOTS:
                    rates.add_row(name, str(slots), *_rates(on, url(), queue_type, slots, load, _known_to(name)))
                for when, measure in (("beside a busy worker", _beside), ("after that was killed", _killed)):
                    seconds = [f"{measure(on, url(), queue_type, acks):.1f}" for acks in _known_to(name)]
                    waits.add_row(name, when, *seconds)
    console.print(rates)
    console.print(waits)


@contextmanager
def _redis(on: Servers) -> Iterator[tuple[Callable[[], str], str]]:
    yield on.redis.fresh_database, "classic"


@contextmanager
def _rabbitmq(on: Servers, queue_type: str) -> Iterator[tuple[Callable[[], str], str]]:
    with RabbitServer(guard=on.guard) as server:
        yield server.fresh_vhost, queue_type


BROKERS = {
    "redis": _redis,
    "classic": lambda on: _rabbitmq(on, "classic"),
    "quorum": lambda on: _rabbitmq(on, "quorum"),
}


def _known_to(broker: str) -> list[str]:
    return [acks for acks in CONFIGURATIONS if broker == "redis" or acks != "none in hand"]


def _rates(
    on: Servers, broker_url: str, queue_type: str, slots: int, load: Load, configurations: Sequence[str]
) -> list[str]:
    """Each in turn on the same broker, one worker at a time."""
    rounds: dict[str, list[Rate]] = {acks: [] for acks in configurations}
    with bed(on, broker_url=broker_url, ADK_QUEUE_TYPE=queue_type) as made:
        for number in range(load.rounds):
            for acks in configurations:
                name = f"{acks.replace(' ', '-')}-{number}"
                worker = _worker(made, name, acks, slots)
                runs = Runs(made, on, worker, prefix=f"{name}-")
                runs.round("look", Load(1, load.chains, steps=2))
                rounds[acks].append(runs.round("look", load))
                worker.stop()
    told = []
    for of in rounds.values():
        ratio = median(one.per_second / early.per_second for one, early in zip(of, rounds["early"], strict=True))
        told.append(f"{Rate.median_of(of).per_second:.0f} ({ratio:.2f})")
    return told


def _beside(on: Servers, broker_url: str, queue_type: str, acks: str) -> float:
    return _wait(on, broker_url, queue_type, acks, then=lambda _: None)


def _killed(on: Servers, broker_url: str, queue_type: str, acks: str) -> float:
    return _wait(on, broker_url, queue_type, acks, then=lambda busy: busy.kill())


def _wait(on: Servers, broker_url: str, queue_type: str, acks: str, *, then: Callable[[Process], None]) -> float:
    """From when an idle worker is there, and the busy one's fate is sealed, until the message is begun."""
    with bed(on, broker_url=broker_url, ADK_QUEUE_TYPE=queue_type, ADK_DISPATCH_GRACE=GRACE) as made:
        made.backstage()
        busy = _worker(made, "busy", acks, slots=1)
        made.submit("long", tool="look", steps=1, think=600)
        wait_until(lambda: made.events("long", "taken"), within=PATIENCE, what="the busy worker to be busy")
        made.submit("waits", tool="look", steps=1)
        idle = _worker(made, "idle", acks, slots=1)
        wait_until(lambda: idle.says("ready."), within=PATIENCE, what="the idle worker to be ready")
        began = time.time()
        then(busy)
        taken = wait_until(lambda: made.events("waits", "taken"), within=PATIENCE, what="the message to be begun")
        return max(0.0, taken[0].at - began)


def _worker(made: Bed, name: str, acks: str, slots: int) -> Process:
    arguments = ("--config", CONFIGURATIONS[acks], "worker", "-Q", "adk", "-n", f"{name}@bench", "-l", "INFO")
    alone = ("--pool", "threads", "--concurrency", str(slots), "--without-gossip", "--without-mingle")
    return made.celery(name, "tasks.app", *arguments, *alone)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table


if __name__ == "__main__":
    main()
