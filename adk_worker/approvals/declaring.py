"""What an author declares: that a person has to approve the calls of a tool, or of an agent (P1)."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import JsonValue

from adk_worker.errors import ConfigurationError
from adk_worker.names import check_name

POLICY_TIMEOUT: Final = 30.0
"""How long a policy may take to decide about a call, in seconds."""


@dataclass(frozen=True, slots=True)
class ProposedCall:
    """A call that the model asks for, as a policy sees it: before anything is dispatched. Arguments are masked (R1)."""

    tenant: str
    run_id: str
    agent: str
    tool: str
    arguments: Mapping[str, JsonValue]
    metadata: Mapping[str, JsonValue]


Policy: TypeAlias = Callable[[ProposedCall], bool | Awaitable[bool]]
"""``policy(call)``, sync or async: whether a person has to approve this call. An exception, no answer in
time, or anything but a boolean counts as yes."""


@dataclass(frozen=True, slots=True)
class Approval:
    """That a person has to approve a call before it is made: ``@tool(requires_approval=Approval(…))``.

    :param approvers: names of those who may answer; empty leaves that to whoever the caller of the client lets in.
    :param expires_in: for how many seconds the request waits, by the store's clock; ``ADK_APPROVAL_EXPIRES`` by
        default. If nobody answers in that time, the call is denied.
    :param when: decides per call whether a person has to approve it; every one by default.
    :raises ConfigurationError: one of them cannot be used.
    """

    approvers: tuple[str, ...] = ()
    expires_in: float | None = None
    when: Policy | None = None

    def __post_init__(self) -> None:
        given: Any = self.approvers
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise ConfigurationError(f"Approval.approvers is {given!r}; it has to be a list of names.")
        object.__setattr__(self, "approvers", tuple(check_name(name, what="approver") for name in given))
        seconds = self.expires_in
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool) and math.isfinite(seconds)
        if seconds is not None and not (number and seconds > 0):
            raise ConfigurationError(f"Approval.expires_in is {seconds!r}; it has to be above 0 seconds.")
        if self.when is not None and not callable(self.when):
            raise ConfigurationError(f"Approval.when is {self.when!r}; it has to be a function of a ProposedCall.")

    def described(self) -> dict[str, JsonValue]:
        """What of it is in an agent's revision: a policy counts by its name (C7)."""
        when = None if self.when is None else getattr(self.when, "__qualname__", type(self.when).__qualname__)
        return {"approvers": list(self.approvers), "expires_in": self.expires_in, "when": when}


def approval_of(declared: bool | Approval | None, *, of: str) -> Approval | None:  # noqa: FBT001 - what authors write
    """The declaration behind ``requires_approval``; ``of`` names whose it is.

    :raises ConfigurationError: it declares no approval.
    """
    if declared is None or declared is False:
        return None
    if declared is True:
        return Approval()
    if isinstance(declared, Approval):
        return declared
    raise ConfigurationError(
        f"{of} has requires_approval={declared!r}; it is True, False, or Approval(approvers=…, expires_in=…, when=…)."
    )
