"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from adk_worker.cli.program import Invocation
from adk_worker.errors import InvalidNameError
from adk_worker.names import check_name

HELP: Final = MappingProxyType({"help_option_names": ["-h", "--help"]})
"""Settings of every command that may also be called by itself: it remembers the help option of its first call."""

_SECONDS: Final = MappingProxyType({"d": 86_400, "h": 3_600, "m": 60, "s": 1})

_DIGITS: Final = 9
"""Of a length of time. Longer ones are mistyped, and no number of seconds that a clock has."""

F = TypeVar("F", bound=Callable[..., Any])


class Name(click.ParamType[str]):
    """A name as the stores take it. What cannot be one is a command line that cannot be read."""

    def __init__(self, what: str) -> None:
        self.name = what
        self._what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value if it can be a name, else fail with the reason."""
        try:
            return check_name(value, what=self._what)
        except InvalidNameError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType[float]):
    """A length of time with its unit, in seconds: ``30d``, ``12h``, ``90m``, ``45s``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds, or fail and say how a duration is written."""
        number, unit = str(value)[:-1], str(value)[-1:]
        if unit not in _SECONDS or not (number.isascii() and number.isdigit()):
            self.fail(f"{value!r} is no length of time; write 30d, 12h, 90m or 45s", param, ctx)
        if len(number.lstrip("0")) > _DIGITS:
            self.fail(f"{value!r} is too long; it has {_DIGITS} digits at most", param, ctx)
        return float(int(number.lstrip("0") or "0") * _SECONDS[unit])


class Seconds(click.FloatRange):
    """A number of seconds that a clock can wait for."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds, or fail and say what they may be. No range keeps NaN out, and no wait for it ends."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds; write 30 or 0.5", param, ctx)
        return seconds


PATIENCE: Final = Seconds(min=0, min_open=True, max=366 * 86_400)
"""For how long something is waited for."""


def _debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's callback
    if value:
        invocation: Invocation = ctx.find_root().obj
        invocation.debug = True


debug = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_debug,
    help="Show where an error comes from, and what the kit logs.",
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object to a line.")

tenant = click.option("--tenant", metavar="T", required=True, type=Name("tenant"), help="The tenant whose run it is.")

run_id = click.argument("run_id", metavar="RUN_ID", type=Name("run id"))

by = click.option(
    "--by",
    metavar="NAME",
    type=Name("name of who acts"),
    help="Who you are, for the record; the operating system's user and host by default.",
)
