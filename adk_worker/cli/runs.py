"""``adk list`` and ``adk cancel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from adk_worker.cli import options, selecting
from adk_worker.cli.bulk import ask_many
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, grid, note, say
from adk_worker.cli.program import Invocation, awaited

if TYPE_CHECKING:
    from adk_worker.runs import Run

_DEFAULT_LIMIT = 50


@click.command("list", short_help="List runs, the newest first.")
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; of all by default.")
@selecting.status
@selecting.attention
@selecting.agent
@selecting.since
@selecting.until
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="At most so many.",
)
@options.as_json
@options.debug
@click.pass_obj
def list_runs(invocation: Invocation, /, *, limit: int, as_json: bool, **which: Any) -> int:
    """List runs, the newest first."""
    where = selecting.selected(**which)

    async def listing() -> list[Run]:
        found: list[Run] = []
        async with invocation.source.open() as access:
            async for run in access.fleet.list(where):
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


@click.command("cancel", short_help="Ask for a run's end, or for many runs'.")
@click.argument("run_id", metavar="[RUN_ID]", type=options.Name("run id"), required=False)
@selecting.many
@options.as_json
@options.debug
@click.pass_obj
def cancel(invocation: Invocation, /, *, run_id: str | None, as_json: bool, **which: Any) -> int:
    """Ask for a run's end: at once if no worker holds it, else at its worker's next write or renewal.

    An effectful call in flight is waited for, and recorded.

    \b
    adk cancel run_1 --tenant acme
    adk cancel --tenant acme --agent booking --since 12h --dry-run

    Without RUN_ID, all runs that are meant and have not ended: say which tenant's, or --all-tenants, and at least one
    thing more. One that has moved meanwhile is skipped and told; asking again goes on with what is left.

    Exit codes: 0 done, 65 the run has ended otherwise, or some of many were refused or have moved, 64 and above
    anything else.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph
    if run_id is None:
        return ask_many(invocation, "cancel", lambda fleet: fleet.cancel_many, as_json=as_json, **which)
    tenant, by = which.pop("tenant"), which.pop("by")
    if tenant is None:
        raise click.UsageError("Missing option '--tenant'.")
    for name, value in which.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} is for many runs, and cannot be given with RUN_ID.")

    async def ask() -> int:
        async with invocation.source.open() as access:
            run = await access.fleet.cancel(run_id, tenant=tenant, by=by or access.by)
            if as_json:
                from adk_worker.cli.report import run_object

                emit(run_object(run))
            else:
                from adk_worker.describe import describe

                # With the calls that are still in flight: they are what nobody knows the end of.
                say(describe(await access.fleet.inspect(run_id, tenant=tenant)))
        return ExitCode.DONE

    return awaited(ask)
