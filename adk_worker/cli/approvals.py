"""``adk approvals``, ``adk approve``, ``adk deny`` and ``adk revoke``: what a run's people are asked, and say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited

if TYPE_CHECKING:
    from adk_worker.approvals.answers import Answered

_request = click.argument("request_id", metavar="REQUEST", type=options.Name("request"))
_by = click.option(
    "--by", metavar="NAME", type=options.Name("name of who acts"), required=True, help="Who you are. Kept with it."
)
_why = click.option("--why", metavar="TEXT", help="Kept with the answer.")


@click.command("approvals", short_help="Say what a run's people are asked, have said, and grant.")
@options.run_id
@options.tenant
@options.as_json
@options.debug
@click.pass_obj
def approvals(invocation: Invocation, *, run_id: str, tenant: str, as_json: bool) -> int:
    """Say what a run's people were asked and have said, the oldest first, and what they let pass unasked.

    With --json, one object to a line: requests, and then grants.

    Exit codes: 0 told, 1 there is no such run, and otherwise as everywhere.
    """
    from adk_worker.approvals.words import answered, described, granted, waiting

    async def look() -> int:
        async with invocation.source.open() as access:
            await access.fleet.get(run_id, tenant=tenant)
            found = await access.fleet.approvals(run_id, tenant=tenant)
        if as_json:
            from adk_worker.cli.report import grant_object, request_object

            for request in found.requests:
                emit({"request": request_object(request), "grant": None})
            for grant in found.grants:
                emit({"request": None, "grant": grant_object(grant)})
            return ExitCode.DONE
        told = [answered(request) for request in found.requests if not request.pending]
        told += waiting(found, run_id=run_id, tenant=tenant)
        told += [described(grant) for grant in found.grants if grant.revoked_at is not None]
        told += granted(found, run_id=run_id, tenant=tenant)
        if told:
            say("\n".join(told))
        else:
            note("nobody was asked anything")
        return ExitCode.DONE

    return awaited(look)


@click.command("approve", short_help="Approve a call that waits for a person.")
@options.run_id
@_request
@options.tenant
@_by
@_why
@click.option("--for-run", is_flag=True, help="Let later calls of that tool pass unasked, for all of the run.")
@click.option("--for", "for_time", metavar="TIME", type=options.Duration(), help="The same for so long: 2h, 30m.")
@click.option("--digest", metavar="HEX", help="Of the arguments that you saw (--json): other ones are refused.")
@options.as_json
@options.debug
@click.pass_obj
def approve(  # noqa: PLR0913 - one option each
    invocation: Invocation,
    *,
    run_id: str,
    request_id: str,
    tenant: str,
    by: str,
    why: str | None,
    for_run: bool,
    for_time: float | None,
    digest: str | None,
    as_json: bool,
) -> int:
    """Approve a call that waits for a person: REQUEST is its id, req-1. With a turn's last answer the run goes on.

    \b
    adk approve run_1 req-1 --tenant acme --by ana
    adk approve run_1 req-1 --tenant acme --by ana --for 2h

    Exit codes: 0 approved, 1 no such run, 2 the command line cannot be read, 65 there is no such request, or it takes
    no answer any more, 77 it is not yours to answer, and otherwise as everywhere.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph
    from adk_worker.approvals.answers import NewGrant

    if for_run and for_time is not None:
        raise click.UsageError("Give one of --for-run and --for TIME.")
    if for_time is not None and for_time <= 0:
        raise click.UsageError("--for wants some time: 2h, 30m.")
    grant = NewGrant(seconds=for_time) if for_run or for_time is not None else None

    async def ask() -> Answered:
        async with invocation.source.open(publishes=True) as access:
            return await access.fleet.approve(
                run_id, request_id, tenant=tenant, by=by, why=why, digest=digest, grant=grant
            )

    return _tell(awaited(ask), as_json=as_json)


@click.command("deny", short_help="Deny a call that waits for a person.")
@options.run_id
@_request
@options.tenant
@_by
@click.option("--why", metavar="TEXT", required=True, help="Told to the model, and kept with the answer.")
@click.option("--digest", metavar="HEX", help="Of the arguments that you saw (--json): other ones are refused.")
@options.as_json
@options.debug
@click.pass_obj
def deny(
    invocation: Invocation,
    *,
    run_id: str,
    request_id: str,
    tenant: str,
    by: str,
    why: str,
    digest: str | None,
    as_json: bool,
) -> int:
    """Deny a call that waits for a person: it is not made, and the model is told who denied it and why.

    \b
    adk deny run_1 req-2 --tenant acme --by ana --why "too dear"

    Exit codes: those of `adk approve`.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph

    async def ask() -> Answered:
        async with invocation.source.open(publishes=True) as access:
            return await access.fleet.deny(run_id, request_id, tenant=tenant, by=by, why=why, digest=digest)

    return _tell(awaited(ask), as_json=as_json)


@click.command("revoke", short_help="Revoke a grant.")
@options.run_id
@click.argument("grant_id", metavar="GRANT", type=options.Name("grant"))
@options.tenant
@_by
@options.as_json
@options.debug
@click.pass_obj
def revoke(invocation: Invocation, *, run_id: str, grant_id: str, tenant: str, by: str, as_json: bool) -> int:
    """Revoke a grant: GRANT is its id, grant-1. No call is begun under it any more, and what would be is asked about.

    Exit codes: 0 revoked, or it was already, 1 no such run, 65 no such grant, 77 you may not, and otherwise as
    everywhere.
    """
    from adk_worker.approvals.requests import Grant
    from adk_worker.approvals.words import described

    async def ask() -> Grant:
        async with invocation.source.open() as access:
            return await access.fleet.revoke(run_id, grant_id, tenant=tenant, by=by)

    grant = awaited(ask)
    if as_json:
        from adk_worker.cli.report import grant_object

        emit(grant_object(grant))
    else:
        say(described(grant))
    return ExitCode.DONE


def _tell(answered: Answered, *, as_json: bool) -> int:
    from adk_worker.approvals import words as questions

    if as_json:
        from adk_worker.cli.report import request_object, run_object

        emit({"request": request_object(answered.request), "run": run_object(answered.run)})
        return ExitCode.DONE
    say(questions.answered(answered.request))
    if answered.ticket is None and answered.run.detail:
        from adk_worker.printable import printable

        say(f"the run still waits on approval {printable(answered.run.detail)}")
    else:
        say("the run goes on")
    return ExitCode.DONE
