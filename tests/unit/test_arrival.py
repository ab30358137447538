"""A worker that starts, and the runs that its start makes free to go on."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace

import pytest
import structlog.testing

from adk_worker.actors import Actor
from adk_worker.arrival import bury_predecessors, recall
from adk_worker.conformance.runs.driver import PATIENT, Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import StoreUnavailableError
from adk_worker.events import EventKind
from adk_worker.liveness import Holder, ProcessIdentity
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.registry import Registry
from adk_worker.runs import Dispatch, RunStatus
from adk_worker.transitions.runs import Attention, Reason, Then
from tasks.arrival import Arrival
from tests.unit.far_side import FarSide, agent_with
from tests.unit.test_client import Broker

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="proofs of death come from /proc")


@pytest.fixture(scope="module")
def dead():
    """The holder of a process of this host that has ended."""
    code = "from adk_worker.liveness import Holder; print(Holder.new('task'), end='')"
    name = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return Holder.parse(name)


@pytest.fixture
def stores():
    return memory_stores(MemoryData())


@pytest.fixture
def broker():
    return Broker()


class TestPredecessors:
    async def held(self, stores, holder, run_id="run"):
        driver = Driver(stores, run_id=run_id)
        ticket = (await driver.submit()).ticket
        assert await driver.take(ticket, holder=str(holder))
        return driver

    async def test_their_runs_go_on_at_once(self, stores, broker, dead):
        """I11: nothing has lapsed, and nothing needs to."""
        drivers = [await self.held(stores, replace(dead, nonce=f"{number}"), f"run-{number}") for number in range(3)]

        assert await bury_predecessors(stores.runs, broker, PATIENT) == 3

        runs = [await driver.run() for driver in drivers]
        assert [(run.status, run.crashes) for run in runs] == [(RunStatus.QUEUED, 1)] * 3
        assert sorted(broker.sent, key=lambda message: message.run_id) == [
            Dispatch("acme", run.run_id, run.fence, recovery=True) for run in runs
        ]
        (event,) = await drivers[0].events(EventKind.RECOVERED)
        assert event.data["known_dead"] is True

    @pytest.mark.parametrize(
        "elsewhere",
        [
            {"pid_namespace": "1"},
            {"boot": "another boot"},
            {"host": "another"},
            {"started": ""},
            {},
        ],
        ids=["another container", "another boot", "another host", "unknown start", "alive"],
    )
    async def test_of_nobody_else_is_anything_taken(self, stores, broker, dead, elsewhere):
        """I11: a pid is one of its namespace and its boot; and a living neighbour is no predecessor."""
        process = replace(dead.process, **elsewhere) if elsewhere else ProcessIdentity.current()
        driver = await self.held(stores, replace(dead, process=process))
        before = await driver.picture()

        assert await bury_predecessors(stores.runs, broker, PATIENT) == 0

        assert await driver.picture() == before
        assert broker.sent == []

    async def test_a_broker_that_is_away_leaves_the_message_to_the_reaper(self, stores, broker, dead):
        driver = await self.held(stores, dead)
        broker.away = True

        assert await bury_predecessors(stores.runs, broker, PATIENT) == 1

        assert (await driver.run()).status is RunStatus.QUEUED


class TestRecall:
    """C4, C7: a run that waited for code is taken as soon as a worker comes that has it."""

    AGENT = agent_with(FarSide().tool(), revision="r1")

    async def waiting(self, stores, attention, run_id="run", **frontier):
        driver = Driver(stores, run_id=run_id)
        await driver.commit(await driver.worker(), 1, Then.HAND_OVER, frontier=frontier)
        for _ in range(5):
            await driver.give_back(await driver.worker(), Reason.CONFLICT, attention=attention)
        return driver

    async def recall(self, stores, broker, *agents):
        return await recall(stores.runs, broker, PATIENT, Registry(agents), by=Actor("worker:here"))

    @pytest.mark.parametrize(
        "attention", [Attention.REVISION_MISMATCH, Attention.AGENT_UNKNOWN, Attention.FORMAT_TOO_NEW]
    )
    async def test_what_this_code_can_carry_on_is_queued_at_once(self, stores, broker, attention):
        """Its backoff begins anew, so that an old worker which is given the message costs a second and no minutes."""
        driver = await self.waiting(stores, attention)

        assert await self.recall(stores, broker, self.AGENT) == 1

        run = await driver.run()
        assert (run.status, run.attention, run.tries) == (RunStatus.QUEUED, None, 0)
        assert broker.sent == [Dispatch("acme", "run", run.fence, recovery=True)]
        (event,) = await driver.events(EventKind.REQUEUED)
        assert event.data == {"by": "worker:here", "os_user": None}

    @pytest.mark.parametrize(
        ("attention", "frontier"),
        [
            (Attention.REVISION_MISMATCH, {"revision": "r2"}),
            (Attention.FORMAT_TOO_NEW, {"format": 99}),
            (Attention.EXCEPTION, {}),
            (Attention.RESUME_CONFLICT, {}),
            (Attention.UNDECIDED_CALL, {}),
        ],
    )
    async def test_what_it_cannot_or_what_waits_for_something_else_waits_on(self, stores, broker, attention, frontier):
        driver = await self.waiting(stores, attention, **frontier)
        before = await driver.picture()

        assert await self.recall(stores, broker, self.AGENT) == 0
        assert await self.recall(stores, broker) == 0

        assert await driver.picture() == before
        assert broker.sent == []

    async def test_of_a_run_that_kills_its_workers_the_crashes_count_on(self, stores, broker):
        """C3: it would else be recalled, and kill, for ever."""
        driver = await self.waiting(stores, Attention.REVISION_MISMATCH)
        lease = await driver.worker()
        await driver.runs.claim_dead("run", tenant="acme", holder=lease.holder, policy=PATIENT)

        assert await self.recall(stores, broker, self.AGENT) == 1

        assert (await driver.run()).crashes == 1

    async def test_all_are_found_however_many(self, stores, broker):
        """Page by page; those that are recalled leave the pages as they are read."""
        for number in range(230):
            await self.waiting(stores, Attention.REVISION_MISMATCH, f"run-{number}")

        assert await self.recall(stores, broker, self.AGENT) == 230
        assert len(broker.sent) == 230

    async def test_a_broker_that_is_away_is_not_waited_for_run_by_run(self, stores, broker):
        """What is queued the reaper publishes; the others back off as they did."""
        drivers = [await self.waiting(stores, Attention.REVISION_MISMATCH, f"run-{number}") for number in range(9)]
        broker.away = True

        assert await self.recall(stores, broker, self.AGENT) == 3

        left = [(await driver.run()).attention for driver in drivers]
        assert left.count(Attention.REVISION_MISMATCH) == 6

    async def test_a_run_that_has_moved_on_meanwhile_is_left_alone(self, stores, broker, monkeypatch):
        """Of two workers that start at once, one recalls it."""
        driver = await self.waiting(stores, Attention.REVISION_MISMATCH)
        payload = stores.runs.payload

        async def slow(*args, **kwargs):
            answer = await payload(*args, **kwargs)
            await driver.requeue()
            return answer

        monkeypatch.setattr(stores.runs, "payload", slow)
        assert await self.recall(stores, broker, self.AGENT) == 0
        assert len(await driver.events(EventKind.REQUEUED)) == 1


class Program:
    """What a worker program gives its arrival."""

    def __init__(self, stores, broker, registry):
        self.stores, self.broker, self.registry = stores, broker, registry
        self.away = None
        self.closed = []

    def open(self):
        if self.away:
            raise self.away
        return self.stores

    def dispatcher(self):
        return self

    async def dispatch(self, message):
        await self.broker.dispatch(message)

    async def close(self):
        self.closed.append("dispatcher")

    def arrives(self):
        arrival = Arrival(self.open, self.dispatcher, PATIENT, self.registry, no_forks=nullcontext())
        with structlog.testing.capture_logs() as logs:
            arrival.start()
            arrival.wait(30)
        return [log["event"] for log in logs]


class TestTheProgram:
    @pytest.fixture
    def program(self, stores, broker):
        return Program(stores, broker, Registry([TestRecall.AGENT]))

    async def test_sees_to_both_and_leaves_no_thread(self, program, stores, broker, dead):
        await TestPredecessors().held(stores, dead, "orphan")
        await TestRecall().waiting(stores, Attention.REVISION_MISMATCH, "waiting")

        logs = program.arrives()

        assert logs[-1] == "arrived"
        assert [message.run_id for message in broker.sent] == ["orphan", "waiting"]
        assert program.closed == ["dispatcher"]
        assert "adk-arrival" not in {thread.name for thread in threading.enumerate()}

    async def test_without_agents_recalls_nothing(self, stores, broker):
        """A control worker."""
        await TestRecall().waiting(stores, Attention.REVISION_MISMATCH)

        assert Program(stores, broker, Registry()).arrives() == ["arrived"]
        assert broker.sent == []

    @pytest.mark.parametrize("error", [StoreUnavailableError(store="s", reason="away"), RuntimeError("a mistake")])
    async def test_works_whatever_becomes_of_it(self, program, stores, dead, error):
        driver = await TestPredecessors().held(stores, dead)
        program.away = error

        assert program.arrives() == ["arrival_cut_short"]
        assert (await driver.run()).expires_at == pytest.approx((await driver.run()).updated_at + LONG)

    @pytest.mark.parametrize("broken", ["close", "dispatcher"])
    async def test_closes_its_stores_whatever_the_broker_does(self, program, stores, monkeypatch, broken):
        def fails():
            raise OSError("the socket is gone")

        async def close():
            program.closed.append("stores")

        monkeypatch.setattr(program, broken, fails)
        monkeypatch.setattr(stores.lifecycle, "close", close)

        assert program.arrives()[-1] == "arrival_cut_short"
        assert program.closed == ["stores"]
