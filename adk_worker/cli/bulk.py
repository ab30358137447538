"""``adk resume``, and ``adk cancel`` without a run's id: the same asked of many runs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from adk_worker.actors import Action
from adk_worker.bulk import STATUSES
from adk_worker.cli import options, selecting
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import counted, emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.filters import RunFilter

if TYPE_CHECKING:
    from adk_worker.bulk import BulkOutcome
    from adk_worker.cli.source import Access
    from adk_worker.client import Fleet
    from adk_worker.runs import Run

Ask = Callable[..., AsyncIterator["BulkOutcome"]]

_WORDS: Final = {"resume": "queued again", "cancel": "cancelled, or asked to end"}


@dataclass(frozen=True, slots=True)
class Caution:
    """How many at most, whether only to look, whether somebody has said yes already, and who."""

    limit: int | None
    dry_run: bool
    yes: bool
    by: str | None = None
    """Who acts, if somebody has said it."""


@click.command("resume", context_settings=dict(options.HELP), short_help="Queue many runs again.")
@click.argument("run_id", metavar="", required=False)
@selecting.many
@options.as_json
@options.debug
@click.pass_obj
def resume(invocation: Invocation, /, *, run_id: str | None, as_json: bool, **which: Any) -> int:
    """Queue again whatever one cause has stopped, now that it is gone: failed and parked runs, and those that back off.

    \b
    adk resume --tenant acme --status failed --since 12h --dry-run
    adk resume --all-tenants --attention poisoned --agent booking

    Say which tenant's, or --all-tenants, and at least one thing more. Each run is queued again only if it is still as
    it was seen; one that has moved meanwhile is skipped and told. Asking again goes on with what is left. A run that
    was parked as poisoned may die as often again. One run is carried on by `adk run --resume RUN_ID`.

    Exit codes: 0 done, 65 some were refused or have moved (they are named), 64 and above anything else.
    """  # noqa: D301 - click reads this backspace: keep the lines of the next paragraph
    if run_id is not None:
        raise click.UsageError(f"One run is carried on by `adk run --resume {run_id} --tenant T`.")
    return ask_many(invocation, "resume", lambda fleet: fleet.resume_many, as_json=as_json, publishes=True, **which)


def ask_many(  # noqa: PLR0913 - one option each
    invocation: Invocation,
    verb: str,
    method: Callable[[Fleet], Ask],
    *,
    tenant: str | None,
    all_tenants: bool,
    limit: int | None,
    dry_run: bool,
    yes: bool,
    by: str | None,
    as_json: bool,
    publishes: bool = False,
    **conditions: Any,
) -> int:
    """Ask it of the runs that the options mean, and return the exit code."""
    where = _where(verb, tenant=tenant, all_tenants=all_tenants, **conditions)
    caution = Caution(limit, dry_run, yes, by)
    if not (dry_run or yes or (sys.stdin.isatty() and not as_json)):
        raise click.UsageError("Nobody can be asked here: see which runs they are with --dry-run, then add --yes.")

    async def work() -> int:
        async with invocation.source.open(publishes=publishes and not dry_run) as access:
            return await _ask(access, verb, method(access.fleet), where, caution, as_json=as_json)

    return awaited(work)


def _where(verb: str, *, tenant: str | None, all_tenants: bool, **conditions: Any) -> RunFilter:
    if (tenant is None) is not all_tenants:
        raise click.UsageError(
            "Missing option '--tenant'; or --all-tenants."
            if tenant is None
            else "--tenant and --all-tenants cannot be given together."
        )
    if all(value is None for value in conditions.values()):
        which = "say which runs: at least one of --status, --attention, --agent, --since and --until."
        raise click.UsageError(f"Missing argument 'RUN_ID'; or {which}" if verb == "cancel" else f"S{which[1:]}")
    where = selecting.selected(tenant=tenant, **conditions)
    known = STATUSES[Action(verb)]
    if where.status is not None and where.status not in known:
        may = ", ".join(status.value for status in known)
        raise click.UsageError(
            f"There is nothing to {verb} in runs that are {where.status.value}; --status may be {may}."
        )
    return where


async def _ask(access: Access, verb: str, ask: Ask, where: RunFilter, caution: Caution, *, as_json: bool) -> int:
    which: RunFilter | list[Run] = where
    limit, by = caution.limit, caution.by or access.by
    if not (caution.dry_run or caution.yes):
        # What is done is done to those that were shown, as they were shown.
        seen = [one async for one in ask(where, by=by, dry_run=True, limit=limit)]
        which, limit = [one.run for one in seen if one.error is None], None
        for one in seen:
            say(_line(one))
        if not which:
            note("no such runs" if not seen else "none of them can be")
            return ExitCode.NOT_COMPLETED if seen else ExitCode.DONE
        if not click.confirm(f"{len(which)} of them are to be {_WORDS[verb]}. Go on?", err=True):
            note("nothing was done")
            return ExitCode.INTERRUPTED
    results: Counter[str] = Counter()
    try:
        async for one in ask(which, by=by, dry_run=caution.dry_run, limit=limit):
            results[one.result.value] += 1
            if as_json:
                emit(_object(one))
            else:
                say(_line(one))
    except BaseException:
        note(f"it came as far as this: {_told(results)}. Ask again: it goes on with what is left")
        raise
    note(_told(results) if results else "no such runs")
    # What has moved is not done either, as where one run alone is named.
    return ExitCode.NOT_COMPLETED if results["refused"] or results["changed"] else ExitCode.DONE


def _told(results: Counter[str]) -> str:
    parts = ", ".join(f"{number} {word}" for word, number in sorted(results.items()))
    return f"{counted(results.total(), 'run')}: {parts}" if parts else "0 runs"


def _line(one: BulkOutcome) -> str:
    """An outcome on one line: what came of it, whose run it is, how it stands, and why it was not done."""
    from adk_worker.printable import printable

    run = one.run
    standing = f"{run.status.value} ({run.attention.value})" if run.attention else run.status.value
    why = f": {one.error}" if one.error is not None else ""
    words = (f"{one.result.value:<8}", run.tenant, run.run_id, run.agent, f"{standing}{why}")
    return "  ".join(printable(word) for word in words)


def _object(one: BulkOutcome) -> dict[str, Any]:
    from adk_worker.cli.report import run_object

    error = one.error
    return {
        "outcome": one.result.value,
        "error": None if error is None else {"error": type(error).__name__, "message": str(error)},
        "run": run_object(one.run),
    }
