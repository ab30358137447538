"""What a run's people are asked and grant, in words, with the command that answers (P1, P4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adk_worker.approvals.requests import ApprovalRequest, Approvals, Grant
from adk_worker.messages import canonical_json
from adk_worker.printable import printable, quoted, time_of
from adk_worker.transitions.approvals import standing

_MAX_ARGUMENTS: Final = 2_000


def waiting(approvals: Approvals, *, run_id: str, tenant: str) -> Iterator[str]:
    """What waits for an answer: what it is about, who may give it, until when, and how."""
    for request in approvals.pending:
        who = f"for {printable(' or '.join(request.approvers))} to answer" if request.approvers else "to be answered"
        yield f"  {request.request_id}  {_called(request)}  {who} until {time_of(request.expires_at)}"
        yield f"      {printable(canonical_json(request.arguments), limit=_MAX_ARGUMENTS)}"
        these = f"{quoted(run_id)} {request.request_id} --tenant {quoted(tenant)}"
        yield f"      adk approve {these} --by NAME"
        yield f"      adk deny {these} --by NAME --why 'TEXT'"


def granted(approvals: Approvals, *, run_id: str, tenant: str) -> Iterator[str]:
    """The grants that were not revoked, whether their time is over or not, and how to revoke them."""
    for grant in approvals.grants:
        if grant.revoked_at is None:
            yield described(grant)
            yield f"      adk revoke {quoted(run_id)} {grant.grant_id} --tenant {quoted(tenant)} --by NAME"


def described(grant: Grant) -> str:
    """One grant, on one line."""
    until = "for all of the run" if grant.expires_at is None else f"until {time_of(grant.expires_at)}"
    over = ""
    if grant.revoked_at is not None:
        over = f", revoked by {printable(grant.revoked_by or 'nobody')} at {time_of(grant.revoked_at)}"
    given = f"given by {printable(grant.by)} at {time_of(grant.given_at)}"
    return f"{grant.grant_id} lets calls of {printable(grant.tool)} pass unasked {until}: {given}{over}"


def answered(request: ApprovalRequest) -> str:
    """What stands of a request, on one line."""
    return f"{request.request_id}  {_called(request)}  {printable(standing(request), limit=_MAX_ARGUMENTS)}"


def _called(request: ApprovalRequest) -> str:
    return f"{printable(request.tool)} ({printable(request.call_id)})"
