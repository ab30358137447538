"""``adk check-deploy``: what the code at hand would make of the runs that are under way, before it is deployed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.runs import RunStatus

if TYPE_CHECKING:
    from adk_worker.deployment import Prospect

_DEFAULT_LIMIT = 50


@click.command("check-deploy", short_help="Tell which live runs the code at hand would carry on.")
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; of all by default.")
@click.option("--resting", is_flag=True, help="Parked and failed runs too: what would become of them, taken up again.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=0),
    default=_DEFAULT_LIMIT,
    show_default=True,
    help="Name at most so many of those that would not be carried on.",
)
@options.as_json
@options.debug
@click.pass_obj
def check_deploy(invocation: Invocation, *, tenant: str | None, resting: bool, limit: int, as_json: bool) -> int:
    """Tell, for every live run, whether this adk-worker with the agents of ADK_AGENTS would carry it on.

    Run it where the new code is, before it is deployed. It only reads. Runs that are queued, running or waiting for an
    approval are judged, page by page. A run that would be given back waits in the queue for a worker that has its code;
    keep its agent's revision registered beside the new one until it has ended. Where seal keys are set, a run whose
    secrets they do not open would park.

    Exit code 0 if all would be carried on, 4 if not.
    """
    counts: Counter[tuple[str, str, str, str]] = Counter()
    named: list[Prospect] = []

    async def survey() -> None:
        from adk_worker.deployment import GOING, Outlook, prospects
        from adk_worker.errors import ConfigurationError

        statuses = (*GOING, RunStatus.PARKED, RunStatus.FAILED) if resting else GOING
        async with invocation.source.open(agents=True) as access:
            registry = access.fleet.registry
            if registry is None:
                raise ConfigurationError("ADK_AGENTS is not set: name the modules of the code that is to be deployed.")
            keys = access.settings.read_seal_keys() if access.settings else None
            async for found in prospects(access.stores, registry, tenant=tenant, statuses=statuses, keys=keys):
                if as_json:
                    emit(prospect_object(found))
                attention = found.attention.value if found.attention else ""
                counts[found.outlook.value, found.run.agent, found.run.revision, attention] += 1
                if found.outlook is not Outlook.ACCEPTED and len(named) < limit:
                    named.append(found)

    awaited(survey)
    refused = sum(number for (outlook, *_), number in counts.items() if outlook != "accepted")
    if not as_json:
        _tell(counts, named, refused)
    return ExitCode.REFUSED if refused else ExitCode.DONE


def prospect_object(found: Prospect) -> dict[str, str | None]:
    """One run as JSON: who it is, its ``status``, and its ``outlook`` with the ``attention`` and ``detail`` of that."""
    run = found.run
    return {
        "tenant": run.tenant,
        "run_id": run.run_id,
        "agent": run.agent,
        "revision": run.revision,
        "status": run.status.value,
        "outlook": found.outlook.value,
        "attention": found.attention.value if found.attention else None,
        "detail": found.detail,
    }


def _tell(counts: Counter[tuple[str, str, str, str]], named: list[Prospect], refused: int) -> None:
    from adk_worker.cli.output import grid

    if not counts:
        note("no live runs")
        return
    rows = [(str(number), *key) for key, number in sorted(counts.items())]
    say(grid(("RUNS", "OUTLOOK", "AGENT", "REVISION", "ATTENTION"), rows, right={"RUNS"}))
    if named:
        say("")
        cells = [
            (found.run.tenant, found.run.run_id, found.run.status.value, found.outlook.value, found.detail or "")
            for found in named
        ]
        say(grid(("TENANT", "RUN", "STATUS", "OUTLOOK", "WHY"), cells))
    if refused > len(named):
        note(f"there are more: --limit names more than {len(named)} of {refused}")
