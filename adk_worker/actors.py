"""Who acts on a run: people, as the caller has authenticated them, and whether they may (P5).

The caller gives the name, and has authenticated whoever bears it. The operating system's user of the process is kept
beside it. An application with rules of its own about who may do what gives its fleet a :class:`Verifier`.
"""

from __future__ import annotations

import asyncio
import getpass
import inspect
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from adk_worker.errors import ConfigurationError, NotAllowedError
from adk_worker.names import check_name
from adk_worker.results import text_of


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: ``name`` as the caller gives it, and the operating system's user of the process that acted.

    :raises InvalidNameError: the name cannot be one.
    """

    name: str
    os_user: str | None = None

    def __post_init__(self) -> None:
        check_name(self.name, what="name of who acts")

    @classmethod
    def here(cls, name: str) -> Actor:
        """The actor of that name, who acts through this process."""
        return cls(name, os_user())

    @property
    def told(self) -> dict[str, str | None]:
        """What an event says of them: ``by`` and ``os_user``."""
        return {"by": self.name, "os_user": self.os_user}


class Action(StrEnum):
    """What a person asks for."""

    RESUME = "resume"
    CANCEL = "cancel"
    BUDGET = "budget"
    """Change what a run may spend, or without a run a tenant."""
    SETTLE = "settle"
    FIND = "find"
    """Runs of an id, whichever tenant's."""
    APPROVE = "approve"
    DENY = "deny"
    REVOKE = "revoke"
    PRUNE = "prune"
    """Remove runs that are over, whichever tenant's."""


class Verifier(Protocol):
    """Says whether a person may do what they ask for, before anything is written.

    ``run_id`` is ``None`` where many runs are meant at once, and ``tenant`` where the runs of all tenants are.
    """

    def __call__(self, actor: Actor, action: str, *, tenant: str | None, run_id: str | None) -> object:
        """Return ``None``, or an awaitable of it, if they may. Whatever it raises refuses, ``NotAllowedError`` best."""
        ...


async def verify(
    verifier: Verifier | None, actor: Actor, action: Action, *, tenant: str | None, run_id: str | None
) -> None:
    """Ask the verifier, if there is one. It fails closed.

    :raises NotAllowedError: it raised, or answered with something, which a hook that returns its verdict does.
    :raises ConfigurationError: the verifier that the settings name cannot be used.
    """
    if verifier is None:
        return
    try:
        answer: object = verifier(actor, action.value, tenant=tenant, run_id=run_id)
        if inspect.isawaitable(answer):
            answer = await answer
    except (NotAllowedError, ConfigurationError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError) and _cancelled():
            raise
        raise NotAllowedError(actor=actor.name, action=action.value, reason=text_of(error)) from error
    if answer is not None:
        reason = f"the verifier has to raise or to return nothing, and returned {type(answer).__name__}"
        raise NotAllowedError(actor=actor.name, action=action.value, reason=reason)


def _cancelled() -> bool:
    """Whether it is we who are cancelled. A time limit of the verifier's own may leave one of its kind behind, too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def os_user() -> str:
    """The operating system's user of this process."""
    try:
        import pwd  # noqa: PLC0415 - Windows has none
    except ImportError:
        return getpass.getuser()
    try:
        # Not getpass: that believes LOGNAME, which whoever acts has set.
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without a name
        return str(os.getuid())
