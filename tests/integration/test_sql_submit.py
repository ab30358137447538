"""A submit that joins the caller's transaction: the run is there exactly if the caller's own change is."""

from __future__ import annotations

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine, insert, select
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from adk_worker.conformance.runs.driver import PATIENT, Driver
from adk_worker.errors import ConfigurationError, RunExistsError, SchemaVersionError
from adk_worker.runs import NewRun, RunStatus
from adk_worker.transitions.runs import FleetPolicy
from stores.sql import open_sql
from tests.waiting import eventually

TENANT = "acme"
NEW = NewRun(TENANT, "run", "booking", "book the flight")

orders = Table("orders", MetaData(), Column("id", Integer, primary_key=True), Column("item", Text, nullable=False))


def driver_url(url):
    return url.replace("postgresql://", "postgresql+psycopg2://")


@pytest.fixture(params=["postgres_store_url", "sqlite_store_url"])
def url(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def app(url):
    """The engine of an app that has a table of its own in the same database."""
    engine = create_engine(driver_url(url))
    orders.metadata.create_all(engine)
    yield engine
    engine.dispose()


@pytest.fixture
async def stores(url):
    bundle = open_sql(url)
    yield bundle
    await bundle.lifecycle.close()


def ordered(app):
    with app.connect() as connection:
        return connection.execute(select(orders.c.item)).scalars().all()


async def test_a_run_is_there_once_the_app_has_committed(stores, app):
    """And not a moment before."""
    with app.connect() as connection:
        connection.execute(insert(orders).values(item="a flight"))
        submitted = await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
        assert await stores.runs.get("run", tenant=TENANT) is None
        connection.commit()

    run = await stores.runs.get("run", tenant=TENANT)
    assert run == submitted.run
    assert run.status is RunStatus.QUEUED
    assert ordered(app) == ["a flight"]
    assert [event.kind for event in await stores.runs.events("run", tenant=TENANT)] == ["submitted"]
    assert await Driver(stores).take(submitted.ticket) is not None


async def test_a_run_is_not_there_if_the_app_rolls_back(stores, app):
    with app.connect() as connection:
        connection.execute(insert(orders).values(item="a flight"))
        await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
        connection.rollback()

    assert await stores.runs.get("run", tenant=TENANT) is None
    assert await stores.leases.held("run", tenant=TENANT) is None
    assert ordered(app) == []
    # And its name is free.
    assert (await stores.runs.submit(NEW, policy=PATIENT)).ticket is not None


async def test_a_session_can_be_joined(stores, app):
    with Session(app) as session, session.begin():
        session.execute(insert(orders).values(item="a flight"))
        await stores.runs.submit(NEW, policy=PATIENT, connection=session)

    assert await stores.runs.get("run", tenant=TENANT) is not None


async def test_a_session_of_a_thread_can_be_joined(stores, app):
    """What the extensions of web frameworks hand out."""
    session = scoped_session(sessionmaker(app))
    session.execute(insert(orders).values(item="a flight"))
    await stores.runs.submit(NEW, policy=PATIENT, connection=session)
    session.commit()
    session.remove()

    assert await stores.runs.get("run", tenant=TENANT) is not None


async def test_the_same_request_in_one_transaction_finds_the_run(stores, app):
    """F5: nothing is there twice."""
    with app.begin() as connection:
        first = await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
        again = await stores.runs.submit(NEW, policy=PATIENT, connection=connection)

    assert again == first


async def test_a_taken_id_ends_no_transaction_of_the_app(stores, app):
    """The app may choose another id, and go on."""
    await stores.runs.submit(NEW, policy=PATIENT)
    other = NewRun(TENANT, "run", "booking", "something else")

    with app.begin() as connection:
        connection.execute(insert(orders).values(item="a flight"))
        with pytest.raises(RunExistsError):
            await stores.runs.submit(other, policy=PATIENT, connection=connection)

    assert ordered(app) == ["a flight"]


async def test_nobody_dispatches_it_but_the_reaper_finds_it(stores, app):
    """The message that the caller did not send is missed once its grace is over."""
    policy = FleetPolicy(dispatch_grace=0.05)
    with app.begin() as connection:
        submitted = await stores.runs.submit(NEW, policy=policy, connection=connection)

    async def found():
        return await stores.runs.claim_lapsed(policy=policy, limit=1, count_crashes=True)

    (reaped,) = await eventually(found)
    assert reaped.dispatch.ticket == submitted.ticket


@pytest.mark.parametrize("given", ["a string", object()])
async def test_what_cannot_be_joined_is_refused(stores, given):
    with pytest.raises(ConfigurationError, match=r"sqlalchemy\.Connection"):
        await stores.runs.submit(NEW, policy=PATIENT, connection=given)


async def test_a_connection_to_another_kind_of_database_is_refused(sqlite_store_url, postgres_store_url):
    stores = open_sql(postgres_store_url)
    refused = pytest.raises(ConfigurationError, match="store's own database")
    with create_engine(sqlite_store_url).connect() as connection, refused:
        await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
    await stores.lifecycle.close()


async def test_a_database_without_the_tables_is_named_as_such(sqlite_store_url, tmp_path):
    stores = open_sql(sqlite_store_url)
    elsewhere = create_engine(f"sqlite:///{tmp_path / 'elsewhere.db'}")
    with elsewhere.connect() as connection, pytest.raises(SchemaVersionError):
        await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
    elsewhere.dispose()
    await stores.lifecycle.close()


async def test_the_drivers_errors_are_the_callers_to_handle(sqlite_store_url):
    """Its transaction is the caller's to give up, and so is the decision to do it again."""
    stores = open_sql(sqlite_store_url)
    engine = create_engine(sqlite_store_url, connect_args={"timeout": 0})
    with engine.connect() as writing, engine.connect() as connection:
        writing.exec_driver_sql("BEGIN IMMEDIATE")

        with pytest.raises(OperationalError, match="locked"):
            await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
    engine.dispose()
    await stores.lifecycle.close()


async def test_a_transaction_that_is_stricter_than_ours_is_refused_rather_than_confused(postgres_store_url):
    """In a snapshot of its own it could not see who has the id."""
    stores = open_sql(postgres_store_url)
    engine = create_engine(driver_url(postgres_store_url), isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        connection.execute(select(1)).all()
        await stores.runs.submit(NEW, policy=PATIENT)

        with pytest.raises(DBAPIError) as refused:
            await stores.runs.submit(NEW, policy=PATIENT, connection=connection)
    assert refused.value.orig.pgcode == "40001"
    engine.dispose()
    await stores.lifecycle.close()
