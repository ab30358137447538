"""The command line of ``adk``. Commands import what they need as they run, so that ``adk --help`` needs nothing."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

import click

from adk_worker.cli import options
from adk_worker.cli.alive import alive
from adk_worker.cli.check_deploy import check_deploy
from adk_worker.cli.db import db
from adk_worker.cli.dev import dev
from adk_worker.cli.inspect import inspect
from adk_worker.cli.prune import prune
from adk_worker.cli.run import run
from adk_worker.cli.runs import cancel, list_runs


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value:
        try:
            click.echo(f"adk {version('adk-worker')}")
        except PackageNotFoundError:
            click.echo("adk, from a checkout")
        ctx.exit()


@click.group(context_settings=dict(options.HELP))
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
)
@options.debug
def root() -> None:
    """Agent runs that survive the death of their workers: submit them, look at them, carry them on.

    The fleet is the one that ADK_STORE_URL and ADK_BROKER_URL name; without ADK_STORE_URL, one that `adk dev` runs.
    """


for command in (run, inspect, list_runs, cancel, check_deploy, prune, db, dev, alive):
    root.add_command(command)
