"""What ``adk doctor`` makes of clocks, sweeps and lapsed leases, and of a check that fails or hangs."""

from __future__ import annotations

import threading

import pytest

from adk_worker.cli.checkup.examining import Examination
from adk_worker.cli.checkup.finding import Level, Subject, ok
from adk_worker.cli.checkup.store import clocks, lapsed, sweeps
from adk_worker.cli.checkup.times import times
from adk_worker.runs import Sweep
from adk_worker.settings import Settings

SUBJECT = Subject(Settings(store_url="memory://"), None, patience=0.01)


@pytest.mark.parametrize(
    ("store_now", "level"),
    [
        (100.0, "ok"),
        (101.0, "ok"),
        (104.0, "ok"),
        (90.0, "warning"),
        (110.0, "warning"),
        (60.0, "fail"),
        (140.0, "fail"),
    ],
)
def test_clocks_that_are_apart_are_told(store_now, level):
    """L1: nothing is decided by them but whether beat's message has expired."""
    assert clocks(store_now, 100.0, 102.0).level == level


@pytest.mark.parametrize(
    ("last", "every", "level"),
    [
        (None, 5.0, "fail"),
        (995.0, 5.0, "ok"),
        (971.0, 5.0, "ok"),
        (969.0, 5.0, "fail"),
        (700.0, 60.0, "ok"),
        (600.0, 60.0, "fail"),
    ],
)
def test_a_store_that_nobody_sweeps_is_told(last, every, level):
    assert sweeps(Sweep(1000.0, last), every=every).level == level


@pytest.mark.parametrize(("seconds", "level"), [(None, "ok"), (59.0, "ok"), (61.0, "fail")])
def test_a_lease_that_stays_lapsed_is_told(seconds, level):
    assert lapsed(seconds, 60.0).level == level


@pytest.mark.parametrize(
    ("store", "ttl", "level"),
    [
        ("postgresql://db/fleet", 60, "ok"),
        ("postgresql://db/fleet", 6, "warning"),
        ("redis://db", 6, "warning"),
        ("sqlite:///runs.db", 6, "ok"),
    ],
)
def test_a_lease_that_a_silent_connection_would_cost_is_told(store, ttl, level):
    """A file is no connection: what adk dev sets up is nothing to be warned of."""
    settings = Settings(store_url=store, lease_ttl=ttl, reap_every=1)

    assert next(times(Subject(settings, None, patience=0.01))).level == level


def test_checks_are_told_in_their_order_and_none_spoils_another():
    first_ends = threading.Event()

    def first(subject):
        first_ends.wait(60)
        yield ok("first", "well")

    def breaks(subject):
        yield ok("second", "well so far")
        raise LookupError("a mistake of ours")

    def last(subject):
        yield ok("last", "well")
        first_ends.set()

    examination = Examination({"first": first, "second": breaks, "last": last}, SUBJECT)
    found = list(examination.findings())

    assert [(one.check, one.level) for one in found] == [
        ("first", Level.OK),
        ("second", Level.OK),
        ("second", Level.UNSEEN),
        ("last", Level.OK),
    ]
    assert "a mistake of ours" in found[2].found
    assert not examination.overdue


def test_a_check_that_hangs_is_left_behind_with_what_it_has_told():
    for_ever = threading.Event()

    def hangs(subject):
        yield ok("hangs", "so far")
        for_ever.wait()

    examination = Examination({"hangs": hangs, "other": lambda _: iter([ok("other", "well")])}, SUBJECT)
    found = list(examination.findings())
    for_ever.set()

    assert [(one.check, one.level) for one in found] == [
        ("hangs", Level.OK),
        ("hangs", Level.UNSEEN),
        ("other", Level.OK),
    ]
    assert examination.overdue
