"""Stores on their own, as a runner in process uses them; caps; what stands in Redis, and what its settings can lose."""

from __future__ import annotations

import pytest
import redis
import structlog

from adk_worker.checkpoint import Checkpoint, CheckpointPolicy, encode_checkpoint
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import CheckpointTooLargeError, ConfigurationError, ValueTooLargeError
from adk_worker.filters import RunFilter
from adk_worker.idempotency import Intent
from adk_worker.messages import Message
from adk_worker.transitions.leases import MAX_EPOCH
from stores.redis import (
    RedisCheckpointStore,
    RedisHistoryStore,
    RedisIdempotencyStore,
    RedisLeaseStore,
    migrate,
    open_redis,
)
from tests.redis_stores import made, naming
from tests.servers import RedisServer

TENANT = "acme"
CHECKPOINT = Checkpoint(tenant=TENANT, run_id="run", agent="booking", revision="r1", sequence=1)


@pytest.fixture
def store_url(redis_url):
    return made(redis_url)


@pytest.fixture
def client(store_url):
    with redis.Redis.from_url(store_url, decode_responses=True) as client:
        yield client


@pytest.fixture
async def stores(store_url):
    bundle = open_redis(store_url)
    yield bundle
    await bundle.lifecycle.close()


def sent_by(client):
    """How many bytes the server has sent to anybody."""
    return client.info("stats")["total_net_output_bytes"]


async def test_each_store_serves_on_its_own(store_url):
    kinds = (RedisLeaseStore, RedisCheckpointStore, RedisIdempotencyStore, RedisHistoryStore)
    lone = leases, checkpoints, claims, history = [kind(store_url, pool_size=2) for kind in kinds]
    for store in lone:
        await store.lifecycle.verify()

    lease = await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    await checkpoints.put(CHECKPOINT, fence=lease.fence)
    claim = await claims.begin("key", tenant=TENANT, owner="one", digest="d")
    handle = await history.append("run", tenant=TENANT, start=0, messages=[Message.user("hello")], fence=lease.fence)

    assert await checkpoints.latest("run", tenant=TENANT) == CHECKPOINT
    assert (await claims.peek(["key"], tenant=TENANT))["key"] == claim
    assert (await history.fetch(handle, tenant=TENANT))[0].text == "hello"
    for store in lone:
        await store.lifecycle.close()


async def test_a_client_stays_its_owners(store_url, client):
    """With whatever TLS or Sentinel it was made; it is not closed."""
    leases = RedisLeaseStore(client)

    await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    await leases.lifecycle.close()

    assert client.ping()


def test_a_client_that_answers_in_bytes_is_refused(redis_url):
    with redis.Redis.from_url(redis_url) as client, pytest.raises(ConfigurationError, match="decode_responses"):
        open_redis(client)


def test_making_a_store_again_changes_nothing(store_url, client):
    """What `adk db upgrade` does; another version's store is left as it is."""
    client.set("{adk:003}:store", "1:7")

    migrate.upgrade(store_url)

    assert migrate.current(store_url) == "1"
    assert client.get("{adk:003}:store") == "1:7"


async def test_a_store_whose_numbers_were_lost_gives_none_twice(stores, store_url, client):
    """H1: a listing stays in order, and its cursors lead past no run."""
    drivers = [Driver(stores, run_id=f"run-{number}") for number in range(5)]
    for driver in drivers[:3]:
        await driver.submit()
    client.delete("{adk:000}:numbers", "{adk:000}:store")

    migrate.upgrade(store_url)
    for driver in drivers[3:]:
        await driver.submit()

    page, after = await stores.runs.list(RunFilter(), limit=2)
    rest, _ = await stores.runs.list(RunFilter(), limit=10, after=after)
    assert [run.run_id for run in (*page, *rest)] == [f"run-{number}" for number in reversed(range(5))]


async def test_an_epoch_above_which_there_is_no_room_is_not_raised(stores, client):
    """L2: fences stay within 53 bits."""
    client.set("{adk:003}:store", f"1:{MAX_EPOCH}")

    with pytest.raises(ConfigurationError, match="no room"):
        await stores.lifecycle.bump_epoch()


async def test_a_boundary_takes_two_requests_and_does_not_read_the_frontier_back(redis_proxy, store_url, client):
    """H1: a step sends what is new, and is sent next to nothing."""
    driver = Driver(open_redis(redis_proxy.url(store_url)))
    lease = await driver.worker()
    large = {"metadata": {"text": "x" * 100_000}}
    await driver.commit(lease, 1, frontier=large)
    requests = redis_proxy.count(to=b"EVALSHA")
    before = sent_by(client)

    await driver.commit(lease, 2, frontier={"output": None})

    assert requests.count == 2
    assert sent_by(client) - before < 10_000
    await driver.stores.lifecycle.close()


# --- caps ---------------------------------------------------------------------------------------------------------


async def test_a_checkpoint_over_the_cap_is_refused_before_the_call(store_url, redis_proxy):
    """C2: with both caps named; nothing is sent, and the frontier before stays."""
    checkpoints = RedisCheckpointStore(redis_proxy.url(store_url), max_value_bytes=1000)
    await checkpoints.put(CHECKPOINT)
    written = redis_proxy.count(to=naming("apply"))
    large = CHECKPOINT.updated(metadata={"text": "x" * 1000})

    with pytest.raises(CheckpointTooLargeError) as refused:
        await checkpoints.put(large)

    said = refused.value
    assert (said.size, said.store_max_bytes) == (len(encode_checkpoint(large)), 1000)
    assert said.max_bytes == CheckpointPolicy().max_bytes
    for cap in (said.max_bytes, said.store_max_bytes):
        assert str(cap) in str(said)
    assert written.count == 0
    assert await checkpoints.latest("run", tenant=TENANT) == CHECKPOINT
    await checkpoints.lifecycle.close()


async def test_any_other_value_over_the_cap_is_refused_too(store_url):
    """Nothing of the write it belongs to is there."""
    driver = Driver(open_redis(store_url, max_value_bytes=2000, checkpoint_max_bytes=2000))
    with pytest.raises(ValueTooLargeError, match="what was submitted"):
        await driver.submit(input="x" * 2000)
    assert await driver.run_or_none() is None
    lease = await driver.worker()
    before = await driver.picture()

    with pytest.raises(ValueTooLargeError, match="segment") as refused:
        await driver.commit(lease, 1, segment=driver.segment("\u00e9" * 400))

    assert refused.value.max_bytes == 2000
    assert await driver.picture() == before
    await driver.stores.lifecycle.close()


# --- what stands in Redis -----------------------------------------------------------------------------------------


async def test_a_claim_is_its_runs_alone(stores):
    """I1, F1: a key of another run's call stands in another place, and is refused before anything is written."""
    driver, other = Driver(stores), Driver(stores, run_id="other")
    lease = await driver.worker()

    with pytest.raises(ValueError, match="another run"):
        await stores.runs.begin(lease, [Intent(other.intent(0).key, "d")], owner=lease.holder)

    assert await driver.claims() == []


async def test_all_keys_carry_their_buckets_tag_and_none_expires(stores, client):
    """T1: a hostile name stays inside its key; C5: nothing is gone by itself."""
    driver = Driver(stores, tenant="{x}:*", run_id="a:b}{c")
    lease = await driver.worker()
    (claim,) = await driver.begin(lease, 0)
    await driver.commit(lease, 1, segment=driver.segment("hello"))
    await stores.idempotency.claim_resume(driver.run_id, tenant=driver.tenant, owner="one")
    await stores.runs.sweep()

    keys = set(client.scan_iter())

    assert {key.partition("}")[0][:5] for key in keys} == {"{adk:"}
    assert all(key.count("{") == key.count("}") == 1 for key in keys)
    assert {client.ttl(key) for key in keys} == {-1}
    of_run = {key for key in keys if "%7Bx%7D%3A%2A" in key}
    assert len({key[:9] for key in of_run}) == 1
    assert claim.key in client.zrange(next(key for key in of_run if ":claims:" in key), 0, -1)


async def test_indexes_hold_what_stands_and_nothing_else(stores, client):
    """L2, L6: whatever a run went through, it is in the index of its status, and in no other."""
    drivers = [Driver(stores, run_id=f"run-{number}") for number in range(6)]
    leases = [await driver.worker() for driver in drivers]
    await drivers[0].park(leases[0])
    await drivers[1].give_back(leases[1])
    await drivers[2].cancel()
    await drivers[2].begin(leases[2])
    await drivers[3].park(leases[3])
    await drivers[3].requeue()
    await stores.leases.release(leases[4])

    runs = [await driver.run() for driver in drivers]
    for driver, run in zip(drivers, runs, strict=True):
        names = {
            key.partition("}:")[2]
            for key in client.scan_iter(_type="zset")
            if client.zscore(key, f"{TENANT}:{driver.run_id}") is not None
        }
        wanted = {"runs", f"tenant:{TENANT}", f"named:{driver.run_id}", f"status:{run.status}"}
        wanted |= {"attention"} if run.attention else set()
        wanted |= {"lapses"} if not run.status.resting else set()
        assert names == wanted
    listed, _ = await stores.runs.list(RunFilter(tenant=TENANT), limit=10)
    assert listed == list(reversed(runs))


async def test_a_long_list_is_read_page_by_page(stores):
    """H1: however its runs are spread over the buckets."""
    names = [f"run-{number}" for number in range(150)]
    for name in names:
        await Driver(stores, run_id=name).submit()

    listed, after = [], None
    while True:
        page, after = await stores.runs.list(RunFilter(tenant=TENANT), limit=40, after=after)
        listed += [run.run_id for run in page]
        if after is None:
            break

    assert listed == list(reversed(names))


async def test_numbers_beyond_all_that_there_is_read_as_such(stores):
    """T1: a cursor and a place come back from people's browsers."""
    driver = Driver(stores)
    await driver.submit()

    for huge in (2**53, 2**63, 10**400):
        page, _ = await stores.runs.list(RunFilter(), limit=10, after=str(huge))
        assert [run.run_id for run in page] == ["run"]
        assert await stores.runs.events("run", tenant=TENANT, after=huge) == []
        assert len(await stores.runs.events("run", tenant=TENANT, limit=huge)) == 1
    assert await stores.idempotency.peek(["\ud800", "\x00", ""], tenant=TENANT) == {
        "\ud800": None,
        "\x00": None,
        "": None,
    }


# --- settings that can lose a fence -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [("appendonly", "no", "appendonly is no"), ("maxmemory-policy", "allkeys-lru", "maxmemory-policy is allkeys-lru")],
)
async def test_a_server_that_forgets_in_ordinary_events_is_refused(orphan_guard, setting, value, why):
    """L2: at start-up, with what to set."""
    with RedisServer(settings={setting: value}, guard=orphan_guard) as server:
        stores = open_redis(made(server.url()))

        with pytest.raises(ConfigurationError, match=why):
            await stores.lifecycle.verify()

        await stores.lifecycle.close()


async def test_what_takes_a_crash_is_told_in_the_log(stores):
    """L2: the tests' server does not sync."""
    with structlog.testing.capture_logs() as logs:
        await stores.lifecycle.verify()

    (log,) = logs
    assert (log["event"], log["log_level"]) == ("store_at_risk", "warning")
    assert "appendfsync is no" in log["risk"]
    assert ":***@" in log["store"]
