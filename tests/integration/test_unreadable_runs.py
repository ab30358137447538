"""Runs that a version to come, or damage, has made unreadable: each keeps no other from anything."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import psycopg2
import pytest
import redis
import structlog

from adk_worker.conformance.runs.asker import Asker
from adk_worker.conformance.runs.driver import PATIENT, Driver
from adk_worker.conformance.waiting import LONG, SOON
from adk_worker.filters import RunFilter
from adk_worker.runs import Renewal, RunStatus, Stores
from adk_worker.transitions.runs import FleetPolicy
from stores.redis.keys import Keys, bucket_of_run
from tests.integration.test_cli import Adk
from tests.redis_stores import made

TENANT = "acme"
WRONG = '{"limits": 7}'


@dataclass
class Damaged:
    """A store, and how the row of one of its runs is damaged in it."""

    url: str
    stores: Stores
    damage: Callable[[str], None]


def on_postgresql(url):
    def damage(run_id):
        connection = psycopg2.connect(url)
        with connection, connection.cursor() as cursor:
            cursor.execute("UPDATE adk_runs SET ledger = %s, phase = 'floating' WHERE run_id = %s", (WRONG, run_id))
        connection.close()

    return damage


def on_sqlite(url):
    """No column of JSON keeps there what is none from being written."""

    def damage(run_id):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        with connection:
            connection.execute("UPDATE adk_runs SET ledger = ? WHERE run_id = ?", ("{", run_id))
        connection.close()

    return damage


def on_redis(url):
    def damage(run_id):
        run = (TENANT, run_id)
        with redis.Redis.from_url(url, decode_responses=True) as client:
            client.hset(Keys(bucket_of_run(run)).run(run), "ledger", WRONG)

    return damage


def binary_on_redis(url):
    """Bytes that are no text fail a whole reply."""

    def damage(run_id):
        run = (TENANT, run_id)
        with redis.Redis.from_url(url) as client:
            client.hset(Keys(bucket_of_run(run)).run(run), "ledger", b"\xff")

    return damage


@pytest.fixture(params=["postgres", "sqlite", "redis", "redis, binary"])
def damaged(request, opened):
    match request.param:
        case "postgres":
            url, way = request.getfixturevalue("postgres_store_url"), on_postgresql
        case "sqlite":
            url, way = request.getfixturevalue("sqlite_store_url"), on_sqlite
        case "redis":
            url, way = made(request.getfixturevalue("redis_url")), on_redis
        case _:
            url, way = made(request.getfixturevalue("redis_url")), binary_on_redis
    return Damaged(url, opened(url), way(url))


def neighbours(number):
    """Names of runs that are in one bucket of Redis, where one is read together with the others."""
    names = (f"run-{count}" for count in itertools.count())
    return list(itertools.islice((name for name in names if bucket_of_run((TENANT, name)) == 7), number))


def named(logs, event):
    return [entry["run_id"] for entry in logs if entry["event"] == event]


async def test_one_takes_no_other_s_lease(damaged):
    """L8: it is the others of its process that are renewed; the log names it once, however often it is asked."""
    drivers = [Driver(damaged.stores, run_id=run_id) for run_id in neighbours(3)]
    held = [await driver.worker() for driver in drivers]
    lost = drivers[1].run_id
    damaged.damage(lost)

    with structlog.testing.capture_logs() as logs:
        first = await damaged.stores.runs.renew_many(held, ttl_seconds=2 * LONG)
        second = await damaged.stores.runs.renew_many(held, ttl_seconds=2 * LONG)

    for before, *renewals in zip(held, first, second, strict=True):
        if before.run_id != lost:
            assert all(renewal.lease and renewal.lease.expires_at > before.expires_at for renewal in renewals)
    if "redis" in damaged.url:  # a database renews without a look at the run
        assert [first[1], second[1]] == [Renewal(None, busy=True)] * 2
        assert named(logs, "run_not_read") == [lost]


async def test_one_hides_no_dead_worker_s_lease(damaged):
    """I11."""
    drivers = [Driver(damaged.stores, run_id=run_id) for run_id in neighbours(3)]
    for driver in drivers:
        await driver.take((await driver.submit()).ticket, holder="host/7/label")
    damaged.damage(drivers[1].run_id)

    found = await damaged.stores.runs.held_on("host", within=2 * LONG)

    assert {drivers[0].run_id, drivers[2].run_id} <= {lease.run_id for lease in found}


async def test_one_is_missing_in_a_list_that_has_all_others(damaged):
    """On every page, and with every filter; the log names it."""
    drivers = [Driver(damaged.stores, run_id=run_id) for run_id in neighbours(5)]
    for driver in drivers:
        await driver.submit()
    lost = drivers[3].run_id
    damaged.damage(lost)
    expected = [driver.run_id for driver in reversed(drivers) if driver.run_id != lost]

    for where in (RunFilter(), RunFilter(tenant=TENANT, status=RunStatus.QUEUED)):
        with structlog.testing.capture_logs() as logs:
            found, cursor = await damaged.stores.runs.list(where, limit=2)
            pages = [found]
            while cursor is not None:
                found, cursor = await damaged.stores.runs.list(where, limit=2, after=cursor)
                pages.append(found)

        assert [run.run_id for page in pages for run in page] == expected
        assert set(named(logs, "run_not_read")) == {lost}


async def test_many_leave_room_in_a_sweep_for_what_lapsed_after_them(damaged):
    """L7: however small a sweep is, and however many of them stand before the one that can be reaped."""
    drivers = [Driver(damaged.stores, run_id=run_id) for run_id in neighbours(4)]
    for driver in drivers:
        await driver.dead_worker()
    for driver in drivers[:3]:
        damaged.damage(driver.run_id)

    with structlog.testing.capture_logs() as logs:
        reaped = await damaged.stores.runs.claim_lapsed(policy=FleetPolicy(), limit=1, count_crashes=True)

    assert [one.run_id for one in reaped] == [drivers[3].run_id]
    assert sorted(named(logs, "run_not_reaped")) == sorted(driver.run_id for driver in drivers[:3])


async def test_many_leave_room_in_a_sweep_for_what_was_due_after_them(damaged):
    """P1: the same, for requests that nobody answers."""
    drivers = [Asker(damaged.stores, run_id=run_id) for run_id in neighbours(4)]
    for driver in drivers:
        await driver.ask(0, expires_in=SOON)
        await driver.over()
    for driver in drivers[:3]:
        damaged.damage(driver.run_id)

    with structlog.testing.capture_logs() as logs:
        expired = await damaged.stores.runs.expire(policy=PATIENT, limit=1)

    assert [one.run_id for one in expired] == [drivers[3].run_id]
    assert sorted(named(logs, "run_not_reaped")) == sorted(driver.run_id for driver in drivers[:3])


async def test_whoever_lists_at_a_terminal_is_told_which_one_is_missing(damaged, tmp_path):
    """On the standard error: what reads the answers reads them as ever."""
    for run_id in ("whole", "broken"):
        await Driver(damaged.stores, run_id=run_id).submit()
    damaged.damage("broken")

    listed = await asyncio.to_thread(Adk(tmp_path, ADK_STORE_URL=damaged.url), "list", "--json")

    assert listed.returncode == 0
    assert [json.loads(line)["run_id"] for line in listed.stdout.splitlines()] == ["whole"]
    assert "run_not_read" in listed.stderr
    assert "run_id=broken" in listed.stderr
