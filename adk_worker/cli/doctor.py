"""``adk doctor``: what is wrong with a fleet as it is set up here, and what to do about it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.printable import printable

if TYPE_CHECKING:
    from adk_worker.cli.checkup.finding import Finding

_PATIENCE = 5.0
_OWN_CONFIG = "celeryconfig"


@click.command("doctor", short_help="Say what is wrong with the fleet as it is set up here.")
@click.option(
    "--config",
    metavar="MODULE",
    help="Celery's configuration, as the workers are given it; by default celeryconfig, where there is one.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=options.PATIENCE,
    default=_PATIENCE,
    show_default=True,
    help="Wait no longer for each answer.",
)
@options.as_json
@options.debug
def doctor(*, config: str | None, timeout: float, as_json: bool) -> int:
    """Look at settings, store, broker, agents, keys, clocks and workers, as they are from here. It changes nothing.

    Run it where workers run, with their environment. Exit codes: 0 nothing that loses work, repeats it or has it stand
    still, warnings or not; 4 something that does; 69, 75, 78 something could not be looked at.
    """
    from adk_worker.cli.checkup.broker import broker, workers
    from adk_worker.cli.checkup.celery_settings import celery_settings
    from adk_worker.cli.checkup.code import agents, seal_keys, verifier
    from adk_worker.cli.checkup.examining import Examination
    from adk_worker.cli.checkup.finding import Subject
    from adk_worker.cli.checkup.store import store
    from adk_worker.cli.checkup.times import names, times
    from adk_worker.cli.source import FromSettings
    from adk_worker.log import configured
    from adk_worker.siblings import require_ours

    settings, _ = FromSettings.settings(tell=False)
    configured()
    # Here, for Celery's package is not to be imported first by two threads at once.
    require_ours("tasks")
    import_module("tasks.backlog")
    checks = {
        "environment": names,
        "store": store,
        "broker": broker,
        "celery": celery_settings,
        "times": times,
        "agents": agents,
        "seal keys": seal_keys,
        "verifier": verifier,
        "workers": workers,
    }
    examination = Examination(checks, Subject(settings, config or _own_config(), timeout))
    found = []
    for finding in examination.findings():
        found.append(finding)
        _tell(finding, as_json=as_json)
    code = _code(found)
    if not as_json:
        counts = {level: sum(finding.level == level for finding in found) for level in ("fail", "warning", "unseen")}
        note(", ".join(f"{number} {level}" for level, number in counts.items() if number) or "nothing is wrong")
    if examination.overdue:
        # What hangs may hold up the interpreter's end for as long as it likes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _own_config() -> str | None:
    return _OWN_CONFIG if find_spec(_OWN_CONFIG) else None


def _tell(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        emit({"check": finding.check, "level": finding.level, "found": finding.found, "todo": finding.todo or None})
        return
    say(f"{finding.level:<8} {finding.check}: {printable(finding.found)}")
    if finding.todo:
        say(f"         to do: {printable(finding.todo)}")


def _code(found: Iterable[Finding]) -> ExitCode:
    from adk_worker.cli.checkup.finding import Level

    found = list(found)
    if any(finding.level is Level.FAIL for finding in found):
        return ExitCode.REFUSED
    return next((finding.code for finding in found if finding.level is Level.UNSEEN), ExitCode.DONE)
