from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.actors import Actor
from adk_worker.approvals.answers import MAX_REASON, Answer, NewGrant
from adk_worker.approvals.declaring import Approval, approval_of
from adk_worker.approvals.requests import MAX_SHOWN, SYSTEM_TIMEOUT, Approvals, NewRequest, RequestState, shown
from adk_worker.errors import (
    ApprovalRefusedError,
    ConfigurationError,
    InvalidNameError,
    NotAllowedError,
    NotApprovedError,
)
from adk_worker.idempotency import Intent
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.approvals import act, answer, ask, expire, permit, revoke, standing, withdraw
from adk_worker.transitions.leases import Holding, LeaseState
from adk_worker.transitions.runs import Attention, Phase, State, Verdict
from tests.unit.states import AT, FREE, NOW, POLICY, running

NOTHING = Approvals()
ANN, BOB = Actor("ann", "op-1"), Actor("bob")


def asked(*keys, expires_in=60.0, approvers=(), digest="d", before=NOTHING):
    new = [
        NewRequest(call_id=f"c-{key}", key=key, tool="pay", digest=digest, expires_in=expires_in, approvers=approvers)
        for key in keys
    ]
    return ask(before, new, now=NOW)


def say(approvals, name="req-1", *, approved=True, by=ANN, now=NOW, answer_id="a", **fields):
    given = Answer(request_id=name, approved=approved, answer_id=answer_id, **fields)
    return answer(approvals, given, tenant="acme", run_id="run", by=by, now=now)


def intent(key="k", name="req-1", *, digest="d", tool="pay"):
    return Intent(key, digest, tool, permit=name)


def test_what_is_pending_about_a_call_is_not_asked_again():
    """P1: the run came by again; another call, or the same with other arguments, is another question."""
    first = asked("k")
    assert asked("k", before=first) == first
    assert [one.request_id for one in asked("l", before=first).requests] == ["req-1", "req-2"]
    assert len(asked("k", digest="other", before=first).requests) == 2


def test_what_was_answered_about_a_call_is_asked_again_if_it_is_asked_for():
    """P1: an answer that is spent or void is no answer to a new question."""
    answered = say(asked("k")).approvals
    assert len(asked("k", before=answered).pending) == 1


@pytest.mark.parametrize(("now", "late"), [(NOW + 59.9, False), (NOW + 60, True), (NOW + 61, True)])
def test_a_request_expires_at_its_moment(now, late):
    """P1, L6: `now == expires_at` is over, for an answer as for the reaper."""
    approvals = asked("k")
    assert (expire(approvals, now=now)[1] != []) is late
    if late:
        with pytest.raises(ApprovalRefusedError, match=SYSTEM_TIMEOUT):
            say(approvals, now=now)
    else:
        assert say(approvals, now=now).request.state is RequestState.APPROVED


def test_what_is_refused_is_refused_in_the_order_of_what_the_asker_needs_to_know():
    """P1: what stands comes before who may, and who may before what they have seen."""
    approvals = asked("k", approvers=("bob",))
    with pytest.raises(NotAllowedError):
        say(approvals, by=ANN, digest="other")
    with pytest.raises(ApprovalRefusedError, match="other arguments"):
        say(approvals, by=BOB, digest="other")
    answered = say(approvals, by=BOB).approvals
    with pytest.raises(ApprovalRefusedError, match="was approved by bob"):
        say(answered, by=ANN, digest="other", answer_id="b")


def test_the_last_one_to_answer_is_the_last_of_several():
    approvals = asked("k", "l")
    assert approvals.waiting_on == "req-1, req-2"
    assert approvals.next_expiry == NOW + 60
    one = say(approvals, "req-2", approved=False, reason="no").approvals
    assert one.waiting_on == "req-1"
    assert say(one, "req-1", answer_id="b").approvals.waiting_on is None


def test_what_stands_is_told_in_words():
    """P1: every state has its own."""
    pending = asked("k").requests[0]
    denied = say(asked("k"), approved=False, reason="too dear").request
    assert standing(pending).startswith("waits for an answer until 1970")
    assert standing(denied) == "was denied by ann at 1970-01-01 00:16:40Z: too dear"
    assert standing(withdraw(asked("k"), now=NOW).requests[0]) == "was withdrawn, for the run was cancelled"


def test_withdrawing_leaves_answers_as_they_are():
    """P2."""
    one = say(asked("k", "l")).approvals
    states = [request.state for request in withdraw(one, now=NOW).requests]
    assert states == [RequestState.APPROVED, RequestState.WITHDRAWN]


@pytest.mark.parametrize(
    "asking",
    [intent("other"), intent(digest="other"), intent(name="req-9"), intent(name="grant-9"), intent(name="req-2")],
    ids=["call", "arguments", "no request", "no grant", "pending"],
)
def test_an_approval_permits_its_own_call(asking):
    """P1: and of several calls, one that nothing permits keeps all from being begun."""
    approvals = say(asked("k", "l")).approvals
    assert permit(approvals, [intent()], now=NOW).requests[0].spent_at == NOW
    with pytest.raises(NotApprovedError) as refused:
        permit(approvals, [intent(), asking], now=NOW)
    assert refused.value.keys == (asking.key,)


def test_what_needs_no_approval_is_not_looked_at():
    assert permit(Approvals(), [Intent("k", "d", "search")], now=NOW) == Approvals()


def test_a_denial_or_an_expiry_permits_nothing():
    """P1."""
    for approvals in (say(asked("k"), approved=False).approvals, expire(asked("k"), now=NOW + 60)[0]):
        with pytest.raises(NotApprovedError):
            permit(approvals, [intent()], now=NOW)


@pytest.mark.parametrize(
    ("seconds", "now", "holds"), [(None, NOW + 1e9, True), (5, NOW + 4.9, True), (5, NOW + 5, False)]
)
def test_a_grant_holds_for_its_tool_and_time(seconds, now, holds):
    """P1: any call of that tool, until the moment at which it is over."""
    approvals = say(asked("k"), grant=NewGrant(seconds=seconds)).approvals
    grant = approvals.permitting("pay", now=now)
    assert (grant is not None) is holds
    assert approvals.permitting("other", now=now) is None
    if holds:
        assert permit(approvals, [intent("any", "grant-1", digest="any")], now=now) == approvals
    else:
        with pytest.raises(NotApprovedError):
            permit(approvals, [intent("any", "grant-1")], now=now)
    with pytest.raises(NotApprovedError):
        permit(approvals, [intent("any", "grant-1", tool="other")], now=now)


def test_a_grant_that_was_revoked_holds_no_more():
    """P1: a later one of the same tool does."""
    approvals = say(asked("k"), grant=NewGrant()).approvals
    revoked, grant = revoke(approvals, "grant-1", tenant="acme", run_id="run", by=BOB, now=NOW)
    assert grant.revoked_by == "bob"
    assert revoked.permitting("pay", now=NOW) is None
    again = say(asked("l", before=revoked), "req-2", grant=NewGrant(), answer_id="b").approvals
    found = again.permitting("pay", now=NOW)
    assert found is not None
    assert found.grant_id == "grant-2"


def test_a_boundary_acts_on_denials_alone():
    """P1: on one that is spent already as well: it was told of by a commit that is written again."""
    denied = say(asked("k", "l"), approved=False).approvals
    acted = act(denied, ["req-1"], now=NOW)
    assert act(acted, ["req-1"], now=NOW + 1) == acted
    for name in ("req-2", "req-3"):
        with pytest.raises(ValueError, match=name):
            act(denied, [name], now=NOW)


def test_what_is_too_large_to_be_shown_says_so():
    """P1: the digest covers it all the same."""
    small, large = {"a": "x"}, {"a": "x" * MAX_SHOWN, "b": 1}
    assert shown(small) == small
    assert "too many to be shown, of the names a, b" in str(shown(large))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Approval(approvers="ann"), "list of names"),
        (lambda: Approval(approvers=3), "list of names"),
        (lambda: Approval(expires_in=0), "above 0"),
        (lambda: Approval(expires_in=True), "above 0"),
        (lambda: Approval(expires_in=float("inf")), "above 0"),
        (lambda: Approval(when="always"), "function"),
        (lambda: approval_of("yes", of="tool 'pay'"), "tool 'pay'"),
        (lambda: NewGrant(seconds=0), "above 0"),
        (lambda: Answer(request_id="req-1", approved=False, answer_id="a", grant=NewGrant()), "grants nothing"),
        (lambda: Answer(request_id="req-1", approved=True, answer_id="a", reason="x" * (MAX_REASON + 1)), "at most"),
    ],
    ids=[
        "text",
        "number",
        "no time",
        "a truth",
        "for ever",
        "no function",
        "no declaration",
        "no grant",
        "both",
        "long",
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(make, said):
    with pytest.raises(ConfigurationError, match=said):
        make()


def test_an_approver_is_a_name():
    with pytest.raises(InvalidNameError):
        Approval(approvers=[""])


def test_what_is_declared_comes_to_an_approval_or_to_none():
    declared = Approval(approvers=["ann"])
    assert declared.approvers == ("ann",)
    assert (approval_of(False, of="t"), approval_of(None, of="t")) == (None, None)
    assert approval_of(True, of="t") == Approval()
    assert approval_of(declared, of="t") is declared


# --- the run ----------------------------------------------------------------------------------------------------------

WAITING = State(lease=FREE, phase=Phase.WAITING_APPROVAL, sequence=4, attention=Attention.APPROVAL)


def test_the_last_answer_queues_the_run():
    """P1, L2: under a new ticket, without a trace of the wait."""
    moved = run_transitions.answered(WAITING, at=AT, policy=POLICY)
    assert moved.verdict is Verdict.DONE
    assert (moved.state.phase, moved.state.attention, moved.state.sequence) == (Phase.LIVE, None, 4)
    assert moved.state.lease == LeaseState(8, Holding.QUEUE, None, NOW + 30, 30.0)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.WAITING_APPROVAL])
def test_what_does_not_wait_is_not_queued_by_an_answer(phase):
    """P1: a run that is parked, has ended, or goes on."""
    state = running() if phase is Phase.LIVE else replace(WAITING, phase=phase)
    assert run_transitions.answered(state, at=AT, policy=POLICY) == run_transitions.Moved(state, Verdict.REFUSED)


def test_an_answer_looks_at_the_cancel_s_flag():
    """P2."""
    moved = run_transitions.answered(replace(WAITING, cancel_requested=True), at=AT, policy=POLICY)
    assert (moved.verdict, moved.state.phase) == (Verdict.CANCELLED, Phase.CANCELLED)
