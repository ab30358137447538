"""No migration keeps a fleet waiting on a big table: every one is watched, and the watch is tried on bad ones."""

from __future__ import annotations

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from textwrap import dedent, indent

import psycopg2
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine, insert, inspect, text
from sqlalchemy.pool import NullPool

from adk_worker.errors import StoreUnavailableError
from stores.sql import SCHEMA_VERSION, migrate
from tests.migrations.watching import KeepsWaitingError, watched
from tests.waiting import wait_until


def scripts():
    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()))
    return ScriptDirectory.from_config(config)


REVISIONS = {script.revision: script.down_revision or "base" for script in scripts().walk_revisions()}


def fill(url):
    """A row in every table, whatever its columns are."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"), poolclass=NullPool)
    found = MetaData()
    found.reflect(engine)
    with engine.begin() as connection:
        for table in found.sorted_tables:
            if table.name not in {"adk_schema", "adk_alembic_version"}:
                row = {
                    column.name: "1" if column.type.python_type is str else column.type.python_type(1)
                    for column in table.columns
                    if column.identity is None
                }
                connection.execute(insert(table).values(row))


@pytest.mark.parametrize("revision", REVISIONS)
def test_no_migration_keeps_a_fleet_waiting(postgres_url, revision):
    """Up, down, and up again, on tables that have rows and stay in use."""
    before = REVISIONS[revision]
    if before != "base":
        migrate.upgrade(postgres_url, before)
        fill(postgres_url)

    with watched(postgres_url):
        migrate.upgrade(postgres_url, revision)
        migrate.downgrade(postgres_url, before)
        migrate.upgrade(postgres_url, revision)


# --- the watch, and what fits it ----------------------------------------------------------------------------------


def prepare(url):
    migrate.upgrade(url)
    fill(url)


@pytest.fixture
def url(postgres_server):
    """A database of the newest version, with rows."""
    postgres_server.start()
    with postgres_server.database(template=postgres_server.template("adk_filled", prepare)) as url:
        yield url


@pytest.fixture
def engine(url):
    made = create_engine(url.replace("postgresql://", "postgresql+psycopg2://"))
    yield made
    made.dispose()


@pytest.fixture
def sample(monkeypatch, tmp_path, url):
    """Adds migrations after the newest, each given as the body of its ``upgrade``."""
    copied = shutil.copytree(migrate.script_location(), tmp_path / "scripts")
    monkeypatch.setattr(migrate, "script_location", lambda: copied)

    def add(*bodies):
        before = SCHEMA_VERSION
        for number, body in enumerate(bodies, start=9001):
            (copied / "versions" / f"{number}_sample.py").write_text(
                "import sqlalchemy as sa\nfrom alembic import op\nfrom stores.sql import online\n\n"
                f'revision, down_revision = "{number}", "{before}"\n\n\n'
                f"def upgrade():\n{indent(dedent(body).strip(), '    ')}\n\n\ndef downgrade():\n    pass\n"
            )
            before = str(number)

    return add


BAD = {
    "a default that differs from row to row": (
        'op.add_column("adk_runs", sa.Column("luck", sa.Double(), server_default=sa.text("random()")))'
    ),
    "another type": 'op.alter_column("adk_runs", "crashes", type_=sa.BigInteger())',
    "an index": 'op.create_index("by_kind", "adk_events", ["kind"])',
    "an index that is not built concurrently, by itself": """
        with op.get_context().autocommit_block():
            op.create_index("by_kind", "adk_events", ["kind"])
        """,
    "no NULL any more": 'op.alter_column("adk_claims", "tool", nullable=False)',
    "a condition": 'op.create_check_constraint("positive", "adk_runs", "crashes >= 0")',
    "a reference": """
        op.create_foreign_key("to_run", "adk_events", "adk_runs", ["tenant", "run_id"], ["tenant", "run_id"])
        """,
    "a unique constraint": 'op.create_unique_constraint("one_number", "adk_runs", ["number"])',
    "all rows changed at once": """op.execute("UPDATE adk_runs SET detail = '{}'")""",
    "all rows deleted at once": 'op.execute("DELETE FROM adk_fences")',
    "a column, and then a look at all rows under its lock": """
        op.add_column("adk_runs", sa.Column("note", sa.Text()))
        op.execute("CREATE TABLE adk_notes AS SELECT tenant, run_id, note FROM adk_runs")
        """,
    "a lock, and then a look at all rows": """
        op.execute("LOCK TABLE adk_runs IN EXCLUSIVE MODE")
        op.execute("CREATE TABLE adk_notes AS SELECT tenant, run_id FROM adk_runs")
        """,
    "a new order of all rows": """
        with op.get_context().autocommit_block():
            op.execute("CLUSTER adk_runs USING adk_runs_pkey")
        """,
    "a condition, looked into under its own lock": """
        op.execute("ALTER TABLE adk_runs ADD CONSTRAINT positive CHECK (crashes >= 0) NOT VALID")
        op.execute("ALTER TABLE adk_runs VALIDATE CONSTRAINT positive")
        """,
}

HARMLESS = {
    "a column": ('op.add_column("adk_runs", sa.Column("note", sa.Text()))',),
    "a column with a constant default": (
        """op.add_column("adk_runs", sa.Column("note", sa.Text(), nullable=False, server_default=sa.text("'none'")))""",
    ),
    "a column less": ('op.drop_column("adk_runs", "detail")',),
    "an index built beside the writes": ('online.create_index("by_kind", "adk_events", ["kind"])',),
    "an index less": ('op.drop_index("adk_events_by_run", "adk_events")',),
    "a new table, with an index": (
        """
        op.create_table("adk_notes", sa.Column("id", sa.Integer(), primary_key=True), sa.Column("note", sa.Text()))
        op.create_index("adk_notes_by_note", "adk_notes", ["note"])
        """,
    ),
    "no NULL any more, in four steps": (
        """op.execute("ALTER TABLE adk_claims ADD CONSTRAINT has_tool CHECK (tool IS NOT NULL) NOT VALID")""",
        """op.execute("ALTER TABLE adk_claims VALIDATE CONSTRAINT has_tool")""",
        'op.alter_column("adk_claims", "tool", nullable=False)',
        'op.drop_constraint("has_tool", "adk_claims")',
    ),
    "rows changed in batches": (
        """
        batch = "UPDATE adk_runs SET detail = '{}' WHERE number IN (SELECT number FROM adk_runs LIMIT 9)"
        with op.get_context().autocommit_block():
            op.execute(batch)
        """,
    ),
    "a look at all rows, and then a column in the next step": (
        'op.execute("CREATE TABLE adk_notes AS SELECT tenant, run_id FROM adk_runs")',
        'op.add_column("adk_runs", sa.Column("note", sa.Text()))',
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_the_watch_refuses(url, sample, what):
    sample(BAD[what])

    with pytest.raises(KeepsWaitingError), watched(url):
        migrate.upgrade(url)


@pytest.mark.parametrize("what", HARMLESS)
def test_the_watch_lets_pass(url, sample, what):
    sample(*HARMLESS[what])

    with watched(url):
        migrate.upgrade(url)

    assert migrate.current(url) == str(9000 + len(HARMLESS[what]))


# --- beside a fleet at work ---------------------------------------------------------------------------------------


INDEX = 'online.create_index("by_kind", "adk_events", ["kind"])'
EVENT = "INSERT INTO adk_events (tenant, run_id, at, kind, fence, data) VALUES ('t', 'r', 1, 'k', 1, '{}')"


def valid(engine):
    """Whether the index is there, and whether it can be used."""
    with engine.connect() as connection:
        asked = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('by_kind')")
        return connection.execute(asked).scalar_one_or_none()


@pytest.mark.parametrize("at_once", [1, 3])
def test_an_index_is_built_while_others_write(url, sample, engine, at_once):
    """It waits for a transaction that is older, and nobody waits behind it, nor do other upgrades get in its way."""
    sample(INDEX)
    with closing(psycopg2.connect(url)) as older, ThreadPoolExecutor(at_once) as threads:
        older.cursor().execute(EVENT)
        upgrades = [threads.submit(migrate.upgrade, url) for _ in range(at_once)]
        wait_until(lambda: valid(engine) is False, what="the index to be begun")
        with engine.begin() as other:
            other.execute(text("SET LOCAL lock_timeout = '5s'"))
            other.execute(text(EVENT))
        older.commit()
        for upgrade in upgrades:
            upgrade.result(60)

    assert valid(engine) is True
    assert migrate.current(url) == "9001"


def test_an_index_that_was_interrupted_is_built_by_the_next_upgrade(url, sample, engine):
    sample(INDEX)
    with closing(psycopg2.connect(url)) as older, ThreadPoolExecutor(1) as threads:
        older.cursor().execute(EVENT)
        upgrade = threads.submit(migrate.upgrade, url)
        wait_until(lambda: valid(engine) is False, what="the index to be begun")
        with engine.connect() as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'CREATE INDEX CONC%'")
            )
        with pytest.raises(StoreUnavailableError):
            upgrade.result(60)
    assert (valid(engine), migrate.current(url)) == (False, SCHEMA_VERSION)

    migrate.upgrade(url)

    assert (valid(engine), migrate.current(url)) == (True, "9001")


def test_an_index_is_built_on_sqlite_as_any_other_change_is(sample, sqlite_store_url):
    sample(INDEX)

    migrate.upgrade(sqlite_store_url)

    with migrate.connected(sqlite_store_url) as connection:
        assert "by_kind" in {index["name"] for index in inspect(connection).get_indexes("adk_events")}


def test_an_index_can_be_printed(sample):
    """For those who let nobody but themselves change a schema: it stands outside of any transaction."""
    sample(INDEX)
    printed = io.StringIO()
    config = Config(output_buffer=printed)
    config.set_main_option("script_location", str(migrate.script_location()))
    config.set_main_option("sqlalchemy.url", "postgresql://")

    command.upgrade(config, f"{SCHEMA_VERSION}:head", sql=True)

    before, after = printed.getvalue().split("CREATE INDEX CONCURRENTLY by_kind")
    assert before.count("BEGIN;") == before.count("COMMIT;") == 1
    assert after.count("BEGIN;") == after.count("COMMIT;") == 1


def test_a_table_in_use_is_not_waited_for_with_everybody_else_in_line(url, sample, engine):
    """What the steps before it did stays done, and the next upgrade goes on from there."""
    sample(
        'op.add_column("adk_events", sa.Column("a", sa.Text()))', 'op.add_column("adk_runs", sa.Column("b", sa.Text()))'
    )
    with closing(psycopg2.connect(url)) as using:
        using.cursor().execute("SELECT 1 FROM adk_runs")

        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            migrate.upgrade(url)
    assert migrate.current(url) == "9001"

    migrate.upgrade(url)

    assert migrate.current(url) == "9002"


def test_upgrades_at_once_do_each_step_once(url, sample):
    sample(*(f'op.add_column("adk_runs", sa.Column("c{number}", sa.Text()))' for number in range(3)))
    barrier = threading.Barrier(4)

    def upgrade(_):
        barrier.wait(30)
        migrate.upgrade(url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, range(4)))

    assert migrate.current(url) == "9003"
