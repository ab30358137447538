"""What is particular to a cluster: nodes that are away, slots that move, a node that comes back empty."""

from __future__ import annotations

import socket

import pytest
import redis
from redis.crc import key_slot

from adk_worker.conformance.runs.accounts import grant
from adk_worker.conformance.runs.driver import Driver
from adk_worker.conformance.runs.waitlist import due, ids, sweep, to
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import ConfigurationError, StoreRefusedError, StoreUnavailableError
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Then, Verdict
from stores.redis import open_redis
from stores.redis.keys import BUCKETS, Keys, bucket_of_run, bucket_of_tenant
from tests.redis_stores import made
from tests.waiting import wait_until

TENANT = "acme"


@pytest.fixture
async def stores(redis_cluster):
    redis_cluster.empty()
    bundle = open_redis(made(redis_cluster.url), socket_timeout=5)
    yield bundle
    await bundle.lifecycle.close()


@pytest.fixture
async def opened():
    """Opens bundles that are closed after the test."""
    bundles = []

    def open_one(url):
        bundles.append(open_redis(url, socket_timeout=5))
        return bundles[-1]

    yield open_one
    for bundle in bundles:
        await bundle.lifecycle.close()


@pytest.fixture
def clients(redis_cluster):
    """One client for each node, which follows no redirection."""
    clients = [redis.Redis.from_url(node.url(), decode_responses=True) for node in redis_cluster.nodes]
    yield clients
    for client in clients:
        client.close()


def slot_of(run_id):
    return key_slot(Keys(bucket_of_run((TENANT, run_id))).store.encode())


def nodes_of(redis_cluster, run_ids):
    """Which node has which of the runs, by the nodes' own word."""
    with redis.RedisCluster.from_url(redis_cluster.url.replace("+cluster", "")) as client:
        ports = [node.port for node in redis_cluster.nodes]
        return {run: ports.index(client.nodes_manager.get_node_from_slot(slot_of(run)).port) for run in run_ids}


def test_the_buckets_are_spread_over_the_nodes(redis_cluster):
    """Each node has a fair share of them: at least a fifth."""
    with redis.RedisCluster.from_url(redis_cluster.url.replace("+cluster", "")) as client:
        places = [client.get_node_from_key(Keys(bucket).store).name for bucket in range(BUCKETS)]

    assert min(places.count(place) for place in set(places)) >= BUCKETS / 5
    assert len(set(places)) == 3


async def test_a_node_that_is_away_takes_its_runs_with_it_and_no_others(stores, redis_cluster):
    """F1, L8: nothing is guessed of its runs; those of the others go on, are renewed, and are swept."""
    placed = nodes_of(redis_cluster, [f"run-{number}" for number in range(60)])
    here, there = (next(run for run, node in placed.items() if node == wanted) for wanted in (0, 2))
    drivers = {run: Driver(stores, run_id=run) for run in (here, there)}
    leases = {run: await driver.worker() for run, driver in drivers.items()}
    dead = Driver(stores, run_id=next(run for run, node in placed.items() if node == 1))
    await dead.dead_worker()

    redis_cluster.nodes[2].kill()
    with pytest.raises(StoreUnavailableError):
        await drivers[there].commit(leases[there], 1)
    committed = await drivers[here].commit(leases[here], 1)
    renewed = await stores.runs.renew_many([leases[there], leases[here]], ttl_seconds=LONG)
    with pytest.raises(StoreUnavailableError):
        await stores.runs.renew_many([leases[there]], ttl_seconds=LONG)
    reaped = await dead.reap()
    with pytest.raises(StoreUnavailableError):
        await stores.runs.oldest_lapsed()
    redis_cluster.nodes[2].start()
    wait_until(redis_cluster.healthy, within=60, what="the node to be back")

    assert committed.verdict is Verdict.DONE
    assert [(one.busy, one.lease is not None) for one in renewed] == [(True, False), (False, True)]
    assert reaped is not None
    assert (await drivers[there].commit(leases[there], 1)).verdict is Verdict.DONE


async def test_a_node_that_is_away_keeps_its_own_runs_waiting_and_no_others(stores, redis_cluster):
    """P3: for room on their tenant's account; they go on once it is back."""
    placed = nodes_of(redis_cluster, [f"run-{number}" for number in range(60)])
    with redis.RedisCluster.from_url(redis_cluster.url.replace("+cluster", "")) as client:
        port = client.get_node_from_key(Keys(bucket_of_tenant(TENANT)).store).port
    accounts_node = [node.port for node in redis_cluster.nodes].index(port)
    other = next(node for node in range(3) if node != accounts_node)
    await grant(stores, to(1))
    # The one that is not reached comes first.
    there, *_ = [run for run, node in placed.items() if node == other]
    here, *_ = [run for run, node in placed.items() if node == accounts_node]
    for run in (there, here):
        driver = Driver(stores, run_id=run)
        await driver.reserve(await driver.worker(), 10)
    await grant(stores, to(1000))

    redis_cluster.nodes[other].kill()
    first = await sweep(stores)
    still = await due(stores)
    redis_cluster.nodes[other].start()
    wait_until(redis_cluster.healthy, within=60, what="the node to be back")
    second = await sweep(stores)

    assert (ids(first), [one.tenant for one in still], ids(second)) == ([here], [TENANT], [there])


async def test_a_cluster_none_of_whose_nodes_answers_is_a_store_that_is_away(opened):
    """A worker waits for it, as for any other store, and a terminal says what to check."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        stores = opened(f"redis+cluster://127.0.0.1:{nobody.getsockname()[1]}/0")

        with pytest.raises(StoreUnavailableError, match="Connection refused"):
            await stores.lifecycle.verify()


async def test_a_single_server_is_not_taken_for_a_cluster(opened, redis_url):
    stores = opened(redis_url.replace("redis://", "redis+cluster://").rpartition("/")[0])

    with pytest.raises(ConfigurationError, match="is no cluster"):
        await stores.lifecycle.verify()


async def test_a_password_that_no_node_takes_is_refused(opened, redis_cluster):
    password = redis_cluster.url.split(":")[2].split("@")[0]
    stores = opened(redis_cluster.url.replace(password, "wrong"))

    with pytest.raises(StoreRefusedError, match="parameters in ADK_STORE_URL"):
        await stores.lifecycle.verify()


async def test_a_run_whose_slot_moves_is_followed(stores, redis_cluster, clients):
    """MOVED: to a node that has none of the scripts."""
    driver = Driver(stores)
    lease = await driver.worker()
    (claim,) = await driver.begin(lease, 0)
    before = await driver.picture()
    slot = slot_of("run")
    old = nodes_of(redis_cluster, ["run"])["run"]
    new = (old + 1) % 3
    names = [client.execute_command("CLUSTER MYID") for client in clients]

    clients[new].script_flush()
    clients[new].execute_command("CLUSTER SETSLOT", slot, "IMPORTING", names[old])
    clients[old].execute_command("CLUSTER SETSLOT", slot, "MIGRATING", names[new])
    keys = clients[old].execute_command("CLUSTER GETKEYSINSLOT", slot, 100)
    password = redis_cluster.url.split(":")[2].split("@")[0]
    port = redis_cluster.nodes[new].port
    clients[old].execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "AUTH", password, "KEYS", *keys)
    for client in (clients[new], clients[old], *clients):
        client.execute_command("CLUSTER SETSLOT", slot, "NODE", names[new])

    assert await driver.picture() == before
    committed = await driver.commit(lease, 1, Then.HAND_OVER)
    assert (committed.verdict, (await driver.claims())) == (Verdict.DONE, [claim])
    assert nodes_of(redis_cluster, ["run"])["run"] == new


async def test_a_node_that_came_back_empty_is_noticed(stores, clients):
    """L2: its runs are gone, and their fences would begin anew; what is left stays shut until somebody has decided."""
    driver = Driver(stores)
    await driver.submit()

    clients[1].flushall()

    with pytest.raises(ConfigurationError, match="come back without"):
        await stores.lifecycle.verify()


async def test_the_epoch_rises_on_every_node(stores):
    """L2: wherever a run is."""
    assert await stores.lifecycle.bump_epoch() == 1

    for number in range(30):
        submitted = await Driver(stores, run_id=f"run-{number}").submit()
        assert submitted.ticket == (1 << 40) + 1
        assert submitted.run.status is RunStatus.QUEUED
    await stores.lifecycle.verify()
