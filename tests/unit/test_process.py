"""One process of a worker, over a store in a file and with no broker but a list."""

from __future__ import annotations

import asyncio
import threading

import pytest
import structlog.testing

from adk_worker.actors import Actor
from adk_worker.agent import Agent
from adk_worker.errors import BrokerUnavailableError
from adk_worker.model import ModelAnswer
from adk_worker.providers import ScriptedProvider
from adk_worker.registry import Registry
from adk_worker.runs import Dispatch, NewRun, RunStatus
from adk_worker.settings import Settings
from adk_worker.tools.declaring import tool
from stores import open_stores
from stores.sql import migrate
from tasks.process import WorkerProcess
from tests.waiting import wait_until


class Dispatcher:
    def __init__(self):
        self.sent = []
        self.error = None

    async def dispatch(self, message):
        if self.error:
            raise self.error
        self.sent.append(message)


class Silent:
    """A model that never answers."""

    name = "silent"

    def __init__(self):
        self.asked = threading.Event()

    async def complete(self, request):
        self.asked.set()
        await asyncio.Event().wait()


class Keeping:
    """A model that keeps clients: what it was told, and whether it has given them back."""

    name = "keeping"

    def __init__(self):
        self.policies = []
        self.closed_in = []

    def under(self, policy):
        self.policies.append(policy)
        return self

    def check(self):
        raise AssertionError

    async def complete(self, request):
        return ModelAnswer(text="Booked.")

    async def close(self):
        self.closed_in.append(asyncio.get_running_loop())


class Bench:
    """A store, the runs in it, and the process under test."""

    def __init__(self, url, **settings):
        self.settings = Settings(store_url=url, broker_url="memory://", **settings)
        migrate.upgrade(url)
        self.dispatcher = Dispatcher()
        self.stuck = []
        self.process = None
        self.stores = open_stores(url)

    def start(self, *tools, turns=None, provider=None):
        model = provider or ScriptedProvider(turns)
        agent = Agent(name="booking", instructions="Book.", model=model, tools=tools)
        self.process = WorkerProcess(
            self.settings, Registry([agent]), dispatcher=self.dispatcher, on_stuck=self.stuck.append
        )
        self.process.start()

    def submit(self, run_id="run_1"):
        new = NewRun(tenant="acme", run_id=run_id, agent="booking", input="book")
        submitted = asyncio.run(self.stores.runs.submit(new, policy=self.settings.fleet_policy))
        return Dispatch("acme", run_id, submitted.ticket)

    def get(self, run_id="run_1"):
        return asyncio.run(self.stores.runs.get(run_id, tenant="acme"))


@pytest.fixture
def bench(tmp_path):
    bench = Bench(f"sqlite:///{tmp_path}/runs.db", lease_ttl=60, lease_renew_within=0.05, drain_timeout=30)
    yield bench
    if bench.process is not None:
        bench.process.close()
    asyncio.run(bench.stores.lifecycle.close())


def test_it_carries_a_message_out_for_the_thread_that_brought_it(bench):
    bench.start(turns=["Booked."])
    assert bench.process.carry_out(bench.submit(), label="t") == "completed"
    assert bench.get().output == "Booked."


def test_it_keeps_the_clients_of_models_for_its_life_and_gives_them_back(bench):
    """Under the settings' policy, and in the loop in which they were opened."""
    provider = Keeping()
    bench.start(provider=provider)
    ends = [bench.process.carry_out(bench.submit(run_id), label="t") for run_id in ("run_1", "run_2")]
    bench.process.close()
    bench.process = None
    assert ends == ["completed", "completed"]
    assert provider.policies == [bench.settings.model_policy]
    assert len(provider.closed_in) == 1


def test_it_renews_a_lease_while_a_tool_blocks_the_loop(bench):
    """L8: the tool holds the loop, and renewal has a thread and a connection of its own."""
    release = threading.Event()

    @tool(effect="read_only", timeout=None)
    async def block() -> str:
        """Block."""
        assert release.wait(30)
        return "ok"

    bench.start(block, turns=[[("block", {})], "Done."])
    message, ends = bench.submit(), []
    carrying = threading.Thread(target=lambda: ends.append(bench.process.carry_out(message, label="t")))
    carrying.start()
    taken = wait_until(lambda: bench.get().expires_at if bench.get().holder != "queue" else None, what="the take")
    for _ in range(2):
        now = bench.get().expires_at
        wait_until(lambda now=now: bench.get().expires_at > now, what="the next renewal")
    release.set()
    carrying.join(30)
    assert ends == ["handed_over"]
    assert bench.get().expires_at != taken
    assert bench.stuck == []


def test_a_cancel_reaches_a_model_call_at_the_next_renewal(bench):
    """P2: and the run ends as cancelled."""
    provider = Silent()
    bench.start(provider=provider)
    message, ends = bench.submit(), []
    carrying = threading.Thread(target=lambda: ends.append(bench.process.carry_out(message, label="t")))
    carrying.start()
    assert provider.asked.wait(30)
    asyncio.run(bench.stores.runs.cancel("run_1", tenant="acme", by=Actor("alice")))
    carrying.join(30)
    assert ends == ["cancelled"]
    assert bench.get().status is RunStatus.CANCELLED


class TestADrain:
    def test_hands_a_model_call_over_at_once(self, bench):
        provider = Silent()
        bench.start(provider=provider)
        message, ends = bench.submit(), []
        carrying = threading.Thread(target=lambda: ends.append(bench.process.carry_out(message, label="t")))
        carrying.start()
        assert provider.asked.wait(30)
        bench.process.keeper.drain()
        carrying.join(30)
        run = bench.get()
        assert ends == ["given_back"]
        assert run.status is RunStatus.QUEUED
        assert [sent.ticket for sent in bench.dispatcher.sent] == [run.fence]

    def test_awaits_an_effectful_call(self, bench):
        """P2, F4."""
        begun, release, done = threading.Event(), threading.Event(), []

        @tool(timeout=None)
        def book() -> str:
            """Book."""
            begun.set()
            assert release.wait(30)
            done.append(1)
            return "ok"

        bench.start(book, turns=[[("book", {})], "Done."])
        message, ends = bench.submit(), []
        carrying = threading.Thread(target=lambda: ends.append(bench.process.carry_out(message, label="t")))
        carrying.start()
        assert begun.wait(30)
        bench.process.keeper.drain()
        release.set()
        carrying.join(30)
        assert (ends, done) == (["handed_over"], [1])

    @pytest.mark.parametrize("error", [None, BrokerUnavailableError(broker="b", reason="away")])
    def test_passes_later_messages_on_with_their_ticket_unspent(self, bench, error, monkeypatch):
        monkeypatch.setattr("tasks.process._PAUSE", 0)
        bench.start(turns=["Done."])
        bench.process.keeper.drain()
        bench.dispatcher.error = error
        message, before = bench.submit(), bench.get()
        assert bench.process.carry_out(message, label="t") == "passed_on"
        assert bench.get() == before
        assert bench.dispatcher.sent == ([] if error else [message])


def test_it_sweeps(bench):
    bench.start(turns=["Done."])
    assert bench.process.reap().acted == 0


def test_a_store_that_is_away_is_no_error_of_the_reaper_s(bench, tmp_path):
    bench.start(turns=["Done."])
    asyncio.run(bench.stores.lifecycle.close())
    (tmp_path / "runs.db").unlink()
    (tmp_path / "runs.db").mkdir()
    with structlog.testing.capture_logs() as logs:
        assert bench.process.reap() is None
    assert [log["event"] for log in logs] == ["not_swept"]
    (tmp_path / "runs.db").rmdir()


def test_a_loop_that_dies_ends_the_process(bench, recwarn):
    """Else every task would wait for ever: a SystemExit in a callback ends an event loop."""

    def leave():
        raise SystemExit

    bench.start(turns=["Done."])
    bench.process.call_soon(leave)
    wait_until(lambda: bench.stuck, what="the process to say that it is stuck")
    assert "event loop" in bench.stuck[0]
    # What its thread raises in the end is this test's to hear of, and not the next one's.
    wait_until(
        lambda: all(thread.name != "adk-loop" for thread in threading.enumerate()), what="the loop's thread to end"
    )
    bench.process.keeper.stop()
    bench.process = None


class TestItsEnd:
    def test_leaves_no_thread_behind(self, bench):
        bench.start(turns=["Done."])
        bench.process.carry_out(bench.submit(), label="t")
        assert bench.process.close() is False
        bench.process = None
        names = {thread.name for thread in threading.enumerate()}
        assert not {name for name in names if name.startswith(("adk-loop", "adk-keeper", "adk-tool"))}

    def test_tells_of_tools_that_hang(self, bench):
        """Python cannot stop a thread, nor end while one runs: the program has to leave it behind."""
        release = threading.Event()

        @tool(effect="read_only", timeout=0.05)
        def hang() -> str:
            """Hang."""
            release.wait(30)
            return "ok"

        bench.start(hang, turns=[[("hang", {})], "Done."])
        bench.process.carry_out(bench.submit(), label="t")
        assert bench.process.close() is True
        bench.process = None
        release.set()
