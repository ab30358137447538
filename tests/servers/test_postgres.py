from __future__ import annotations

import os
from pathlib import Path

import psycopg2
import pytest

from tests.servers import PostgresServer, ServerFailedError
from tests.servers.daemon import unprivileged_user


def query(url, statement):
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_a_test_gets_a_database_of_its_own(postgres_server, postgres_url):
    query(postgres_url, "CREATE TABLE mine (n int)")

    with postgres_server.database() as other:
        assert query(other, "SELECT to_regclass('mine') IS NULL") == [(True,)]


def test_a_database_is_gone_after_its_block_even_if_someone_is_still_connected(postgres_server):
    with postgres_server.database() as url:
        left = psycopg2.connect(url)
        assert postgres_server.connections(url) == 1

    with pytest.raises(psycopg2.OperationalError, match="does not exist"):
        psycopg2.connect(url)
    left.close()


def test_a_restart_keeps_the_port_and_the_data(postgres_server, postgres_url):
    query(postgres_url, "CREATE TABLE kept AS SELECT 1 AS n")
    before = postgres_server.port, postgres_server.pid

    postgres_server.restart()

    assert (postgres_server.port, postgres_server.pid) == (before[0], postgres_server.pid)
    assert postgres_server.pid != before[1]
    assert query(postgres_url, "SELECT n FROM kept") == [(1,)]


def test_a_kill_loses_nothing_that_was_committed(postgres_server, postgres_url):
    query(postgres_url, "CREATE TABLE kept AS SELECT 1 AS n")

    postgres_server.kill()

    assert postgres_server.pid is None
    with pytest.raises(psycopg2.OperationalError):
        psycopg2.connect(postgres_url)
    postgres_server.start()
    assert query(postgres_url, "SELECT n FROM kept") == [(1,)]


def test_a_template_is_prepared_once_and_copied(postgres_server):
    prepared = []

    def prepare(url):
        prepared.append(url)
        query(url, "CREATE TABLE migrated (n int)")

    for _ in range(2):
        name = postgres_server.template("test_of_templates", prepare)
        with postgres_server.database(template=name) as url:
            assert query(url, "SELECT count(*) FROM migrated") == [(0,)]
    assert len(prepared) == 1


def test_commits_are_kept_through_a_crash_of_the_process_though_not_of_the_machine(postgres_server, postgres_url):
    assert query(postgres_url, "SHOW fsync") == [("off",)]
    assert query(postgres_url, "SHOW synchronous_commit") == [("on",)]


def test_a_durable_server_has_the_settings_of_production(orphan_guard):
    with PostgresServer(durable=True, guard=orphan_guard) as server:
        assert query(server.url(), "SHOW fsync") == [("on",)]
        assert query(server.url(), "SHOW full_page_writes") == [("on",)]


def test_only_the_password_opens_it(postgres_server, postgres_url):
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(postgres_url, password="a guess")


@pytest.mark.skipif(os.geteuid() != 0, reason="runs as whoever runs the tests")
def test_started_by_root_it_runs_as_someone_else(postgres_server):
    postgres_server.start()

    assert Path(f"/proc/{postgres_server.pid}").stat().st_uid != 0
    assert Path(f"/proc/{postgres_server.pid}").owner() == unprivileged_user()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing(orphan_guard):
    server = PostgresServer(settings={"max_connections": "many"}, guard=orphan_guard)
    try:
        with pytest.raises(ServerFailedError, match="max_connections"):
            server.start()
        assert server.pid is None
    finally:
        server.close()
