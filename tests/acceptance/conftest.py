"""The servers and services that a fleet under test stands on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from stores.sql.migrate import upgrade
from tests.acceptance.fleet import PATIENCE, SHORT, FleetUnderTest
from tests.servers import OrphanGuard, PostgresServer
from tests.travel import ROOT, TravelService

MakeFleet = Callable[..., FleetUnderTest]


@pytest.fixture
def travel(tmp_path: Path, orphan_guard: OrphanGuard) -> Iterator[TravelService]:
    """A booking service that honours no key: whatever is asked of it twice happens twice."""
    with TravelService.start(tmp_path) as service:
        orphan_guard.watch(service.pid)
        yield service


@pytest.fixture(scope="session")
def migrated(postgres_server: PostgresServer) -> str:
    """The name of a template with the schema, so that each test's database costs a copy."""
    return postgres_server.template("adk_migrated", upgrade)


@pytest.fixture
def make_fleet_on(
    tmp_path: Path, postgres_server: PostgresServer, migrated: str, travel: TravelService, orphan_guard: OrphanGuard
) -> Iterator[MakeFleet]:
    """Make a fleet on PostgreSQL and a broker, reaped unless ``reaped=False``; all of it ends with the test.

    ``way`` leads from the database's URL to that which the fleet is given.
    """
    with ExitStack() as stack:

        def make(
            broker_url, *, times=SHORT, root=ROOT, patience=PATIENCE, reaped=True, way=None, **more
        ) -> FleetUnderTest:
            store_url = stack.enter_context(postgres_server.database(template=migrated))
            if way is not None:
                store_url = way(store_url)
            fleet = FleetUnderTest(
                tmp_path,
                store_url=store_url,
                broker_url=broker_url,
                travel=travel,
                guard=orphan_guard,
                times=times,
                root=root,
                patience=patience,
                **more,
            )
            stack.callback(fleet.close)
            if reaped:
                fleet.backstage()
            return fleet

        yield make


@pytest.fixture
def make_fleet(make_fleet_on: MakeFleet, redis_url: str) -> MakeFleet:
    """Make a fleet on PostgreSQL and Redis."""
    return partial(make_fleet_on, redis_url)


@pytest.fixture
def fleet(make_fleet: MakeFleet) -> FleetUnderTest:
    """A fleet on PostgreSQL and Redis with short times, reaped."""
    return make_fleet()
