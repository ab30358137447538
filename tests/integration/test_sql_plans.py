"""What the frequent queries read in a database that is full of finished runs: what they return, and little more."""

from __future__ import annotations

import json
import shutil

import pytest
from sqlalchemy import create_engine, event, text

from adk_worker.history import Handle
from adk_worker.lease import RunLease
from adk_worker.pruning import Prune
from adk_worker.runs import RunFilter, RunStatus
from adk_worker.transitions import FleetPolicy
from stores.sql import claim_rows, history, locks, migrate, pruning, reading, renewing, sweeping
from stores.sql.schema import leases, runs

FINISHED, LIVE, LAPSED = 20_000, 400, 7
POLICY = FleetPolicy()
# What may be read beside what is returned: the row of the schema, and a row or two at the edge of a range.
SLACK = 3


def fill(connection, numbers):
    """Finished runs of two hundred tenants, then live ones, of which a few have lapsed; some of all need attention."""
    live, lapsed = f"n > {FINISHED}", f"n > {FINISHED + LIVE - LAPSED}"
    columns = {
        **dict.fromkeys(("agent", "revision"), "'booking'"),
        **dict.fromkeys(("metadata", "masks", "usage"), "'{}'"),
        **dict.fromkeys(("detail", "output"), "NULL"),
        **dict.fromkeys(("sequence", "committed_by", "iteration", "cost_micros", "crashes", "tries"), "0"),
        **dict.fromkeys(("cancel_requested", "behind"), "false"),
        **dict.fromkeys(("created_at", "updated_at"), "1.0"),
        "tenant": "'tenant-' || (n % 200)",
        "run_id": "'run-' || n",
        "number": "n",
        "input": "'\"book\"'",
        "parked_on": "'[]'",
        "phase": f"CASE WHEN {live} THEN 'live' WHEN n % 100 = 0 THEN 'parked' ELSE 'completed' END",
        "attention": "CASE WHEN n % 100 = 0 THEN 'over_budget' END",
    }
    insert(connection, runs, columns, numbers)
    columns = {
        "tenant": "'tenant-' || (n % 200)",
        "run_id": "'run-' || n",
        "fence": "n",
        "holding": f"CASE WHEN {live} THEN 'worker' ELSE 'free' END",
        "holder": f"CASE WHEN {live} THEN 'somebody' END",
        "expires_at": f"CASE WHEN {lapsed} THEN 1.0 + n WHEN {live} THEN 1e12 ELSE 1.0 END",
        "wait": "0",
        "live": live,
    }
    insert(connection, leases, columns, numbers)
    for table, columns in (
        ("adk_events", "tenant, run_id, at, kind, fence, data"),
        ("adk_messages", "tenant, run_id, end_count, end_digest, start_count, start_digest, number, payload"),
        ("adk_claims", "tenant, key, run_id, number, owner, former, digest, state, late"),
    ):
        values = {
            "adk_events": "'tenant-' || (n % 200), 'run-' || n, 1.0, 'taken', 1, '{}'",
            "adk_messages": "'tenant-' || (n % 200), 'run-' || n, 1, 'd', 0, 'd', 1, '[]'",
            "adk_claims": "'tenant-' || (n % 200), 'key-' || n, 'run-' || n, 1, 'o', '[]', 'd', 'in_flight', '[]'",
        }[table]
        connection.execute(text(f"INSERT INTO {table} ({columns}) SELECT {values} FROM {numbers}"))


def insert(connection, table, columns, numbers):
    connection.execute(
        text(f"INSERT INTO {table.name} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {numbers}")
    )


TENANT, RUN = f"tenant-{FINISHED % 200}", f"run-{FINISHED}"

QUERIES = {
    "claim lapsed leases": (
        lambda tx: sweeping.claim_lapsed(tx, policy=POLICY, limit=5, count_crashes=True),
        # Each from both tables.
        10,
    ),
    "the oldest lapsed lease": (sweeping.oldest_lapsed, 1),
    # What is due within that time, and no live run beyond.
    "leases held on a host": (lambda tx: sweeping.held_on(tx, "host", within=60.0), LAPSED),
    "lock a run": (lambda tx: locks.lock_run(tx, TENANT, RUN), 2),
    "lock a lease": (lambda tx: locks.lock_lease(tx, TENANT, RUN), 1),
    "read a run": (lambda tx: reading.get(tx, TENANT, RUN), 2),
    "list all runs": (lambda tx: reading.page(tx, RunFilter(), limit=10, before=None), 22),
    "list the next page": (lambda tx: reading.page(tx, RunFilter(), limit=10, before=FINISHED // 2), 22),
    "list a tenant's runs": (lambda tx: reading.page(tx, RunFilter(tenant=TENANT), limit=10, before=None), 22),
    "list what needs attention": (lambda tx: reading.page(tx, RunFilter(attention=True), limit=10, before=None), 22),
    "list running runs": (
        # Each lease is read twice: to see who has it, and to show it.
        lambda tx: reading.page(tx, RunFilter(status=RunStatus.RUNNING), limit=10, before=None),
        33,
    ),
    "list parked runs": (
        # They are searched for among what is not over.
        lambda tx: reading.page(tx, RunFilter(status=RunStatus.PARKED), limit=10, before=None),
        LIVE + 22,
    ),
    "a run's events": (lambda tx: reading.events_of(tx, TENANT, RUN, after=0, limit=10), 1),
    "a run's claims": (lambda tx: claim_rows.of_run(tx, TENANT, RUN), 1),
    "whether a call is undecided": (lambda tx: claim_rows.forget_if_decided(tx, TENANT, RUN), 1),
    "a run's transcript": (lambda tx: history.fetch(tx, TENANT, Handle.empty(RUN)), 1),
    # Each from its own table, its lease's and its calls'.
    "a batch of old runs": (lambda tx: pruning.prune(tx, Prune(older_than=0.0), limit=10, behind=0), 40),
    "a later batch of old runs": (
        lambda tx: pruning.prune(tx, Prune(older_than=0.0), limit=10, behind=FINISHED // 2),
        40,
    ),
    "renew leases": (
        lambda tx: renewing.renew_many(tx, [leased(number) for number in range(FINISHED + 1, FINISHED + 11)], ttl=60.0),
        20,
    ),
}


def leased(number):
    return RunLease(f"tenant-{number % 200}", f"run-{number}", "somebody", number, 0.0)


def selects(engine, work):
    """What ``work`` searches for, be it to remove it, with the parameters."""
    seen = []

    def listen(_connection, _cursor, statement, parameters, *_):
        if statement.lstrip().startswith(("SELECT", "WITH", "DELETE")):
            seen.append((statement, parameters))

    with engine.connect() as connection:
        event.listen(connection, "before_cursor_execute", listen)
        work(connection)
        connection.rollback()
    return seen


@pytest.fixture(scope="module")
def postgresql(postgres_server):
    postgres_server.start()
    template = postgres_server.template("adk_migrated", migrate.upgrade)
    with postgres_server.database(template=template) as url:
        engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
        with engine.begin() as connection:
            fill(connection, f"generate_series(1, {FINISHED + LIVE}) AS numbers(n)")
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM ANALYZE"))
        yield engine
        engine.dispose()


@pytest.fixture(scope="module")
def sqlite(migrated_sqlite_file, tmp_path_factory):
    file = shutil.copy(migrated_sqlite_file, tmp_path_factory.mktemp("plans") / "store.db")
    engine = create_engine(f"sqlite:///{file}")
    numbers = (
        f"(WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {FINISHED + LIVE}) "
        "SELECT n FROM numbers)"
    )
    with engine.begin() as connection:
        fill(connection, numbers)
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


def read(node):
    """How many rows of tables a plan has read."""
    own = 0
    if "Relation Name" in node:
        own = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
    return own + sum(read(child) for child in node.get("Plans", ()))


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
