"""A run that asks people: from the model's wish to what is made of their answers, on a fleet in memory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from adk_worker.approvals.answers import Answer, ApprovalDecision, NewGrant
from adk_worker.approvals.declaring import Approval
from adk_worker.approvals.requests import SYSTEM_TIMEOUT, RequestState
from adk_worker.checkpoint import CheckpointBoundary, decode_checkpoint, encode_checkpoint
from adk_worker.client import Fleet
from adk_worker.errors import (
    ApprovalRefusedError,
    CommitUnknownError,
    ConfigurationError,
    InvalidNameError,
    NotAllowedError,
)
from adk_worker.events import EventKind
from adk_worker.idempotency import ClaimState
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.reaper import sweep
from adk_worker.runs import RunStatus
from adk_worker.steps import StepEnd
from adk_worker.transitions.runs import Attention
from tests.unit.far_side import FarSide, NeverWill, Unknown, agent_with
from tests.unit.test_steps import POLICY, Bench, Clock

RUN = {"tenant": "acme", "by": "ann"}
PAY = [("pay", {"seat": "12A"})]


class Asking(Bench):
    """A bench with the client beside it, and one agent at a time."""

    def __init__(self, clock, executor):
        self.data = MemoryData(clock=clock)
        super().__init__(memory_stores(self.data), clock, executor)
        self.fleet = Fleet(self.stores, self, policy=POLICY)
        self.told = []

    def agent(self, *tools, turns, **fields):
        """An agent whose model says ``turns``, and keeps what it was told."""
        turns = iter(turns)

        def script(request):
            self.told.append([part.content for part in request.messages[-1].parts if hasattr(part, "content")])
            return next(turns)

        return agent_with(*tools, turns=script, **fields)

    async def until_it_waits(self, agent):
        """Submit, and carry the run to where it waits."""
        ends = await self.drive(self.stepper(agent), await self.submit())
        assert ends[-1] is StepEnd.WAITING_APPROVAL
        return await self.pending()

    async def pending(self):
        return (await self.fleet.approvals("run_1", tenant="acme")).pending

    async def go_on(self, agent):
        """Carry out what was dispatched."""
        return await self.drive(self.stepper(agent), self.sent.pop(0))

    async def events(self, kind):
        return [event.data async for event in self.fleet.events("run_1", tenant="acme") if event.kind == kind]


@pytest.fixture
async def bench():
    with ThreadPoolExecutor(4) as executor:
        yield Asking(Clock(), executor)


@pytest.fixture
def far_side():
    return FarSide()


def pay(far_side, **declared):
    return far_side.tool(**{"name": "pay", "requires_approval": True, **declared})


async def test_a_turn_of_three_of_which_two_are_asked_about(bench, far_side):
    """P1: nothing is made before the last answer; then all at once, and who denied what is told."""
    turn = [("book", {"seat": "1"}), ("pay", {"seat": "2"}), ("pay", {"seat": "3"})]
    agent = bench.agent(far_side.tool(), pay(far_side), turns=[turn, "done"])
    first, second = await bench.until_it_waits(agent)
    assert (first.request_id, first.tool, first.arguments) == ("req-1", "pay", {"seat": "2"})
    run = await bench.run()
    assert (run.status, run.attention, run.detail) == (RunStatus.WAITING_APPROVAL, Attention.APPROVAL, "req-1, req-2")

    assert (await bench.fleet.approve("run_1", "req-1", **RUN)).ticket is None
    assert (bench.sent, far_side.effects) == ([], [])
    await bench.fleet.deny("run_1", "req-2", why="too dear.", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert sorted(seat for _, seat in far_side.effects) == ["1", "2"]
    said = bench.told[-1]
    assert said[2] == "The call was not made: it needs an approval, and ann denied it: too dear."
    assert said[:2] == [{"seat": "1"}, {"seat": "2"}]
    assert all(request.spent_at for request in (await bench.fleet.approvals("run_1", tenant="acme")).requests)
    assert [data["permit"] for data in await bench.events(EventKind.CALL_PERMITTED)] == ["req-1"]
    assert second.digest != first.digest


async def test_a_run_that_waits_is_moved_by_nothing_else(bench, far_side):
    """P1: neither a copy of its message, nor its own old ticket, nor a sweep in time."""
    agent = bench.agent(pay(far_side), turns=[PAY, "done"])
    message = await bench.submit()
    stepper = bench.stepper(agent)
    assert await stepper.step(message, label="t") is StepEnd.WAITING_APPROVAL
    run = await bench.run()

    for ticket in range(run.fence + 2):
        assert await stepper.step(replace(message, ticket=ticket), label="t") is StepEnd.DUPLICATE
    assert (await sweep(bench.stores.runs, bench, POLICY)).expired == 0

    assert await bench.run() == run
    assert far_side.effects == []


@pytest.mark.parametrize("effect", ["effectful", "idempotent", "read_only"])
async def test_what_was_approved_has_a_claim_whatever_its_effect(bench, far_side, effect):
    """P1: for that is the write that spends the approval."""
    agent = bench.agent(pay(far_side, effect=effect), turns=[PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    (claim,) = await bench.stores.runs.claims("run_1", tenant="acme")
    assert (claim.state, claim.tool) == (ClaimState.SETTLED, "pay")
    assert len(far_side.effects) == 1


async def test_nobody_in_time_is_a_denial(bench, far_side):
    """P1: by the store's clock; the reaper publishes it, and the model is told by whom."""
    agent = bench.agent(pay(far_side, requires_approval=Approval(expires_in=60)), turns=[PAY, "done"])
    (request,) = await bench.until_it_waits(agent)
    assert request.expires_at == bench.clock.now + 60
    bench.clock.now += 60

    report = await sweep(bench.stores.runs, bench, POLICY)

    assert (report.expired, report.unpublished) == (1, 0)
    assert bench.sent[0].recovery
    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert SYSTEM_TIMEOUT in bench.told[-1][0]
    assert far_side.effects == []


async def test_a_worker_that_dies_with_an_approved_call_asks_nobody_again(bench, far_side):
    """P1, I2: the heir finds the claim, and the answer that was spent on it."""
    agent = bench.agent(pay(far_side, probe=far_side.probe), turns=[PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", **RUN)
    far_side.after = asyncio.Event()
    step = asyncio.create_task(bench.stepper(agent).step(bench.sent.pop(), label="t"))
    await far_side.entered.wait()
    step.cancel()
    await asyncio.wait({step})
    far_side.after = None
    far_side.probe_says = None
    (reaped,) = await bench.reap(after=POLICY.lease_ttl)

    ends = await bench.drive(bench.stepper(agent), reaped.dispatch)

    assert ends == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert len(far_side.effects) == 1
    assert len((await bench.fleet.approvals("run_1", tenant="acme")).requests) == 1


async def test_arguments_that_are_not_those_that_were_approved_are_asked_about(bench, far_side):
    """P1: a mismatch fails closed; the answer that was given is nobody's permission."""
    agent = bench.agent(pay(far_side), turns=[PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", **RUN)
    stored = bench.data.checkpoints["acme", "run_1"]
    frontier = decode_checkpoint(stored.payload)
    (call,) = frontier.calls
    forged = frontier.updated(calls=(call.model_copy(update={"arguments": {"seat": "1A"}}),))
    bench.data.checkpoints["acme", "run_1"] = replace(stored, payload=encode_checkpoint(forged))

    assert await bench.go_on(agent) == [StepEnd.WAITING_APPROVAL]

    (request,) = await bench.pending()
    assert (request.request_id, request.arguments) == ("req-2", {"seat": "1A"})
    assert far_side.effects == []


# --- what is declared -------------------------------------------------------------------------------------------------


async def _dear(call):
    return call.arguments["seat"] == "12A" and call.metadata == {"vip": False} and call.agent == "booking"


def _silent(_call):
    return None


def _broken(_call):
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("when", "asked"),
    [
        (_dear, True),
        (lambda call: call.tool != "pay", False),
        (lambda call: call.arguments.clear() or True, True),
        (_silent, True),
        (_broken, True),
    ],
    ids=["async", "no", "meddling", "no answer", "raises"],
)
async def test_a_policy_decides_per_call(bench, far_side, when, asked):
    """P1: with the arguments in hand, and of a copy of them; whatever is no plain "no" asks a person."""
    agent = bench.agent(pay(far_side, requires_approval=Approval(when=when)), turns=[PAY, "done"])
    ends = await bench.drive(bench.stepper(agent), await bench.submit(metadata={"vip": False}))

    assert (ends[-1] is StepEnd.WAITING_APPROVAL) is asked
    assert (len(far_side.effects) == 1) is not asked
    if asked:
        assert (await bench.pending())[0].arguments == {"seat": "12A"}


async def test_a_policy_is_asked_once(bench, far_side):
    """P1: its answer is in the frontier; what it would say later changes nothing."""
    asked = []

    def when(call):
        asked.append(call.tool)
        return len(asked) == 1

    agent = bench.agent(pay(far_side, requires_approval=Approval(when=when)), turns=[PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.deny("run_1", "req-1", **RUN)
    await bench.go_on(agent)

    assert asked == ["pay"]
    assert far_side.effects == []


async def test_an_agent_declares_for_the_tools_that_say_nothing(bench, far_side):
    """P1: and a call that is refused anyway needs nobody."""
    turn = [("book", {"seat": "1"}), ("pay", {"seat": "2"}), ("book", {}), ("unknown", {})]
    everything = Approval(approvers=["ann"], expires_in=5)
    own = pay(far_side, requires_approval=Approval(approvers=["bob"]))
    agent = bench.agent(far_side.tool(), own, turns=[turn], requires_approval=everything)

    first, second = await bench.until_it_waits(agent)

    assert (first.tool, first.approvers, first.expires_at - first.asked_at) == ("book", ("ann",), 5)
    assert (second.tool, second.approvers, second.expires_at - second.asked_at) == ("pay", ("bob",), 86_400)


# --- grants -----------------------------------------------------------------------------------------------------------


async def test_a_grant_lets_later_calls_pass(bench, far_side):
    """P1: its id travels with the run, and stands in the event of each call that is made under it."""
    agent = bench.agent(far_side.tool(), pay(far_side), turns=[PAY, PAY, [("book", {"seat": "1"}), *PAY], "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", grant=NewGrant(), **RUN)

    assert (await bench.go_on(agent))[-1] is StepEnd.COMPLETED

    assert len(far_side.effects) == 4
    permits = [data["permit"] for data in await bench.events(EventKind.CALL_PERMITTED)]
    assert permits == ["req-1", "grant-1", "grant-1"]


async def test_a_grant_that_is_revoked_between_the_wish_and_the_call_lets_nothing_pass(bench, far_side, monkeypatch):
    """P1: looked at in the begin's own write: the call is not made, and asked about."""
    agent = bench.agent(pay(far_side), turns=[PAY, PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", grant=NewGrant(), **RUN)
    begin = bench.stores.runs.begin
    seen = []

    async def revoked_before(lease, intents, **how):
        if intents[0].permit == "grant-1":
            stored = decode_checkpoint(await bench.stores.runs.payload("run_1", tenant="acme"))
            seen.append((stored.boundary, stored.grant_id))
            await bench.fleet.revoke("run_1", "grant-1", **RUN)
        return await begin(lease, intents, **how)

    monkeypatch.setattr(bench.stores.runs, "begin", revoked_before)
    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.WAITING_APPROVAL]

    assert seen == [(CheckpointBoundary.AFTER_MODEL_CALL, "grant-1")]
    assert len(far_side.effects) == 1
    (request,) = await bench.pending()
    assert request.request_id == "req-2"
    frontier = decode_checkpoint(await bench.stores.runs.payload("run_1", tenant="acme"))
    assert (frontier.grant_id, frontier.calls[0].grant_id) == (None, None)
    await bench.fleet.approve("run_1", "req-2", **RUN)
    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert len(far_side.effects) == 2


async def test_a_grant_for_a_time_is_over_by_the_store_s_clock(bench, far_side):
    """P1, L1."""
    agent = bench.agent(pay(far_side), turns=[PAY, PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", grant=NewGrant(seconds=10), **RUN)
    bench.clock.now += 10

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.WAITING_APPROVAL]

    assert len(far_side.effects) == 1


async def die_under_a_grant(bench, far_side, **declared):
    """A worker dies in a call that it makes under a grant, which is revoked then: it is to be approved once more."""
    agent = bench.agent(pay(far_side, **declared), turns=[PAY, PAY, "done"])
    await bench.until_it_waits(agent)
    await bench.fleet.approve("run_1", "req-1", grant=NewGrant(), **RUN)
    assert await bench.stepper(agent).step(bench.sent.pop(0), label="task") is StepEnd.HANDED_OVER
    far_side.entered.clear()
    far_side.after = asyncio.Event()
    dying = asyncio.ensure_future(bench.stepper(agent).step(bench.sent.pop(0), label="task"))
    await far_side.entered.wait()
    dying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await dying
    far_side.after = None
    await bench.fleet.revoke("run_1", "grant-1", **RUN)
    bench.clock.now += 1_000
    await sweep(bench.stores.runs, bench, POLICY)
    assert len(far_side.effects) == 2
    return agent


async def test_what_may_have_been_made_under_a_grant_is_not_denied_to_have_been(bench, far_side):
    """P1, I7: it may be sent again, had somebody not denied that; and nobody knows whether it was made."""
    agent = await die_under_a_grant(bench, far_side, effect="idempotent")
    assert await bench.go_on(agent) == [StepEnd.WAITING_APPROVAL]
    await bench.fleet.deny("run_1", "req-2", why="too late", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    (told,) = bench.told[-1]
    why = "it needs an approval, and ann denied it: too late."
    assert told == f"Whether the call was made before is not known, and it is not made again: {why}"
    assert len(far_side.effects) == 2


async def test_an_outcome_on_record_is_told_whatever_was_denied(bench, far_side):
    """F4, P1: whoever made the call has said what became of it, late, and before its denial was told."""
    agent = await die_under_a_grant(bench, far_side, effect="idempotent")
    assert await bench.go_on(agent) == [StepEnd.WAITING_APPROVAL]
    _, claim = await bench.stores.runs.claims("run_1", tenant="acme")
    await bench.stores.idempotency.record(claim, ToolOutcome(kind=OutcomeKind.RETURNED, content="paid"))
    await bench.fleet.deny("run_1", "req-2", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    assert bench.told[-1] == ["paid"]
    assert (await bench.fleet.approvals("run_1", tenant="acme")).requests[1].spent_at is not None


async def test_a_call_that_never_will_happen_was_not_made_if_it_is_denied(bench, far_side):
    """P1, I7: the far side has said so, and says so again."""
    agent = await die_under_a_grant(bench, far_side, probe=far_side.probe)
    far_side.effects.pop()
    far_side.probe_says = NeverWill("the key is closed")
    assert await bench.go_on(agent) == [StepEnd.WAITING_APPROVAL]
    await bench.fleet.deny("run_1", "req-2", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]

    assert bench.told[-1] == ["The call was not made: it needs an approval, and ann denied it."]
    assert len(far_side.probed) == 2


async def test_a_call_that_was_denied_is_asked_about_where_it_may_have_happened(bench, far_side):
    """P1, I7: its probe could tell as it was to be approved, and cannot any more: people decide what became of it."""
    agent = await die_under_a_grant(bench, far_side, probe=far_side.probe)
    far_side.probe_says = NeverWill("the key is closed")
    assert await bench.go_on(agent) == [StepEnd.WAITING_APPROVAL]
    far_side.probe_says = Unknown("out of order")
    await bench.fleet.deny("run_1", "req-2", **RUN)

    assert await bench.go_on(agent) == [StepEnd.PARKED]

    assert (await bench.run()).attention is Attention.UNDECIDED_CALL
    assert len(bench.told) == 2


# --- the client -------------------------------------------------------------------------------------------------------


async def test_whoever_may_not_answer_is_told(bench, far_side):
    """P1, P5: those whom the request does not name, and those whom the application refuses."""
    agent = bench.agent(pay(far_side, requires_approval=Approval(approvers=["bob"])), turns=[PAY])
    await bench.until_it_waits(agent)

    async def verifier(actor, action, *, tenant, run_id):
        if action == "deny":
            raise NotAllowedError(actor=actor.name, action=action, reason="not on Sundays")

    with pytest.raises(NotAllowedError, match="for bob to answer"):
        await bench.fleet.approve("run_1", "req-1", **RUN)
    strict = Fleet(bench.stores, bench, policy=POLICY, verifier=verifier)
    with pytest.raises(NotAllowedError, match="Sundays"):
        await strict.deny("run_1", "req-1", tenant="acme", by="bob")
    assert len(await bench.pending()) == 1


async def test_an_answer_says_what_it_has_seen(bench, far_side):
    """P1."""
    agent = bench.agent(pay(far_side), turns=[PAY])
    (request,) = await bench.until_it_waits(agent)

    with pytest.raises(ApprovalRefusedError, match="other arguments"):
        await bench.fleet.approve("run_1", "req-1", digest="0" * 64, **RUN)

    await bench.fleet.approve("run_1", "req-1", digest=request.digest, **RUN)


@pytest.mark.parametrize(
    ("why", "said"),
    [("x" * 2_001, "longer than"), ("it has ghp_" + "a1B2c3D4e5F6" * 3, "looks like a secret"), (5, "must be a text")],
    ids=["long", "secret", "no text"],
)
async def test_a_reason_is_one_that_may_be_kept(bench, far_side, why, said):
    """R1: nothing in the run's own numbering can stand for what a person has typed here."""
    agent = bench.agent(pay(far_side), turns=[PAY])
    await bench.until_it_waits(agent)

    with pytest.raises(InvalidNameError, match=said):
        await bench.fleet.deny("run_1", "req-1", why=why, **RUN)

    assert (await bench.pending())[0].state is RequestState.PENDING


@pytest.mark.parametrize("approved", ["no", "false", 0, 1, None])
def test_what_is_neither_yes_nor_no_decides_nothing(approved):
    """P1: a form's "no" would count as yes."""
    with pytest.raises(ConfigurationError, match="has to be True or False"):
        ApprovalDecision(approved=approved, by="ann")
    with pytest.raises(ConfigurationError, match="has to be True or False"):
        Answer(request_id="req-1", approved=approved, answer_id="one")


async def test_a_reason_with_a_byte_of_no_text_is_told_without_it(bench, far_side):
    """H2: a terminal passes such bytes on as lone surrogates; what tells of the denial can be read back."""
    agent = bench.agent(pay(far_side), turns=[PAY, "done"])
    await bench.until_it_waits(agent)

    await bench.fleet.deny("run_1", "req-1", why="too \udcff dear", **RUN)

    assert await bench.go_on(agent) == [StepEnd.HANDED_OVER, StepEnd.COMPLETED]
    assert bench.told[-1] == ["The call was not made: it needs an approval, and ann denied it: too ? dear."]


async def test_an_answer_whose_commit_is_not_known_is_given_again(bench, far_side, monkeypatch):
    """F5: and finds itself given; the run is dispatched either way."""
    agent = bench.agent(pay(far_side), turns=[PAY, "done"])
    await bench.until_it_waits(agent)
    answer, lost = bench.stores.runs.answer, [True]

    async def losing(*args, **how):
        answered = await answer(*args, **how)
        if lost:
            lost.pop()
            raise CommitUnknownError(store="memory", reason="the connection was lost")
        return answered

    monkeypatch.setattr(bench.stores.runs, "answer", losing)
    await bench.fleet.approve("run_1", "req-1", **RUN)

    assert (await bench.go_on(agent))[-1] is StepEnd.COMPLETED
    assert len(await bench.events(EventKind.APPROVAL_ANSWERED)) == 1
