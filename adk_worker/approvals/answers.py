"""What people answer to the requests of a run, and what came of an answer (P1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adk_worker.approvals.requests import ApprovalRequest
from adk_worker.errors import ConfigurationError
from adk_worker.results import whole

if TYPE_CHECKING:
    from adk_worker.runs import Run


MAX_REASON: Final = 2_000
"""Longest reason of an answer, in characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewGrant:
    """A grant to be given with an approval: for ``seconds``, or for all of the run."""

    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds > 0):
            raise ConfigurationError(f"a grant for {self.seconds!r} seconds cannot be; it has to be above 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A person's answer to one request.

    :param digest: of the arguments that they have seen, if they say: another one is refused.
    :param answer_id: names this answer. One that comes again under it finds itself given (F5).
    :raises ConfigurationError: ``approved`` is no boolean, a denial has a grant, or the reason is no text or too long.
    """

    request_id: str
    approved: bool
    answer_id: str
    reason: str | None = None
    digest: str | None = None
    grant: NewGrant | None = None

    def __post_init__(self) -> None:
        _plain(self)
        if self.grant is not None and not self.approved:
            raise ConfigurationError("a denial grants nothing: give a grant with an approval.")
        if self.reason is not None and len(self.reason) > MAX_REASON:
            raise ConfigurationError(f"the reason has {len(self.reason)} characters; at most {MAX_REASON} are kept.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalDecision:
    """What a person says about a call of a run in process: for :meth:`AgentRunner.resume`.

    :param by: who says so, and has been authenticated by you.
    :param reason: told to the model with a denial.
    :param digest: of the arguments that they have seen, if they say: other ones are refused.
    :raises ConfigurationError: ``approved`` is no boolean, or the reason no text.
    """

    approved: bool
    by: str
    reason: str | None = None
    digest: str | None = None

    def __post_init__(self) -> None:
        _plain(self)


def _plain(said: Answer | ApprovalDecision) -> None:
    if type(said.approved) is not bool:  # "no", as a form would have it, would count as yes
        raise ConfigurationError(f"approved is {said.approved!r}; it has to be True or False.")
    if said.reason is not None and not isinstance(said.reason, str):
        raise ConfigurationError(f"the reason is {type(said.reason).__name__}; it has to be a text.")
    # A denial's goes into the transcript, which could not be read with a lone surrogate in it (H2).
    if said.reason is not None:
        object.__setattr__(said, "reason", whole(said.reason))


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered, its run after that, and the ticket to dispatch.

    ``ticket`` is ``None`` while others of the turn wait for their answers.
    """

    request: ApprovalRequest
    run: Run
    ticket: int | None
