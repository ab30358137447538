"""A cancel at every moment of a run, on a real fleet: it is never lost, and what is in flight is waited for (P2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from adk_worker.describe import describe
from adk_worker.errors import RunStateError
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.runs import Run, RunStatus
from adk_worker.wiring import make_stores
from tests.acceptance.fleet import LONG, PATIENCE, FleetUnderTest
from tests.servers import Proxy
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]


def cancel(fleet: FleetUnderTest, run_id: str) -> Run:
    """Ask for its end, as a person would."""
    return fleet.sync.cancel(run_id, tenant="acme", by="ana")


def stored(fleet: FleetUnderTest, run_id: str) -> tuple[str | None, Sequence[Claim]]:
    """The run's frontier, and its claims."""

    async def read() -> tuple[str | None, Sequence[Claim]]:
        stores = make_stores(fleet.settings)
        try:
            payload = await stores.runs.payload(run_id, tenant="acme")
            return payload, await stores.runs.claims(run_id, tenant="acme")
        finally:
            await stores.lifecycle.close()

    return asyncio.run(read())


def in_flight(fleet: FleetUnderTest, run_id: str) -> list[str | None]:
    """The tools of its calls that nobody knows the end of."""
    return [claim.tool for claim in stored(fleet, run_id)[1] if claim.state is ClaimState.IN_FLIGHT]


def effects(fleet: FleetUnderTest, run_id: str) -> list[str]:
    """What the booking service did for it."""
    done = [entry for entry in fleet.travel.entries() if entry.event == "effect" and entry.run.run_id == run_id]
    return [str(entry.kind) for entry in done]


def ended_by_ana(fleet: FleetUnderTest, run_id: str) -> None:
    """It is over for good: who asked is on record, once, and nothing queues it again."""
    fleet.rests(run_id, RunStatus.CANCELLED)
    (asked,) = fleet.events(run_id, "cancel_requested")
    assert asked.data["by"] == "ana"
    assert fleet.events(run_id)[-1].kind in {"cancelled", "late_outcome"}, fleet.events(run_id)
    assert len(fleet.events(run_id, "cancelled")) == 1
    with pytest.raises(RunStateError):
        fleet.sync.resume(run_id, tenant="acme", by="ana")


def kept_and_listed(fleet: FleetUnderTest, run_id: str) -> None:
    """P2: its call in flight is listed by ``inspect``, and its frontier is kept."""
    assert in_flight(fleet, run_id) == ["book_seat"]
    assert stored(fleet, run_id)[0] is not None
    said = describe(fleet.sync.inspect(run_id, tenant="acme"))
    assert "cancelled" in said.splitlines(), said
    assert "  book_seat (" in said, said
    assert "indeterminate" in said, said


def test_before_its_first_task(fleet):
    """P2: it ends at once, and the message that comes for it all the same is refused: the model is never asked."""
    fleet.submit("early")
    assert cancel(fleet, "early").status is RunStatus.CANCELLED
    worker = fleet.worker("worker")
    wait_until(lambda: worker.says("step_duplicate"), within=PATIENCE, what="its message to be refused")
    fleet.submit("another")
    fleet.done_once("another")
    ended_by_ana(fleet, "early")
    assert {call.run_id for call in fleet.models.calls()} == {"another"}
    assert [event.kind for event in fleet.events("early")] == ["submitted", "cancel_requested", "cancelled"]


def test_between_two_tasks(make_fleet, redis_proxy: Proxy):
    """P2: in the queue's hands it ends at once; nothing that it was still to do is done."""
    fleet = make_fleet(times=LONG, reaped=False)
    held = fleet.travel.hold("hold", run_id="between", at="before_answer")
    worker = fleet.worker("worker", ADK_BROKER_URL=redis_proxy.url(fleet.broker_url))
    fleet.submit("between")
    held.wait(within=PATIENCE)
    redis_proxy.refuse()
    redis_proxy.cut()
    held.release()
    wait_until(
        lambda: fleet.run("between").iteration == 2 and fleet.run("between").holder == "queue",
        within=PATIENCE,
        what="the boundary to be committed",
    )
    assert cancel(fleet, "between").status is RunStatus.CANCELLED
    worker.kill()
    ended_by_ana(fleet, "between")
    assert effects(fleet, "between") == ["hold"]
    assert stored(fleet, "between")[0] is None


def test_in_a_model_call(fleet):
    """P2: at the next renewal the call is aborted, however long it would have taken."""
    fleet.models.hold("thinking", tenant="acme", iteration=2)
    fleet.worker("worker")
    fleet.submit("thinking")
    fleet.asked("thinking", iteration=2)
    asked = cancel(fleet, "thinking")
    assert (asked.status, asked.cancel_requested) == (RunStatus.RUNNING, True)
    ended_by_ana(fleet, "thinking")
    assert fleet.run("thinking").iteration == 1
    fleet.models.release("thinking", tenant="acme", iteration=2)
    fleet.submit("another")
    fleet.done_once("another")
    assert effects(fleet, "thinking") == []


def test_in_an_effectful_call(fleet):
    """P2, I2: it is waited for and recorded, and nothing comes after it."""
    held = fleet.travel.hold("book", run_id="booking", at="before_answer")
    worker = fleet.worker("worker")
    fleet.submit("booking", agent="blind")
    held.wait(within=PATIENCE)
    cancel(fleet, "booking")
    lease = fleet.run("booking").expires_at
    wait_until(lambda: fleet.run("booking").expires_at != lease, within=PATIENCE, what="a renewal, which tells of it")
    lease = fleet.run("booking").expires_at
    wait_until(lambda: fleet.run("booking").expires_at != lease, within=PATIENCE, what="another renewal")
    assert fleet.run("booking").status is RunStatus.RUNNING
    assert in_flight(fleet, "booking") == ["book_seat"]
    held.release()
    ended_by_ana(fleet, "booking")
    assert in_flight(fleet, "booking") == []
    assert effects(fleet, "booking") == ["hold", "book"]
    assert stored(fleet, "booking")[0] is None
    assert worker.stop() == 0


def test_while_it_is_parked_on_a_call_whose_outcome_comes_later(fleet):
    """P2, F4: it ends at once, lists the call, and keeps its frontier until that is decided; it does not go on."""
    held = fleet.travel.hold("book", run_id="parked", at="before_answer")
    sleeper = fleet.worker("sleeper")
    fleet.submit("parked", agent="blind")
    held.wait(within=PATIENCE)
    sleeper.pause()
    fleet.worker("heir")
    fleet.rests("parked", RunStatus.PARKED)
    assert cancel(fleet, "parked").status is RunStatus.CANCELLED
    kept_and_listed(fleet, "parked")
    held.release()
    sleeper.go_on()
    wait_until(lambda: in_flight(fleet, "parked") == [], within=PATIENCE, what="the late outcome")
    ended_by_ana(fleet, "parked")
    assert stored(fleet, "parked")[0] is None
    assert effects(fleet, "parked") == ["hold", "book"]


@pytest.mark.parametrize("first", ["cancel", "crash"])
def test_at_the_moment_of_a_crash(fleet, first):
    """P2: before it or after it, the run ends, its call is not repeated, and what nobody knows of it is listed."""
    held = fleet.travel.hold("book", run_id="crash", at="before_answer")
    victim = fleet.worker("victim")
    fleet.submit("crash", agent="blind")
    held.wait(within=PATIENCE)
    if first == "cancel":
        cancel(fleet, "crash")
        victim.kill()
    else:
        victim.kill()
        cancel(fleet, "crash")
    held.release(then="drop")
    fleet.worker("heir")
    ended_by_ana(fleet, "crash")
    kept_and_listed(fleet, "crash")
    assert effects(fleet, "crash") == ["hold", "book"]


def test_between_a_commit_and_its_message_as_the_worker_dies(fleet, redis_proxy: Proxy):
    """P2: the reaper finds the run ended, and publishes nothing."""
    held = fleet.travel.hold("hold", run_id="gap", at="before_answer")
    victim = fleet.worker("victim", ADK_BROKER_URL=redis_proxy.url(fleet.broker_url))
    fleet.submit("gap")
    held.wait(within=PATIENCE)
    cancel(fleet, "gap")
    redis_proxy.refuse()
    redis_proxy.cut()
    held.release()
    wait_until(lambda: fleet.run("gap").status is RunStatus.CANCELLED, within=PATIENCE, what="the boundary to end it")
    victim.kill()
    ended_by_ana(fleet, "gap")
    fleet.worker("heir")
    fleet.submit("another")
    fleet.done_once("another")
    assert not fleet.events("gap", "published_again")
    assert effects(fleet, "gap") == ["hold"]
