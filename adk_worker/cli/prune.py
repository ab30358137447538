"""``adk prune``: remove runs that are over, and see that the others still load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import counted, emit, note, say
from adk_worker.cli.program import Invocation, awaited

if TYPE_CHECKING:
    from adk_worker.cli.source import Access
    from adk_worker.soundness import Examined

_TELL_EVERY: Final = 10_000
"""Removed runs, between two lines that say how far it is."""


@dataclass(slots=True)
class _Told:
    removed: int = 0
    undecided: int = 0
    examined: int = 0
    unloadable: list[Examined] = field(default_factory=list)


@click.command("prune", context_settings=dict(options.HELP), short_help="Remove runs that are over.")
@click.option(
    "--older-than",
    metavar="AGE",
    type=options.Duration(),
    required=True,
    help="Whose last write is so long ago: 30d, 12h, 90m or 45s.",
)
@click.option("--failed", is_flag=True, help="Failed ones too; they cannot be carried on any more then.")
@click.option(
    "--batch",
    metavar="N",
    type=click.IntRange(min=1, max=10_000),
    default=100,
    show_default=True,
    help="So many at a time.",
)
@click.option("--check/--no-check", default=True, help="See in the end that all other runs load; the default.")
@options.by
@options.as_json
@options.debug
@click.pass_obj
def prune(
    invocation: Invocation,
    *,
    older_than: float,
    failed: bool,
    batch: int,
    check: bool,
    by: str | None,
    as_json: bool,
) -> int:
    """Remove runs that completed or were cancelled, with their transcripts, claims and events; of all tenants.

    In small batches, beside a fleet that works: a run that goes on, rests or has an undecided call is not touched. In
    the end the frontier and the transcript of every run that is not over are loaded, to show that nothing is missing.

    Exit codes: 0 done, 4 a run that is left does not load (it is named), 64 and above anything else.
    """

    async def work() -> _Told:
        async with invocation.source.open() as access:
            told = _Told()
            pruning = access.fleet.prune(older_than=older_than, by=by or access.by, failed=failed, batch=batch)
            async for pruned in pruning:
                before, told.removed = told.removed, told.removed + pruned.removed
                told.undecided += pruned.undecided
                if told.removed // _TELL_EVERY > before // _TELL_EVERY:
                    note(f"{told.removed} runs removed so far")
            if check:
                await _check(access, told)
            return told

    told = awaited(work)
    if as_json:
        emit(_object(told))
    else:
        say(_text(told, checked=check))
    for one in told.unloadable:
        note(f"error: run {one.run.run_id!r} of tenant {one.run.tenant!r} does not load: {one.error}")
    return ExitCode.REFUSED if told.unloadable else ExitCode.DONE


async def _check(access: Access, told: _Told) -> None:
    from adk_worker.soundness import examine

    async for one in examine(access.stores):
        told.examined += 1
        if one.error is not None:
            told.unloadable.append(one)


def _text(told: _Told, *, checked: bool) -> str:
    parts = [f"{counted(told.removed, 'run')} removed"]
    if told.undecided:
        parts.append(f"{told.undecided} kept for a call that nobody has decided")
    if checked:
        sound = told.examined - len(told.unloadable)
        parts.append(f"{sound} of {told.examined} that are not over can be loaded")
    return "; ".join(parts)


def _object(told: _Told) -> dict[str, object]:
    return {
        "removed": told.removed,
        "undecided": told.undecided,
        "examined": told.examined,
        "unloadable": [
            {"tenant": one.run.tenant, "run_id": one.run.run_id, "error": str(one.error)} for one in told.unloadable
        ],
    }
