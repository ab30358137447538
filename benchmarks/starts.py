"""How long ``adk`` takes to start, beside what it cannot do without: the interpreter, and the libraries that it uses.

::

    python -m benchmarks.starts --rounds 15

Each round starts every program once, in turn, so that whatever else the machine does meanwhile falls on all of them.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from stores.sql import migrate
from tests.integration.given import given

_PYTHON = [sys.executable]
_ADK = [*_PYTHON, "-m", "adk_worker.cli"]
_INSPECT = [*_ADK, "inspect", "run_1", "--tenant", "acme"]
_PROGRAMS = {
    "`python -c pass`": [*_PYTHON, "-c", "pass"],
    "`python -c 'import click'`": [*_PYTHON, "-c", "import click"],
    "`python -c 'import pydantic_settings'`": [*_PYTHON, "-c", "import pydantic_settings"],
    "`python -c 'import sqlalchemy'`": [*_PYTHON, "-c", "import sqlalchemy"],
    "`adk --help`": [*_ADK, "--help"],
    "`adk inspect` of a run in which a call is undecided, on SQLite": _INSPECT,
    "`adk list`, on SQLite": [*_ADK, "list"],
}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        store_url = f"sqlite:///{folder}/runs.db"
        migrate.upgrade(store_url)
        given("undecided", store_url)
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), "ADK_STORE_URL": store_url}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in _PROGRAMS}
        for _ in range(rounds):
            for name, command in _PROGRAMS.items():
                taken[name].append(_started(command, folder, environment))
    print(f"load {os.getloadavg()[0]:.1f} at the end\n")
    print(f"| medians of {rounds} rounds, s | from start to end | lowest | processor time |\n|---|--:|--:|--:|")
    for name, found in taken.items():
        wall, cpu = zip(*found, strict=True)
        print(f"| {name} | {median(wall):.2f} | {min(wall):.2f} | {median(cpu):.2f} |")


def _started(command: list[str], folder: str, environment: dict[str, str]) -> tuple[float, float]:
    """Seconds from start to end, and of processor time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=False, cwd=folder, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu


if __name__ == "__main__":
    main()
