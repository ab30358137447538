"""Up, down, and up again; what the migrations come to is what the code declares, and what is published."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from adk_worker import names
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import ConfigurationError, SchemaVersionError, StoreUnavailableError
from stores.sql import EXPECTED_CHECKPOINT_SCHEMA, SCHEMA_VERSION, migrate, open_sql
from stores.sql.schema import metadata, with_postgresql

ROOT = Path(__file__).parents[2]
TABLES = {table.name for table in metadata.sorted_tables}


@pytest.fixture(params=["postgresql", "sqlite"])
def url(request, tmp_path):
    """A database with nothing in it."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path / 'empty.db'}"


@pytest.fixture
def other_url(request, url, tmp_path):
    """Another one of the same kind."""
    if url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'other.db'}"
    else:
        with request.getfixturevalue("postgres_server").database() as other:
            yield other


def tables(url):
    with migrate.connected(url) as connection:
        return set(inspect(connection).get_table_names())


async def verify(url):
    stores = open_sql(url)
    try:
        await stores.lifecycle.verify()
    finally:
        await stores.lifecycle.close()


# Everything that the catalogues tell of our tables: columns, defaults, constraints, indexes and storage.
_POSTGRESQL = """
SELECT 'column', c.relname::text, a.attnum::text, a.attname::text, format_type(a.atttypid, a.atttypmod),
       a.attnotnull::text, a.attidentity::text, coalesce(l.collname, '')::text,
       coalesce(pg_get_expr(d.adbin, d.adrelid), '')
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid LEFT JOIN pg_collation l ON l.oid = a.attcollation
       LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relname LIKE 'adk\\_%' AND c.relkind = 'r' AND a.attnum > 0
UNION ALL
SELECT 'constraint', c.relname, n.conname, pg_get_constraintdef(n.oid), '', '', '', '', ''
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid WHERE c.relname LIKE 'adk\\_%'
UNION ALL
SELECT 'index', tablename, indexname, indexdef, '', '', '', '', '' FROM pg_indexes WHERE tablename LIKE 'adk\\_%'
UNION ALL
SELECT 'options', relname, array_to_string(reloptions, ','), '', '', '', '', '', '' FROM pg_class
 WHERE relname LIKE 'adk\\_%' AND relkind = 'r'
"""


def made(url):
    """All that the database says of our tables."""
    with migrate.connected(url) as connection:
        if connection.dialect.name == "postgresql":
            rows = connection.execute(text(_POSTGRESQL.replace(":", "\\:"))).all()
            return {tuple(row) for row in rows if row[1] != "adk_alembic_version"}
        found = set()
        for table in TABLES:
            for pragma in ("table_xinfo", "index_list"):
                rows = connection.exec_driver_sql(f"PRAGMA {pragma}({table})").all()
                found |= {(pragma, table, *row[1:]) for row in rows}
        rows = connection.exec_driver_sql(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql <> ''"
        ).all()
        found |= {tuple(row) for row in rows}
        rows = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'").all()
        return found | {("autoincrement", *row) for row in rows}


def test_the_newest_migration_is_the_version_that_the_code_wants():
    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()))

    assert ScriptDirectory.from_config(config).get_current_head() == SCHEMA_VERSION


async def test_up_down_and_up_again(url):
    assert migrate.current(url) is None

    migrate.upgrade(url)
    assert migrate.current(url) == SCHEMA_VERSION
    assert tables(url) >= TABLES
    await verify(url)

    migrate.downgrade(url, "base")
    assert migrate.current(url) is None
    assert tables(url).isdisjoint(TABLES)
    with pytest.raises(SchemaVersionError):
        await verify(url)

    migrate.upgrade(url)
    await verify(url)


async def test_an_upgrade_leaves_what_is_there_alone(url):
    """It is harmless where there is nothing to do, at every start of a deployment."""
    migrate.upgrade(url)
    stores = open_sql(url)
    await Driver(stores).submit()

    migrate.upgrade(url)

    assert await stores.runs.get("run", tenant="acme") is not None
    await stores.lifecycle.close()


def test_the_migrated_schema_is_the_declared_one(url):
    migrate.upgrade(url)

    with migrate.connected(url) as connection:
        context = MigrationContext.configure(connection, opts=dict(migrate.SETTINGS))
        assert compare_metadata(context, with_postgresql()) == []


@pytest.mark.parametrize(
    ("by_hand", "said"),
    [
        ("DROP TABLE adk_claims", "table adk_claims is missing"),
        ("DROP INDEX adk_events_by_run", "index adk_events_by_run is missing"),
        ("ALTER TABLE adk_runs DROP COLUMN masks", "column adk_runs.masks is missing"),
        ("ALTER TABLE adk_runs ADD COLUMN theirs INTEGER", "column adk_runs.theirs is not one of ours"),
    ],
)
async def test_what_somebody_has_changed_by_hand_is_named(url, by_hand, said):
    """The version alone says nothing of it."""
    migrate.upgrade(url)
    stores = open_sql(url)
    assert await stores.lifecycle.differences() == []
    with migrate.connected(url) as connection:
        connection.exec_driver_sql(by_hand)

    await stores.lifecycle.verify()
    assert said in await stores.lifecycle.differences()
    await stores.lifecycle.close()


async def test_the_published_ddl_makes_the_same(url, other_url):
    """For those who make their tables with tools of their own."""
    migrate.upgrade(url)
    with migrate.connected(other_url) as connection:
        for statement in EXPECTED_CHECKPOINT_SCHEMA[connection.dialect.name].split(";\n")[:-1]:
            connection.exec_driver_sql(statement)

    assert made(other_url) == made(url)
    await verify(other_url)


def test_leases_are_vacuumed_before_sweeps_pass_over_much(postgres_url):
    """Their dead entries are in the way of every sweep, and most leases never change again."""

    def options():
        with migrate.connected(postgres_url) as connection:
            said = connection.exec_driver_sql("SELECT reloptions FROM pg_class WHERE relname = 'adk_run_leases'")
            return dict(option.split("=") for option in said.scalar_one_or_none() or ())

    migrate.upgrade(postgres_url)
    assert options() == {
        "fillfactor": "70",
        "autovacuum_vacuum_threshold": "1000",
        "autovacuum_vacuum_scale_factor": "0.01",
        "vacuum_index_cleanup": "on",
    }
    migrate.downgrade(postgres_url, "base")
    assert options() == {}
    migrate.upgrade(postgres_url)
    assert options()["vacuum_index_cleanup"] == "on"


def test_the_comparison_notices_a_difference(url, other_url):
    migrate.upgrade(url)
    migrate.upgrade(other_url)
    with migrate.connected(other_url) as connection:
        connection.exec_driver_sql("DROP INDEX adk_run_leases_lapse")
        connection.exec_driver_sql("CREATE INDEX adk_run_leases_lapse ON adk_run_leases (expires_at)")

    assert made(other_url) != made(url)


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
@pytest.mark.parametrize("table", ["adk_schema", "adk_checkpoints", "adk_run_leases"])
def test_the_published_ddl_names_its_tables(dialect, table):
    assert f"CREATE TABLE {table} " in EXPECTED_CHECKPOINT_SCHEMA[dialect]


def test_several_upgrades_at_once_wait_for_each_other(url):
    """As when a deployment starts all its processes with one."""
    barrier = threading.Barrier(4)

    def upgrade(_):
        barrier.wait(30)
        migrate.upgrade(url)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(upgrade, range(4)))

    assert migrate.current(url) == SCHEMA_VERSION


def test_the_tables_of_an_app_in_the_same_database_are_left_alone(url):
    """Its own note of its own revision, too."""
    with migrate.connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('theirs')")
        connection.exec_driver_sql("CREATE TABLE orders (id INTEGER)")

    migrate.upgrade(url)
    with migrate.connected(url) as connection:
        assert (
            compare_metadata(MigrationContext.configure(connection, opts=dict(migrate.SETTINGS)), with_postgresql())
            == []
        )
    migrate.downgrade(url, "base")

    assert tables(url) == {"alembic_version", "orders", "adk_alembic_version"}


async def test_another_version_is_refused_by_name_and_with_the_command(url):
    migrate.upgrade(url)
    with migrate.connected(url) as connection:
        connection.exec_driver_sql("UPDATE adk_schema SET version = '0000'")

    with pytest.raises(SchemaVersionError) as refused:
        await verify(url)

    assert (refused.value.found, refused.value.wanted) == ("0000", SCHEMA_VERSION)
    assert "is at version 0000" in str(refused.value)
    assert "adk db upgrade" in str(refused.value)


def test_a_database_of_a_newer_version_is_not_migrated(url):
    migrate.upgrade(url)
    with migrate.connected(url) as connection:
        connection.exec_driver_sql("UPDATE adk_alembic_version SET version_num = '9999'")

    with pytest.raises(ConfigurationError, match="9999"):
        migrate.upgrade(url)


def test_a_migration_that_fails_leaves_nothing_half_done(url):
    """All its steps are one transaction."""
    with migrate.connected(url) as connection:
        connection.exec_driver_sql("CREATE TABLE adk_events (id INTEGER)")

    with pytest.raises(Exception, match="adk_events"):
        migrate.upgrade(url)

    assert tables(url) == {"adk_events"}


def test_a_database_that_is_not_there_is_named_without_its_password():
    with pytest.raises(StoreUnavailableError) as away:
        migrate.upgrade("postgresql://adk:secret@127.0.0.1:1/nowhere")

    assert "127.0.0.1:1" in str(away.value)
    assert "secret" not in str(away.value)


def test_a_user_that_may_not_create_tables_is_told(postgres_server, postgres_url):
    database = postgres_url.rsplit("/", 1)[1]
    postgres_server.execute("CREATE ROLE reader LOGIN PASSWORD 'reads'", database=database)
    host = postgres_url.split("@")[1]

    try:
        with pytest.raises(ConfigurationError, match="permission denied"):
            migrate.upgrade(f"postgresql://reader:reads@{host}")
    finally:
        postgres_server.execute("DROP ROLE reader", database=database)


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_the_sql_can_be_printed(dialect, tmp_path):
    """For those who let nobody but themselves change a schema."""
    printed = io.StringIO()
    config = Config(output_buffer=printed)
    config.set_main_option("script_location", str(migrate.script_location()))
    config.set_main_option("sqlalchemy.url", f"{dialect}://")

    command.upgrade(config, "head", sql=True)

    assert "CREATE TABLE adk_run_leases" in printed.getvalue()


def test_alembics_own_command_works_with_a_configuration(tmp_path):
    """It needs no more than the folder and the URL."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    config = Config()
    config.set_main_option("script_location", str(migrate.script_location()))
    config.set_main_option("sqlalchemy.url", url)

    command.upgrade(config, "head")

    assert migrate.current(url) == SCHEMA_VERSION


def test_an_installation_brings_its_migrations_along(tmp_path):
    """Laid out as the wheel is, away from the checkout."""
    site, url = tmp_path / "site-packages", f"sqlite:///{tmp_path / 'store.db'}"
    for source, target in (("adk_worker", "adk_worker"), ("stores", "stores"), ("alembic", "adk_worker/_migrations")):
        shutil.copytree(ROOT / source, site / target, ignore=shutil.ignore_patterns("__pycache__"))
    upgrade = "import sys; from stores.sql import migrate; migrate.upgrade(sys.argv[1]); print(migrate.__file__)"

    ran = subprocess.run(
        [sys.executable, "-c", upgrade, url],
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(site))
    assert migrate.current(url) == SCHEMA_VERSION


def test_an_installation_without_its_migrations_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(names, "__file__", str(tmp_path / "adk_worker" / "names.py"))

    with pytest.raises(ConfigurationError, match="install it anew"):
        migrate.script_location()
