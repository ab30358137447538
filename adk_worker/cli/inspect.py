"""``adk inspect``."""

from __future__ import annotations

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode, code_of_inspection
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.cli.source import Access
from adk_worker.errors import RunNotFoundError


@click.command(
    "inspect", context_settings=dict(options.HELP), short_help="Say where a run stands, and what is in its way."
)
@options.run_id
@options.tenant
@click.option("--events", is_flag=True, help="Tell everything that happened to it, too.")
@options.as_json
@options.debug
@click.pass_obj
def inspect(invocation: Invocation, *, run_id: str, tenant: str, events: bool, as_json: bool) -> int:
    """Say where a run stands, and what is in the way of carrying it on. Takes no lease and changes nothing.

    Exit codes, which are those that `run --resume` would end with now: 0 nothing is in its way, 1 nothing is known
    under that id, 2 the command line cannot be read, 3 somebody holds it, 4 it must not be carried on, 65 it is over
    its budget still, 64 and above anything else.
    """

    async def look() -> int:
        async with invocation.source.open() as access:
            return await report(access, run_id, tenant=tenant, with_events=events, as_json=as_json)

    return awaited(look)


async def report(access: Access, run_id: str, *, tenant: str, with_events: bool, as_json: bool) -> int:
    """Print what is known of the run, and return the exit code that says what may be done."""
    from adk_worker.cli.report import inspection_object
    from adk_worker.describe import describe
    from adk_worker.inspection import Inspection

    try:
        found = await access.fleet.inspect(run_id, tenant=tenant)
    except RunNotFoundError as error:
        note(str(error))
        if as_json:
            emit(inspection_object(Inspection(tenant, run_id, None), ExitCode.NOTHING))
        return ExitCode.NOTHING
    code = code_of_inspection(found)
    told = access.fleet.events(run_id, tenant=tenant) if with_events and found.run else None
    events = [event async for event in told] if told else []
    if as_json:
        emit(inspection_object(found, code, events=events if with_events else None))
    else:
        say(describe(found, events=events))
    return code
