"""``adk scan``: what looks like a secret in what the store holds already."""

from __future__ import annotations

from dataclasses import dataclass

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import counted, emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.printable import printable


@dataclass(slots=True)
class _Told:
    runs: int = 0
    places: int = 0
    with_any: int = 0


@click.command("scan", short_help="Tell what looks like a secret in what is stored.")
@click.option("--tenant", metavar="T", type=options.Name("tenant"), help="Of this tenant alone; of all by default.")
@options.as_json
@options.debug
@click.pass_obj
def scan(invocation: Invocation, *, tenant: str | None, as_json: bool) -> int:
    """Tell where something that looks like a secret is stored.

    In runs, transcripts, checkpoints, claims, approvals and events. It goes by the rules of masking, those of
    ADK_REDACT_PATTERNS among them, and prints where and which kind, one to a line, never the secret. It only reads,
    page by page, and may run beside a fleet. To be rid of what it finds, change the secret and prune the run.

    Exit codes: 0 nothing found, 4 something, 64 and above anything else.
    """

    async def work() -> _Told:
        from adk_worker.redaction.masking import Redactor
        from adk_worker.redaction.scanning import scan as scanned

        told = _Told()
        async with invocation.source.open() as access:
            patterns = access.settings.redact_patterns if access.settings else ()
            async for one in scanned(access.stores, Redactor(extra_patterns=patterns), tenant=tenant):
                told.runs += 1
                told.with_any += bool(one.findings)
                told.places += len(one.findings)
                for finding in one.findings:
                    parts = (finding.tenant, finding.run_id, finding.place, finding.kind)
                    if as_json:
                        emit(dict(zip(("tenant", "run_id", "place", "kind"), parts, strict=True)))
                    else:
                        say("  ".join(map(printable, parts)))
        return told

    told = awaited(work)
    note(f"{counted(told.places, 'place')} in {told.with_any} of {counted(told.runs, 'run')}")
    return ExitCode.REFUSED if told.places else ExitCode.DONE
