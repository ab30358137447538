"""Stores on their own, as a runner in process uses them, and engines of the caller's."""

from __future__ import annotations

import asyncio
import os
import sys
import threading

import pytest
from sqlalchemy import create_engine, event, literal, select

from adk_worker.checkpoint import Checkpoint
from adk_worker.errors import ConfigurationError, HistoryUnavailableError
from adk_worker.filters import RunFilter
from adk_worker.history import Handle
from adk_worker.messages import Message
from adk_worker.transitions.leases import MAX_EPOCH
from stores.sql import (
    PostgresCheckpointStore,
    PostgresHistoryStore,
    PostgresIdempotencyStore,
    PostgresLeaseStore,
    SqliteCheckpointStore,
    SqliteHistoryStore,
    SqliteIdempotencyStore,
    SqliteLeaseStore,
    open_sql,
)
from stores.sql.dialects import PerDialect
from stores.sql.leases import granting
from stores.sql.schema import leases, schema_row

TENANT = "acme"
CHECKPOINT = Checkpoint(tenant=TENANT, run_id="run", agent="booking", revision="r1", sequence=1)


@pytest.fixture(params=["postgres", "sqlite"])
def lone(request):
    """The four stores of one kind, by what they keep."""
    url = request.getfixturevalue(f"{request.param}_store_url")
    kinds = {
        "postgres": (PostgresLeaseStore, PostgresCheckpointStore, PostgresIdempotencyStore, PostgresHistoryStore),
        "sqlite": (SqliteLeaseStore, SqliteCheckpointStore, SqliteIdempotencyStore, SqliteHistoryStore),
    }[request.param]
    stores = [kind(url, pool_size=2) for kind in kinds]
    yield stores
    for store in stores:
        asyncio.run(store.lifecycle.close())


async def test_each_store_serves_on_its_own(lone):
    leases, checkpoints, claims, history = lone
    for store in lone:
        await store.lifecycle.verify()

    lease = await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    await checkpoints.put(CHECKPOINT, fence=lease.fence)
    claim = await claims.begin("key", tenant=TENANT, owner="one", digest="d")
    handle = await history.append("run", tenant=TENANT, start=0, messages=[Message.user("hello")], fence=lease.fence)

    assert await checkpoints.latest("run", tenant=TENANT) == CHECKPOINT
    assert (await claims.peek(["key"], tenant=TENANT))["key"] == claim
    assert (await history.fetch(handle, tenant=TENANT))[0].text == "hello"


async def test_an_engine_stays_its_owners(postgres_store_url):
    engine = create_engine(postgres_store_url.replace("postgresql://", "postgresql+psycopg2://"), pool_size=3)
    leases, checkpoints = PostgresLeaseStore(engine), PostgresCheckpointStore(engine)

    lease = await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    await checkpoints.put(CHECKPOINT, fence=lease.fence)
    for store in (leases, checkpoints):
        await store.lifecycle.close()

    with engine.connect() as connection:
        assert connection.execute(select(schema_row.c.epoch)).scalar_one() == 0
    engine.dispose()


async def test_a_forks_copy_of_an_engine_s_pool_is_let_go_of_once(postgres_store_url, monkeypatch):
    """However many threads begin at once: connections of a pool that is in use would be nobody's to close."""
    engine = create_engine(postgres_store_url.replace("postgresql://", "postgresql+psycopg2://"), pool_size=4)
    let_go = []
    event.listen(engine, "engine_disposed", let_go.append)
    stores, rounds = open_sql(engine), range(1, 31)
    await stores.leases.held("run", tenant=TENANT)
    interval, pid = sys.getswitchinterval(), os.getpid()
    sys.setswitchinterval(1e-6)
    try:
        for number in rounds:
            monkeypatch.setattr(os, "getpid", lambda child=pid + number: child)
            begin = threading.Barrier(4)
            await asyncio.gather(*(asyncio.to_thread(first_use, stores, begin) for _ in range(4)))
            assert len(let_go) == number
    finally:
        sys.setswitchinterval(interval)
        for number in (0, *rounds):
            monkeypatch.setattr(os, "getpid", lambda child=pid + number: child)
            await stores.lifecycle.close()
    engine.dispose()


def first_use(stores, begin):
    begin.wait()
    assert asyncio.run(stores.leases.held("run", tenant=TENANT)) is None


async def test_an_engine_may_set_its_connections_up_as_it_likes(postgres_store_url):
    """What it has begun for that is left as it is."""
    engine = create_engine(postgres_store_url.replace("postgresql://", "postgresql+psycopg2://"), pool_pre_ping=True)

    @event.listens_for(engine, "checkout")
    def set_up(connection, *_):
        connection.cursor().execute("SET search_path TO public")

    stores = open_sql(engine)

    assert await stores.leases.held("run", tenant=TENANT) is None
    lease = await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    assert await stores.leases.held("run", tenant=TENANT) == lease
    engine.dispose()


async def test_a_bundle_holds_no_more_connections_than_it_was_given(postgres_server, postgres_store_url):
    """However much is asked of it at once; and none once it is closed."""
    before = postgres_server.connections(postgres_store_url)
    stores = open_sql(postgres_store_url, pool_size=3)

    await asyncio.gather(*(stores.runs.get(f"run-{number}", tenant=TENANT) for number in range(50)))
    assert 1 <= postgres_server.connections(postgres_store_url) - before <= 3
    await stores.lifecycle.close()

    assert postgres_server.connections(postgres_store_url) == before


def test_a_bundle_is_used_from_any_loop_and_thread(sqlite_store_url):
    stores = open_sql(sqlite_store_url)
    failed = []

    def use(number):
        try:
            for turn in range(5):
                name = f"run-{number}-{turn}"
                asyncio.run(stores.leases.acquire(name, tenant=TENANT, holder="one", ttl_seconds=60))
        except Exception as error:  # noqa: BLE001 - told by the main thread
            failed.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(stores.lifecycle.close())

    assert failed == []


@pytest.mark.parametrize(("now", "granted"), [(99.9, False), (100.0, True), (100.1, True)])
@pytest.mark.parametrize("database", ["postgres_store_url", "sqlite_store_url"])
def test_a_lease_is_lapsed_from_its_expiry_on(request, database, now, granted):
    """L6: the very statement that decides, by a clock that stands still."""
    url = request.getfixturevalue(database).replace("postgresql://", "postgresql+psycopg2://")
    engine = create_engine(url)
    grant = PerDialect(lambda insert: granting(insert, literal(now)))
    with engine.connect() as connection:
        row = {"tenant": TENANT, "run_id": "run", "fence": 7, "holding": "worker", "holder": "one"}
        connection.execute(leases.insert().values(**row, expires_at=100.0, wait=0.0))

        this = {"for_tenant": TENANT, "for_run": "run", "for_holder": "two", "ttl": 60.0}
        answer = connection.execute(grant.on(connection), this).one_or_none()

        assert answer == ((8, now + 60.0) if granted else None)
        connection.rollback()
    engine.dispose()


async def test_fences_have_room_for_no_more_epochs_than_they_can_carry(sqlite_store_url):
    """L2: 53 bits, which every JSON reader keeps exactly."""
    engine = create_engine(sqlite_store_url)
    with engine.begin() as connection:
        connection.execute(schema_row.update().values(epoch=MAX_EPOCH))
    engine.dispose()
    stores = open_sql(sqlite_store_url)

    with pytest.raises(ConfigurationError, match="no room"):
        await stores.lifecycle.bump_epoch()
    lease = await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)

    assert lease.fence == (MAX_EPOCH << 40) + 1 < 2**53
    await stores.lifecycle.close()


@pytest.mark.parametrize("database", ["postgres_store_url", "sqlite_store_url"])
async def test_what_no_row_can_be_named_is_not_there(request, database):
    """T1: a handle or a key of somebody's making is answered, not passed on to a driver that cannot carry it."""
    stores = open_sql(request.getfixturevalue(database))
    run_id = "a\x00b"
    forged = str(Handle(run_id, 1, "0" * 32))
    gone = Handle("run", 1, "0" * 32)

    assert await stores.history.fetch(forged, tenant=TENANT) is None
    assert await stores.idempotency.peek([run_id, "x" * 600, "\ud800"], tenant=TENANT) == dict.fromkeys(
        [run_id, "x" * 600, "\ud800"]
    )
    for after, start in ((str(gone), 1), (None, 2**70)):
        with pytest.raises(HistoryUnavailableError):
            await stores.history.append("run", tenant=TENANT, start=start, messages=[Message.user("hi")], after=after)
    assert await stores.runs.events("run", tenant=TENANT, after=2**70) == []
    assert await stores.runs.list(RunFilter(), limit=1, after=str(2**70)) == ([], None)
    await stores.lifecycle.close()
