"""What the frequent queries read in a database that is full of finished runs: what they return, and little more."""

from __future__ import annotations

import json
import shutil

import pytest
from sqlalchemy import create_engine, text

from stores.sql import migrate
from tests.integration.full_store import SLACK, Size, fill, queries, read, selects

SIZE = Size(finished=20_000, live=400, lapsed=7)
QUERIES = queries(SIZE)


@pytest.fixture(scope="module")
def postgresql(postgres_server):
    postgres_server.start()
    template = postgres_server.template("adk_migrated", migrate.upgrade)
    with postgres_server.database(template=template) as url:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
        with engine.begin() as connection:
            fill(connection, f"generate_series(1, {SIZE.total}) AS numbers(n)", SIZE)
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield engine
        engine.dispose()


@pytest.fixture(scope="module")
def sqlite(migrated_sqlite_file, tmp_path_factory):
    file = shutil.copy(migrated_sqlite_file, tmp_path_factory.mktemp("plans") / "store.db")
    engine = create_engine(f"sqlite:///{file}")
    numbers = (
        f"(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {SIZE.total}) "
        "SELECT n FROM numbers)"
    )
    with engine.begin() as connection:
        fill(connection, numbers, SIZE)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_what_it_returns(postgresql, name):
    work, most = QUERIES[name]
    found = selects(postgresql, work)
    assert found

    for statement, parameters in found:
        with postgresql.connect() as connection:
            (plan,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()

        assert read(plan["Plan"]) <= most + SLACK, json.dumps(plan, indent=1)


def test_a_backlog_that_the_planner_has_not_heard_of_is_not_read_whole(postgresql):
    """All live runs are queued at once, and no table has been analysed since."""
    work, _ = QUERIES["list queued runs"]
    ((statement, parameters),) = selects(postgresql, work)

    with postgresql.connect() as connection:
        connection.execute(text("UPDATE adk_run_leases SET status = 'queued' WHERE status = 'running'"))
        (plan,) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters).scalar_one()
        connection.rollback()

    assert plan["Plan"]["Actual Rows"] == 11
    assert read(plan["Plan"]) == 22, json.dumps(plan, indent=1)


@pytest.mark.parametrize("name", QUERIES)
def test_sqlite_searches_by_an_index(sqlite, name):
    work, _ = QUERIES[name]
    found = selects(sqlite, work)
    assert found

    for statement, parameters in found:
        with sqlite.connect() as connection:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()

        steps = [row[3] for row in plan]
        scans = {step for step in steps if step.startswith("SCAN adk_") and " USING " not in step}
        assert scans <= {"SCAN adk_schema"}, steps


def test_the_sweep_is_searched_by_time(sqlite):
    """Also where the database knows nothing of its tables' sizes."""
    ((statement, parameters), *_) = selects(sqlite, QUERIES["claim lapsed leases"][0])
    with sqlite.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()

    assert any("USING INDEX adk_run_leases_lapse (expires_at<?)" in row[3] for row in plan), plan


@pytest.mark.parametrize(
    ("name", "searched"),
    [
        ("list queued runs", "adk_run_leases_by_status (status=?)"),
        ("list the next running runs", "adk_run_leases_by_status (status=? AND number<?)"),
        ("list a tenant's queued runs", "adk_run_leases_by_tenant_and_status (tenant=? AND status=?)"),
        ("list parked runs", "adk_runs_by_phase (phase=?)"),
    ],
)
def test_a_page_is_cut_from_its_own_index(sqlite, name, searched):
    """In the order of the index, up to the page's length: what is sorted afterwards is the page."""
    ((statement, parameters),) = selects(sqlite, QUERIES[name][0])
    with sqlite.connect() as connection:
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()

    steps = [row[3] for row in plan]
    assert any(step.endswith(f"USING INDEX {searched}") for step in steps), steps
    assert "USE TEMP B-TREE FOR ORDER BY" not in steps[: steps.index("SCAN cut")]
