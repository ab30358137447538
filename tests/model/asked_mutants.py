"""The protocol without one of the rules of approvals: see :mod:`tests.model.mutants`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adk_worker.approvals.answers import Answer
from adk_worker.approvals.asking import Answers, answers_to, asked_digest, asked_key
from adk_worker.approvals.requests import ApprovalRequest, Approvals, RequestState
from adk_worker.checkpoint import Checkpoint
from adk_worker.errors import ApprovalRefusedError, NotApprovedError
from adk_worker.runs import Boundary
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.approvals import Bound, CameTo
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Moved, Phase, State, Verdict
from tests.model.bounds import Fault, Probe
from tests.model.mutants import AGAIN, CANCEL, RIGHT, HeldIsEnough, Mutant, deaf, keeps_the_fence, submits, within
from tests.model.rules import Rules

# --- what an answer permits -------------------------------------------------------------------------------------------


def _takes_any_answer_for_a_yes(frontier: Checkpoint, approvals: Approvals, masker: Any) -> Answers:
    yes = [
        replace(one, state=RequestState.APPROVED) if one.state is RequestState.DENIED else one
        for one in approvals.requests
    ]
    return answers_to(frontier, replace(approvals, requests=tuple(yes)), masker)


def _takes_the_first_answer(frontier: Checkpoint, approvals: Approvals, masker: Any) -> Answers:
    first = approvals.requests[:1]
    about = [replace(one, key=asked_key(call), digest=asked_digest(call)) for call in frontier.calls for one in first]
    return answers_to(frontier, replace(approvals, requests=tuple(about)), masker)


def _permits_whatever_is_named(approvals: Approvals, intents: Any, **fields: Any) -> Approvals:
    del intents, fields
    return approvals


def _permits_once(approvals: Approvals, intents: Any, **fields: Any) -> Approvals:
    for intent in intents:
        request = approvals.request(intent.permit)
        if request is not None and request.spent_at is not None:
            raise NotApprovedError(keys=(intent.key,))
    return approval_transitions.permit(approvals, intents, **fields)


# --- who answers ------------------------------------------------------------------------------------------------------


def _answers_again(approvals: Approvals, given: Answer, **fields: Any) -> CameTo:
    open_again = [_pending(one) if one.request_id == given.request_id else one for one in approvals.requests]
    return approval_transitions.answer(replace(approvals, requests=tuple(open_again)), given, **fields)


def _answers_late(approvals: Approvals, given: Answer, **fields: Any) -> CameTo:
    in_time = [replace(one, expires_at=one.expires_at + 1.0) for one in approvals.requests]
    return approval_transitions.answer(replace(approvals, requests=tuple(in_time)), given, **fields)


def _knows_no_answer_again(approvals: Approvals, given: Answer, *, tenant: str, run_id: str, **fields: Any) -> CameTo:
    came_to = approval_transitions.answer(approvals, given, tenant=tenant, run_id=run_id, **fields)
    if came_to.repeated:
        raise ApprovalRefusedError(tenant=tenant, run_id=run_id, name=given.request_id, stands="it was answered")
    return came_to


def _knows_any_answer_again(approvals: Approvals, given: Answer, **fields: Any) -> CameTo:
    stood = approvals.request(given.request_id)
    if stood is not None and not stood.pending:
        return CameTo(approvals, stood, repeated=True)
    return approval_transitions.answer(approvals, given, **fields)


def _pending(request: ApprovalRequest) -> ApprovalRequest:
    return replace(request, state=RequestState.PENDING, answered_by=None, answer_id=None)


def _denies_whatever_was_said(approvals: Approvals, *, now: float) -> tuple[Approvals, list[ApprovalRequest]]:
    approved = [one.request_id for one in approvals.requests if one.state is RequestState.APPROVED]
    open_again = [
        replace(_pending(one), expires_at=now) if one.request_id in approved else one for one in approvals.requests
    ]
    return approval_transitions.expire(replace(approvals, requests=tuple(open_again)), now=now)


def _denies_nothing(approvals: Approvals, **fields: Any) -> tuple[Approvals, list[ApprovalRequest]]:
    del fields
    return approvals, []


# --- what follows for the run -----------------------------------------------------------------------------------------


def _queues_nothing(state: State, **fields: Any) -> Moved:
    del fields
    return Moved(state, Verdict.REFUSED)


def _queues_what_nobody_holds(state: State, **fields: Any) -> Moved:
    held = state.lease.holding is not Holding.FREE
    return Moved(state, Verdict.REFUSED) if held else run_transitions.answered(state, **fields)


def _goes_on_by_itself(state: State, **fields: Any) -> Moved:
    after = run_transitions.answered(state, **fields)
    return replace(after, state=replace(after.state, lease=replace(after.state.lease, holding=Holding.FREE)))


def _resumes_what_waits(state: State, **fields: Any) -> Moved:
    waits = state.phase is Phase.WAITING_APPROVAL
    return run_transitions.answered(state, **fields) if waits else run_transitions.requeue(state, **fields)


def _cancels_a_waiting_run_later(state: State) -> Moved:
    waits = state.phase is Phase.WAITING_APPROVAL
    return Moved(replace(state, cancel_requested=True)) if waits else run_transitions.cancel(state)


def _asks_for_whom_it_ends(approvals: Approvals, boundary: Boundary, *, now: float, done: bool) -> Bound:
    del done
    return approval_transitions.bound(approvals, boundary, now=now, done=True)


def _withdraws_nothing(approvals: Approvals, **fields: Any) -> Approvals:
    del fields
    return approvals


# --- all of them ------------------------------------------------------------------------------------------------------


_DECIDED = "which is decided"
_DENIED = "has denied it"
_ALL_IN = "all are in"
_NOBODY_WAITS = "and nothing waits for what they say"

ASKED_MUTANTS = (
    Mutant(
        "P1: a call is asked about before it is made",
        Rules(asks_first=False, begins_permitted=False),
        within(faults=0, asks=1),
        "nobody has decided about it",
    ),
    Mutant(
        "P1: a denial permits nothing",
        Rules(answers_to=_takes_any_answer_for_a_yes, permit=_permits_whatever_is_named),
        within(faults=0, asks=1),
        _DENIED,
    ),
    Mutant(
        "P1: a denial is told, and not asked about again",
        Rules(answers_to=_takes_any_answer_for_a_yes),
        within(faults=0, asks=1),
        _DECIDED,
    ),
    Mutant(
        "P1: an approval is of that call alone",
        Rules(answers_to=_takes_the_first_answer, permit=_permits_whatever_is_named),
        within(faults=0, beside=True, asks=2),
        _DENIED,
    ),
    Mutant(
        "P1: a spent approval permits that very call",
        Rules(permit=_permits_once),
        within(Fault.CRASH, probe=Probe.FENCING, asks=1),
        _DECIDED,
    ),
    Mutant(
        "P1: one answer is taken",
        Rules(answer=_answers_again),
        within(faults=0, beside=True, asks=2),
        "and was answered again",
    ),
    Mutant(
        "P1: the reaper denies what waits, and nothing else",
        Rules(expire=_denies_whatever_was_said),
        within(faults=0, asks=1),
        "and was answered again",
    ),
    Mutant("P1: now == expires_at is over", Rules(answer=_answers_late), within(faults=0, asks=1), "past its time"),
    Mutant(
        "P1: nobody's answer in time is a denial",
        Rules(expire=_denies_nothing),
        within(faults=0, asks=1),
        "stranded",
    ),
    Mutant(
        "P1: a grant is looked at as it stands",
        Rules(permit=_permits_whatever_is_named),
        within(faults=0, acts=1, asks=1, granted=True),
        "under a grant that was revoked",
    ),
    Mutant(
        "F4, P1: what is on record comes before a denial",
        Rules(record_before_denial=False),
        within(Fault.CRASH, acts=1, beside=True, asks=2, granted=True),
        "was not made, and it was",
    ),
    Mutant("P1: an answer queues the run", Rules(answered=_queues_nothing), within(faults=0, asks=1), _ALL_IN),
    Mutant(
        "P1: the last one of the turn does",
        Rules(last_answer=False),
        within(faults=0, beside=True, asks=2),
        _NOBODY_WAITS,
    ),
    Mutant(
        "P1: people are asked before any call of the turn is made",
        Rules(siblings_wait=False),
        within(faults=0, beside=True, asks=1),
        "nobody has decided about call 0 of its turn",
    ),
    Mutant(
        "P1: all calls of the turn survive the wait",
        Rules(siblings_survive=False),
        within(faults=0, beside=True, asks=1),
        "call 1 has no result",
    ),
    Mutant(
        "P1: whoever holds the waiting run",
        Rules(answered=_queues_what_nobody_holds),
        within(faults=0, acts=1, asks=1),
        _ALL_IN,
    ),
    Mutant(
        "P1: being resumed is no approval",
        Rules(requeue=_resumes_what_waits),
        within(faults=0, acts=1, asks=1),
        _NOBODY_WAITS,
    ),
    Mutant(
        "F5: an answer that is given again is known",
        Rules(answer=_knows_no_answer_again),
        within(Fault.NO_ANSWER, asks=1),
        "their answer was refused, and it stands",
    ),
    Mutant(
        "F5: and another's is not taken for it",
        Rules(answer=_knows_any_answer_again),
        within(faults=0, asks=1),
        "their answer stands, and it does not",
    ),
    Mutant(
        "F1: a stale worker asks nobody",
        Rules(submit=submits(HeldIsEnough)),
        within(Fault.LAPSE, asks=1),
        RIGHT,
    ),
    Mutant(
        "L2: an answer raises the fence",
        Rules(answered=keeps_the_fence(run_transitions.answered)),
        within(faults=0, asks=1),
        AGAIN,
    ),
    Mutant(
        "2: what was answered is in the queue's hands",
        Rules(answered=_goes_on_by_itself),
        within(faults=0, asks=1),
        "live run is free",
    ),
    Mutant(
        "P2: an answer looks at the flag",
        Rules(cancel=_cancels_a_waiting_run_later, answered=deaf(run_transitions.answered)),
        within(faults=0, acts=1, asks=1),
        CANCEL,
    ),
    Mutant(
        "P2: nobody is asked for a run that ends",
        Rules(bound=_asks_for_whom_it_ends),
        within(faults=0, acts=1, asks=1),
        _NOBODY_WAITS,
    ),
    Mutant(
        "P2: what a cancelled run had asked is withdrawn",
        Rules(withdraw=_withdraws_nothing),
        within(faults=0, acts=1, asks=1),
        _NOBODY_WAITS,
    ),
)
