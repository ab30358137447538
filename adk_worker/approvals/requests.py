"""What is stored of a run's approvals: what people were asked, and what they let pass unasked (P1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from pydantic import JsonValue

from adk_worker.messages import canonical_json

EXPIRES_IN: Final = 86_400.0
"""How long a request waits for its answer unless something else is declared, in seconds: a day."""


MAX_SHOWN: Final = 16_384
"""Largest arguments that a request shows, in bytes of JSON; of larger ones it says how large they are."""


SYSTEM_TIMEOUT: Final = "system:timeout"
"""Who denies a request that nobody has answered in time."""


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
