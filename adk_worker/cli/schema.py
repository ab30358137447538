"""``adk schema``: what ``--json`` prints, as JSON schemas."""

from __future__ import annotations

import click

from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import say


@click.command("schema", short_help="Print the JSON schema of a command's --json.")
@click.argument("command", nargs=-1)
@options.debug
def schema(*, command: tuple[str, ...]) -> int:
    """Print the JSON schema of a line that COMMAND prints with --json: `adk schema db verify`.

    Without COMMAND it names those that have one.
    """
    from adk_worker.cli.schemas import published, read

    if not command:
        say("\n".join(published()))
        return ExitCode.DONE
    try:
        found = read(" ".join(command))
    except KeyError:
        raise click.UsageError(
            f"no schema of {' '.join(command)!r}: there are those of {', '.join(published())}."
        ) from None
    say(found.rstrip("\n"))
    return ExitCode.DONE
