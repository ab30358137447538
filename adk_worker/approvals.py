"""Approvals: what a person is asked before a call is made, what they said, and what they let pass unasked (P1).

A tool, or an agent for all of its tools, declares with :class:`Approval` that a person has to agree to a call. Before
any call of such a turn is dispatched, the run waits, with an :class:`ApprovalRequest` for each call that needs one. A
request is bound to that call, to the digest of its arguments, to those who may answer it, and to a time by the store's
clock. It is answered once. What the answer permits is spent by the write that acts on it, and permits no other call.

A :class:`Grant` is given with an approval: calls of that tool in that run pass without being asked about, until it is
revoked or its time is over.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from pydantic import JsonValue

from adk_worker.errors import ConfigurationError
from adk_worker.messages import canonical_json
from adk_worker.names import check_name
from adk_worker.results import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adk_worker.actors import Actor
    from adk_worker.runs import Dispatch, Run
    from adk_worker.transitions.runs import FleetPolicy

EXPIRES_IN: Final = 86_400.0
"""How long a request waits for its answer unless something else is declared, in seconds: a day."""
MAX_REASON: Final = 2_000
"""Longest reason of an answer, in characters."""
MAX_SHOWN: Final = 16_384
"""Largest arguments that a request shows, in bytes of JSON; of larger ones it says how large they are."""
POLICY_TIMEOUT: Final = 30.0
"""How long a policy may take to decide about a call, in seconds."""
SYSTEM_TIMEOUT: Final = "system:timeout"
"""Who denies a request that nobody has answered in time."""


# --- what is declared ---------------------------------------------------------------------------------------------


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
"""``policy(call)``, sync or async: whether a person has to approve this call. Whatever else comes of it, an exception,
no answer in time, another value than a truth value, counts as yes."""


@dataclass(frozen=True, slots=True)
class Approval:
    """That a person has to approve a call before it is made: ``@tool(requires_approval=Approval(…))``.

    :param approvers: names of those who may answer; empty leaves that to whoever the caller of the client lets in.
    :param expires_in: for how many seconds the request waits, by the store's clock; ``ADK_APPROVAL_EXPIRES`` by
        default. Nobody's answer in that time is a denial.
    :param when: decides per call whether a person has to approve it; every one by default.
    :raises ConfigurationError: any of this cannot be.
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

    :raises ConfigurationError: it is none.
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


# --- what is stored -----------------------------------------------------------------------------------------------


class RequestState(StrEnum):
    """Where a request stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    WITHDRAWN = "withdrawn"
    """The run was cancelled before anybody answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """What a boundary asks for. ``expires_in`` is in seconds."""

    call_id: str
    key: str
    tool: str
    digest: str
    arguments: Mapping[str, JsonValue] = field(default_factory=dict)
    approvers: tuple[str, ...] = ()
    expires_in: float = EXPIRES_IN


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that a person is asked about. Times are in seconds since the epoch, by the store's clock.

    ``digest`` is that of :func:`~adk_worker.call_digest`. ``arguments`` are there to be shown: masked, left out where
    they are too large, and dropped once the answer is spent, for the transcript has them.
    """

    request_id: str
    call_id: str
    key: str
    tool: str
    digest: str
    arguments: dict[str, JsonValue]
    approvers: tuple[str, ...]
    asked_at: float
    expires_at: float
    state: RequestState = RequestState.PENDING
    answered_at: float | None = None
    answered_by: str | None = None
    os_user: str | None = None
    reason: str | None = None
    answer_id: str | None = None
    """Names the answer, so that one whose own answer was lost is known again (F5)."""
    grant_id: str | None = None
    """The grant that was given with the answer."""
    spent_at: float | None = None

    @property
    def pending(self) -> bool:
        """Whether it waits for its answer."""
        return self.state is RequestState.PENDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A standing permission for a tool in a run. ``expires_at`` is ``None`` where it holds for all of the run."""

    grant_id: str
    tool: str
    by: str
    os_user: str | None
    given_at: float
    expires_at: float | None = None
    request_id: str
    """The request with whose answer it was given."""
    revoked_at: float | None = None
    revoked_by: str | None = None

    def holds(self, tool: str, *, now: float) -> bool:
        """Whether a call of ``tool`` passes under it; ``now == expires_at`` is over, as a lease is lapsed."""
        over = self.expires_at is not None and now >= self.expires_at
        return self.tool == tool and self.revoked_at is None and not over


@dataclass(frozen=True, slots=True)
class Approvals:
    """All that a run's people were asked and have granted, in the order of their numbers."""

    requests: tuple[ApprovalRequest, ...] = ()
    grants: tuple[Grant, ...] = ()

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """What waits for an answer."""
        return tuple(request for request in self.requests if request.pending)

    @property
    def waiting_on(self) -> str | None:
        """Their ids, for the run's row; ``None`` if nothing waits."""
        return ", ".join(request.request_id for request in self.pending) or None

    @property
    def next_expiry(self) -> float | None:
        """When the first of those is over; ``None`` if nothing waits."""
        return min((request.expires_at for request in self.pending), default=None)

    def request(self, request_id: str) -> ApprovalRequest | None:
        """The request of that id."""
        return next((request for request in self.requests if request.request_id == request_id), None)

    def grant(self, grant_id: str) -> Grant | None:
        """The grant of that id."""
        return next((grant for grant in self.grants if grant.grant_id == grant_id), None)

    def about(self, *, key: str, digest: str) -> ApprovalRequest | None:
        """The newest request about that very call with those very arguments."""
        found = [request for request in self.requests if request.key == key and request.digest == digest]
        return found[-1] if found else None

    def permitting(self, tool: str, *, now: float) -> Grant | None:
        """The newest grant under which a call of ``tool`` passes now."""
        return next((grant for grant in reversed(self.grants) if grant.holds(tool, now=now)), None)


def shown(arguments: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The arguments as a request keeps them to be shown."""
    size = len(canonical_json(dict(arguments)))
    if size <= MAX_SHOWN:
        return dict(arguments)
    named = ", ".join(sorted(arguments))
    return {"…": f"{size} bytes of arguments, too many to be shown, of the names {named}"[:500]}


# --- what people say ----------------------------------------------------------------------------------------------


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
    :raises ConfigurationError: ``approved`` is no truth value, a denial has a grant, or the reason is none or too long.
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
    :raises ConfigurationError: ``approved`` is no truth value, or the reason no text.
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


@dataclass(frozen=True, slots=True)
class Expired:
    """Requests of one run that nobody answered in time. ``dispatch`` is ``None`` while others of the turn wait."""

    tenant: str
    run_id: str
    requests: tuple[str, ...]
    dispatch: Dispatch | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run's people were asked, as it stood at ``now`` by the store's clock."""

    now: float
    approvals: Approvals


class ApprovalOperations(Protocol):
    """The part of a :class:`~adk_worker.runs.RunStore` that is about approvals; as atomic as the rest of it (P1)."""

    async def approvals(self, run_id: str, *, tenant: str) -> Asked:
        """Every request and grant of the run; none for a run that there is not. Only reads."""
        ...

    async def answer(self, run_id: str, given: Answer, *, tenant: str, by: Actor, policy: FleetPolicy) -> Answered:
        """Answer one request; the last one that was pending queues the run under a new ticket, in the same write.

        :raises RunNotFoundError: there is none.
        :raises ApprovalRefusedError: there is no such request, it takes no answer any more, or other arguments were
            seen. Nothing was written.
        :raises NotAllowedError: it is not theirs to answer.
        """
        ...

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: Actor) -> Grant:
        """Revoke a grant and return it. No call is begun under it any more; revoking it again changes nothing.

        :raises RunNotFoundError: there is none.
        :raises ApprovalRefusedError: there is no such grant.
        """
        ...

    async def expire(self, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
        """Deny what is pending past its time, of up to ``limit`` runs, each run in one write; as :meth:`answer` does.

        Any number of reapers may call it.
        """
        ...
