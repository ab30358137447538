"""Which of libpq's sentences say that waiting mends nothing."""

from __future__ import annotations

import psycopg2
import pytest
from sqlalchemy.exc import OperationalError

from adk_worker.errors import StoreRefusedError, StoreUnavailableError
from stores.sql.failures import translated

_AT = 'connection to server at "db" (10.0.0.7), port 5432 failed: '


def told(*lines):
    return translated(OperationalError("", {}, psycopg2.OperationalError("\n".join(lines))), store="postgresql://db/x")


@pytest.mark.parametrize(
    "said",
    [
        'FATAL:  password authentication failed for user "app"',
        'FATAL:  Peer authentication failed for user "app"',
        "fe_sendauth: no password supplied",
        'FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "app", database "x", no encryption',
        'FATAL:  pg_hba.conf rejects connection for host "10.0.0.9", user "app", database "x"',
        'FATAL:  database "x" does not exist',
        'FATAL:  role "app" does not exist',
        'FATAL:  role "app" is not permitted to log in',
        'FATAL:  permission denied for database "x"',
        "ERROR:  no such database: x",
        "server does not support SSL, but SSL was required",
        "SSL error: certificate verify failed",
        'root certificate file "/root.crt" does not exist',
        'server certificate for "db" does not match host name "10.0.0.7"',
        'invalid sslmode value: "perhaps"',
    ],
)
def test_a_login_that_will_be_refused_tomorrow_too_is_told_from_an_outage(said):
    error = told(_AT + said)

    assert isinstance(error, StoreRefusedError)
    assert said.rstrip(".") in str(error)
    assert not error.retryable


def test_of_several_hosts_the_one_that_refuses_counts():
    error = told(_AT + "Connection refused", _AT + 'FATAL:  password authentication failed for user "app"')

    assert isinstance(error, StoreRefusedError)
    assert "Connection refused" not in str(error)


@pytest.mark.parametrize(
    "said",
    [
        "Connection refused",
        "FATAL:  the database system is starting up",
        "FATAL:  sorry, too many clients already",
        "server closed the connection unexpectedly",
        'could not translate host name "db" to address: Name or service not known',
        "timeout expired",
    ],
)
def test_a_server_that_is_away_is_waited_for(said):
    error = told(_AT + said)

    assert isinstance(error, StoreUnavailableError)
    assert error.retryable
