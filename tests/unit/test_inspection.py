"""What is found out about a run without touching it, over the store in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.checkpoint import CheckpointBoundary, OutstandingCall
from adk_worker.cli.exits import ExitCode, code_of_inspection
from adk_worker.conformance.runs.driver import ANN, BOOKED, Driver
from adk_worker.describe import describe
from adk_worker.errors import (
    CallKeyReusedError,
    CheckpointFormatError,
    FrontierLostError,
    HistoryUnavailableError,
    IndeterminateToolCallError,
    RunStateError,
)
from adk_worker.idempotency import mark_key
from adk_worker.inspection import Afford, inspect_run
from adk_worker.ledger.amounts import Budget, BudgetChange, Kind
from adk_worker.ledger.booking import Scope
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.outcomes import Effect
from adk_worker.registry import Registry
from adk_worker.transitions.runs import Attention, Reason, Then
from tests.unit.far_side import FarSide, agent_with


@pytest.fixture
def driver():
    return Driver(memory_stores(MemoryData()))


async def look(driver, **options):
    return await inspect_run(driver.stores, driver.run_id, tenant=driver.tenant, **options)


def outstanding(driver, index=0, *, effect=Effect.EFFECTFUL, seat="12A"):
    key = driver.intent(index).key
    return OutstandingCall(
        call_id=f"call_{index}", tool="book", arguments={"seat": seat}, index=index, effect=effect, key=key
    )


async def with_calls(driver, *calls, begun=(), then=Then.PARK, **frontier):
    """A run that rests, or is queued again, after a model call that asked for ``calls``, with some of them begun."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": calls, **frontier}
    await driver.commit(lease, 1, frontier=asked)
    claims = await driver.begin(lease, *begun)
    if then is Then.PARK:
        await driver.park(lease, *claims)
    else:
        await driver.give_back(lease, Reason.DRAIN)
    return claims


async def test_a_run_that_nobody_knows_is_none(driver):
    assert await look(driver) is None


async def test_looking_changes_nothing(driver):
    """It takes no lease, and no claim."""
    await with_calls(driver, outstanding(driver), begun=[0])
    before = await driver.picture()
    await look(driver)
    assert await driver.picture() == before


async def test_a_parked_run_whose_calls_are_all_known_has_nothing_in_its_way(driver):
    claims = await with_calls(driver, outstanding(driver, 0), outstanding(driver, 1), begun=[0])
    await driver.stores.idempotency.record(claims[0], BOOKED)  # queues the run, and its lease has lapsed
    found = await look(driver)
    assert found.obstacle is None
    assert [p.disposition for p in found.plan.calls] == ["completed", "never_ran"]


async def test_a_call_that_may_have_happened_stands_in_the_way(driver):
    """I5: every such call is named."""
    await with_calls(driver, outstanding(driver, 0), outstanding(driver, 1), begun=[0, 1])
    found = await look(driver)
    assert isinstance(found.obstacle, IndeterminateToolCallError)
    assert [call_id for call_id, _, _ in found.obstacle.calls] == ["call_0", "call_1"]


@pytest.mark.parametrize(("declared", "stands_in_the_way"), [({"probe": True}, False), ({}, True)])
async def test_a_call_whose_tool_can_be_asked_does_not(driver, declared, stands_in_the_way):
    """I7: probes come before people. Whether there is one, the registry knows."""
    far_side = FarSide()
    if "probe" in declared:
        declared = {"probe": far_side.probe}
    registry = Registry([agent_with(far_side.tool(**declared), revision="r1")])
    await with_calls(driver, outstanding(driver), begun=[0])
    found = await look(driver, registry=registry)
    assert (found.obstacle is not None) is stands_in_the_way
    assert len(found.to_probe) == (not stands_in_the_way)
    assert far_side.probed == []


async def test_a_tool_of_another_revision_tells_nothing_about_a_probe(driver):
    """C7."""
    far_side = FarSide()
    registry = Registry([agent_with(far_side.tool(probe=far_side.probe), revision="r2")])
    await with_calls(driver, outstanding(driver), begun=[0])
    assert (await look(driver, registry=registry)).obstacle is not None


async def test_a_call_that_may_be_made_again_does_not_stand_in_the_way(driver):
    """I7."""
    await with_calls(driver, outstanding(driver, effect=Effect.IDEMPOTENT), begun=[0])
    assert (await look(driver)).obstacle is None


async def test_a_key_that_is_on_record_with_other_arguments_stands_in_the_way(driver):
    """I1."""
    await with_calls(driver, outstanding(driver, seat="1F"), begun=[0])
    assert isinstance((await look(driver)).obstacle, CallKeyReusedError)


async def test_a_frontier_that_cannot_be_read_stands_in_the_way(driver):
    """C4."""
    await with_calls(driver, outstanding(driver), format=2)
    found = await look(driver)
    assert isinstance(found.obstacle, CheckpointFormatError)
    assert found.frontier is None


async def test_a_transcript_that_is_gone_stands_in_the_way(driver):
    """H2."""
    handle = str(driver.segment("hello").handle)
    await with_calls(driver, history_handle=handle)
    assert isinstance((await look(driver)).obstacle, HistoryUnavailableError)


async def test_a_transcript_that_is_there_does_not(driver):
    """H2."""
    segment = driver.segment("hello")
    lease = await driver.worker()
    await driver.commit(lease, 1, segment=segment, frontier={"history_handle": str(segment.handle)})
    await driver.park(lease)
    assert (await look(driver)).obstacle is None


async def test_a_frontier_that_is_behind_what_ran_stands_in_the_way(driver):
    """C3."""
    lease = await driver.worker()
    await driver.commit(lease, 1)
    await driver.begin(lease, 0, ahead=True)
    await driver.give_back(lease)
    assert (await driver.run()).attention is Attention.FRONTIER_LOST
    assert isinstance((await look(driver)).obstacle, FrontierLostError)


async def test_an_approval_that_is_awaited_stands_in_the_way(driver):
    """P1."""
    lease = await driver.worker()
    await driver.commit(lease, 1, Then.WAIT_APPROVAL, attention=Attention.APPROVAL, detail="req-9")
    assert isinstance((await look(driver)).obstacle, RunStateError)


async def test_nothing_stands_in_the_way_of_a_worker_at_work(driver):
    """Its call is in flight, as it should be: that is not indeterminate."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (outstanding(driver),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.begin(lease, 0)
    found = await look(driver)
    assert found.obstacle is None
    assert found.held_by_worker.fence == lease.fence


async def test_whoever_holds_the_lease_is_told_what_stands_in_the_way(driver):
    await with_calls(driver, outstanding(driver), begun=[0])
    lease = await driver.stores.leases.acquire(driver.run_id, tenant=driver.tenant, holder="me", ttl_seconds=60)
    assert (await look(driver, under=lease)).obstacle is not None
    assert (await look(driver)).obstacle is None


@pytest.mark.parametrize("end", ["complete", "cancel"])
async def test_nothing_stands_in_the_way_of_a_run_that_is_over(driver, end):
    lease = await driver.worker()
    if end == "complete":
        await driver.commit(lease, 1, Then.COMPLETE, frontier={"output": "booked"})
    else:
        await driver.begin(lease, 0)
        await driver.cancel()
        await driver.give_back(lease)
    found = await look(driver)
    assert found.over
    assert found.obstacle is None


async def test_a_run_that_a_process_carries_by_itself_is_found_by_its_frontier(driver):
    """A run in process has a checkpoint, and no row in the fleet's list."""
    await driver.stores.checkpoints.put(driver.boundary(3).checkpoint)
    found = await look(driver)
    assert found.run is None
    assert (found.subject.iteration, found.obstacle) == (3, None)


async def test_and_so_is_that_it_is_behind_what_ran(driver):
    """C3: the mark of a run in process is a claim of its own."""
    await driver.stores.checkpoints.put(driver.boundary(3).checkpoint)
    key = mark_key(tenant=driver.tenant, run_id=driver.run_id)
    await driver.stores.idempotency.begin(key, tenant=driver.tenant, owner="gone", digest="0" * 64)
    assert isinstance((await look(driver)).obstacle, FrontierLostError)


async def test_a_run_that_moves_while_it_is_read_is_read_again(driver):
    """The parts of what is shown belong together."""
    lease = await driver.worker()
    await driver.commit(lease, 1)
    runs = driver.stores.runs
    reading = runs.payload

    async def payload(*args, **kwargs):
        runs.payload = reading
        stale = await reading(*args, **kwargs)
        await driver.commit(lease, 2)
        return stale

    runs.payload = payload
    found = await look(driver)
    assert (found.run.sequence, found.frontier.sequence) == (2, 2)


# --- over budget ------------------------------------------------------------------------------------------------------


def to(tokens):
    return BudgetChange(to={Kind.TOKENS: tokens})


async def short(driver, wanted=500, **submitted):
    await driver.submit(**submitted)
    await driver.reserve(await driver.worker(), wanted)


async def test_what_a_run_is_over_its_own_budget_by_is_told(driver):
    """P3, P4: carried on as it is, it would be parked again, which `run --resume` ends with."""
    await short(driver, budget=Budget(tokens=10))

    found = await look(driver)

    assert found.obstacle is None
    assert found.afford == Afford(found.run.ledger.refused)
    assert (found.afford.refusal.scope, code_of_inspection(found)) == (Scope.RUN, ExitCode.NOT_COMPLETED)
    assert "by now" not in describe(found)


async def test_what_stands_against_a_run_now_is_told_where_it_is_something_else(driver):
    """P3, P4: a raise of its tenant's limit that was too small for it."""
    await driver.runs.change_account(driver.tenant, change=to(10), by=ANN)
    await short(driver)
    await driver.runs.change_account(driver.tenant, change=to(400), by=ANN)

    found = await look(driver)

    assert (found.afford.refusal.limit, code_of_inspection(found)) == (400, ExitCode.NOT_COMPLETED)
    assert "by now: over the budget of tenant acme: tokens limit 400, spent 0" in describe(found)


async def test_a_run_that_fits_by_now_has_nothing_in_its_way(driver):
    """P3, P4: the next sweep has it go on."""
    await driver.runs.change_account(driver.tenant, change=to(10), by=ANN)
    await short(driver)
    await driver.runs.change_account(driver.tenant, change=to(500), by=ANN)

    found = await look(driver)

    assert (found.afford, code_of_inspection(found)) == (Afford(None), ExitCode.DONE)
    assert "there is room for it by now: the next sweep has it go on" in describe(found)


async def test_a_run_that_has_room_of_its_own_may_be_over_its_tenants_budget(driver):
    """P3: and the other way round."""
    await driver.runs.change_account(driver.tenant, change=to(10), by=ANN)
    await short(driver, budget=Budget(tokens=1000))
    await driver.change_budget(to(100))

    assert (await look(driver)).afford.refusal.scope is Scope.RUN
    await driver.change_budget(to(1000))
    assert (await look(driver)).afford.refusal.scope is Scope.TENANT


async def test_an_obstacle_comes_before_a_budget(driver):
    """P4: the exit code is that of what is found first as it is carried on."""
    await driver.runs.change_account(driver.tenant, change=to(10), by=ANN)
    await short(driver)
    found = replace(await look(driver), obstacle=CheckpointFormatError(found=9, supported=1))

    assert code_of_inspection(found) == ExitCode.REFUSED
