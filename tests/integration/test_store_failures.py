"""What becomes of a write when its server, or the way to it, fails: nothing is done twice, and nothing is guessed.

What servers of both kinds have in common. What only one of them has is in test_sql_failures.py and
test_redis_failures.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import dataclass

import psycopg2
import pytest
import redis

from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import CommitUnknownError, RunLeaseError, SchemaVersionError, StoreUnavailableError
from adk_worker.idempotency import ClaimState
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Then, Verdict
from tests.redis_stores import made, naming
from tests.servers import PostgresServer, Proxy, RedisServer
from tests.waiting import eventually

TENANT = "acme"


@dataclass(frozen=True)
class Injured:
    """A new store, its server, and the way to it through a proxy."""

    store_url: str
    server: PostgresServer | RedisServer
    proxy: Proxy
    writes: bytes
    """What the request has in it after which a write has happened or not, and nobody knows."""
    midway: bytes
    """What a request has in it that the write of a boundary makes before that."""
    error: type[Exception]
    """The driver's own, of a server that is away."""

    @property
    def url(self) -> str:
        return self.proxy.url(self.store_url)


@pytest.fixture(params=["postgres", "redis"])
def injured(request):
    def got(name):
        return request.getfixturevalue(name)

    if request.param == "postgres":
        server = got("postgres_server"), got("postgres_proxy")
        return Injured(
            got("postgres_store_url"), *server, b"COMMIT", b"INSERT INTO adk_checkpoints", psycopg2.OperationalError
        )
    server = got("redis_server"), got("redis_proxy")
    return Injured(made(got("redis_url")), *server, naming("apply"), naming("look"), redis.exceptions.ConnectionError)


@pytest.fixture
def driver(opened, injured):
    return Driver(opened(injured.url))


# --- an answer lost in a write (F5) -------------------------------------------------------------------------------


async def test_a_boundary_whose_answer_was_lost_is_found_done(driver, injured):
    """F5: it says that nobody knows, and the same commit again says that it is done: nothing is there twice."""
    lease = await driver.worker()
    segment = driver.segment("hello")
    fault = injured.proxy.lose_answer(to=injured.writes)

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


async def test_a_boundary_that_never_arrived_is_done_by_the_second(driver, injured):
    """F5: to the writer it looks the same, and it does the same."""
    lease = await driver.worker()
    fault = injured.proxy.lose_request(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1, Then.HAND_OVER)
    fault.wait()
    again = await driver.commit(lease, 1, Then.HAND_OVER)

    assert again.verdict is Verdict.DONE
    assert (await driver.run()).sequence == 1


async def test_a_take_whose_answer_was_lost_is_found_by_its_holder(driver, injured):
    """F5, L4: the message again would be refused as a duplicate; the holder's name is nobody else's."""
    ticket = (await driver.submit()).ticket
    injured.proxy.lose_answer(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await driver.take(ticket, holder="one")

    assert await driver.take(ticket, holder="one") is None
    found = await driver.runs.held_by("run", tenant=TENANT, holder="one")
    assert found.lease.fence == ticket + 1


async def test_an_intent_whose_answer_was_lost_is_found_by_its_owner(driver, injured):
    """F5, I3: the same owner that asks again owns it, and any other does not."""
    lease = await driver.worker()
    injured.proxy.lose_answer(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await driver.begin(lease, 0, 1)
    claims = await driver.begin(lease, 0, 1)

    assert all(claim.owned_in_flight_by(lease.holder) for claim in claims)
    assert len(await driver.claims()) == 2


async def test_an_outcome_whose_answer_was_lost_is_recorded_once(driver, injured):
    """F4, F5: the second time finds the very same outcome there."""
    lease = await driver.worker()
    (claim,) = await driver.begin(lease, 0)
    injured.proxy.lose_answer(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await driver.stores.idempotency.record(claim, BOOKED)
    await driver.stores.idempotency.record(claim, BOOKED)

    (stands,) = await driver.claims()
    assert (stands.state, stands.outcome, stands.late) == (ClaimState.SETTLED, BOOKED, ())


async def test_an_acquisition_whose_answer_was_lost_is_refused_like_any_other(driver, injured):
    """F5, L4: a lone lease lapses by itself; the holder's name gets it back no sooner."""
    leases = driver.stores.leases
    await leases.release(await leases.acquire("run", tenant=TENANT, holder="zero", ttl_seconds=LONG))
    injured.proxy.lose_answer(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    with pytest.raises(RunLeaseError) as refused:
        await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

    assert refused.value.holder == "one"


async def test_a_write_that_says_nothing_is_an_unknown_one(opened, injured):
    """F5: it was carried out, and the answer never came."""
    driver = Driver(opened(injured.url, socket_timeout=3))
    lease = await driver.worker()
    fault = injured.proxy.hold_answer(to=injured.writes)

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1)

    assert fault.count == 1
    assert (await driver.commit(lease, 1)).verdict is Verdict.REPEATED


async def test_a_cancelled_caller_stops_no_commit(driver, injured):
    """F5: what has begun goes on to its end."""
    lease = await driver.worker()
    fault = injured.proxy.hold_answer(to=injured.midway)
    committing = asyncio.create_task(driver.commit(lease, 1))
    await asyncio.to_thread(fault.wait)

    committing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await committing
    fault.release()

    async def sequence():
        return (await driver.run()).sequence

    await eventually(sequence, what="the boundary")


# --- servers that are away ----------------------------------------------------------------------------------------


async def test_connections_that_died_unnoticed_are_made_anew(opened, injured):
    """A firewall that forgets an idle connection tells nobody."""
    stores = opened(injured.url)
    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(10)))
    assert injured.proxy.connections > 1

    injured.proxy.cut()

    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(10)))


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_a_server_that_was_started_again_is_found_with_all_that_it_acknowledged(opened, injured, end):
    """L2: and a Redis without its scripts, which are given to it again."""
    driver = Driver(opened(injured.store_url))
    lease = await driver.worker()
    before = await driver.picture()

    getattr(injured.server, end)()
    injured.server.start()

    assert await driver.picture() == before
    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_server_that_is_down_is_named_without_its_password(opened, injured):
    """And once it is up again, so is the store."""
    driver = Driver(opened(injured.store_url))
    lease = await driver.worker()
    password = injured.store_url.split(":")[2].split("@")[0]

    injured.server.kill()
    with pytest.raises(StoreUnavailableError) as away:
        await driver.commit(lease, 1)
    injured.server.start()

    assert not isinstance(away.value, CommitUnknownError)
    assert f"127.0.0.1:{injured.server.port}" in str(away.value)
    assert password not in str(away.value)
    cause = away.value.__cause__
    assert isinstance(getattr(cause, "orig", cause), injured.error)
    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_server_that_says_nothing_is_given_up(opened, injured):
    """The network swallows everything: neither side sees an error, and nobody waits for ever."""
    driver = Driver(opened(injured.url, socket_timeout=3))
    lease = await driver.worker()

    injured.proxy.pause()
    with pytest.raises(StoreUnavailableError):
        await driver.commit(lease, 1)
    with pytest.raises(StoreUnavailableError):
        await driver.run()
    injured.proxy.resume()

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


@pytest.mark.parametrize("empty", ["postgres_url", "redis_url"])
async def test_a_server_without_a_store_is_told_by_every_operation(request, opened, empty):
    """L2: also one that was there, and came back empty: its fences would begin anew."""
    stores = opened(request.getfixturevalue(empty))
    driver = Driver(stores)

    for operation in (
        stores.lifecycle.verify,
        stores.lifecycle.bump_epoch,
        driver.run_or_none,
        driver.submit,
        stores.runs.sweep,
        driver.events,
        lambda: stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG),
    ):
        with pytest.raises(SchemaVersionError, match="adk db upgrade") as error:
            await operation()
        assert error.value.found is None


# --- processes ----------------------------------------------------------------------------------------------------

_FORKING = """
import asyncio, os, sys
from stores import open_stores

stores = open_stores(sys.argv[1])
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


@pytest.mark.parametrize("database", ["postgres_store_url", "sqlite_store_url", "redis_url"])
def test_a_fork_shares_no_connection(request, database):
    """A child that used or closed its parent's would break it."""
    url = request.getfixturevalue(database)
    if database == "redis_url":
        made(url)

    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORKING, url],
        check=False,
        capture_output=True,
        text=True,
    )

    assert (ran.returncode, ran.stderr) == (0, "")
