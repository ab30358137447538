"""The command line of ``adk``. A command's module is imported when it is named, and no other."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, Final

import click

from adk_worker.cli import options

COMMANDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "alive": "adk_worker.cli.alive:alive",
        "approvals": "adk_worker.cli.approvals:approvals",
        "approve": "adk_worker.cli.approvals:approve",
        "budget": "adk_worker.cli.budget:budget",
        "cancel": "adk_worker.cli.runs:cancel",
        "check-deploy": "adk_worker.cli.check_deploy:check_deploy",
        "db": "adk_worker.cli.db:db",
        "deny": "adk_worker.cli.approvals:deny",
        "dev": "adk_worker.cli.dev:dev",
        "doctor": "adk_worker.cli.doctor:doctor",
        "find": "adk_worker.cli.find:find",
        "inspect": "adk_worker.cli.inspect:inspect",
        "list": "adk_worker.cli.runs:list_runs",
        "prune": "adk_worker.cli.prune:prune",
        "resume": "adk_worker.cli.bulk:resume",
        "revoke": "adk_worker.cli.approvals:revoke",
        "run": "adk_worker.cli.run:run",
        "scan": "adk_worker.cli.scan:scan",
        "schema": "adk_worker.cli.schema:schema",
        "seal": "adk_worker.cli.seal:seal",
        "settle": "adk_worker.cli.settle:settle",
        "watch": "adk_worker.cli.watch:watch",
    }
)
"""Each command, and where it is."""


class LazyGroup(click.Group):
    """A group whose commands are imported as they are asked for, so that each starts as if it were the only one."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in order."""
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One of them, imported now; ``None`` if there is none of that name."""
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, name = place.partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command


def _version(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value:
        try:
            click.echo(f"adk {version('adk-worker')}")
        except PackageNotFoundError:
            click.echo("adk, from a checkout")
        ctx.exit()


@click.group(cls=LazyGroup, lazy=COMMANDS, context_settings=dict(options.HELP))
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
)
@options.debug
def root() -> None:
    """Agent runs that survive the death of their workers: submit them, look at them, carry them on.

    The fleet is the one that ADK_STORE_URL and ADK_BROKER_URL name; without ADK_STORE_URL, one that `adk dev` runs.
    """
