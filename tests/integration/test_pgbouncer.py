"""PostgreSQL behind a pooler of transactions: no session is needed, none is changed, and what wants one says so."""

from __future__ import annotations

import asyncio
from contextlib import closing

import psycopg2
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import CommitUnknownError, ConfigurationError, StoreUnavailableError
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Verdict
from stores.sql import SqlOptions, migrate
from stores.sql.database import Database
from tests.servers import PgBouncer
from tests.servers.demand import or_skip

TENANT = "acme"
LIMITS = text(
    "SELECT current_setting('statement_timeout'), current_setting('lock_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), current_setting('transaction_isolation')"
)


def pooled(url):
    return f"{url}?pooler=transaction"


@pytest.fixture
def url(pgbouncer, postgres_store_url):
    """A store's database by way of the pooler, which is not mentioned."""
    return pgbouncer.url(postgres_store_url)


@pytest.fixture
async def database(url):
    made = Database(pooled(url), SqlOptions(pool_size=2, socket_timeout=4))
    yield made
    await made.close()


@pytest.fixture
def another_pooler(postgres_server, orphan_guard):
    """Makes a pooler with settings of its own, or on its own way to the server."""
    made = []

    def make(**chosen):
        made.append(or_skip(lambda: PgBouncer(postgres_server, guard=orphan_guard, **chosen)))
        made[-1].start()
        return made[-1]

    yield make
    for pooler in made:
        pooler.close()


# --- the limits go with each transaction --------------------------------------------------------------------------


async def test_every_transaction_has_its_limits_from_its_first_statement_on(database):
    """A single statement that only reads is one too."""

    def work(tx):
        return [tuple(tx.execute(LIMITS).one()) for _ in range(2)]

    wanted = ("3200ms", "2s", "4s", "read committed")
    assert await database.write(work) == [wanted, wanted]
    assert await database.read(lambda tx: tuple(tx.execute(LIMITS).one())) == wanted


async def test_no_transaction_leaves_its_limits_to_the_next_client(database, url):
    """The pooler gives the same session to somebody else."""
    served = await database.write(lambda tx: tx.execute(text("SELECT pg_backend_pid()")).scalar_one())

    def seen_by_another():
        with closing(psycopg2.connect(url)) as other, other.cursor() as cursor:
            cursor.execute(
                "SELECT pg_backend_pid(), current_setting('lock_timeout'), current_setting('adk.limits', true)"
            )
            return cursor.fetchone()

    pid, lock_timeout, mark = await asyncio.to_thread(seen_by_another)
    assert (pid, lock_timeout, mark or None) == (served, "0", None)


@pytest.mark.parametrize("kind", ["read", "write"])
async def test_a_statement_that_takes_too_long_is_given_up_by_the_server(database, kind):
    with pytest.raises(StoreUnavailableError, match="statement timeout"):
        await getattr(database, kind)(lambda tx: tx.execute(text("SELECT pg_sleep(60)")).one())


async def test_a_lock_is_not_waited_for_for_ever(opened, url, postgres_store_url):
    stores = opened(pooled(url), socket_timeout=3)
    await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
    other = psycopg2.connect(postgres_store_url)
    with other, other.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases FOR UPDATE")

        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            await stores.leases.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)
    other.close()


# --- many clients, few sessions -----------------------------------------------------------------------------------


async def test_more_operations_than_sessions_take_turns(opened, url, postgres_server, postgres_store_url):
    stores = opened(pooled(url), pool_size=16)

    leases = await asyncio.gather(
        *(
            stores.leases.acquire(f"run-{number}", tenant=TENANT, holder="one", ttl_seconds=LONG)
            for number in range(100)
        )
    )
    renewed = await stores.runs.renew_many(leases, ttl_seconds=2 * LONG)

    assert all(renewal.lease is not None for renewal in renewed)
    # What the pooler is allowed in tests/servers/pgbouncer.py.
    assert postgres_server.connections(postgres_store_url) <= 4


async def test_a_submit_may_join_a_transaction_of_the_callers(opened, url):
    """The caller's engine is taken as it is, and nothing is set in its transactions."""
    stores = opened(pooled(url))
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    fleet = Fleet(stores, dispatcher=None)

    with Session(engine) as session, session.begin():
        await fleet.submit("booking", "a seat, please", tenant=TENANT, run_id="joined", connection=session)
        assert session.execute(text("SHOW lock_timeout")).scalar_one() == "0"
    engine.dispose()

    assert (await stores.runs.get("joined", tenant=TENANT)).status is RunStatus.QUEUED


# --- what fails behind it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["lose_answer", "lose_request"])
async def test_a_commit_that_is_lost_behind_the_pooler_is_an_unknown_one(
    opened, another_pooler, postgres_proxy, postgres_store_url, lost
):
    """F5: the pooler tells its client in its own words that the server is gone."""
    pooler = another_pooler(port=postgres_proxy.port)
    driver = Driver(opened(pooled(pooler.url(postgres_store_url))))
    lease = await driver.worker()
    fault = getattr(postgres_proxy, lost)(to=b"COMMIT")

    with pytest.raises(CommitUnknownError):
        await driver.commit(lease, 1)
    fault.wait()
    again = await driver.commit(lease, 1)

    assert again.verdict is (Verdict.REPEATED if lost == "lose_answer" else Verdict.DONE)
    assert [event.kind for event in await driver.events()].count("after_tool_result") == 1


async def test_a_connection_lost_behind_the_pooler_before_commit_is_made_anew(
    opened, another_pooler, postgres_proxy, postgres_store_url
):
    """F5: nothing can have been committed."""
    pooler = another_pooler(port=postgres_proxy.port)
    driver = Driver(opened(pooled(pooler.url(postgres_store_url))))
    lease = await driver.worker()
    fault = postgres_proxy.lose_answer(to=b"INSERT INTO adk_checkpoints")

    committed = await driver.commit(lease, 1)

    fault.wait()
    assert committed.verdict is Verdict.DONE


async def test_a_pooler_that_was_restarted_is_found_again(opened, pgbouncer, url):
    driver = Driver(opened(pooled(url)))
    lease = await driver.worker()

    pgbouncer.restart()

    assert (await driver.commit(lease, 1)).verdict is Verdict.DONE


async def test_a_pooler_that_has_nothing_left_to_lend_is_not_waited_for_for_ever(opened, url):
    """Renewals stand in the same line: a lease's holder has to learn in time that it cannot renew."""
    stores = opened(pooled(url), socket_timeout=3)
    borrowed = [psycopg2.connect(url) for _ in range(4)]
    for connection in borrowed:
        connection.cursor().execute("SELECT 1")

    with pytest.raises(StoreUnavailableError):
        await stores.runs.get("run", tenant=TENANT)
    for connection in borrowed:
        connection.close()

    assert await stores.runs.get("run", tenant=TENANT) is None


# --- who has not said that it is there ----------------------------------------------------------------------------


async def test_a_pooler_that_nobody_mentioned_is_named_with_what_to_do(opened, url):
    """It refuses the session's limits."""
    stores = opened(url)

    for operation in (stores.lifecycle.verify(), stores.runs.get("run", tenant=TENANT)):
        with pytest.raises(ConfigurationError, match=r"ADK_STORE_URL: postgresql://…\?pooler=transaction") as refused:
            await operation
        assert "unsupported startup parameter" in str(refused.value)


async def test_a_pooler_that_drops_the_limits_in_silence_is_found_by_verify(opened, another_pooler, postgres_store_url):
    """Else a worker that stops in mid-transaction would hold up everybody for ever."""
    dropping = another_pooler(settings={"ignore_startup_parameters": "options"}).url(postgres_store_url)

    with pytest.raises(ConfigurationError, match=r"dropped.*\?pooler=transaction"):
        await opened(dropping).lifecycle.verify()
    await opened(pooled(dropping)).lifecycle.verify()


async def test_verify_finds_nothing_to_say_without_a_pooler(opened, postgres_store_url):
    """Whether or not one is mentioned, and whatever limits the URL itself asks for."""
    for more in ("", "?pooler=transaction", "?options=-c%20lock_timeout%3D1"):
        await opened(postgres_store_url + more).lifecycle.verify()


@pytest.mark.parametrize("mentioned", [True, False])
def test_migrations_go_past_it(url, mentioned):
    """They hold a lock of the session."""
    with pytest.raises(ConfigurationError, match="ADK_MIGRATE_URL"):
        migrate.upgrade(pooled(url) if mentioned else url)
