"""A submit within the app's own transaction, through the client, blocking and async."""

from __future__ import annotations

import asyncio
import threading

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from adk_worker.client import Fleet
from adk_worker.errors import RunNotFoundError
from adk_worker.runs import Dispatch, RunStatus
from stores import open_stores
from tests.unit.test_client import Broker


@pytest.fixture(params=["postgres", "sqlite"])
def store_url(request):
    return request.getfixturevalue(f"{request.param}_store_url")


@pytest.fixture
def engine(store_url):
    engine = sa.create_engine(store_url.replace("postgresql://", "postgresql+psycopg2://"))
    yield engine
    engine.dispose()


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def fleet(store_url, broker):
    fleet = Fleet(open_stores(store_url), broker)
    yield fleet
    asyncio.run(fleet.close())


def test_a_run_exists_exactly_if_the_app_commits(fleet, broker, engine):
    """It is published by the reaper, or by the app once it has committed."""
    with Session(engine) as session:
        fleet.sync.submit("booking", "book", tenant="acme", run_id="given-up", connection=session)
        session.rollback()
    with pytest.raises(RunNotFoundError):
        fleet.sync.get("given-up", tenant="acme")

    with Session(engine) as session:
        run = fleet.sync.submit("booking", "book", tenant="acme", run_id="kept", connection=session)
        session.commit()
    assert broker.sent == []
    assert fleet.sync.get("kept", tenant="acme").status is RunStatus.QUEUED

    fleet.sync.dispatch(run)
    assert broker.sent == [Dispatch("acme", "kept", run.fence)]


def test_the_apps_connection_is_used_in_the_apps_thread_alone(fleet, engine):
    """SQLite's driver insists on it; on any, another thread could be in the middle of something."""
    threads = set()
    sa.event.listen(engine, "before_cursor_execute", lambda *_: threads.add(threading.current_thread()))
    with engine.begin() as connection:
        fleet.sync.submit("booking", "book", tenant="acme", run_id="run_1", connection=connection)
    assert threads == {threading.current_thread()}


async def test_an_async_app_joins_a_connection_too(fleet, engine):
    with engine.begin() as connection:
        await fleet.submit("booking", "book", tenant="acme", run_id="run_1", connection=connection)
    assert (await fleet.get("run_1", tenant="acme")).status is RunStatus.QUEUED
