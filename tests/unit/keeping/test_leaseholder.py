"""Holding one lease in process."""

from __future__ import annotations

import asyncio
import threading

import pytest
import structlog.testing

from adk_worker.errors import LeaseLostError, RunLeaseError, StaleFenceError, StoreUnavailableError
from adk_worker.interruption import Cause
from adk_worker.keeping.leaseholder import Leaseholder
from adk_worker.lease import LeasePolicy
from adk_worker.memory import MemoryData, MemoryLeaseStore
from tests.unit.clock import Clock
from tests.waiting import eventually

BRISK = LeasePolicy(ttl_seconds=60, renew_within=0.02)
AWAY = StoreUnavailableError(store="memory", reason="away")


class Store(MemoryLeaseStore):
    """Leases in memory; a test may have the store go away, and see what was asked of it."""

    def __init__(self, clock):
        super().__init__(MemoryData(clock=clock))
        self.away = set()
        self.renewals = 0
        self.renewed = threading.Event()

    async def renew(self, lease, *, ttl_seconds):
        self.renewals += 1
        if "renew" in self.away:
            raise AWAY
        renewed = await super().renew(lease, ttl_seconds=ttl_seconds)
        self.renewed.set()
        return renewed

    async def release(self, lease):
        if "release" in self.away:
            raise AWAY
        await super().release(lease)


@pytest.fixture
def store_clock():
    return Clock(1_700_000_000.0)


@pytest.fixture
def store(store_clock):
    return Store(store_clock)


def holder_of(store, name="one", **how):
    return Leaseholder(store, "run_1", tenant="acme", holder=name, **how)


async def test_holds_the_lease_while_it_is_entered_and_releases_it_on_the_way_out(store):
    """L10."""
    async with holder_of(store) as held:
        now = await store.held("run_1", tenant="acme")
        assert (now.holder, now.fence) == ("one", held.lease.fence)
        held.check()
        assert not held.lost
    assert await store.held("run_1", tenant="acme") is None


async def test_releases_on_an_exception(store):
    """L10."""
    with pytest.raises(ZeroDivisionError):
        async with holder_of(store):
            _ = 1 / 0
    assert await store.held("run_1", tenant="acme") is None


async def test_releases_on_a_cancellation(store):
    """L10."""
    entered = asyncio.Event()

    async def work():
        async with holder_of(store):
            entered.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await entered.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await store.held("run_1", tenant="acme") is None


async def test_finishes_a_release_in_which_it_is_cancelled(store):
    """L10: once more while it is already on its way out."""
    going, go_on = asyncio.Event(), asyncio.Event()
    release = store.release

    async def slow(lease):
        going.set()
        await go_on.wait()
        await release(lease)

    store.release = slow

    async def work():
        async with holder_of(store):
            pass

    working = asyncio.create_task(work())
    await going.wait()
    working.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await working
    assert await store.held("run_1", tenant="acme") is None


async def test_gives_back_what_is_granted_to_an_acquisition_that_was_cancelled(store):
    """L10: a store's operation that has begun is not stopped by cancelling whoever waits for it."""
    asked, go_on = asyncio.Event(), asyncio.Event()
    acquire = store.acquire

    async def slow(*args, **kwargs):
        asked.set()
        await go_on.wait()
        return await acquire(*args, **kwargs)

    store.acquire = slow
    entering = asyncio.create_task(holder_of(store).__aenter__())
    await asked.wait()
    entering.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert await store.held("run_1", tenant="acme") is None


async def test_is_refused_while_somebody_holds_the_lease_be_it_by_the_same_name(store):
    """L4, L5."""
    async with holder_of(store):
        with pytest.raises(RunLeaseError):
            await holder_of(store).__aenter__()
        assert await store.held("run_1", tenant="acme") is not None


async def test_renews_while_the_work_blocks_the_loop(store):
    """L8, L10."""
    async with holder_of(store, policy=BRISK) as held:
        fence = held.lease.fence
        for _ in range(2):
            store.renewed.clear()
            assert store.renewed.wait(30)  # blocks this loop
        assert held.lease.fence == fence


async def test_has_the_newest_lease(store, store_clock):
    """L3: renewal keeps the fence."""
    async with holder_of(store, policy=BRISK) as held:
        store_clock.now += 5
        await eventually(lambda: held.lease.expires_at == store_clock.now + 60, what="a renewed lease")


async def test_that_was_superseded_says_so(store, store_clock):
    """L3, L9, L10: and its release frees nothing of the one that came after."""
    async with holder_of(store, policy=BRISK) as held:
        store.away.add("renew")
        store_clock.now += 60
        other = await store.acquire("run_1", tenant="acme", holder="two", ttl_seconds=60)
        store.away.clear()
        await eventually(lambda: held.lost, what="the lease to be lost")
        with pytest.raises(LeaseLostError) as lost:
            held.check()
        assert (lost.value.run_id, lost.value.fence) == ("run_1", held.lease.fence)
        await eventually(lambda: held.interruption.cause is Cause.SUPERSEDED, what="the work to be told")
    assert held.lost
    assert await store.held("run_1", tenant="acme") == other


async def test_that_cannot_renew_gives_up_before_the_store_would_let_another_in(store):
    """L9: by its own clock, and whoever asks is told even before the keeper has noticed."""
    clock = Clock()
    store.away.add("renew")
    async with holder_of(store, clock=clock) as held:
        clock.now += 49.9
        held.check()
        clock.now += 0.1
        with pytest.raises(LeaseLostError, match="could not be renewed in time"):
            held.check()


async def test_counts_its_time_from_before_the_acquisition_was_asked_for(store):
    """L9: the answer may have been long on its way."""
    clock = Clock()
    acquire = store.acquire

    async def slow(*args, **kwargs):
        granted = await acquire(*args, **kwargs)
        clock.now += 30
        return granted

    store.acquire = slow
    store.away.add("renew")
    async with holder_of(store, clock=clock) as held:
        clock.now += 20
        assert held.lost


async def test_leaves_a_lease_to_lapse_that_it_cannot_release(store):
    store.away.add("release")
    with structlog.testing.capture_logs() as logs:
        async with holder_of(store):
            pass
    assert [log["event"] for log in logs] == ["lease_left_to_lapse"]


async def test_a_second_release_is_harmless(store):
    held = await holder_of(store).__aenter__()
    await held.release()
    other = await store.acquire("run_1", tenant="acme", holder="two", ttl_seconds=60)
    await held.release()
    assert await store.held("run_1", tenant="acme") == other
    assert not held.lost


class TestAnAdoptedLease:
    async def test_is_renewed_at_once_and_released_in_the_end(self, store, store_clock):
        """L10."""
        lease = await store.acquire("run_1", tenant="acme", holder="one", ttl_seconds=60)
        store_clock.now += 30
        async with Leaseholder.adopt(store, lease) as held:
            assert held.lease.fence == lease.fence
            assert held.lease.expires_at == store_clock.now + 60
        assert await store.held("run_1", tenant="acme") is None

    async def test_that_is_gone_is_refused(self, store):
        """F1: both numbers are named."""
        lease = await store.acquire("run_1", tenant="acme", holder="one", ttl_seconds=60)
        await store.release(lease)
        with pytest.raises(StaleFenceError):
            await Leaseholder.adopt(store, lease).__aenter__()


async def test_leaves_no_thread_behind(store):
    async with holder_of(store):
        pass
    assert "adk-keeper" not in {thread.name for thread in threading.enumerate()}


async def test_is_entered_before_it_is_asked_and_only_once(store):
    held = holder_of(store)
    with pytest.raises(RuntimeError, match="async with"):
        _ = held.lease
    with pytest.raises(RuntimeError, match="async with"):
        _ = held.interruption
    async with held:
        with pytest.raises(RuntimeError, match="once"):
            await held.__aenter__()
