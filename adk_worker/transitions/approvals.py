"""The transition table of a run's approvals: pure functions, as :mod:`adk_worker.transitions.runs` is for the run (P1).

A store reads the run's :class:`~adk_worker.approvals.requests.Approvals` under the run's lock, asks one function here,
and writes what comes back in the same transaction. Times are the store's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer
from adk_worker.approvals.requests import (
    SYSTEM_TIMEOUT,
    ApprovalRequest,
    Approvals,
    Grant,
    NewRequest,
    RequestState,
    shown,
)
from adk_worker.errors import ApprovalRefusedError, NotAllowedError, NotApprovedError
from adk_worker.idempotency import Intent
from adk_worker.printable import time_of
from adk_worker.runs import Boundary
from adk_worker.transitions.runs import Then


@dataclass(frozen=True, slots=True)
class CameTo:
    """What an answer came to. ``repeated`` says that this very answer had been given, and nothing changed (F5)."""

    approvals: Approvals
    request: ApprovalRequest
    grant: Grant | None = None
    repeated: bool = False


def ask(approvals: Approvals, asked: Iterable[NewRequest], *, now: float) -> Approvals:
    """The approvals with these requests; those that are new stand last.

    What is pending about the very same call stays as it is: nobody is asked twice.
    """
    made: list[ApprovalRequest] = []
    pending = {(request.key, request.digest) for request in approvals.pending}
    for new in asked:
        if (new.key, new.digest) in pending:
            continue
        pending.add((new.key, new.digest))
        number = len(approvals.requests) + len(made) + 1
        made.append(
            ApprovalRequest(
                request_id=f"req-{number}",
                call_id=new.call_id,
                key=new.key,
                tool=new.tool,
                digest=new.digest,
                arguments=shown(new.arguments),
                approvers=new.approvers,
                asked_at=now,
                expires_at=now + new.expires_in,
            )
        )
    return replace(approvals, requests=(*approvals.requests, *made))


def answer(approvals: Approvals, given: Answer, *, tenant: str, run_id: str, by: Actor, now: float) -> CameTo:
    """The approvals after somebody answers one request; ``now == expires_at`` is too late.

    :raises ApprovalRefusedError: there is no such request, it takes no answer any more, or other arguments were seen.
    :raises NotAllowedError: it is not theirs to answer.
    """

    def refused(stands: str) -> ApprovalRefusedError:
        return ApprovalRefusedError(tenant=tenant, run_id=run_id, name=given.request_id, stands=stands)

    stood = approvals.request(given.request_id)
    if stood is None:
        pending = ", ".join(request.request_id for request in approvals.pending)
        raise refused(f"the run has no such request; what waits for an answer: {pending or 'nothing'}")
    if stood.answer_id is not None and stood.answer_id == given.answer_id:
        return CameTo(approvals, stood, approvals.grant(stood.grant_id or ""), repeated=True)
    if not stood.pending:
        raise refused(f"it {standing(stood)}")
    if now >= stood.expires_at:
        raise refused(f"it expired at {time_of(stood.expires_at)}, and is denied by {SYSTEM_TIMEOUT}")
    if stood.approvers and by.name not in stood.approvers:
        reason = f"{given.request_id} of run {run_id!r} is for {' or '.join(stood.approvers)} to answer"
        raise NotAllowedError(actor=by.name, action="approve" if given.approved else "deny", reason=reason)
    if given.digest is not None and given.digest != stood.digest:
        raise refused("it is about other arguments than those that were seen; look at it again")
    grant = None
    if given.grant is not None:
        seconds = given.grant.seconds
        grant = Grant(
            grant_id=f"grant-{len(approvals.grants) + 1}",
            tool=stood.tool,
            by=by.name,
            os_user=by.os_user,
            given_at=now,
            expires_at=None if seconds is None else now + seconds,
            request_id=stood.request_id,
        )
    answered = replace(
        stood,
        state=RequestState.APPROVED if given.approved else RequestState.DENIED,
        answered_at=now,
        answered_by=by.name,
        os_user=by.os_user,
        reason=given.reason,
        answer_id=given.answer_id,
        grant_id=None if grant is None else grant.grant_id,
    )
    changed = _with(approvals, [answered])
    return CameTo(changed if grant is None else replace(changed, grants=(*changed.grants, grant)), answered, grant)


def standing(request: ApprovalRequest) -> str:
    """What stands of a request, in words that go on after its id."""
    if request.pending:
        return f"waits for an answer until {time_of(request.expires_at)}"
    if request.state is RequestState.WITHDRAWN:
        return "was withdrawn, for the run was cancelled"
    at = "" if request.answered_at is None else f" at {time_of(request.answered_at)}"
    why = f": {request.reason}" if request.reason else ""
    return f"was {request.state} by {request.answered_by}{at}{why}"


def expire(approvals: Approvals, *, now: float) -> tuple[Approvals, list[ApprovalRequest]]:
    """The approvals after everything past its time is denied, and what that was."""
    over = [
        replace(
            request,
            state=RequestState.DENIED,
            answered_at=now,
            answered_by=SYSTEM_TIMEOUT,
            reason="nobody answered in time",
        )
        for request in approvals.pending
        if now >= request.expires_at
    ]
    return _with(approvals, over), over


def withdraw(approvals: Approvals, *, now: float) -> Approvals:
    """The approvals of a run that was cancelled: nothing waits for an answer any more."""
    return _with(approvals, [replace(one, state=RequestState.WITHDRAWN, answered_at=now) for one in approvals.pending])


def permit(approvals: Approvals, intents: Iterable[Intent], *, now: float) -> Approvals:
    """The approvals after these calls are begun: what permits a call is spent on it, and on no other (P1).

    A call that is begun again finds its own answer, spent or not: people answer about a call, not about an attempt. A
    grant is looked at as it stands now.

    :raises NotApprovedError: for one of them neither an approval of that call with those arguments stands nor a grant.
        Nothing is to be begun.
    """
    refused: list[str] = []
    spent: list[ApprovalRequest] = []
    for intent in intents:
        name = intent.permit
        if name is None:
            continue
        request, grant = approvals.request(name), approvals.grant(name)
        if request is not None and _permits(request, intent):
            spent += [] if request.spent_at is not None else [_spent(request, now)]
        elif grant is None or not grant.holds(intent.tool or "", now=now):
            refused.append(intent.key)
    if refused:
        raise NotApprovedError(keys=tuple(refused))
    return _with(approvals, spent)


@dataclass(frozen=True, slots=True)
class Bound:
    """The approvals after a boundary, and those who are asked anew."""

    approvals: Approvals
    new: tuple[ApprovalRequest, ...]


def bound(approvals: Approvals, boundary: Boundary, *, now: float, done: bool) -> Bound:
    """The approvals after a boundary that asks people, or tells the model what they denied.

    ``done`` is false where a cancel ends the run instead: then nobody is asked.

    :raises ValueError: it acts on what is no denial, or asks without waiting for the answers.
    """
    if boundary.requests and boundary.then is not Then.WAIT_APPROVAL:
        raise ValueError(f"a boundary that asks for an approval waits for it, and does not {boundary.then}")
    acted = act(approvals, boundary.denials, now=now)
    asked = ask(acted, boundary.requests, now=now) if done else acted
    return Bound(asked, asked.requests[len(approvals.requests) :])


def act(approvals: Approvals, denied: Sequence[str], *, now: float) -> Approvals:
    """The approvals after a boundary has told the model of these denials.

    :raises ValueError: one of them is no denial.
    """
    spent: list[ApprovalRequest] = []
    for name in denied:
        request = approvals.request(name)
        if request is None or request.state is not RequestState.DENIED:
            raise ValueError(f"a boundary acts on {name}, which was not denied")
        spent += [] if request.spent_at is not None else [_spent(request, now)]
    return _with(approvals, spent)


def revoke(
    approvals: Approvals, grant_id: str, *, tenant: str, run_id: str, by: Actor, now: float
) -> tuple[Approvals, Grant]:
    """The approvals after somebody revokes a grant, and the grant; one that was revoked stays as it is.

    :raises ApprovalRefusedError: there is no such grant.
    """
    stood = approvals.grant(grant_id)
    if stood is None:
        known = ", ".join(grant.grant_id for grant in approvals.grants)
        stands = f"the run has no such grant; those that it has: {known or 'none'}"
        raise ApprovalRefusedError(tenant=tenant, run_id=run_id, name=grant_id, stands=stands)
    if stood.revoked_at is not None:
        return approvals, stood
    revoked = replace(stood, revoked_at=now, revoked_by=by.name)
    grants = tuple(revoked if grant.grant_id == grant_id else grant for grant in approvals.grants)
    return replace(approvals, grants=grants), revoked


def _permits(request: ApprovalRequest, intent: Intent) -> bool:
    same = (request.key, request.digest) == (intent.key, intent.digest)
    return same and request.state is RequestState.APPROVED


def _spent(request: ApprovalRequest, now: float) -> ApprovalRequest:
    # The transcript has the arguments; here they were there to be shown.
    return replace(request, spent_at=now, arguments={})


def _with(approvals: Approvals, changed: Sequence[ApprovalRequest]) -> Approvals:
    if not changed:
        return approvals
    by_id = {request.request_id: request for request in changed}
    requests = tuple(by_id.get(request.request_id, request) for request in approvals.requests)
    return replace(approvals, requests=requests)
