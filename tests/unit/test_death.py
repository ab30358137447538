"""Runs of children that were killed, taken over by their parent."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import structlog.testing

from adk_worker.errors import BrokerUnavailableError, StoreUnavailableError
from adk_worker.liveness import Holder
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.runs import Dispatch, NewRun, RunStatus
from adk_worker.transitions.runs import Attention, FleetPolicy
from tasks.death import Death, Undertaker

POLICY = FleetPolicy(max_crashes=2)


@pytest.fixture(scope="module")
def dead():
    """The name of a holder whose process has ended, as it made it itself for the task "task-1"."""
    code = "from adk_worker.liveness import Holder; print(Holder.new('task-1'), end='')"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


class Dispatcher:
    def __init__(self):
        self.sent = []
        self.error = None

    async def dispatch(self, message):
        if self.error:
            raise self.error
        self.sent.append(message)

    async def close(self):
        pass


class Parent:
    """The parent of a pool, with a store that may be away."""

    def __init__(self):
        self.stores = memory_stores(MemoryData())
        self.dispatcher = Dispatcher()
        self.opened = 0
        self.away = None
        self.undertaker = Undertaker(self.open, self.dispatcher, POLICY, no_forks=nullcontext())

    def open(self):
        self.opened += 1
        if self.away:
            raise self.away
        return self.stores

    async def hold(self, holder, run_id="run_1"):
        submitted = await self.stores.runs.submit(
            NewRun(tenant="acme", run_id=run_id, agent="booking", input="book"), policy=POLICY
        )
        await self.take(holder, submitted.ticket, run_id)

    async def take(self, holder, ticket, run_id="run_1"):
        await self.stores.runs.take(run_id, tenant="acme", ticket=ticket, holder=holder, ttl_seconds=60)

    def report(self, label="task-1", run_id="run_1"):
        self.undertaker.report(Death("acme", run_id, label))
        self.undertaker.wait(30)

    async def get(self, run_id="run_1"):
        return await self.stores.runs.get(run_id, tenant="acme")


@pytest.fixture
def parent():
    return Parent()


async def test_the_run_of_a_dead_child_is_queued_again_at_once(parent, dead):
    """I11: its lease has not lapsed, and the proof makes that needless."""
    await parent.hold(dead)
    parent.report()
    run = await parent.get()
    assert (run.status, run.crashes) == (RunStatus.QUEUED, 1)
    assert parent.dispatcher.sent == [Dispatch("acme", "run_1", run.fence, recovery=True)]


async def test_a_run_that_kills_its_child_at_every_attempt_ends_as_poisoned(parent, dead):
    await parent.hold(dead)
    parent.report()
    await parent.take(dead, parent.dispatcher.sent.pop().ticket)
    parent.report()
    assert (await parent.get()).attention is Attention.POISONED
    assert parent.dispatcher.sent == []


class TestNothingIsTakenFrom:
    async def untouched(self, parent, **report):
        before = await parent.get()
        parent.report(**report)
        assert await parent.get() == before
        assert parent.dispatcher.sent == []

    async def test_a_process_that_lives(self, parent):
        """I11: a lost worker is Celery's opinion; the proof is ours."""
        await parent.hold(str(Holder.new("task-1")))
        await self.untouched(parent)

    async def test_another_task_of_a_dead_process(self, parent, dead):
        await parent.hold(dead)
        await self.untouched(parent, label="task-2")

    async def test_a_holder_of_somebody_else_s_making(self, parent):
        await parent.hold("somebody")
        await self.untouched(parent)

    async def test_the_queue(self, parent, dead):
        await parent.stores.runs.submit(
            NewRun(tenant="acme", run_id="run_1", agent="booking", input="book"), policy=POLICY
        )
        await self.untouched(parent)

    async def test_a_run_that_is_not_there(self, parent):
        await self.untouched(parent)


class TestTheParentNeverNotices:
    @pytest.mark.parametrize("error", [StoreUnavailableError(store="memory", reason="away"), RuntimeError("a mistake")])
    async def test_what_the_store_says(self, parent, dead, error):
        await parent.hold(dead)
        parent.away = error
        with structlog.testing.capture_logs() as logs:
            parent.report()
        assert [log["event"] for log in logs] == ["death_left_to_the_reaper"]
        parent.away = None
        parent.report()
        assert len(parent.dispatcher.sent) == 1

    async def test_which_of_several_could_not_be_seen_to(self, parent, dead, monkeypatch):
        """The reaper's run is named, and the others go on."""
        opening, open_stores, get = threading.Event(), parent.open, parent.stores.runs.get

        def slow():
            assert opening.wait(30)
            return open_stores()

        async def all_but_the_second(run_id, *, tenant):
            if run_id == "run_1":
                raise StoreUnavailableError(store="memory", reason="away")
            return await get(run_id, tenant=tenant)

        monkeypatch.setattr(parent.stores.runs, "get", all_but_the_second)
        undertaker = Undertaker(slow, parent.dispatcher, POLICY, no_forks=nullcontext())
        for n in range(3):
            await parent.hold(dead, f"run_{n}")
            undertaker.report(Death("acme", f"run_{n}", "task-1"))
        with structlog.testing.capture_logs() as logs:
            opening.set()
            undertaker.wait(30)
        assert [log["run_id"] for log in logs if log["event"] == "death_left_to_the_reaper"] == ["run_1"]
        assert [message.run_id for message in parent.dispatcher.sent] == ["run_0", "run_2"]

    async def test_what_the_broker_says(self, parent, dead):
        await parent.hold(dead)
        parent.dispatcher.error = BrokerUnavailableError(broker="b", reason="away")
        parent.report()
        assert (await parent.get()).status is RunStatus.QUEUED

    async def test_more_than_a_call_that_returns_at_once(self, parent, dead):
        """The store is asked in another thread, one death after the other."""
        opening = threading.Event()
        stores = parent.open

        def slow():
            assert opening.wait(30)
            return stores()

        undertaker = Undertaker(slow, parent.dispatcher, POLICY, no_forks=nullcontext())
        for n in range(3):
            await parent.hold(dead, f"run_{n}")
            undertaker.report(Death("acme", f"run_{n}", "task-1"))
        assert parent.dispatcher.sent == []
        opening.set()
        undertaker.wait(30)
        assert [message.run_id for message in parent.dispatcher.sent] == ["run_0", "run_1", "run_2"]
        assert parent.opened == 1


async def test_nothing_is_forked_meanwhile(parent, dead):
    """A child that inherits a publish half made can never publish, and with an open SQLite it writes to nobody."""
    told = []

    class Lock:
        def __enter__(self):
            told.append("no forks")

        def __exit__(self, *_):
            told.append("forks")

    class Telling(Dispatcher):
        async def dispatch(self, message):
            told.append("published")

    await parent.hold(dead)
    parent.undertaker = Undertaker(lambda: told.append("opened") or parent.open(), Telling(), POLICY, no_forks=Lock())
    parent.report()
    assert told == ["no forks", "opened", "published", "forks"]


async def test_between_deaths_there_is_no_thread(parent, dead):
    """Children are forked all the time, and should inherit none."""
    await parent.hold(dead)
    parent.report()
    assert "adk-undertaker" not in {thread.name for thread in threading.enumerate()}
