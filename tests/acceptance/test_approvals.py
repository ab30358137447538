"""Runs that ask people, on real processes: waited for through anything, answered once, acted on once (P1)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from adk_worker.approvals.answers import NewGrant
from adk_worker.approvals.requests import SYSTEM_TIMEOUT, ApprovalRequest
from adk_worker.errors import ApprovalRefusedError
from adk_worker.runs import RunStatus
from adk_worker.wiring import make_fleet
from tests.acceptance import broker
from tests.acceptance.fleet import FleetUnderTest
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

AGENTS = {"ADK_AGENTS": "tests.acceptance.approving"}
ATTEMPTS = 3
"""How often the model asks for a call that is refused."""


def asked(fleet: FleetUnderTest, run_id: str, name: str = "req-1") -> tuple[ApprovalRequest, ...]:
    """Wait until the request is pending, and return all that are."""

    def pending() -> tuple[ApprovalRequest, ...] | None:
        found = fleet.sync.approvals(run_id, tenant="acme").pending
        return found if name in {request.request_id for request in found} else None

    return wait_until(pending, within=fleet.patience, what=f"{name} of {run_id}\n{fleet.logs()}")


def told(fleet: FleetUnderTest, run_id: str) -> list[tuple[str, str]]:
    """Who answered what, in order."""
    return [(event.data["answer"], event.data["by"]) for event in fleet.events(run_id, "approval_answered")]


def test_an_approval_is_waited_for_through_a_restart_of_everything(fleet):
    """P1: no process and no message is left of the fleet when it is given; the seat is booked once, and paid once."""
    fleet.worker("first", **AGENTS)
    fleet.submit("patient", agent="careful")
    (request,) = asked(fleet, "patient")
    waiting = fleet.rests("patient", RunStatus.WAITING_APPROVAL)
    assert (waiting.holder, waiting.detail, request.tool) == (None, "req-1", "book_seat")

    fleet.kill_everything()
    broker.empty(fleet.broker_url)
    assert fleet.run("patient") == waiting
    fleet.sync.approve("patient", "req-1", tenant="acme", by="ana", digest=request.digest)
    broker.empty(fleet.broker_url)
    fleet.backstage()
    fleet.worker("second", **AGENTS)

    fleet.ends("patient")
    fleet.done_once("patient")
    assert told(fleet, "patient") == [("approved", "ana")]
    assert [event.data["permit"] for event in fleet.events("patient", "call_permitted")] == ["req-1"]


def test_of_a_turn_of_three_two_are_asked_about(fleet):
    """P1: nothing of the turn is made until both are answered; then the third one with what was approved."""
    fleet.worker("worker", **AGENTS)
    fleet.submit("trio", agent="three")
    requests = asked(fleet, "trio", "req-2")
    assert [request.arguments["passenger"] for request in requests] == ["Bob", "Cyd"]

    fleet.sync.approve("trio", "req-1", tenant="acme", by="ana")
    assert fleet.run("trio").detail == "req-2"
    assert fleet.travel.verdict(runs=[("acme", "trio")], each={"hold": 0}).ok
    fleet.sync.deny("trio", "req-2", tenant="acme", by="bob", why="he has one already")

    run = fleet.ends("trio")
    denial = "The call was not made: it needs an approval, and bob denied it: he has one already."
    assert run.output == f"held; held; {denial}"
    verdict = fleet.travel.verdict(runs=[("acme", "trio")], each={"hold": 2})
    assert verdict.ok, str(verdict)


def test_a_call_that_is_denied_is_not_made(fleet):
    """P1: however often the model asks; each time is another question."""
    fleet.worker("worker", **AGENTS)
    fleet.submit("denied", agent="careful")
    for number in range(1, ATTEMPTS + 1):
        asked(fleet, "denied", f"req-{number}")
        fleet.sync.deny("denied", f"req-{number}", tenant="acme", by="bob", why="too dear")

    run = fleet.ends("denied")

    assert "bob denied it: too dear" in (run.output or "")
    assert told(fleet, "denied") == [("denied", "bob")] * ATTEMPTS
    verdict = fleet.travel.verdict(runs=[("acme", "denied")], each={"book": 0, "pay": 0})
    assert verdict.ok, str(verdict)


def test_what_nobody_answers_in_time_is_denied_by_the_system(fleet):
    """P1, L1: the reaper says so, and publishes it as a recovery."""
    worker = fleet.worker("worker", **AGENTS)
    fleet.submit("unanswered", agent="hasty")

    run = fleet.ends("unanswered")

    assert SYSTEM_TIMEOUT in (run.output or "")
    assert told(fleet, "unanswered") == [("denied", SYSTEM_TIMEOUT)] * ATTEMPTS
    assert "adk.resume" in worker.log()
    verdict = fleet.travel.verdict(runs=[("acme", "unanswered")], each={"book": 0, "pay": 0})
    assert verdict.ok, str(verdict)


def test_of_two_people_at_once_one_is_heard(fleet):
    """P1: from two programs; the other one is told what stands, and the run does what the first has said."""
    fleet.worker("worker", **AGENTS)
    fleet.submit("contested", agent="careful")
    asked(fleet, "contested")
    both = Barrier(2)

    def say(name: str) -> str:
        own = make_fleet(fleet.settings)
        try:
            both.wait(fleet.patience)
            own.sync.approve("contested", "req-1", tenant="acme", by=name, grant=NewGrant())
        except ApprovalRefusedError as refused:
            return refused.stands
        else:
            return "heard"
        finally:
            own.sync.close()

    with ThreadPoolExecutor(2) as people:
        answers = list(people.map(say, ("ana", "bob")))

    (heard,) = [name for name, answer in zip(("ana", "bob"), answers, strict=True) if answer == "heard"]
    assert any(f"was approved by {heard}" in answer for answer in answers), answers
    fleet.ends("contested")
    fleet.done_once("contested")
    assert told(fleet, "contested") == [("approved", heard)]


def test_a_worker_that_dies_with_an_approved_call_asks_nobody_again(fleet):
    """P1, I2, I7: the answer was spent on that call: its probe tells what became of it."""
    held = fleet.travel.hold("book", run_id="spent", at="before_answer")
    victim = fleet.worker("victim", **AGENTS)
    fleet.submit("spent", agent="careful")
    asked(fleet, "spent")
    fleet.sync.approve("spent", "req-1", tenant="acme", by="ana")
    held.wait(within=fleet.patience)
    victim.kill()
    held.release(then="drop")
    fleet.worker("heir", **AGENTS)

    fleet.ends("spent")
    fleet.done_once("spent")
    assert told(fleet, "spent") == [("approved", "ana")]
