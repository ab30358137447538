"""Measures the fleet beside the bare Celery chain, in one run, on this machine.

    python -m benchmarks.fleet [--rounds 3] [--chains 8] [--steps 25] [--only rates|commits|budgets|bytes|…]

Needs PostgreSQL and Redis installed; both are started for it, on loopback. Figures are medians of interleaved rounds.
What they say is in docs/measurements.md.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import structlog
from rich.console import Console
from rich.table import Table

from benchmarks import costs, drains, rates, recovery
from benchmarks.bed import POOLS, Servers, servers
from benchmarks.rates import Load, Rate
from benchmarks.show import machine, table

LENGTHS = (10, 1000)
_PARTS = ("rates", "commits", "budgets", "bytes", "recovery", "drain")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print tables."""
    chosen = _parse(arguments)
    load = Load(chosen.rounds, chosen.chains, chosen.steps)
    console = Console(width=120)
    # A line for each step, in this process, would be measured too.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    parts: Mapping[str, Callable[[Servers], Table]] = {
        "rates": lambda on: _rates(on, load),
        "commits": _commits,
        "budgets": _budgets,
        "bytes": _bytes,
        "recovery": lambda on: _recovery(on, load.rounds),
        "drain": lambda on: _drain(on, load.rounds),
    }
    with servers() as on:
        console.print(machine(on))
        for name in chosen.only or parts:
            console.print(parts[name](on))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each measure (3)")
    parser.add_argument("--chains", type=int, default=8, help="chains, or runs, side by side (8)")
    parser.add_argument("--steps", type=int, default=25, help="tool calls of a run (25)")
    parser.add_argument("--only", nargs="+", choices=_PARTS, help="a part")
    return parser.parse_args(arguments)


def _rates(on: Servers, load: Load) -> Table:
    rounds = rates.measure(on, load)
    medians = {name: Rate.median_of(of) for name, of in rounds.items()}
    pool = " ".join(POOLS["threads"])
    title = f"One worker ({pool}), {load.chains} chains or runs side by side, medians of {load.rounds} rounds"
    rows = table(title, "", "per second", "lowest - highest", "of bare", "worker CPU, ms", "commits")
    names = {
        "bare": "hops, the bare chain",
        "observed": "hops, with Flower's events",
        "look": "iterations, a read-only call",
        "act": "iterations, an effectful call",
    }
    for key, name in names.items():
        one, spread = medians[key], [of.per_second for of in rounds[key]]
        rows.add_row(
            name,
            f"{one.per_second:.0f}",
            f"{min(spread):.0f} - {max(spread):.0f}",
            f"{median(_ratios(rounds[key], rounds['bare'])):.2f}",
            f"{one.worker_ms:.2f}",
            "-" if one.commits is None else f"{one.commits:.2f}",
        )
    return rows


def _ratios(of: Sequence[Rate], to: Sequence[Rate]) -> list[float]:
    """Of each round on its own: what else the machine does at that time slows both sides."""
    return [one.per_second / other.per_second for one, other in zip(of, to, strict=True)]


def _commits(on: Servers) -> Table:
    rows = table("Of one iteration, on the wire", "its turn", "commits", "round trips")
    for name, asked in asyncio.run(costs.commits(on)).items():
        rows.add_row(name, str(asked.commits), str(asked.round_trips))
    return rows


def _budgets(on: Servers) -> Table:
    title = "Of one iteration with a read-only call (100 each)"
    rows = table(title, "whose budget", "commits", "round trips", "wall, ms")
    for name, held in asyncio.run(costs.budgets(on, each=100)).items():
        rows.add_row(name, str(held.commits), str(held.round_trips), f"{held.wall_ms:.1f}")
    return rows


def _bytes(on: Servers) -> Table:
    title = "Written by one iteration, by the length of its run's transcript (100 iterations each)"
    rows = table(title, "its turn", "messages", "payload, bytes", "WAL, median", "mean", "CPU, ms", "wall, ms")
    for turn in ("a read-only call", "an effectful call"):
        written = asyncio.run(costs.bytes_written(on, turn=turn, lengths=LENGTHS, runs=10, each=10))
        for length, one in written.items():
            figures = (one.payload, one.wal_median, one.wal_mean)
            times = (one.cpu_ms, one.wall_ms)
            rows.add_row(turn, f"{length:,}", *(f"{size:,.0f}" for size in figures), *(f"{took:.1f}" for took in times))
    return rows


def _recovery(on: Servers, rounds: int) -> Table:
    title = f"From SIGKILL to the run's next take, in seconds, {rounds} rounds"
    rows = table(title, "killed as its model call began", "TTL, renewed within, reaped every", "median", "each")
    for name, times, measure in (
        ("a whole worker (threads)", recovery.LAPSE, recovery.whole_workers),
        ("a child (prefork)", recovery.NOTICE, recovery.lone_children),
    ):
        seconds = measure(on, rounds=rounds)
        rows.add_row(
            name, ", ".join(times.values()), f"{median(seconds):.1f}", ", ".join(f"{one:.1f}" for one in seconds)
        )
    return rows


def _drain(on: Servers, rounds: int) -> Table:
    title = f"From SIGTERM to a worker full of waiting model calls, in seconds, medians (each) of {rounds} rounds"
    rows = table(title, "its pool", "runs", "all handed over", "all taken elsewhere", "the worker has ended")
    for pool, slots in drains.SLOTS.items():
        measured = drains.measure(on, pool=pool, rounds=rounds)
        columns = (
            [one.handed_over for one in measured],
            [one.taken for one in measured],
            [one.ended for one in measured],
        )
        shown = (f"{median(each):.1f} ({', '.join(f'{one:.1f}' for one in each)})" for each in columns)
        rows.add_row(pool, str(slots), *shown)
    return rows


if __name__ == "__main__":
    main()
