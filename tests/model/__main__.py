"""Searches the model within larger bounds than the tests': ``python -m tests.model [NAME]``; ``--list`` names them."""

from __future__ import annotations

import argparse
import sys
import time

import click

from tests.model.bounds import LARGER, TESTED, Bounds, Fault, Probe
from tests.model.rules import Rules
from tests.model.search import search


def main() -> int:
    """Search, tell how far it went, and return 1 if something was found."""
    known = TESTED | LARGER
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument("name", nargs="*", help="bounds by name; all the larger ones by default")
    parser.add_argument("--list", action="store_true", help="name all bounds, with the states that they reach")
    own = parser.add_argument_group("bounds of one's own")
    for bound in ("faults", "acts", "workers", "calls", "asks"):
        own.add_argument(f"--{bound}", type=int)
    own.add_argument("--beside", action="store_const", const=True, help="two calls in a turn")
    own.add_argument("--granted", action="store_const", const=True, help="under a grant, until it is revoked")
    own.add_argument("--probe", choices=[probe.value for probe in Probe])
    own.add_argument("--kinds", nargs="+", choices=[fault.name.lower() for fault in Fault], help="faults let loose")
    asked = parser.parse_args()
    if asked.list:
        for name, (bounds, states) in known.items():
            click.echo(f"{name}: {states} states; {bounds}")
        return 0
    unknown = [name for name in asked.name if name not in known]
    if unknown:
        parser.error(f"no bounds are called {', '.join(unknown)}; --list names those that are there")
    ours = _own(asked)
    chosen = {"bounds of one's own": ours} if ours else {name: known[name][0] for name in asked.name or LARGER}
    return max(_search(name, bounds) for name, bounds in chosen.items())


def _own(asked: argparse.Namespace) -> Bounds | None:
    said = {name: getattr(asked, name) for name in ("faults", "acts", "workers", "calls", "asks", "beside", "granted")}
    said["probe"] = None if asked.probe is None else Probe(asked.probe)
    said["kinds"] = None if asked.kinds is None else frozenset(Fault[name.upper()] for name in asked.kinds)
    said = {name: value for name, value in said.items() if value is not None}
    return Bounds(**said) if said else None


def _search(name: str, bounds: Bounds) -> int:
    began = time.monotonic()
    click.echo(f"{name}: {bounds}")
    found = search(Rules(), bounds, progress=_shown if sys.stderr.isatty() else None)
    click.echo(f"{name}: {found} ({time.monotonic() - began:.0f} s)")
    return int(found.violation is not None)


def _shown(states: int, depth: int) -> None:
    click.echo(f"\r{states} states, {depth} steps deep", nl=False, err=True)


if __name__ == "__main__":
    sys.exit(main())
