from __future__ import annotations

from contextlib import closing

import psycopg2
import pytest


@pytest.fixture
def connect(pgbouncer, postgres_url):
    connections = []

    def connect():
        connections.append(psycopg2.connect(pgbouncer.url(postgres_url)))
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


def ask(connection, statement):
    with connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()


def test_one_session_serves_client_after_client(connect):
    """Pooled by transaction: what one leaves in it, another finds."""
    first, second = connect(), connect()

    ask(first, "SET lock_timeout = '7s'; SELECT 1")

    assert ask(second, "SHOW lock_timeout") == ("7s",)


def test_a_session_is_ones_own_for_a_transaction(connect):
    first, second = connect(), connect()
    with first, first.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")

        assert ask(second, "SELECT pg_backend_pid()") != cursor.fetchone()


def test_a_client_that_asks_for_settings_of_its_own_is_refused(pgbouncer, postgres_url):
    with pytest.raises(psycopg2.OperationalError, match="unsupported startup parameter"):
        psycopg2.connect(pgbouncer.url(postgres_url), options="-c lock_timeout=1s")


def test_a_restart_keeps_the_port(pgbouncer, postgres_url):
    before = pgbouncer.pid

    pgbouncer.restart()

    assert pgbouncer.pid != before
    with closing(psycopg2.connect(pgbouncer.url(postgres_url))) as connection:
        assert ask(connection, "SELECT 1") == (1,)
