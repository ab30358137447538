"""What a Redis alone may do to a write that fails; what it has in common with a database: test_store_failures.py."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
import redis
import structlog

from adk_worker.conformance.runs.accounts import grant
from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.conformance.runs.waitlist import due, ids, parked, sweep, to
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import (
    CommitUnknownError,
    ConfigurationError,
    SchemaVersionError,
    StaleFenceError,
    StoreRefusedError,
    StoreUnavailableError,
)
from adk_worker.filters import RunFilter
from adk_worker.memory import MemoryRunStore
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import FleetPolicy, Then, Verdict
from stores.redis.data import RunData
from stores.redis.keys import BUCKETS, Keys, bucket_of_run
from stores.redis.reference import at_once
from stores.redis.server import Server
from stores.redis.target import RedisOptions
from stores.redis.transaction import Applied, Transaction
from tests.redis_stores import made, naming
from tests.servers import Proxy, RedisServer
from tests.waiting import eventually, wait_until

PATIENCE = 60.0
TENANT = "acme"
RUN = (TENANT, "run")


@pytest.fixture
def store_url(redis_url):
    """A new store of this test's own."""
    return made(redis_url)


@pytest.fixture
def url(store_url, redis_proxy):
    """The way to it through the proxy."""
    return redis_proxy.url(store_url)


@pytest.fixture
def driver(opened, url):
    return Driver(opened(url))


@pytest.fixture
def own_server(orphan_guard):
    """A server whose settings a test may change."""
    with RedisServer(guard=orphan_guard) as server:
        yield server


@pytest.fixture
def as_operator(own_server):
    with redis.Redis.from_url(own_server.url(), decode_responses=True) as client:
        yield client


async def test_all_parts_of_a_store_are_checked_at_once(opened, url, redis_proxy):
    """A server that is far, or slow, answers once and not once for each part: every command begins with this."""
    lifecycle = opened(url).lifecycle
    parts = [Keys(bucket).store.encode() for bucket in range(BUCKETS)]
    asked = redis_proxy.count(lambda request: any(part in request for part in parts))

    await lifecycle.verify()

    assert asked.count == 1


# --- writes on their way ------------------------------------------------------------------------------------------


async def test_a_take_that_is_on_its_way_does_not_land_once_its_holder_was_not_found(opened, store_url):
    """F5: whoever was told that it holds nothing does not hold it a moment later either."""
    driver = Driver(opened(store_url))
    ticket = (await driver.submit()).ticket
    server = Server(store_url, RedisOptions(pool_size=1))
    process = server.blocking()
    on_its_way = RunData(Transaction(process, bucket_of_run(RUN)), server.options, around=process)
    at_once(MemoryRunStore(on_its_way).take("run", tenant=TENANT, ticket=ticket, holder="one", ttl_seconds=LONG))

    assert await driver.runs.held_by("run", tenant=TENANT, holder="one") is None

    assert on_its_way.flush() is Applied.MOVED
    assert (await driver.run()).status is RunStatus.QUEUED
    await server.close()


async def test_a_write_that_comes_twice_is_written_once(opened, store_url):
    """F5: whatever stands between a client and the server may send it again."""
    driver = Driver(opened(store_url))
    ticket = (await driver.submit()).ticket
    server = Server(store_url, RedisOptions(pool_size=1))
    process = server.blocking()
    data = RunData(Transaction(process, bucket_of_run(RUN)), server.options, around=process)
    at_once(MemoryRunStore(data).take("run", tenant=TENANT, ticket=ticket, holder="one", ttl_seconds=LONG))

    assert [data.flush(), data.flush()] == [Applied.DONE, Applied.DONE]

    assert [event.kind for event in await driver.events()] == ["submitted", "taken"]
    assert (await driver.run()).fence == ticket + 1
    await server.close()


async def test_no_decision_rests_on_a_row_that_has_moved_since(driver, opened, store_url, redis_proxy):
    """F1, P2: a cancel comes in between the look and the write, which starts over, and ends the run."""
    lease = await driver.worker()
    fault = redis_proxy.hold_answer(to=naming("look"))
    committing = asyncio.create_task(driver.commit(lease, 1))
    await asyncio.to_thread(fault.wait)

    await Driver(opened(store_url)).cancel()
    fault.release()

    assert (await committing).verdict is Verdict.CANCELLED


# --- servers that forget, or stop ---------------------------------------------------------------------------------


async def test_scripts_that_the_server_has_forgotten_are_given_to_it_again(opened, store_url):
    """NOSCRIPT, as after a failover, in the middle of everything."""
    driver = Driver(opened(store_url))
    lease = await driver.worker()
    with redis.Redis.from_url(store_url) as client:
        client.script_flush()

        assert (await driver.commit(lease, 1)).verdict is Verdict.DONE

        client.script_flush()
    assert await driver.reap() is None


async def test_a_server_that_is_stopped_is_given_up(opened, own_server):
    """SIGSTOP: it takes connections, and answers nothing."""
    driver = Driver(opened(made(own_server.url()), socket_timeout=3))
    lease = await driver.worker()

    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailableError):
            await driver.commit(lease, 1)
    finally:
        os.kill(own_server.pid, signal.SIGCONT)

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


# --- servers that refuse ------------------------------------------------------------------------------------------


async def test_a_server_without_memory_refuses_and_nothing_is_half_written(opened, own_server, as_operator):
    """OOM under noeviction: reads go on, and so does everything once there is room."""
    driver = Driver(opened(made(own_server.url())))
    lease = await driver.worker()
    (claim,) = await driver.begin(lease, 0)
    before = await driver.picture()
    as_operator.config_set("maxmemory-policy", "noeviction")
    as_operator.config_set("maxmemory", "1")

    for write in (
        lambda: driver.commit(lease, 1, Then.HAND_OVER, segment=driver.segment("hello"), settled=[(claim, BOOKED)]),
        lambda: driver.stores.idempotency.record(claim, BOOKED),
        lambda: driver.runs.renew_many([lease], ttl_seconds=LONG),
        driver.cancel,
    ):
        with pytest.raises(StoreUnavailableError, match="out of memory") as refused:
            await write()
        assert not isinstance(refused.value, CommitUnknownError)
    assert await driver.picture() == before
    as_operator.config_set("maxmemory", "0")

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_master_that_became_a_replica_is_told_and_found_again(opened, own_server, as_operator, redis_server):
    """After a failover its client is still connected to it: nothing is written there, and the error says why."""
    driver = Driver(opened(made(own_server.url())))
    lease = await driver.worker()
    before = await driver.run()
    redis_server.start()
    # Of a master that it cannot log in to: it keeps its data, and takes no writes.
    as_operator.replicaof("127.0.0.1", redis_server.port)

    with pytest.raises(StoreUnavailableError, match="replica") as refused:
        await driver.commit(lease, 1)
    with pytest.raises(ConfigurationError, match="is a slave"):
        await driver.stores.lifecycle.verify()
    as_operator.replicaof("NO", "ONE")

    assert not isinstance(refused.value, CommitUnknownError)
    assert await driver.run() == before
    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_master_with_too_few_replicas_takes_no_writes(opened, own_server, as_operator):
    """min-replicas-to-write, which a failover loses nothing with."""
    driver = Driver(opened(made(own_server.url())))
    lease = await driver.worker()
    as_operator.config_set("min-replicas-to-write", "1")

    with pytest.raises(StoreUnavailableError, match="min-replicas-to-write"):
        await driver.commit(lease, 1)
    as_operator.config_set("min-replicas-to-write", "0")

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_wrong_password_is_a_mistake_of_the_configuration(opened, store_url):
    """And is not shown."""
    password = store_url.split(":")[2].split("@")[0]

    with pytest.raises(StoreRefusedError, match="ADK_STORE_URL") as refused:
        await opened(store_url.replace(password, "hunter2")).lifecycle.verify()

    assert "hunter2" not in str(refused.value)


async def test_a_user_without_the_rights_is_told(opened, own_server, as_operator):
    """NOPERM: what such a user has to be allowed is said."""
    made(own_server.url())
    as_operator.acl_setuser("reader", enabled=True, passwords=["+secret"], categories=["+@read"], keys=["*"])
    stores = opened(f"redis://reader:secret@127.0.0.1:{own_server.port}/0")

    with pytest.raises(StoreRefusedError, match="EVALSHA"):
        await Driver(stores).submit()


# --- a store that is not there, or has lost a part ----------------------------------------------------------------


async def test_nothing_is_written_to_a_store_that_was_emptied_in_between(driver, opened, store_url, redis_proxy):
    """L2: between the look and the write."""
    lease = await driver.worker()
    fault = redis_proxy.hold_answer(to=naming("look"))
    committing = asyncio.create_task(driver.commit(lease, 1))
    await asyncio.to_thread(fault.wait)
    with redis.Redis.from_url(store_url) as client:
        client.flushdb()
        fault.release()

        with pytest.raises(SchemaVersionError):
            await committing

        assert client.dbsize() == 0


async def test_a_store_of_another_format_is_refused(opened, store_url):
    stores = opened(store_url)
    with redis.Redis.from_url(store_url) as client:
        client.set(Keys(bucket_of_run(RUN)).store, "2:0")

    for operation in (stores.lifecycle.verify(), stores.runs.get("run", tenant=TENANT)):
        with pytest.raises(SchemaVersionError) as error:
            await operation
        assert (error.value.found, error.value.wanted) == ("2", "1")


async def test_a_store_with_a_part_missing_is_refused(opened, store_url):
    """L2: a node of a cluster came back without its data. What mends it is named, and does."""
    stores = opened(store_url)
    with redis.Redis.from_url(store_url) as client:
        client.delete(Keys(7).store, Keys(8).store)

    with pytest.raises(ConfigurationError, match=r"2 of the 64 parts .*adk db upgrade.*bump-epoch"):
        await stores.lifecycle.verify()
    made(store_url)
    await stores.lifecycle.bump_epoch()

    await stores.lifecycle.verify()


async def test_a_bump_that_was_interrupted_is_noticed(opened, store_url):
    """L2: one part is in a later epoch than the others; the next bump lifts all of them above it."""
    stores = opened(store_url)
    with redis.Redis.from_url(store_url) as client:
        client.set(Keys(7).store, "1:5")

    with pytest.raises(ConfigurationError, match=r"epochs 0 to 5.*bump-epoch"):
        await stores.lifecycle.verify()

    assert await stores.lifecycle.bump_epoch() == 6
    await stores.lifecycle.verify()


async def test_bumps_at_once_each_raise_the_epoch(opened, store_url):
    """L2: whoever is told a number knows that no fence of it was given before."""
    stores = opened(store_url)

    epochs = await asyncio.gather(*(stores.lifecycle.bump_epoch() for _ in range(6)))

    assert sorted(epochs) == [1, 2, 3, 4, 5, 6]


async def test_no_fence_of_an_older_epoch_is_given_once_the_epoch_has_risen(driver, opened, store_url, redis_proxy):
    """L2: a take has read the old epoch when it rises; it starts over."""
    ticket = (await driver.submit()).ticket
    fault = redis_proxy.hold_answer(to=naming("look"))
    taking = asyncio.create_task(driver.take(ticket))
    await asyncio.to_thread(fault.wait)

    assert await opened(store_url).lifecycle.bump_epoch() == 1
    fault.release()

    assert (await taking).lease.fence == (1 << 40) + 1


@pytest.fixture
def replication(own_server):
    """The way from the test's own server to its replica."""
    with Proxy(own_server.port) as proxy:
        yield proxy


@pytest.fixture
def replica(own_server, as_operator, replication, orphan_guard):
    """A replica of the test's own server, which has caught up with it."""
    as_operator.config_set("repl-diskless-sync-delay", "0")
    password = own_server.url().split(":")[2].split("@")[0]
    settings = {"replicaof": f"127.0.0.1 {replication.port}", "masterauth": password}
    # It would write all of it to its file after the first synchronisation, and not end before that is done.
    settings["appendonly"] = "no"
    with RedisServer(settings=settings, password=password, guard=orphan_guard) as replica:
        wait_until(lambda: caught_up(own_server, replica), within=PATIENCE, what="the replica's first copy")
        yield replica


def caught_up(master, replica):
    """Whether the replica has applied all that its master has written so far.

    WAIT would not tell: it asks after the writes of the connection that it comes on, and of those there may be none.
    """
    with redis.Redis.from_url(master.url()) as client:
        written = client.info("replication")["master_repl_offset"]
    with redis.Redis.from_url(replica.url()) as client:
        applied = client.info("replication")
    return applied["master_link_status"] == "up" and applied["slave_repl_offset"] >= written


async def test_a_failover_that_loses_writes_gives_a_fence_twice_until_the_epoch_is_bumped(
    opened, own_server, replication, replica
):
    """L2, F1: a real one. What docs/stores.md says of it: without the bump two holders have one number."""
    before, bumped = (Driver(opened(made(own_server.url())), run_id=run_id) for run_id in ("before", "bumped"))
    tickets = {driver: (await driver.submit()).ticket for driver in (before, bumped)}
    wait_until(lambda: caught_up(own_server, replica), within=PATIENCE, what="the replica to have both runs")
    replication.pause()
    forgotten = {driver: (await driver.take(ticket)).lease for driver, ticket in tickets.items()}
    own_server.kill()
    replication.cut()
    with redis.Redis.from_url(replica.url()) as client:
        client.replicaof("NO", "ONE")
    stores = opened(replica.url())

    again = await Driver(stores, run_id="before").take(tickets[before], holder="another")
    await stores.lifecycle.bump_epoch()
    above = await Driver(stores, run_id="bumped").take(tickets[bumped], holder="another")

    assert again.lease.fence == forgotten[before].fence
    assert above.lease.fence > forgotten[bumped].fence
    with pytest.raises(StaleFenceError):
        await Driver(stores, run_id="bumped").commit(forgotten[bumped], 1)


# --- what a newer version wrote -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "value"), [("phase", "floating"), ("ledger", '{"limits": 7}'), ("tries", None)])
async def test_a_run_that_cannot_be_read_keeps_no_other_from_being_reaped(opened, store_url, field, value):
    """A value of a version to come, damage, a field that is gone: the sweep goes on without that run, and names it."""
    stores = opened(store_url)
    drivers = [Driver(stores, run_id=f"run-{number}") for number in range(3)]
    for driver in drivers:
        await driver.dead_worker()
    unreadable = (TENANT, "run-0")
    with redis.Redis.from_url(store_url, decode_responses=True) as client:
        key = Keys(bucket_of_run(unreadable)).run(unreadable)
        if value is None:
            client.hdel(key, field)
        else:
            client.hset(key, field, value)

    with structlog.testing.capture_logs() as logs:
        reaped = await stores.runs.claim_lapsed(policy=FleetPolicy(), limit=10, count_crashes=True)

    assert sorted(one.run_id for one in reaped) == ["run-1", "run-2"]
    assert [entry["run_id"] for entry in logs if entry["event"] == "run_not_reaped"] == ["run-0"]
    for driver in drivers[1:]:
        assert (await driver.run()).status is RunStatus.QUEUED


async def test_a_run_that_cannot_be_read_keeps_no_other_waiting(opened, store_url):
    """P3: for room on their tenant's account."""
    stores = opened(store_url)
    await grant(stores, to(1))
    drivers = await parked(stores, 3, 10)
    unreadable = (TENANT, drivers[0].run_id)
    with redis.Redis.from_url(store_url, decode_responses=True) as client:
        client.hset(Keys(bucket_of_run(unreadable)).run(unreadable), "ledger", '{"limits": 7}')
    await grant(stores, to(1000))

    with structlog.testing.capture_logs() as logs:
        queued = await sweep(stores)

    assert ids(queued) == [driver.run_id for driver in drivers[1:]]
    assert [entry["run_id"] for entry in logs if entry["event"] == "run_not_reaped"] == [drivers[0].run_id]
    assert [one.tenant for one in await due(stores)] == [TENANT]


async def test_a_process_holds_no_more_connections_than_it_was_told(opened, url, redis_proxy):
    """However many operations there are at once; and none after the end."""
    stores = opened(url, pool_size=3)

    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(60)))

    assert redis_proxy.accepted == redis_proxy.connections == 3
    await stores.lifecycle.close()
    await eventually(lambda: redis_proxy.connections == 0, what="the connections to be closed")


async def test_nothing_goes_through_the_keyspace(opened, own_server, as_operator):
    """Whatever is listed, swept or looked up: its time does not grow with what else is stored."""
    stores = opened(made(own_server.url()))
    driver = Driver(stores)
    lease = await driver.dead_worker()
    await driver.begin(lease, 0)
    await driver.reap()
    await driver.cancel()
    await stores.runs.list(RunFilter(tenant=TENANT, status=RunStatus.CANCELLED), limit=10)
    await stores.runs.oldest_lapsed()
    await stores.lifecycle.verify()
    await stores.lifecycle.bump_epoch()

    sent = {name.removeprefix("cmdstat_") for name in as_operator.info("commandstats")}

    assert "evalsha" in sent
    assert sent.isdisjoint({"keys", "scan", "hscan", "sscan", "zscan", "sort", "randomkey", "smembers", "dbsize"})
