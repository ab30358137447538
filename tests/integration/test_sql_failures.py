"""What becomes of a write when the database, or the way to it, fails: nothing is done twice, and nothing is guessed."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading

import psycopg2
import pytest
import structlog

from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import (
    CommitUnknownError,
    RunLeaseError,
    SchemaVersionError,
    StaleFenceError,
    StoreUnavailableError,
)
from adk_worker.idempotency import ClaimState
from adk_worker.lease import RunLease
from adk_worker.runs import Renewal, RunStatus
from adk_worker.transitions import FleetPolicy, Then, Verdict
from stores.sql import SqlOptions, advancing, open_sql
from stores.sql.database import Database
from stores.sql.locks import lock_lease
from tests.waiting import eventually

TENANT = "acme"


@pytest.fixture
def url(postgres_store_url, postgres_proxy):
    """The way through the proxy."""
    return postgres_proxy.url(postgres_store_url)


@pytest.fixture
async def opened():
    """Opens bundles that are closed after the test."""
    bundles = []

    def open_one(url, **options):
        bundles.append(open_sql(url, **options))
        return bundles[-1]

    yield open_one
    for bundle in bundles:
        await bundle.lifecycle.close()


@pytest.fixture
def stores(opened, url):
    return opened(url)


@pytest.fixture
def driver(stores):
    return Driver(stores)


# --- an answer lost in COMMIT (F5) --------------------------------------------------------------------------------


async def test_a_boundary_whose_answer_was_lost_is_found_done(driver, postgres_proxy):
    """F5: it says that nobody knows, and the same commit again says that it is done: nothing is there twice."""
    lease = await driver.worker()
    segment = driver.segment("hello")
    fault = postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1, Then.HAND_OVER, segment=segment)
    fault.wait()
    again = await driver.commit(lease, 1, Then.HAND_OVER, segment=segment)

    run = await driver.run()
    assert again.verdict is Verdict.REPEATED
    assert again.ticket == run.fence == lease.fence + 1
    assert (run.sequence, run.status) == (1, RunStatus.QUEUED)
    assert [event.kind for event in await driver.events()].count("after_tool_result") == 1
    assert len(await driver.stores.history.fetch(str(segment.handle), tenant=TENANT)) == 1


async def test_a_boundary_whose_commit_never_arrived_is_done_by_the_second(driver, postgres_proxy):
    """F5: to the writer it looks the same, and it does the same."""
    lease = await driver.worker()
    fault = postgres_proxy.lose_request(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1, Then.HAND_OVER)
    fault.wait()
    again = await driver.commit(lease, 1, Then.HAND_OVER)

    assert again.verdict is Verdict.DONE
    assert (await driver.run()).sequence == 1


async def test_a_take_whose_answer_was_lost_is_found_by_its_holder(driver, postgres_proxy):
    """F5, L4: the message again would be refused as a duplicate; the holder's name is nobody else's."""
    ticket = (await driver.submit()).ticket
    postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.take(ticket, holder="one")

    assert await driver.take(ticket, holder="one") is None
    found = await driver.runs.held_by("run", tenant=TENANT, holder="one")
    assert found.lease.fence == ticket + 1


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


async def test_an_intent_whose_answer_was_lost_is_found_by_its_owner(driver, postgres_proxy):
    """F5, I3: the same owner that asks again owns it, and any other does not."""
    lease = await driver.worker()
    postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.begin(lease, 0, 1)
    claims = await driver.begin(lease, 0, 1)

    assert all(claim.owned_in_flight_by(lease.holder) for claim in claims)
    assert len(await driver.claims()) == 2


async def test_an_outcome_whose_answer_was_lost_is_recorded_once(driver, postgres_proxy):
    """F4, F5: the second time finds the very same outcome there."""
    lease = await driver.worker()
    (claim,) = await driver.begin(lease, 0)
    postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.stores.idempotency.record(claim, BOOKED)
    await driver.stores.idempotency.record(claim, BOOKED)

    (stands,) = await driver.claims()
    assert (stands.state, stands.outcome, stands.late) == (ClaimState.SETTLED, BOOKED, ())


async def test_an_acquisition_whose_answer_was_lost_is_refused_like_any_other(stores, postgres_proxy):
    """F5, L4: a lone lease lapses by itself; the holder's name gets it back no sooner."""
    postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    with pytest.raises(RunLeaseError) as refused:
        await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

    assert refused.value.holder == "one"


# --- a connection lost before COMMIT ------------------------------------------------------------------------------


async def test_a_connection_lost_before_commit_is_made_anew_and_all_is_done_once(driver, postgres_proxy):
    """F5: nothing can have been committed, so the transaction is begun again on another connection."""
    lease = await driver.worker()
    fault = postgres_proxy.lose_answer(to=b"INSERT INTO adk_checkpoints")

    committed = await driver.commit(lease, 1)

    fault.wait()
    assert committed.verdict is Verdict.DONE
    assert [event.kind for event in await driver.events()].count("after_tool_result") == 1


async def test_connections_that_died_unnoticed_are_made_anew(stores, postgres_proxy):
    """A firewall that forgets an idle connection tells nobody."""
    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(10)))
    assert postgres_proxy.connections > 1

    postgres_proxy.cut()

    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(10)))


async def test_a_server_that_was_restarted_is_found_again(opened, postgres_store_url, postgres_server):
    driver = Driver(opened(postgres_store_url))
    lease = await driver.worker()

    postgres_server.restart()

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_server_that_is_down_is_named_without_its_password(opened, postgres_store_url, postgres_server):
    """And once it is up again, so is the store."""
    driver = Driver(opened(postgres_store_url))
    lease = await driver.worker()
    password = postgres_store_url.split(":")[2].split("@")[0]

    postgres_server.kill()
    with pytest.raises(StoreUnavailableError) as away:
        await driver.commit(lease, 1)
    postgres_server.start()

    assert f"127.0.0.1:{postgres_server.port}" in str(away.value)
    assert password not in str(away.value)
    assert isinstance(away.value.__cause__.orig, psycopg2.OperationalError)
    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_server_that_says_nothing_is_given_up(opened, url, postgres_proxy):
    """The network swallows everything: neither side sees an error, and nobody waits for ever."""
    driver = Driver(opened(url, socket_timeout=3))
    lease = await driver.worker()

    postgres_proxy.pause()
    with pytest.raises(StoreUnavailableError):
        await driver.commit(lease, 1)
    with pytest.raises(StoreUnavailableError):
        await driver.run()
    postgres_proxy.resume()

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_commit_that_says_nothing_is_an_unknown_one(opened, url, postgres_proxy):
    """F5: it was carried out, and the answer never came."""
    driver = Driver(opened(url, socket_timeout=3))
    lease = await driver.worker()
    fault = postgres_proxy.hold_answer(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1)

    assert fault.count == 1
    assert (await driver.commit(lease, 1)).verdict is Verdict.REPEATED


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


async def test_a_cancelled_caller_stops_no_commit(driver, postgres_proxy):
    """F5: what has begun goes on to its end."""
    lease = await driver.worker()
    fault = postgres_proxy.hold_answer(to=b"INSERT INTO adk_checkpoints")
    committing = asyncio.create_task(driver.commit(lease, 1))
    await asyncio.to_thread(fault.wait)

    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    fault.release()

    async def sequence():
        return (await driver.run()).sequence

    await eventually(sequence, what="the boundary")


# --- processes ----------------------------------------------------------------------------------------------------

_FORKING = """
import asyncio, os, sys
from stores.sql import open_sql

stores = open_sql(sys.argv[1])
asyncio.run(stores.leases.acquire("run", tenant="acme", holder="parent", ttl_seconds=600))
child = os.fork()
if child == 0:
    lease = asyncio.run(stores.leases.held("run", tenant="acme"))
    asyncio.run(stores.leases.acquire("another", tenant="acme", holder="child", ttl_seconds=600))
    asyncio.run(stores.lifecycle.close())
    os._exit(0 if lease.holder == "parent" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
lease = asyncio.run(stores.leases.held("another", tenant="acme"))
asyncio.run(stores.lifecycle.close())
assert lease.holder == "child"
"""


@pytest.mark.parametrize("database", ["postgres_store_url", "sqlite_store_url"])
def test_a_fork_shares_no_connection(request, database):
    """A child that used or closed its parent's would break it."""
    url = request.getfixturevalue(database)

    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKING, url],
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stderr) == (0, "")


# --- the schema ---------------------------------------------------------------------------------------------------


async def test_a_database_without_tables_is_told_by_every_operation(opened, postgres_url):
    stores = opened(postgres_url)

    for operation in (
        stores.lifecycle.verify(),
        stores.runs.get("run", tenant=TENANT),
        stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG),
    ):
        with pytest.raises(SchemaVersionError, match="adk db upgrade") as error:
            await operation
        assert error.value.found is None


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
