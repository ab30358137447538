from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import create_engine, event

from adk_worker.errors import ConfigurationError
from stores.sql import PostgresLeaseStore, SqliteLeaseStore, SqlOptions, open_sql
from stores.sql.database import Database
from stores.sql.target import make_engine, parse_url


class _Enough(Exception):  # noqa: N818 - it is none
    """Nothing is to be connected."""


def connection_string(url, **options):
    """What the driver is told when a connection is made."""
    told = {}
    engine = make_engine(parse_url(url), SqlOptions(**options))

    @event.listens_for(engine, "do_connect")
    def note(_dialect, _record, _arguments, keywords):
        told.update(keywords)
        raise _Enough

    with pytest.raises(_Enough):
        engine.connect()
    return told


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2"])
def test_a_url_of_postgresql_names_its_driver(scheme):
    url = parse_url(f"{scheme}://user:secret@host:5433/fleet?sslmode=require\n")

    assert url.drivername == "postgresql+psycopg2"
    assert (url.host, url.port, url.database, url.password) == ("host", 5433, "fleet", "secret")
    assert url.query == {"sslmode": "require"}


def test_a_relative_file_stays_the_same_wherever_the_process_goes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    assert parse_url("sqlite:///fleet.db").database == str(Path(tmp_path) / "fleet.db")
    assert parse_url("sqlite:////var/lib/fleet.db").database == "/var/lib/fleet.db"


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///file:x?mode=memory"])
def test_a_database_in_memory_is_refused(url):
    """Each connection would see another one."""
    with pytest.raises(ConfigurationError, match="memory://"):
        open_sql(url)


@pytest.mark.parametrize(
    "url", ["mysql://root:secret@host/db", "postgresql+asyncpg://u:secret@host/db", "sqlite+aiosqlite:///x.db"]
)
def test_another_database_or_driver_is_refused_by_name(url):
    with pytest.raises(ConfigurationError, match="postgresql://") as refused:
        open_sql(url)

    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["nonsense", "postgresql://u:secret@host:port/db", "postgresql://u:se/cret@[::1/db"])
def test_a_url_that_cannot_be_read_shows_no_password(url):
    with pytest.raises(ConfigurationError) as refused:
        open_sql(url)

    assert "secret" not in str(refused.value)
    assert "cret" not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    "options", [{"pool_size": 0}, {"socket_timeout": 0}, {"socket_timeout": float("nan")}, {"socket_timeout": -1}]
)
def test_an_option_that_cannot_be_is_refused(options):
    with pytest.raises(ConfigurationError):
        open_sql("sqlite:///x.db", **options)


def test_a_connection_is_told_all_limits():
    told = connection_string("postgresql://user@host/fleet", socket_timeout=10)

    assert told["connect_timeout"] == 10
    assert told["tcp_user_timeout"] == 10_000
    assert told["keepalives"] == 1
    assert told["application_name"] == "adk-worker"
    assert "-c statement_timeout=8000" in told["options"]
    assert "-c lock_timeout=5000" in told["options"]
    assert "-c idle_in_transaction_session_timeout=10000" in told["options"]


def test_what_the_url_says_comes_first():
    told = connection_string(
        "postgresql://user@host/fleet?application_name=mine&connect_timeout=3&options=-c%20lock_timeout%3D1"
    )

    assert (told["application_name"], told["connect_timeout"]) == ("mine", "3")
    assert told["options"].endswith("-c lock_timeout=1")


def test_a_pooler_that_refuses_settings_of_a_session_is_sent_none():
    told = connection_string("postgresql://user@host/fleet?pooler=transaction")

    assert "options" not in told
    assert "pooler" not in told


@pytest.mark.parametrize("said", ["statement", "pgbouncer"])
def test_another_pooler_is_refused_by_name(said):
    with pytest.raises(ConfigurationError, match=f"pooler={said}; it has to be pooler=transaction"):
        open_sql(f"postgresql://user:secret@host/fleet?pooler={said}")


def test_a_store_says_for_which_database_it_is():
    with pytest.raises(ConfigurationError, match="this store is for postgresql"):
        PostgresLeaseStore("sqlite:///x.db")
    with pytest.raises(ConfigurationError, match="this store is for sqlite") as refused:
        SqliteLeaseStore("postgresql://user:secret@host/fleet")

    assert "secret" not in str(refused.value)


def test_an_engine_whose_connections_are_not_set_up_is_refused(tmp_path):
    """Of SQLite's, whose default settings lose updates."""
    with pytest.raises(ConfigurationError, match="Give the URL"):
        open_sql(create_engine(f"sqlite:///{tmp_path / 'x.db'}"))


def test_a_database_is_shown_without_its_password():
    database = Database("postgresql://user:secret@host/fleet?sslpassword=hidden", SqlOptions())

    assert database.name == "postgresql+psycopg2://user:***@host/fleet?sslpassword=***"


def test_a_new_file_is_opened_by_several_at_once(tmp_path):
    """SQLite refuses a change of the journal's mode that meets another, without the wait that it makes elsewhere.

    One round in ten or so meets it.
    """
    with ThreadPoolExecutor(4) as threads:
        for number in range(100):
            url = parse_url(f"sqlite:///{tmp_path / f'{number}.db'}")
            barrier = threading.Barrier(4)

            def connect(url=url, barrier=barrier):
                engine = make_engine(url, SqlOptions(pool_size=1))
                barrier.wait(30)
                with engine.connect() as connection:
                    mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
                engine.dispose()
                return mode

            opened = [threads.submit(connect) for _ in range(4)]
            assert [one.result(10) for one in opened] == ["wal"] * 4
