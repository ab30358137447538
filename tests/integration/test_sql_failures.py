"""What a database alone may do to a write that fails; what it has in common with a Redis: test_store_failures.py."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import psycopg2
import pytest
import structlog

from adk_worker.conformance.runs.accounts import grant
from adk_worker.conformance.runs.driver import ANN, PATIENT, Driver
from adk_worker.conformance.runs.waitlist import begun, due, ids, parked, sweep, to
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import StaleFenceError, StoreUnavailableError
from adk_worker.lease import RunLease
from adk_worker.runs import Renewal, RunStatus
from adk_worker.transitions.runs import FleetPolicy, Verdict
from stores.sql import SqlOptions, advancing
from stores.sql.database import Database
from stores.sql.locks import lock_lease
from tests.waiting import eventually

TENANT = "acme"


@pytest.fixture
def url(postgres_store_url, postgres_proxy):
    """The way through the proxy."""
    return postgres_proxy.url(postgres_store_url)


@pytest.fixture
def stores(opened, url):
    return opened(url)


@pytest.fixture
def driver(stores):
    return Driver(stores)


# --- in COMMIT, and before it (F5) --------------------------------------------------------------------------------


async def test_a_take_that_is_in_its_commit_is_waited_for(driver, opened, postgres_store_url, postgres_proxy):
    """F5: whoever asks by the holder's name is not told of the time before the commit."""
    ticket = (await driver.submit()).ticket
    fault = postgres_proxy.hold_answer(to=b"UPDATE adk_run_leases")
    taking = asyncio.create_task(driver.take(ticket, holder="one"))
    await asyncio.to_thread(fault.wait)
    asking = asyncio.create_task(opened(postgres_store_url).runs.held_by("run", tenant=TENANT, holder="one"))
    await waits_for_a_lock(postgres_store_url)

    fault.release()

    assert (await asking).lease == (await taking).lease


async def test_a_connection_lost_before_commit_is_made_anew_and_all_is_done_once(driver, postgres_proxy):
    """F5: nothing can have been committed, so the transaction is begun again on another connection."""
    lease = await driver.worker()
    fault = postgres_proxy.lose_answer(to=b"INSERT INTO adk_checkpoints")

    committed = await driver.commit(lease, 1)

    fault.wait()
    assert committed.verdict is Verdict.DONE
    assert [event.kind for event in await driver.events()].count("after_tool_result") == 1


async def test_what_a_round_has_queued_before_the_store_went_away_is_told(stores, driver, postgres_proxy):
    """P3: its messages have to be published; the round stays due."""
    await grant(stores, to(1))
    await parked(stores, 2, 10)
    await grant(stores, to(1000))
    fault = postgres_proxy.lose_request(to=lambda said: b"'parked-1'" in said and b"FOR UPDATE" in said, times=100)

    first, rest = await stores.runs.requeue_over_budget(await begun(stores), by=ANN, policy=PATIENT, limit=10)
    again = stores.runs.requeue_over_budget(await begun(stores), by=ANN, policy=PATIENT, limit=10)
    with pytest.raises(StoreUnavailableError):
        await again

    fault.wait()
    assert (ids(first), rest) == (["parked-0"], None)
    assert [one.tenant for one in await due(stores)] == [TENANT]


# --- locks and time -----------------------------------------------------------------------------------------------


async def waits_for_a_lock(url, *, operations=1):
    def blocked():
        with psycopg2.connect(url) as asking, asking.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            found = cursor.fetchone()[0]
        asking.close()
        return found >= operations

    await eventually(lambda: asyncio.to_thread(blocked), what="operations that wait for a lock")


async def test_a_lease_is_judged_by_the_time_after_the_wait_for_it(opened, postgres_store_url):
    """L1, L6: the lease lapses while an acquirer waits for its row. By the transaction's start it would be alive."""
    stores = opened(postgres_store_url)
    first = await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")
        acquiring = asyncio.create_task(stores.leases.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG))
        await waits_for_a_lock(postgres_store_url)
        # It expires now: after the acquirer has begun, and before it has the lock.
        cursor.execute("UPDATE adk_run_leases SET expires_at = extract(epoch FROM clock_timestamp())")
    other.close()

    assert (await acquiring).fence > first.fence


async def test_a_renewal_counts_from_the_time_after_the_wait(opened, postgres_store_url):
    """L1, L3: the TTL counts in full, and a row that the wait has not changed tells no older time."""
    stores = opened(postgres_store_url)
    lease = await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")
        renewing = asyncio.create_task(stores.leases.renew(lease, ttl_seconds=LONG))
        await waits_for_a_lock(postgres_store_url)
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        (now,) = cursor.fetchone()
    other.close()

    assert (await renewing).expires_at >= now + LONG


async def test_a_run_that_somebody_has_locked_holds_up_no_other_renewal(opened, postgres_store_url):
    """L8: nor is its own lease taken for lost."""
    stores = opened(postgres_store_url)
    leases = [
        await stores.leases.acquire(f"run-{number}", tenant=TENANT, holder="one", ttl_seconds=LONG)
        for number in range(3)
    ]
    unknown = RunLease(TENANT, "unknown", "one", 1, 0.0)
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases WHERE run_id = 'run-1' FOR UPDATE")
        renewals = await stores.runs.renew_many([*leases, unknown], ttl_seconds=2 * LONG)
        alone = await stores.runs.renew_many([leases[1]], ttl_seconds=2 * LONG)
    other.close()

    assert [(renewal.lease is not None, renewal.busy) for renewal in renewals] == [
        (True, False),
        (False, True),
        (True, False),
        (False, False),
    ]
    assert alone == [Renewal(None, busy=True)]
    (renewal,) = await stores.runs.renew_many([leases[1]], ttl_seconds=2 * LONG)
    assert renewal.lease.expires_at > leases[1].expires_at


async def test_a_run_is_read_as_it_stands_after_the_wait_for_it(opened, postgres_store_url):
    """F1: all that a write looks at is as new as its lock, the run's row too while the lease's has not changed."""
    driver = Driver(opened(postgres_store_url))
    lease = await driver.worker()
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")
        committing = asyncio.create_task(driver.commit(lease, 1))
        await waits_for_a_lock(postgres_store_url)
        cursor.execute("UPDATE adk_runs SET cancel_requested = true")
    other.close()

    assert (await committing).verdict is Verdict.CANCELLED


async def test_a_writer_that_stops_in_mid_transaction_holds_up_nobody_for_ever(opened, postgres_store_url):
    """F1, F5: the server ends its transaction, and another does the same write; it is there once in the end."""
    driver = Driver(opened(postgres_store_url))
    lease = await driver.worker()
    stopped = Database(postgres_store_url, SqlOptions(socket_timeout=3))
    halfway, go_on = threading.Event(), threading.Event()

    def work(tx):
        committed = advancing.commit(tx, lease, driver.boundary(1), policy=driver.policy)
        halfway.set()
        assert go_on.wait(30)
        return committed

    async def commit():
        try:
            return await driver.commit(lease, 1)
        except StoreUnavailableError:
            # Not yet: the wait for the lock is limited too.
            return None

    stopping = asyncio.create_task(stopped.write(work))
    await asyncio.to_thread(halfway.wait, 30)
    assert (await eventually(commit, within=30)).verdict is Verdict.DONE
    go_on.set()

    with contextlib.suppress(StoreUnavailableError):
        assert (await stopping).verdict is Verdict.REPEATED
    assert [event.kind for event in await driver.events()].count("after_tool_result") == 1
    await stopped.close()


async def test_a_lock_is_not_waited_for_for_ever(opened, postgres_store_url):
    stores = opened(postgres_store_url, socket_timeout=3)
    await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")

        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await stores.leases.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)
    other.close()


async def test_no_fence_of_an_older_epoch_is_given_once_the_epoch_has_risen(opened, postgres_store_url):
    """L2: a write under way has read the old epoch; raising it waits for that write."""
    driver = Driver(opened(postgres_store_url))
    ticket = (await driver.submit()).ticket
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")
        bumping = asyncio.create_task(driver.stores.lifecycle.bump_epoch())
        await waits_for_a_lock(postgres_store_url)
        taking = asyncio.create_task(driver.take(ticket))
    other.close()

    assert await bumping == 1
    assert (await taking).lease.fence == (1 << 40) + 1


async def test_of_two_that_wait_for_each_other_one_begins_again(opened, postgres_store_url):
    """The database ends a deadlock by rolling one back whole, so that one can be done again."""
    stores = opened(postgres_store_url)
    for name in ("one", "two"):
        await stores.leases.acquire(name, tenant=TENANT, holder="somebody", ttl_seconds=LONG)
    database = Database(postgres_store_url, SqlOptions())
    both = threading.Barrier(2)
    begun = []

    def locking(*names):
        def work(tx):
            begun.append(names)
            lock_lease(tx, TENANT, names[0])
            if len(begun) <= 2:
                both.wait(30)
            lock_lease(tx, TENANT, names[1])
            return names

        return database.write(work)

    assert await asyncio.gather(locking("one", "two"), locking("two", "one")) == [("one", "two"), ("two", "one")]
    assert len(begun) > 2
    await database.close()


# --- what is refused ----------------------------------------------------------------------------------------------


async def test_a_stale_fence_writes_nothing_at_all(driver):
    """F1: the refusal comes after the transaction has begun, and leaves no trace of it."""
    lease = await driver.dead_worker()
    await driver.stores.leases.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)
    before = await driver.picture()

    with pytest.raises(StaleFenceError):
        await driver.commit(lease, 1, segment=driver.segment("hello"))

    assert await driver.picture() == before


@pytest.mark.parametrize("injury", ["refused", "unreadable"])
async def test_a_run_that_cannot_be_written_keeps_no_other_from_being_reaped(opened, postgres_store_url, injury):
    """A constraint of somebody's, or a value of a version to come: the reaper's batch goes on without it."""
    stores = opened(postgres_store_url)
    drivers = [Driver(stores, run_id=f"run-{number}") for number in range(3)]
    for driver in drivers:
        await driver.dead_worker()
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE adk_runs ADD CONSTRAINT house_rule CHECK (run_id <> 'run-0' OR updated_at = created_at)"
            if injury == "refused"
            else "UPDATE adk_runs SET phase = 'floating' WHERE run_id = 'run-0'"
        )
    other.close()

    with structlog.testing.capture_logs() as logs:
        reaped = await stores.runs.claim_lapsed(policy=FleetPolicy(), limit=10, count_crashes=True)

    assert [one.run_id for one in reaped] == ["run-1", "run-2"]
    assert [entry["run_id"] for entry in logs if entry["event"] == "run_not_reaped"] == ["run-0"]
    for driver in drivers[1:]:
        assert (await driver.run()).status is RunStatus.QUEUED
    lease = await stores.leases.held("run-0", tenant=TENANT)
    assert lease is None


@pytest.mark.parametrize("injury", ["refused", "unreadable"])
async def test_a_run_that_cannot_be_written_keeps_no_other_waiting(opened, postgres_store_url, injury):
    """P3: for room on their tenant's account."""
    stores = opened(postgres_store_url)
    await grant(stores, to(1))
    await parked(stores, 3, 10)
    await grant(stores, to(1000))
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE adk_runs ADD CONSTRAINT house_rule CHECK (run_id <> 'parked-0' OR phase = 'parked')"
            if injury == "refused"
            else """UPDATE adk_runs SET ledger = '{"limits": 7}' WHERE run_id = 'parked-0'"""
        )
    other.close()

    with structlog.testing.capture_logs() as logs:
        queued = await sweep(stores)

    assert ids(queued) == ["parked-1", "parked-2"]
    assert [entry["run_id"] for entry in logs if entry["event"] == "run_not_reaped"] == ["parked-0"]
    assert [one.tenant for one in await due(stores)] == [TENANT]
