"""``adk find``: a run whose tenant is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited

if TYPE_CHECKING:
    from adk_worker.runs import Run


@click.command("find", short_help="Find a run without knowing its tenant.")
@options.run_id
@options.by
@options.as_json
@options.debug
@click.pass_obj
def find(invocation: Invocation, *, run_id: str, by: str | None, as_json: bool) -> int:
    """List the runs of this id, whichever tenant's they are, the newest first.

    Exit codes: 0 found, 1 no tenant has one, 64 and above anything else.
    """

    async def looking() -> list[Run]:
        async with invocation.source.open() as access:
            return [run async for run in access.fleet.find(run_id, by=by or access.by)]

    runs = awaited(looking)
    if as_json:
        from adk_worker.cli.report import run_object

        for run in runs:
            emit(run_object(run))
    elif runs:
        from adk_worker.cli.runs import table

        say(table(runs))
    else:
        note(f"no tenant has a run {run_id!r}")
    return ExitCode.DONE if runs else ExitCode.NOTHING
