"""How the word that a worker is leaving travels."""

from __future__ import annotations

import multiprocessing
import threading

import pytest

from tasks.drain import Drain


@pytest.fixture
def drain():
    drain = Drain()
    yield drain
    drain.close()


def test_it_is_heard_by_everyone_who_watches_now_or_later(drain):
    first, second = threading.Event(), threading.Event()
    watch = drain.watch(first.set)
    assert not drain.sent
    drain.send()
    drain.send()
    assert first.wait(30)
    late = drain.watch(second.set)
    assert second.wait(30)
    assert drain.sent
    watch.stop()
    late.stop()


def test_a_watch_that_is_stopped_hears_nothing(drain):
    heard = threading.Event()
    drain.watch(heard.set).stop()
    drain.send()
    assert not heard.is_set()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_every_child_that_was_forked_hears_it(drain):
    """Under prefork the parent alone is told; one byte, which nobody reads, reaches all its children."""
    fork = multiprocessing.get_context("fork")
    ready = fork.Barrier(3)
    children = [fork.Process(target=_wait_for, args=(drain, ready)) for _ in range(2)]
    for child in children:
        child.start()
    ready.wait(30)
    drain.send()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0]


def _wait_for(drain, ready):
    heard = threading.Event()
    drain.watch(heard.set)
    ready.wait(30)
    raise SystemExit(0 if heard.wait(30) else 1)
