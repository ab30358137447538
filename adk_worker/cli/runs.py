"""``adk list`` and ``adk cancel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, grid, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.runs import RunStatus

if TYPE_CHECKING:
    from adk_worker.runs import Run

_DEFAULT_LIMIT = 50


@click.command("list", short_help="List runs, the newest first.")
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; of all by default.")
@click.option("--status", type=click.Choice([status.value for status in RunStatus]), help="Of this status alone.")
@click.option("--attention", is_flag=True, help="Those that need somebody, and nothing else.")
@click.option("--limit", type=click.IntRange(min=1), default=_DEFAULT_LIMIT, show_default=True, help="At most so many.")
@options.as_json
@options.debug
@click.pass_obj
def list_runs(
    invocation: Invocation,
    *,
    tenant: str | None,
    status: str | None,
    attention: bool,
    limit: int,
    as_json: bool,
) -> int:
    """List runs, the newest first."""

    async def listing() -> list[Run]:
        found: list[Run] = []
        async with invocation.source.open() as access:
            runs = access.fleet.list(
                tenant=tenant, status=RunStatus(status) if status else None, attention=True if attention else None
            )
            async for run in runs:
                if len(found) > limit:
                    break
                found.append(run)
        return found

    runs = awaited(listing)
    shown = runs[:limit]
    if as_json:
        from adk_worker.cli.report import run_object

        for run in shown:
            emit(run_object(run))
    elif shown:
        say(table(shown))
    else:
        note("no such runs")
    if len(runs) > limit:
        note(f"there are more: --limit shows more than {limit}")
    return ExitCode.DONE


def table(runs: Sequence[Run]) -> str:
    """Runs as a table, without its last line break. On a terminal it fits into it, in a pipe each run is one line."""
    from adk_worker.liveness import short_name
    from adk_worker.printable import time_of

    headings = ("TENANT", "RUN", "AGENT", "STATUS", "ATTENTION", "ITERATION", "UPDATED", "HOLDER")
    rows = [
        (
            run.tenant,
            run.run_id,
            run.agent,
            run.status.value,
            run.attention.value if run.attention else "",
            str(run.iteration),
            time_of(run.updated_at),
            short_name(run.holder) if run.holder else "",
        )
        for run in runs
    ]
    return grid(headings, rows, right={"ITERATION"})


@click.command("cancel", short_help="Ask for a run's end.")
@options.run_id
@options.tenant
@options.as_json
@options.debug
@click.pass_obj
def cancel(invocation: Invocation, *, run_id: str, tenant: str, as_json: bool) -> int:
    """Ask for a run's end: at once if no worker holds it, else at its worker's next write or renewal.

    An effectful call in flight is waited for, and recorded.
    """

    async def ask() -> Run:
        async with invocation.source.open() as access:
            return await access.fleet.cancel(run_id, tenant=tenant, by=access.by)

    run = awaited(ask)
    if as_json:
        from adk_worker.cli.report import run_object

        emit(run_object(run))
    else:
        from adk_worker.describe import describe

        say(describe(run))
    return ExitCode.DONE
