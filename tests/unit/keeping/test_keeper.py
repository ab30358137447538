"""The thread that renews: its turns one by one on a fake clock, and the thread itself."""

from __future__ import annotations

import asyncio
import io
import threading

import pytest
import structlog
import structlog.testing

from adk_worker.errors import StoreUnavailableError
from adk_worker.interruption import Cause, Interrupted, Interruption
from adk_worker.keeping.keeper import LeaseKeeper
from adk_worker.lease import LeasePolicy, RunLease
from adk_worker.runs import Renewal
from tests.unit.clock import Clock
from tests.waiting import eventually

POLICY = LeasePolicy(ttl_seconds=60, renew_within=20)
BRISK = LeasePolicy(ttl_seconds=60, renew_within=0.02)


def lease(fence=7, run_id="run_1"):
    return RunLease("acme", run_id, "holder", fence, expires_at=5_000_000.0)


class Store:
    """Answers renewals as the test says, and remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.threads = set()
        self.answer = Renewal
        self.hang = False
        self.renewed = threading.Event()

    async def renew_many(self, leases):
        self.asked.append([lease.fence for lease in leases])
        self.threads.add(threading.current_thread())
        if self.hang:
            await asyncio.Event().wait()
        answers = [self.answer(lease) for lease in leases]
        self.renewed.set()
        return answers


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stuck():
    return []


@pytest.fixture
def keeper(store, clock, stuck):
    return LeaseKeeper(
        store.renew_many, policy=POLICY, on_stuck=stuck.append, iteration_timeout=600, drain_timeout=20, clock=clock
    )


async def settled():
    """Let tasks that have nothing to wait for run to their end."""
    for _ in range(5):
        await asyncio.sleep(0)


class TestATurn:
    async def test_renews_all_leases_in_one_batch_before_any_is_due(self, keeper, store, clock):
        """L8, L10: ahead by as much as a turn may come late."""
        keeper.enter(lease(7), Interruption())
        clock.now += 10
        keeper.enter(lease(9, "run_2"), Interruption())
        clock.now += 8.9
        await keeper.turn()
        await settled()
        assert store.asked == []
        clock.now += 0.1
        await keeper.turn()
        await settled()
        assert store.asked == [[7, 9]]

    async def test_asks_nothing_of_the_store_while_nothing_is_kept(self, keeper, store, clock):
        keeper.enter(lease(), Interruption())
        keeper.leave(lease())
        clock.now += 1000
        await keeper.turn()
        await settled()
        assert store.asked == []

    async def test_that_meets_a_silent_store_still_gives_leases_up_in_time(self, keeper, store, clock):
        """L9: the look at the clock does not wait behind a renewal that hangs."""
        store.hang = True
        interruption = Interruption()
        keeper.enter(lease(), interruption)
        for _ in range(51):
            clock.now += 1
            await keeper.turn()
            await settled()
        assert interruption.cause is Cause.SUPERSEDED
        assert store.asked == [[7]]

    @pytest.mark.parametrize(
        "error", [StoreUnavailableError(store="memory", reason="away"), RuntimeError("a store's mistake")]
    )
    async def test_that_fails_is_repeated_until_the_lease_may_be_another_s(self, keeper, store, clock, error):
        """L9, and whatever a store raises, the keeper lives."""

        def away(_):
            raise error

        store.answer = away
        interruption = Interruption()
        keeper.enter(lease(), interruption)
        with structlog.testing.capture_logs() as logs:
            while interruption.cause is None:
                clock.now += 1
                await keeper.turn()
                await settled()
        assert clock.now == 1050
        assert len(store.asked) > 3
        assert interruption.cause is Cause.SUPERSEDED
        assert keeper.lost(lease()) is not None
        assert {log["event"] for log in logs} & {"leases_not_renewed", "renewal_broken"}

    async def test_tells_of_a_cancel_and_of_a_lost_lease(self, keeper, store, clock):
        """P2, L9."""
        store.answer = lambda lease: Renewal(lease, cancel_requested=True) if lease.fence == 7 else Renewal(None)
        cancelled, lost = Interruption(), Interruption()
        keeper.enter(lease(7), cancelled)
        keeper.enter(lease(9, "run_2"), lost)
        clock.now += 20
        await keeper.turn()
        await settled()
        assert (cancelled.cause, lost.cause) == (Cause.CANCEL, Cause.SUPERSEDED)

    async def test_says_that_the_process_is_stuck(self, keeper, store, clock, stuck):
        """L8."""
        interruption = Interruption()
        keeper.enter(lease(), interruption)
        clock.now += 601
        await keeper.turn()
        await settled()
        assert interruption.cause is Cause.TIMEOUT
        assert stuck == []
        clock.now += 61
        await keeper.turn()
        assert "run_1" in stuck[0]


class TestAHeartbeat:
    class Loop:
        """The work's loop: it runs what it is given when the test says so."""

        def __init__(self):
            self.given = []

        def call_soon_threadsafe(self, callback):
            self.given.append(callback)

    async def test_that_stays_away_ends_the_process_even_without_leases(self, store, clock, stuck):
        """L8."""
        loop = self.Loop()
        keeper = LeaseKeeper(
            store.renew_many, policy=POLICY, on_stuck=stuck.append, iteration_timeout=600, loop=loop, clock=clock
        )
        await keeper.turn()
        clock.now += 600
        for beat in loop.given:
            beat()
        await keeper.turn()
        clock.now += 600
        await keeper.turn()
        assert stuck == []
        clock.now += 61
        await keeper.turn()
        assert "event loop" in stuck[0]

    async def test_is_not_expected_of_a_loop_that_is_closed(self, store, clock, stuck):
        closed = asyncio.new_event_loop()
        closed.close()
        keeper = LeaseKeeper(store.renew_many, policy=POLICY, on_stuck=stuck.append, loop=closed, clock=clock)
        await keeper.turn()
        clock.now += 1e6
        await keeper.turn()
        assert stuck == []


async def test_a_drain_reaches_work_at_once_and_what_enters_later_too(keeper):
    interruption, late = Interruption(), Interruption()
    keeper.enter(lease(), interruption)
    keeper.drain()
    keeper.enter(lease(9, "run_2"), late)
    await settled()
    assert interruption.draining
    assert late.draining
    with pytest.raises(Interrupted):
        late.check()


class TestTheThread:
    async def test_renews_while_the_work_blocks_its_loop(self, store, stuck):
        """L8: a tool that blocks the loop, releasing the GIL, holds no renewal up."""
        with LeaseKeeper(
            store.renew_many, policy=BRISK, on_stuck=stuck.append, loop=asyncio.get_running_loop()
        ) as keeper:
            keeper.enter(lease(), Interruption())
            for _ in range(3):
                store.renewed.clear()
                # This very call blocks the loop: nothing but the keeper's thread can end it.
                assert store.renewed.wait(30)
        assert len(store.asked) >= 3
        assert threading.current_thread() not in store.threads
        assert stuck == []

    async def test_ends_when_it_is_stopped_and_gives_its_connection_back(self, store, stuck):
        closed = []

        async def aclose():
            closed.append(threading.current_thread().name)

        store.hang = True
        keeper = LeaseKeeper(store.renew_many, policy=BRISK, on_stuck=stuck.append, aclose=aclose)
        keeper.start()
        keeper.enter(lease(), Interruption())
        await eventually(lambda: store.asked, what="a renewal that hangs")
        keeper.stop()
        keeper.stop()
        assert closed == ["adk-keeper"]
        assert "adk-keeper" not in {thread.name for thread in threading.enumerate()}

    def test_that_cannot_give_its_connection_back_ends_in_order_all_the_same(self, store, stuck):
        """L8: the process leaves by itself, with nothing kept; it is not stuck."""

        async def aclose():
            raise OSError("the pool is gone")

        keeper = LeaseKeeper(store.renew_many, policy=BRISK, on_stuck=stuck.append, aclose=aclose)
        with structlog.testing.capture_logs() as logs:
            keeper.start()
            keeper.stop()

        assert stuck == []
        assert [(entry["event"], entry["log_level"]) for entry in logs] == [("keeper_not_closed", "warning")]

    def test_can_be_stopped_before_it_was_started(self, store, stuck):
        LeaseKeeper(store.renew_many, policy=BRISK, on_stuck=stuck.append).stop()

    async def test_gives_up_a_renewal_that_the_store_does_not_answer(self, store, stuck):
        """L9: and asks again, so that a connection that has gone silent does not cost the lease."""
        store.hang = True
        with LeaseKeeper(store.renew_many, policy=BRISK, on_stuck=stuck.append) as keeper:
            keeper.enter(lease(), Interruption())
            await eventually(lambda: len(store.asked) > 1, what="a second renewal")

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    @pytest.mark.parametrize("log", ["works", "is closed"])
    async def test_that_dies_ends_the_process(self, store, stuck, monkeypatch, log):
        """L8: nothing would renew any more, and nobody would know."""
        keeper = LeaseKeeper(store.renew_many, policy=BRISK, on_stuck=stuck.append)
        if log == "is closed":
            closed = io.StringIO()
            closed.close()
            monkeypatch.setattr("adk_worker.keeping.keeper._log", structlog.wrap_logger(structlog.PrintLogger(closed)))

        async def broken():
            raise MemoryError

        monkeypatch.setattr(keeper, "turn", broken)
        keeper.start()
        await eventually(lambda: stuck, what="the keeper to say that it is dead")
        keeper.stop()
        assert "keeper" in stuck[0]
