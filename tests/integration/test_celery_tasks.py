"""Real Celery programs on a real Redis: what they carry out, refuse, hand over and recover."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
import uuid

import psutil
import pytest
from kombu import Connection, Exchange, Producer, Queue

from adk_worker.idempotency import ClaimState
from adk_worker.runs import Dispatch, RunStatus
from adk_worker.transitions.runs import Attention
from tasks.envelope import encode
from tasks.host import EX_SOFTWARE
from tests.acceptance.fleet import PATIENCE
from tests.integration.fleet import CeleryFleet
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

POOLS = ["threads", "prefork", "solo"]


@pytest.fixture
def fleet(tmp_path, redis_url, orphan_guard):
    fleet = CeleryFleet(tmp_path, redis_url, orphan_guard)
    fleet.make_store()
    yield fleet
    fleet.close()


def put(fleet, body, *, name="adk.advance", content_type="application/json", **headers):
    """Put a message onto the queue of work that nobody of ours made."""
    task_id = uuid.uuid4().hex
    queue = Queue("adk", Exchange("adk"), routing_key="adk")
    with Connection(fleet.broker_url) as connection:
        Producer(connection).publish(
            body,
            exchange=queue.exchange,
            routing_key="adk",
            declare=[queue],
            content_type=content_type,
            content_encoding="binary" if isinstance(body, bytes) else "utf-8",
            headers={"lang": "py", "task": name, "id": task_id, "root_id": task_id, "argsrepr": "", "kwargsrepr": ""}
            | headers,
        )


def call(*args, **kwargs):
    return json.dumps([args, kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}])


@pytest.mark.parametrize("pool", POOLS)
def test_a_run_is_carried_to_its_end_message_by_message(fleet, pool):
    fleet.worker(pool=pool)
    fleet.submit("book look book")
    fleet.release()
    run = fleet.rests()
    assert (run.status, run.output, run.iteration) == (RunStatus.COMPLETED, "Done.", 4)
    assert fleet.written("booked") == ["run_1", "run_1"]
    assert [event.kind for event in fleet.events()].count("taken") == 4


def test_copies_of_a_message_change_nothing(fleet):
    worker = fleet.worker()
    fleet.publish(*[fleet.submit("book", published=False)] * 5)
    assert fleet.rests().status is RunStatus.COMPLETED
    wait_until(lambda: worker.log().count("step_duplicate") == 4, within=PATIENCE, what="four duplicates")
    assert fleet.written("booked") == ["run_1"]


class _Evil:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_messages_that_cannot_be_read_are_logged_and_dropped_and_the_worker_goes_on(fleet, pool):
    """T2: pickle is refused before it is read; neither another version nor anything else is guessed at."""
    worker = fleet.worker(pool=pool)
    evil = pickle.dumps(((), {"evil": _Evil(fleet.folder / "evil")}, {}))
    put(fleet, evil, content_type="application/x-python-serialize")
    put(fleet, call(**{**encode(Dispatch("acme", "run_9", 1)), "v": 2}))
    put(fleet, call("acme", "run_9", 1))
    put(fleet, call(v=1, tenant="acme", password="hunter2"))
    put(fleet, call(), name="adk.later")
    for said in ("untrusted content of type pickle", "version 2", "no version", "its fields are", "adk.later"):
        wait_until(lambda said=said: worker.says(said), within=PATIENCE, what=f"the worker to say {said!r}")
    fleet.submit("book")
    assert fleet.rests().status is RunStatus.COMPLETED
    assert not (fleet.folder / "evil").exists()
    assert "hunter2" not in worker.log()


class TestLeaving:
    @pytest.mark.parametrize("pool", ["threads", "prefork"])
    def test_aborts_what_may_be_aborted_and_awaits_what_has_effects(self, fleet, pool):
        """P2, F4: both runs are handed over, and the program ends well."""
        worker = fleet.worker(pool=pool)
        fleet.submit("look", "reads")
        fleet.submit("hold", "books")
        fleet.begun(times=2)
        psutil.Process(worker.pid).send_signal(signal.SIGTERM)
        wait_until(lambda: fleet.get("reads").status is RunStatus.QUEUED, within=PATIENCE, what="the first hand-over")
        assert fleet.get("books").status is RunStatus.RUNNING
        fleet.release()
        assert worker.stop() == 0
        assert fleet.written("booked") == ["books"]
        books, reads = fleet.get("books"), fleet.get("reads")
        assert (books.status, books.sequence, books.crashes) == (RunStatus.QUEUED, 2, 0)
        assert (reads.status, reads.sequence, reads.crashes) == (RunStatus.QUEUED, 1, 0)

    def test_works_from_within_the_only_thread_of_a_solo_worker(self, fleet):
        worker = fleet.worker(pool="solo")
        fleet.submit("look")
        fleet.begun()
        assert worker.stop() == 0
        assert (fleet.get().status, fleet.get().crashes) == (RunStatus.QUEUED, 0)

    def test_cancels_a_call_that_takes_too_long_and_keeps_its_claim(self, fleet):
        """I10: nobody guesses whether it happened."""
        worker = fleet.worker(ADK_DRAIN_TIMEOUT="0.5")
        fleet.submit("hold")
        fleet.begun()
        assert worker.stop() == 0
        (claim,) = fleet.with_stores(lambda stores: stores.runs.claims("run_1", tenant="acme"))
        assert (fleet.get().status, claim.state) == (RunStatus.QUEUED, ClaimState.IN_FLIGHT)
        assert fleet.written("booked") == []

    def test_lets_children_hand_over_that_are_signalled_as_well(self, fleet):
        """A service manager may signal the whole group; by default that would end a child in mid-call."""
        worker = fleet.worker(pool="prefork")
        fleet.submit("hold")
        fleet.begun()
        for child in worker.children():
            child.send_signal(signal.SIGTERM)
        psutil.Process(worker.pid).send_signal(signal.SIGTERM)
        wait_until(lambda: worker.says("Warm shutdown"), within=PATIENCE, what="the worker to be told")
        fleet.release()
        assert worker.stop() == 0
        assert (fleet.get().status, fleet.get().sequence) == (RunStatus.QUEUED, 2)


class TestAChildThatIsKilled:
    """I11: times are long here, so that nothing is recovered by a lease that lapses."""

    def test_is_noticed_by_its_parent_and_its_run_carried_on_at_once(self, fleet):
        worker = fleet.worker(pool="prefork")
        fleet.submit("look book")
        fleet.begun()
        (event,) = [event for event in fleet.events() if event.kind == "taken"]
        psutil.Process(int(event.data["holder"].split("/")[1])).kill()
        fleet.begun(times=2)
        fleet.release()
        run = fleet.rests()
        assert run.status is RunStatus.COMPLETED
        assert fleet.written("booked") == ["run_1"]
        (event,) = [event for event in fleet.events() if event.kind == "recovered"]
        assert event.data["known_dead"] is True
        # The parent says so once it is done, and the run may be through by then.
        wait_until(lambda: worker.says("child_died"), within=PATIENCE, what="the parent to tell of it")

    def test_at_every_attempt_leaves_a_poisoned_run_and_a_worker_that_works(self, fleet):
        fleet.worker(pool="prefork", ADK_MAX_CRASHES="3")
        fleet.submit("die")
        run = fleet.rests()
        assert (run.status, run.attention, run.crashes) == (RunStatus.PARKED, Attention.POISONED, 3)
        assert fleet.written("begun") == ["run_1"] * 3
        fleet.submit("book", "run_2")
        assert fleet.rests("run_2").status is RunStatus.COMPLETED


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_process_whose_loop_is_blocked_for_good_ends_and_its_run_is_carried_on(fleet, pool):
    """L8: it is not renewed for ever. A child is replaced by its parent, a whole worker by whoever started it."""
    fleet.times["ADK_DISPATCH_GRACE"] = "0.5"
    times = {"ADK_ITERATION_TIMEOUT": "2", "ADK_LEASE_TTL": "3", "ADK_LEASE_RENEW_WITHIN": "1"}
    stuck = fleet.worker(pool=pool, **times)
    fleet.submit("block")
    fleet.begun()
    wait_until(lambda: "process_stuck" in stuck.log(), within=PATIENCE, what="the keeper to end the process")
    fleet.release()
    if pool == "threads":
        ended = psutil.STATUS_ZOMBIE
        wait_until(lambda: psutil.Process(stuck.pid).status() == ended, within=PATIENCE, what="the process to end")
        assert stuck.stop() == EX_SOFTWARE
        fleet.backstage()
        fleet.worker(name="heir")
    assert fleet.rests().status is RunStatus.COMPLETED


def test_a_message_that_was_lost_is_published_again_by_the_reaper(fleet):
    """Beat, a control worker that knows no agents, and a worker: all of a fleet."""
    fleet.times["ADK_DISPATCH_GRACE"] = "0.5"
    fleet.backstage()
    fleet.worker()
    fleet.submit("book", published=False)
    fleet.lapse("run_1")
    assert fleet.rests().status is RunStatus.COMPLETED
    assert "published_again" in [event.kind for event in fleet.events()]


def test_a_broker_that_comes_back_is_consumed_from_again(fleet, redis_server):
    """Silence after a restart of Redis under a pool of threads is a known failure of older releases."""
    worker = fleet.worker()
    redis_server.restart()
    wait_until(lambda: "Connection to broker lost" in worker.log(), within=PATIENCE, what="the worker to notice")
    fleet.submit("book look book")
    fleet.release()
    assert fleet.rests().status is RunStatus.COMPLETED
    assert fleet.written("booked") == ["run_1", "run_1"]


def test_a_broker_that_falls_silent_is_noticed_and_consumed_from_again(fleet, redis_proxy):
    """Packets that are dropped raise no error anywhere: a worker may be alive and never consume again."""
    worker = fleet.worker(ADK_BROKER_URL=redis_proxy.url(fleet.broker_url), ADK_SOCKET_TIMEOUT="1")
    redis_proxy.pause()
    before = redis_proxy.accepted
    wait_until(lambda: redis_proxy.accepted > before, within=PATIENCE, what="the worker to try another connection")
    redis_proxy.resume()
    fleet.submit("book look book")
    fleet.release()
    assert fleet.rests().status is RunStatus.COMPLETED, worker.log()
    assert fleet.written("booked") == ["run_1", "run_1"]


def test_a_dispatcher_serves_a_process_that_was_forked_from_one_that_had_used_it(fleet):
    """Web servers load the app and then fork; the child must not share its parent's connection."""
    program = """
import asyncio, os, sys
from adk_worker.runs import Dispatch
from adk_worker.settings import Settings
from tasks.dispatch import CeleryDispatcher

dispatcher = CeleryDispatcher.from_settings(Settings.load())
asyncio.run(dispatcher.dispatch(Dispatch("acme", "parent", 1)))
child = os.fork()
asyncio.run(dispatcher.dispatch(Dispatch("acme", "child" if child == 0 else "parent-again", 1)))
asyncio.run(dispatcher.close())
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os._exit(0)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], check=False, env=fleet.environment(), timeout=60
    )
    assert ran.returncode == 0
    with Connection(fleet.broker_url) as connection:
        queue, found = Queue("adk", Exchange("adk"), routing_key="adk")(connection.default_channel), []
        while (message := queue.get(no_ack=True)) is not None:
            found.append(json.loads(message.body)[1]["run_id"])
    assert sorted(found) == ["child", "parent", "parent-again"]
