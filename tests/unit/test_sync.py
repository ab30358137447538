"""The blocking face of async objects."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading

import pytest

from adk_worker.sync import SyncFace
from tests.waiting import wait_until


class Target:
    """Has one of each kind of method."""

    constant = 7

    def __init__(self):
        self.threads = []
        self.closed = threading.Event()
        self.face = None

    async def thread(self, connection=None):
        self.threads.append(threading.current_thread())
        return connection

    async def fails(self):
        raise LookupError("nothing there")

    async def exits(self, error):
        raise error

    async def count(self, to):
        try:
            for number in range(to):
                yield number
        finally:
            self.closed.set()

    async def for_ever(self):
        await asyncio.Event().wait()

    async def others(self):
        return len(asyncio.all_tasks()) - 1

    async def from_within(self):
        return self.face.thread()

    def plain(self):
        return "plain"


@pytest.fixture
def target():
    return Target()


@pytest.fixture
def face(target):
    target.face = SyncFace(target)
    return target.face


def test_coroutines_run_on_one_loop_in_a_thread_of_its_own(target, face):
    face.thread()
    face.thread()
    assert target.threads[0] is target.threads[1]
    assert target.threads[0] is not threading.current_thread()
    assert target.threads[0].daemon


def test_what_a_caller_has_for_its_thread_alone_is_used_in_that_thread(target, face):
    """A database session is nobody else's."""
    assert face.thread(connection="a session") == "a session"
    assert target.threads == [threading.current_thread()]


def test_an_error_comes_through_as_it_is(face):
    with pytest.raises(LookupError, match="nothing there"):
        face.fails()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exits", "interrupts"])
@pytest.mark.timeout(30)
def test_what_asks_for_the_programs_end_is_the_callers_and_ends_no_later_call(target, face, error):
    """It would end the loop with it, and every call from then on would wait for ever."""
    with pytest.raises(type(error)):
        face.exits(error)

    face.thread()
    assert len(target.threads) == 1


def test_an_async_iterator_becomes_a_plain_one(target, face):
    assert list(face.count(3)) == [0, 1, 2]
    assert target.closed.wait(30)


def test_an_iterator_that_is_dropped_half_way_is_closed(target, face):
    numbers = face.count(3)
    assert next(numbers) == 0
    numbers.close()
    assert target.closed.wait(30)


def test_what_is_no_coroutine_is_passed_through_and_private_names_are_not(face):
    assert face.plain() == "plain"
    assert face.constant == 7
    assert {"plain", "thread", "count"} <= set(dir(face))
    for name in ("_target_of_nobody", "no_such_method"):
        with pytest.raises(AttributeError):
            getattr(face, name)


def test_a_wait_that_is_interrupted_cancels_the_work(face, monkeypatch):
    """Ctrl-C in a shell must not leave it running behind."""
    submitted = asyncio.run_coroutine_threadsafe

    def interrupted(work, loop):
        future = submitted(work, loop)
        future.result = lambda: (_ for _ in ()).throw(KeyboardInterrupt)
        return future

    monkeypatch.setattr("asyncio.run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        face.for_ever()
    monkeypatch.undo()
    wait_until(lambda: face.others() == 0, what="the work to be over")


def test_a_call_from_within_the_loop_is_an_error_and_no_deadlock(face):
    with pytest.raises(RuntimeError, match="await the method itself"):
        face.from_within()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_a_loop_of_its_own(face):
    """Web servers load the app and fork."""
    face.thread()

    child = multiprocessing.get_context("fork").Process(target=face.thread)
    child.start()
    child.join(30)

    assert child.exitcode == 0
