"""Taking over a run in process: the lease first, then the frontier, and a leaseholder that stays with the run."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from adk_worker.checkpoint import Checkpointer
from adk_worker.errors import (
    CheckpointFormatError,
    HistoryUnavailableError,
    NoCheckpointError,
    RunLeaseError,
    StaleFenceError,
)
from adk_worker.lease import LeasePolicy
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.resumer import Resumer
from adk_worker.runner import AgentRunner
from tests.unit.far_side import FarSide, agent_with


class Clock:
    """The store's clock, moved by the test."""

    now = 1_000_000.0

    def __call__(self):
        return self.now


class Place:
    """One store that outlives its processes, and how a process makes its parts over it."""

    def __init__(self):
        self.clock = Clock()
        self.stores = memory_stores(MemoryData(clock=self.clock))

    def parts(self):
        return {
            "checkpoints": Checkpointer(self.stores.checkpoints),
            "idempotency": self.stores.idempotency,
            "leases": self.stores.leases,
            "history": self.stores.history,
        }

    def runner(self):
        return AgentRunner(**self.parts())

    def resumer(self):
        return Resumer(**self.parts())


@pytest.fixture
def place():
    return Place()


@pytest.fixture
def far_side():
    return FarSide()


async def die(place, agent, far_side):
    """A process dies in the booking: its claim stays in flight and its lease stands until it lapses."""
    task = asyncio.create_task(place.runner().run(agent, "book", tenant="acme", run_id="run_1"))
    await far_side.entered.wait()
    held = await place.stores.leases.held("run_1", tenant="acme")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    return held


async def test_a_runner_with_a_lease_store_holds_its_run(place, far_side):
    """L5, L10: while it runs nobody else can; its fence reaches the tool; afterwards the lease is free."""
    far_side.before = asyncio.Event()
    running = asyncio.create_task(place.runner().run(agent_with(far_side.tool()), "x", tenant="acme", run_id="run_1"))
    await far_side.entered.wait()
    with pytest.raises(RunLeaseError) as refused:
        await place.runner().run(agent_with(far_side.tool()), "x", tenant="acme", run_id="run_1")
    far_side.before.set()
    assert (await running).output == "Booked 12A."
    assert far_side.fences == [refused.value.fence]
    assert await place.stores.leases.held("run_1", tenant="acme") is None


async def test_a_carried_run_has_its_lease_its_frontier_and_its_plan(place, far_side):
    """L2, I5: a fence above the dead one's, the transcript resolved, and what is to be done about each call."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    dead = await die(place, agent, far_side)

    carried = await place.resumer().resume("run_1", tenant="acme", worker="worker-7")

    async with carried:
        assert carried.lease.fence > dead.fence
        assert "worker-7" in carried.lease.holder
        assert not carried.plan.safe
        assert [message.role for message in carried.checkpoint.messages] == ["user", "assistant"]
    assert await place.stores.leases.held("run_1", tenant="acme") is None


async def test_a_carried_run_goes_on_in_a_runner_and_is_released_when_it_ends(place, far_side):
    """L10: the leaseholder stays with the run."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    await die(place, agent, far_side)
    carried = await place.resumer().resume("run_1", tenant="acme", worker="worker-7")

    run = await place.runner().resume(agent, carried)

    assert run.output == "Booked 12A."
    assert len(far_side.effects) == 1
    assert await place.stores.leases.held("run_1", tenant="acme") is None


async def test_two_resumers_with_one_name_are_two(place, far_side):
    """L4: a name is no password."""
    far_side.before = asyncio.Event()
    await die(place, agent_with(far_side.tool()), far_side)
    async with await place.resumer().resume("run_1", tenant="acme", worker="cli"):
        with pytest.raises(RunLeaseError) as refused:
            await place.resumer().resume("run_1", tenant="acme", worker="cli")
    assert "cli" in refused.value.holder


@pytest.mark.parametrize("what", ["nothing", "format", "transcript"])
async def test_what_cannot_be_carried_leaves_the_lease_free(place, far_side, what, monkeypatch):
    """C4, H2, L10: refused with its reason, and nobody is kept waiting for a TTL."""
    far_side.before = asyncio.Event()
    if what != "nothing":
        await die(place, agent_with(far_side.tool()), far_side)
    if what == "format":
        monkeypatch.setattr("adk_worker.checkpoint.CHECKPOINT_FORMAT", 0)
    parts = place.parts()
    if what == "transcript":
        parts["history"] = memory_stores().history
    errors = {"nothing": NoCheckpointError, "format": CheckpointFormatError, "transcript": HistoryUnavailableError}

    with pytest.raises(errors[what]):
        await Resumer(**parts).resume("run_1", tenant="acme", worker="cli")

    assert await place.stores.leases.held("run_1", tenant="acme") is None


async def test_a_runner_that_was_superseded_stops_and_overwrites_nothing(place, far_side):
    """F1: a lease that lapsed and was taken; the old runner's checkpoint is refused, and its outcome kept (F4)."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    old = asyncio.create_task(place.runner().run(agent, "book", tenant="acme", run_id="run_1"))
    await far_side.entered.wait()
    place.clock.now += LeasePolicy().ttl_seconds
    carried = await place.resumer().resume("run_1", tenant="acme", worker="new")
    far_side.after.set()
    with pytest.raises(StaleFenceError) as refused:
        await old
    assert (refused.value.presented, refused.value.current) == (far_side.fences[0], carried.lease.fence)
    assert (await place.stores.checkpoints.latest("run_1", tenant="acme")).sequence == 1
    run = await place.runner().resume(agent, carried)
    assert run.output == "Booked 12A."
    assert len(far_side.effects) == 1
