"""``adk watch``: one run until it rests, or the runs of a fleet until Ctrl-C."""

from __future__ import annotations

from typing import Any

import click

from adk_worker.cli import options, selecting
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.program import Invocation, awaited

_DEFAULT_LIMIT = 30
_EVERY = 2.0


@click.command("watch", short_help="Watch one run until it rests, or all of them.")
@click.argument("run_id", metavar="[RUN_ID]", type=options.Name("run id"), required=False)
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; RUN_ID wants it.")
@selecting.status
@selecting.attention
@selecting.agent
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="The newest so many.",
)
@click.option(
    "--every",
    metavar="SECONDS",
    type=options.Seconds(min=0.1, max=3600),
    default=_EVERY,
    show_default=True,
    help="How often the fleet is looked at.",
)
@options.as_json
@options.debug
@click.pass_obj
def watch(
    invocation: Invocation,
    /,
    *,
    run_id: str | None,
    tenant: str | None,
    limit: int,
    every: float,
    as_json: bool,
    **which: Any,
) -> int:
    """Watch what happens. Takes no lease and changes nothing; a store that is away is waited for.

    With RUN_ID: a line for each event of that run until it rests. Ends with 0 if it completed, 65 if not, 1 if nobody
    knows it. Without: the newest runs, as a live table on a terminal, elsewhere a line for each change; until Ctrl-C,
    which ends it with 0.
    """
    if run_id is None:
        where = selecting.selected(tenant=tenant, since=None, until=None, **which)

        async def look_at_all() -> None:
            from adk_worker.cli.watching import watch_all

            async with invocation.source.open() as access:
                await watch_all(access.fleet, where, limit=limit, every=every, as_json=as_json)

        try:
            awaited(look_at_all)
        except KeyboardInterrupt:
            return ExitCode.DONE
        raise AssertionError("unreachable: it goes on until it is interrupted")
    if tenant is None:
        raise click.UsageError("Missing option '--tenant': RUN_ID alone names no run.")
    if any(which.values()):
        raise click.UsageError("--status, --attention and --agent are for watching more than one run.")

    async def look_at_one() -> int:
        from adk_worker.cli.watching import watch_one

        async with invocation.source.open() as access:
            return await watch_one(access.fleet, run_id, tenant=tenant, as_json=as_json)

    return awaited(look_at_one)
