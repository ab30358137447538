"""What a message of the fleet carries: a version, names and a number; never a prompt, an argument or a secret.

A message that cannot be read is dropped, and nothing is lost by that: its ticket is in the store, and the reaper
publishes it again, in its own version and for a worker that may be newer. Passed on instead, it would go round among
old workers for as long as there are no others, and each round would take a slot from the runs that they can carry on.

It costs time, a grace for each drop, so an upgrade should not come to it: a version is read for one release before any
is written, so that no worker in a rolling upgrade is sent what it cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from adk_worker.errors import InvalidNameError, UnreadableMessageError
from adk_worker.names import check_run
from adk_worker.runs import Dispatch

VERSION: Final = 1
"""What this worker writes."""
READABLE: Final = frozenset({1})
"""What it reads."""

ADVANCE: Final = "adk.advance"
RESUME: Final = "adk.resume"
"""The same walk as an advance, under its own name, so that Flower shows recoveries apart."""
REAP: Final = "adk.reap"


def task_name(message: Dispatch) -> str:
    """The task that carries the message out."""
    return RESUME if message.recovery else ADVANCE


def encode(message: Dispatch) -> dict[str, Any]:
    """The message as a task's keyword arguments."""
    return {"v": VERSION, "tenant": message.tenant, "run_id": message.run_id, "ticket": message.ticket}


def shown(message: Dispatch) -> str:
    """What logs, events and Flower show of it."""
    return repr({"run_id": message.run_id, "ticket": message.ticket})


def decode(args: Sequence[Any], kwargs: Mapping[str, Any], *, recovery: bool) -> Dispatch:
    """Read a task's arguments back.

    :raises UnreadableMessageError: they are of another version, or nothing that :func:`encode` makes.
    """
    version = kwargs.get("v")
    if not isinstance(version, int) or isinstance(version, bool) or version not in READABLE:
        written = f"version {version}" if isinstance(version, int) else "no version that could be one"
        reads = ", ".join(map(str, sorted(READABLE)))
        raise UnreadableMessageError(reason=f"it has {written}, this worker reads {reads}")
    fields = {"v", "tenant", "run_id", "ticket"}
    if args or set(kwargs) != fields:
        raise UnreadableMessageError(reason=f"its fields are not exactly {', '.join(sorted(fields))}")
    ticket = kwargs["ticket"]
    if not isinstance(ticket, int) or isinstance(ticket, bool) or ticket < 1:
        raise UnreadableMessageError(reason="its ticket is no number above 0")
    try:
        tenant, run_id = check_run(kwargs["tenant"], kwargs["run_id"])
    except InvalidNameError as error:
        raise UnreadableMessageError(reason=str(error).rstrip(".")) from error
    return Dispatch(tenant, run_id, ticket, recovery)
