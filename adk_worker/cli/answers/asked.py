"""The requests and grants of a run in answers. Times are in seconds since the epoch, by the store's clock."""

from __future__ import annotations

from pydantic import JsonValue

from adk_worker.approvals.requests import RequestState
from adk_worker.cli.answers.model import Answer


class RequestAnswer(Answer):
    """One call that a person is asked about."""

    request_id: str
    call_id: str
    key: str
    """The call's idempotency key."""
    tool: str
    digest: str
    """The digest of the call's arguments. An answer may name it, and is refused if the call has other arguments."""
    arguments: dict[str, JsonValue]
    """Masked, to be shown; empty once the answer was acted on."""
    approvers: list[str]
    """Who may answer; empty if everybody may whom the application allows to."""
    asked_at: float
    expires_at: float
    state: RequestState
    answered_at: float | None
    answered_by: str | None
    """``system:timeout`` if nobody answered in time."""
    os_user: str | None
    reason: str | None
    grant_id: str | None
    """The grant that was given with the answer."""
    spent_at: float | None
    """When the answer was acted on."""


class GrantAnswer(Answer):
    """A standing permission for a tool in a run."""

    grant_id: str
    tool: str
    by: str
    os_user: str | None
    given_at: float
    expires_at: float | None
    """Null where it holds until the run ends."""
    request_id: str
    """The request with whose answer it was given."""
    revoked_at: float | None
    revoked_by: str | None
