"""``adk settle``: say what became of a call that may have happened."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.settling.settlement import UNSAID

if TYPE_CHECKING:
    from adk_worker.runs import Run


class Outcome(click.ParamType[Any]):
    """Any JSON; ``-`` reads it from the standard input, for what is too long for a command line."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """What the text says, or a failure that says what is wrong with it."""
        if value is UNSAID:
            return value
        try:
            return json.loads(sys.stdin.read() if value == "-" else value)
        except (ValueError, RecursionError) as error:
            self.fail(f"""it is not JSON: {error}. A text is JSON in quotes: '"12A"'""", param, ctx)


@click.command("settle", short_help="Say what became of a call that may have happened.")
@options.run_id
@click.argument("call", metavar="CALL")
@options.tenant
@click.option(
    "--completed",
    metavar="JSON",
    type=Outcome(),
    default=UNSAID,
    help="It happened, and returned this; - reads the standard input.",
)
@click.option("--never-ran", is_flag=True, help="It did not happen and never will: it is made, under the same key.")
@click.option("--why", metavar="TEXT", required=True, help="How you know. Kept with the call.")
@click.option(
    "--by", metavar="NAME", type=options.Name("name of who acts"), required=True, help="Who you are. Kept too."
)
@click.option(
    "--owner-may-live",
    is_flag=True,
    help="With --never-ran: nothing of it is under way, although its worker may live or has just died.",
)
@options.as_json
@options.debug
@click.pass_obj
def settle(  # noqa: PLR0913 - one option each
    invocation: Invocation,
    *,
    run_id: str,
    call: str,
    tenant: str,
    completed: Any,
    never_ran: bool,
    why: str,
    by: str,
    owner_may_live: bool,
    as_json: bool,
) -> int:
    """Say what became of a call of which nobody knows whether it happened: CALL is its id, its key, or its tool's name.

    \b
    adk settle run_1 call_1 --tenant acme --completed '{"seat": "12A"}' --why "it is in their list" --by ana
    adk settle run_1 book_seat --tenant acme --never-ran --why "they refuse its key now" --by ana

    `adk inspect` shows what is known of it. Once none is left undecided the run goes on by itself.

    Exit codes: 0 settled, 1 no such run, 2 the command line cannot be read, 4 something of it may be under way, and
    --owner-may-live was not given, 64 no such call, or several, 65 it is settled already or nobody has to, 77 you may
    not, and otherwise as everywhere.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph
    if (completed is not UNSAID) is never_ran:
        raise click.UsageError("Say what became of it: either --completed JSON or --never-ran.")
    if owner_may_live and not never_ran:
        raise click.UsageError("--owner-may-live is for --never-ran: what a call returned is so whoever lives.")

    async def ask() -> Run:
        async with invocation.source.open(publishes=True) as access:
            return await access.fleet.settle(
                run_id,
                call,
                tenant=tenant,
                completed=completed,
                never_ran=never_ran,
                why=why,
                by=by,
                owner_may_live=owner_may_live,
            )

    run = awaited(ask)
    if as_json:
        from adk_worker.cli.report import run_object

        emit(run_object(run))
    else:
        from adk_worker.describe import describe

        say(describe(run))
    return ExitCode.DONE
