"""``adk run``: submit a run, or carry one on with ``--resume``."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from adk_worker.cli import options
from adk_worker.cli.budget import Cost, Tokens
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.cli.resume import DEFAULT_PATIENCE, carry_on
from adk_worker.cli.source import Access
from adk_worker.ledger.amounts import Budget
from adk_worker.runs import RunStatus


class Metadata(click.ParamType[dict[str, Any]]):
    """A JSON object on the command line."""

    name = "metadata"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """The object, or a failure that says what is wrong with the text."""
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"it is not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail("it has to be a JSON object: {…}", param, ctx)
        return found


@click.command("run", short_help="Submit a run, or carry one on (--resume).")
@click.argument("agent", required=False)
@click.argument("text", metavar="[INPUT]", required=False)
@options.tenant
@click.option("--run-id", metavar="ID", type=options.Name("run id"), help="Yours to choose; made up by default.")
@click.option("--resume", metavar="RUN_ID", type=options.Name("run id"), help="Carry on the run of this id.")
@click.option("--metadata", metavar="JSON", type=Metadata(), help="An object for the tools.")
@click.option("--max-tokens", metavar="N", type=Tokens(), help="What it may use, in and out.")
@click.option("--max-cost", metavar="X", type=Cost(), help="What it may cost, in currency units: 2.50.")
@click.option(
    "--wait/--no-wait", default=None, help="Wait until it rests. With --resume: until it is carried on, the default."
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=options.PATIENCE,
    help=f"Wait no longer; for ever by default, with --resume {DEFAULT_PATIENCE:g} s.",
)
@click.option(
    "--by",
    metavar="NAME",
    type=options.Name("name of who acts"),
    help="With --resume: who you are, for the record; the operating system's user and host by default.",
)
@options.as_json
@options.debug
@click.pass_obj
def run(  # noqa: PLR0913 - one option each
    invocation: Invocation,
    *,
    agent: str | None,
    text: str | None,
    tenant: str,
    run_id: str | None,
    resume: str | None,
    metadata: dict[str, Any] | None,
    max_tokens: int | None,
    max_cost: int | None,
    wait: bool | None,
    timeout: float | None,
    by: str | None,
    as_json: bool,
) -> int:
    """Submit a run of AGENT with INPUT (- reads it from the standard input), or carry one on with --resume.

    \b
    adk run booking "book the flight" --tenant acme --wait
    adk run --resume run_1 --tenant acme

    Exit codes of a submit: 0 submitted, or with --wait completed; 64 no such agent; 65 it rests without having
    completed, or the id is taken by another request; 75 --timeout is over. Of --resume: 0 carried on, 1 nothing is
    checkpointed under that id, 2 the command line cannot be read, 3 somebody holds it, 4 it must not be carried on, 64
    and above anything else.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph
    if resume is not None:
        _only_with_a_submit(agent=agent, run_id=run_id, metadata=metadata, max_tokens=max_tokens, max_cost=max_cost)
        patience = DEFAULT_PATIENCE if timeout is None else timeout

        async def carry() -> int:
            async with invocation.source.open(publishes=True) as access:
                waits = None if wait is False else patience
                return await carry_on(access, resume, tenant=tenant, patience=waits, by=by, as_json=as_json)

        return awaited(carry)
    if agent is None or text is None:
        missing = "AGENT and INPUT" if agent is None else "INPUT"
        raise click.UsageError(f"Missing {missing}; or name a run to be carried on: --resume RUN_ID.")
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is for --wait and --resume.")
    if by is not None:
        raise click.UsageError("--by is for --resume.")
    said = sys.stdin.read() if text == "-" else text

    async def submit() -> int:
        async with invocation.source.open(publishes=True, agents=True) as access:
            budget = None if max_tokens is None and max_cost is None else Budget(max_tokens, max_cost)
            submitted = await access.fleet.submit(
                agent, said, tenant=tenant, run_id=run_id, metadata=metadata, budget=budget
            )
            if wait:
                return await _follow(access, submitted.run_id, tenant=tenant, timeout=timeout, as_json=as_json)
            await _show(access, submitted.run_id, tenant=tenant, as_json=as_json)
            return ExitCode.DONE

    return awaited(submit)


def _only_with_a_submit(**given: object) -> None:
    for name, value in given.items():
        if value is not None:
            option = "AGENT and INPUT" if name == "agent" else f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} cannot be given together with --resume.")


async def _follow(access: Access, run_id: str, *, tenant: str, timeout: float | None, as_json: bool) -> int:
    from adk_worker.cli.progress import follow

    try:
        run = await follow(access.fleet, run_id, tenant=tenant, timeout=timeout)
    except BaseException:
        note(f"run {run_id} itself goes on")
        raise
    await _show(access, run_id, tenant=tenant, as_json=as_json)
    return ExitCode.DONE if run.status is RunStatus.COMPLETED else ExitCode.NOT_COMPLETED


async def _show(access: Access, run_id: str, *, tenant: str, as_json: bool) -> None:
    if as_json:
        from adk_worker.cli.report import run_object

        emit(run_object(await access.fleet.get(run_id, tenant=tenant)))
    else:
        from adk_worker.describe import describe

        say(describe(await access.fleet.inspect(run_id, tenant=tenant)))
