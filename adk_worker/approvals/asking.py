"""Which calls of a turn a person has to approve, what is asked about them, and what their answers come to (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adk_worker.actors import Action
from adk_worker.agent import Agent
from adk_worker.approvals.answers import ApprovalDecision
from adk_worker.approvals.declaring import POLICY_TIMEOUT, Approval, ProposedCall
from adk_worker.approvals.requests import EXPIRES_IN, ApprovalRequest, Approvals, NewRequest, RequestState
from adk_worker.approvals.store import Asked
from adk_worker.checkpoint import Checkpoint, OutstandingCall
from adk_worker.errors import ApprovalRefusedError, NotAllowedError
from adk_worker.idempotency import call_digest
from adk_worker.log import get_logger
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.redaction.masking import Masker
from adk_worker.surroundings import Surroundings
from adk_worker.tools.bounded import Returned, is_async, run_bounded

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Denial:
    """What the model is told of a call that was denied: that it was not made, or that it is not made again.

    A call may have been made before it was denied: under a grant that had ended when the call was to be begun again.
    """

    request_id: str
    not_made: ToolOutcome
    not_again: ToolOutcome


@dataclass(frozen=True, slots=True)
class Answers:
    """How far people have answered about the calls of a turn.

    By a call's index, ``permits`` says what an approved one may be begun under, and ``denied`` what the model is told
    of a denied one; ``unanswered`` are the calls to ask about.
    """

    frontier: Checkpoint
    permits: Mapping[int, str]
    denied: Mapping[int, Denial]
    unanswered: tuple[OutstandingCall, ...]

    @property
    def denials(self) -> tuple[str, ...]:
        """The requests that were denied."""
        return tuple(denial.request_id for denial in self.denied.values())


def asked_key(call: OutstandingCall) -> str:
    """What names a call in its request: its key, or its id where calls have no keys."""
    return call.key or call.call_id


def asked_digest(call: OutstandingCall) -> str:
    """The digest of a call's arguments in its request."""
    return call_digest(asked_key(call), tool=call.tool, arguments=call.arguments)


async def marked(frontier: Checkpoint, surroundings: Surroundings) -> Checkpoint:
    """The frontier with each call marked that a person has to approve. Policies are asked here, and nowhere again."""
    agent = surroundings.agent
    open_calls = [call for call in frontier.calls if call.outcome is None]
    declared = [(call, approval) for call in open_calls if (approval := approval_for(call, agent)) is not None]
    needed = await asyncio.gather(*(_needed(approval, call, frontier, surroundings) for call, approval in declared))
    indexes = {call.index for (call, _), needs in zip(declared, needed, strict=True) if needs}
    calls = tuple(
        call.model_copy(update={"needs_approval": True}) if call.index in indexes else call for call in frontier.calls
    )
    return frontier.updated(calls=calls) if indexes else frontier


def approval_for(call: OutstandingCall, agent: Agent) -> Approval | None:
    """What is declared of approvals for a call: by its tool, or else by its agent."""
    tool = agent.tool(call.tool)
    return None if tool is None else tool.approval or agent.approval


def under_grants(frontier: Checkpoint, asked: Asked) -> Checkpoint:
    """The frontier with the grants under which calls of it pass unasked; the newest of them travels with the run."""
    calls = []
    grant_id = None
    for call in frontier.calls:
        grant = asked.approvals.permitting(call.tool, now=asked.now) if needs_person(call) else None
        grant_id = grant_id if grant is None else grant.grant_id
        calls.append(call if grant is None else call.model_copy(update={"grant_id": grant.grant_id}))
    return frontier.updated(calls=tuple(calls), grant_id=grant_id or frontier.grant_id)


def without_grants(frontier: Checkpoint, keys: Sequence[str]) -> Checkpoint:
    """The frontier after the grants of these calls turned out to be over."""
    calls = tuple(
        call.model_copy(update={"grant_id": None}) if asked_key(call) in keys else call for call in frontier.calls
    )
    left = [call.grant_id for call in calls if call.grant_id is not None]
    return frontier.updated(calls=calls, grant_id=left[-1] if left else None)


def stepped(frontier: Checkpoint) -> Checkpoint:
    """The frontier of another boundary that adds nothing to the transcript: it asks again."""
    return frontier.updated(sequence=frontier.sequence + 1, journal=frontier.journal.with_step())


def needs_person(call: OutstandingCall) -> bool:
    """Whether the call has yet to be made, and a person has to approve it."""
    return call.needs_approval and call.outcome is None


def answers_to(frontier: Checkpoint, approvals: Approvals, masker: Masker) -> Answers:
    """The answers about the calls of ``frontier``. One about other arguments does not count: it fails closed."""
    permits: dict[int, str] = {}
    denied: dict[int, Denial] = {}
    unanswered: list[OutstandingCall] = []
    for call in filter(needs_person, frontier.calls):
        request = approvals.about(key=asked_key(call), digest=asked_digest(call))
        if call.grant_id is not None:
            permits[call.index] = call.grant_id
        elif request is not None and request.state is RequestState.APPROVED:
            permits[call.index] = request.request_id
        elif request is not None and request.state is RequestState.DENIED:
            denied[call.index] = _denial(request, masker)
        else:
            unanswered.append(call)
    return Answers(frontier, permits, denied, tuple(unanswered))


def requests(calls: Sequence[OutstandingCall], agent: Agent, *, expires_in: float) -> tuple[NewRequest, ...]:
    """What is asked about these calls. ``expires_in`` is for what declares no time of its own, in seconds."""
    made = []
    for call in calls:
        approval = approval_for(call, agent) or Approval()
        made.append(
            NewRequest(
                call_id=call.call_id,
                key=asked_key(call),
                tool=call.tool,
                digest=asked_digest(call),
                arguments=call.arguments,
                approvers=approval.approvers,
                expires_in=expires_in if approval.expires_in is None else approval.expires_in,
            )
        )
    return tuple(made)


def waiting_for(frontier: Checkpoint, agent: Agent) -> tuple[NewRequest, ...]:
    """What a run in process waits for at ``frontier``: its requests do not expire."""
    return requests([call for call in frontier.calls if needs_person(call)], agent, expires_in=EXPIRES_IN)


def check_decisions(frontier: Checkpoint, agent: Agent, decisions: Mapping[str, ApprovalDecision]) -> None:
    """Refuse decisions that cannot be acted on, before anything is.

    :raises ApprovalRefusedError: one is about a call that does not wait, or about other arguments.
    :raises NotAllowedError: one is not theirs to make.
    """
    asked = {request.call_id: request for request in waiting_for(frontier, agent)}
    for call_id, decision in decisions.items():
        request = asked.get(call_id)
        stands = None
        if request is None:
            stands = f"no such call waits for an approval; those that do: {', '.join(asked) or 'none'}"
        elif request.approvers and decision.by not in request.approvers:
            action = Action.APPROVE if decision.approved else Action.DENY
            reason = f"{call_id} of run {frontier.run_id!r} is for {' or '.join(request.approvers)} to answer"
            raise NotAllowedError(actor=decision.by, action=action.value, reason=reason)
        elif decision.digest is not None and decision.digest != request.digest:
            stands = "it has other arguments than those that were seen; look at it again"
        if stands is not None:
            raise ApprovalRefusedError(tenant=frontier.tenant, run_id=frontier.run_id, name=call_id, stands=stands)


def _denial(request: ApprovalRequest, masker: Masker) -> Denial:
    reason = f": {request.reason.rstrip('.')}" if request.reason else ""
    why = f"it needs an approval, and {request.answered_by} denied it{reason}."
    not_made = masker.text(f"The call was not made: {why}")
    not_again = masker.text(f"Whether the call was made before is not known, and it is not made again: {why}")
    return Denial(
        request.request_id,
        not_made=ToolOutcome(kind=OutcomeKind.REFUSED, content=not_made),
        not_again=ToolOutcome(kind=OutcomeKind.FAILED, content=not_again),
    )


async def _needed(approval: Approval, call: OutstandingCall, frontier: Checkpoint, surroundings: Surroundings) -> bool:
    policy = approval.when
    if policy is None:
        return True
    proposed = ProposedCall(
        tenant=frontier.tenant,
        run_id=frontier.run_id,
        agent=frontier.agent,
        tool=call.tool,
        arguments=call.model_copy(deep=True).arguments,
        metadata=frontier.model_copy(deep=True).metadata,
    )
    ended = await run_bounded(
        lambda: policy(proposed),
        in_loop=is_async(policy),
        then=lambda value: value,
        executor=surroundings.executor,
        timeout=POLICY_TIMEOUT,
    )
    if isinstance(ended, Returned) and isinstance(ended.value, bool):
        return ended.value
    # It fails closed: whatever else came of it, a person decides.
    _log.warning("approval_policy_failed", tool=call.tool, run_id=frontier.run_id, ended=type(ended).__name__)
    return True
