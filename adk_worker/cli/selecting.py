"""Options that say which runs are meant, for the commands that list them or act on many."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from adk_worker.cli import options
from adk_worker.filters import RunFilter
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention

F = TypeVar("F", bound=Callable[..., Any])

_ANY: Final = "any"


class Moment(click.ParamType[float]):
    """A time, in seconds since the epoch: ``12h`` (ago), or ``2030-01-31T03:00Z``, in UTC unless it says otherwise."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time, or fail and say how one is written."""
        try:
            return time.time() - options.Duration().convert(value, param, ctx)
        except click.BadParameter:
            pass
        try:
            read = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is no time; write how long ago (12h), or the time itself: 2030-01-31T03:00Z", param, ctx
            )
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


status = click.option(
    "--status", type=click.Choice([status.value for status in RunStatus]), help="Of this status alone."
)

attention = click.option(
    "--attention",
    metavar="[KIND]",
    is_flag=False,
    flag_value=_ANY,
    type=click.Choice([_ANY, *(kind.value for kind in Attention)]),
    help="Those that need somebody, and nothing else; or for this reason alone.",
)

agent = click.option("--agent", metavar="A", type=options.Name("agent's name"), help="Of this agent alone.")

since = click.option("--since", metavar="TIME", type=Moment(), help="Written last then or later: 12h (ago), or a time.")

until = click.option("--until", metavar="TIME", type=Moment(), help="Written last before then.")


def many(command: F) -> F:
    """The options of a command that acts on many runs: which ones, and with how much caution."""
    for option in reversed(
        (
            click.option("--tenant", metavar="T", type=options.Name("tenant"), help="The tenant whose runs they are."),
            click.option("--all-tenants", is_flag=True, help="Of all tenants."),
            status,
            attention,
            agent,
            since,
            until,
            click.option(
                "--limit",
                type=click.IntRange(min=1),
                metavar="N",
                help="Stop once so many are done; what is refused, or has changed, is not counted.",
            ),
            click.option("--dry-run", is_flag=True, help="Say which ones they are, and do nothing."),
            click.option("--yes", is_flag=True, help="Do not ask."),
            options.by,
        )
    ):
        command = option(command)
    return command


def selected(
    *,
    tenant: str | None,
    status: str | None,
    attention: str | None,
    agent: str | None,
    since: float | None,
    until: float | None,
) -> RunFilter:
    """The runs that the options mean."""
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since has to be before --until.")
    return RunFilter(
        tenant=tenant,
        status=RunStatus(status) if status else None,
        attention=True if attention == _ANY else Attention(attention) if attention else None,
        agent=agent,
        updated_since=since,
        updated_until=until,
    )
