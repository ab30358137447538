"""The settings that Flower is started with: it asks for a login, and shows runs.

Left alone, Flower listens on every interface, asks for no password, and lets whoever reads its pages stop workers. It
reads options of its own, from its command line, ``FLOWER_*`` and flowerconfig.py, and listens after that; the app comes
in between (:class:`~tasks.app.FleetLoader`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tornado.options import OptionParser, options

from adk_worker.errors import ConfigurationError

OURS: Final[Mapping[str, tuple[Any, Any]]] = {
    # Every interface, by itself. /metrics and /healthcheck answer without a password.
    "address": ("", "127.0.0.1"),
    # Run and ticket are in the keyword arguments, what came of them in the result; it would show neither.
    "tasks_columns": (
        "name,uuid,state,received,runtime,worker",
        "name,kwargs,state,result,worker,received,runtime",
    ),
    # It keeps as many in memory, at some six kilobytes each.
    "max_tasks": (100_000, 10_000),
}
"""By option, Flower's own default and ours in its place. What somebody sets otherwise holds."""


def settle_flower(of: OptionParser = options) -> None:
    """Put our defaults in the place of Flower's own, and see to it that somebody has to log in.

    :raises ConfigurationError: nobody would have to.
    """
    if not (of.basic_auth or of.auth):
        raise ConfigurationError(
            "Flower would show this fleet to whoever asks, and let them stop it. Set FLOWER_BASIC_AUTH=user:password, "
            "or have people log in elsewhere (--auth and --auth_provider)."
        )
    for pair in of.basic_auth or ():
        user, _, password = pair.partition(":")
        if not (user and password):
            # What it is instead may be a password, or half of one.
            raise ConfigurationError(
                "FLOWER_BASIC_AUTH has to be user:password. Several of these are separated by commas, which a password "
                "therefore cannot contain."
            )
    for name, (theirs, ours) in OURS.items():
        if getattr(of, name) == theirs:
            setattr(of, name, ours)
