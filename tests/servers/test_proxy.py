from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from tests.servers import Proxy
from tests.servers.daemon import HOST
from tests.waiting import wait_until


@pytest.fixture
def table(postgres_url):
    """Return a function that says what the table `t` holds, asking the server directly."""
    connection = psycopg2.connect(postgres_url)
    connection.autocommit = True

    def rows():
        with connection.cursor() as cursor:
            cursor.execute("SELECT n FROM t ORDER BY n")
            return [n for (n,) in cursor.fetchall()]

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (n int)")
    yield rows
    connection.close()


@pytest.fixture
def client(postgres_url, postgres_proxy, table):
    """Return a connection through the proxy."""
    connection = psycopg2.connect(postgres_proxy.url(postgres_url))
    yield connection
    connection.close()


def insert(connection, number):
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (%s)", (number,))
    connection.commit()


def test_what_is_sent_arrives(postgres_proxy, client, table):
    insert(client, 1)

    assert table() == [1]
    assert (postgres_proxy.connections, postgres_proxy.accepted) == (1, 1)


def test_much_at_once_arrives_whole(client):
    with client.cursor() as cursor:
        cursor.execute("SELECT repeat('x', 5000000), length(%s)", ("y" * 3_000_000,))
        text, length = cursor.fetchone()

    assert (len(text), length) == (5_000_000, 3_000_000)


def test_a_url_keeps_its_user_password_and_database(postgres_proxy):
    led = postgres_proxy.url("postgresql://me:p%40ss@db.example:5432/shop?sslmode=disable")

    assert led == f"postgresql://me:p%40ss@127.0.0.1:{postgres_proxy.port}/shop?sslmode=disable"


def test_a_cut_ends_connections_on_both_sides(postgres_server, postgres_url, postgres_proxy, client):
    assert postgres_proxy.cut() == 1

    with pytest.raises(psycopg2.OperationalError):
        insert(client, 1)
    # The one that is left is the table fixture's, which goes past the proxy.
    wait_until(lambda: postgres_server.connections(postgres_url) == 1, what="the server to notice")
    assert postgres_proxy.connections == 0


def test_after_a_cut_new_connections_are_taken(postgres_url, postgres_proxy, client, table):
    postgres_proxy.cut()

    again = psycopg2.connect(postgres_proxy.url(postgres_url))

    insert(again, 1)
    again.close()
    assert table() == [1]


def test_a_half_open_connection_stands_for_the_client_alone(postgres_server, postgres_url, postgres_proxy, client):
    assert postgres_proxy.half_open() == 1

    # The one that is left is the table fixture's, which goes past the proxy.
    wait_until(lambda: postgres_server.connections(postgres_url) == 1, what="the server to be rid of it")
    with socket.socket(fileno=os.dup(client.fileno())) as wire:
        wire.sendall(b"anybody there?")
        # Silence can only be shown by listening for a while; it cannot end by itself, however slow the machine.
        wire.settimeout(0.1)
        with pytest.raises(TimeoutError):
            wire.recv(100)
        wire.settimeout(None)
    assert postgres_proxy.connections == 1
    psycopg2.connect(postgres_proxy.url(postgres_url)).close()


def test_a_delay_holds_what_is_sent_and_keeps_its_order(redis_server, redis_proxy):
    with socket.create_connection((HOST, redis_proxy.port), timeout=60) as client:
        redis_proxy.delay(60)
        client.sendall(b"PING\r\n")
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)
    redis_proxy.delay(0.05)
    with socket.create_connection((HOST, redis_proxy.port), timeout=60) as client:
        client.sendall(b"PI")
        client.sendall(b"NG\r\n")
        assert client.recv(100).startswith(b"-NOAUTH")


def test_refused_connections_fail_while_old_ones_go_on(postgres_url, postgres_proxy, client, table):
    postgres_proxy.refuse()

    with pytest.raises(psycopg2.OperationalError, match="refused"):
        psycopg2.connect(postgres_proxy.url(postgres_url))
    insert(client, 1)
    assert table() == [1]


def test_accepting_again_happens_on_the_same_port(postgres_url, postgres_proxy):
    url = postgres_proxy.url(postgres_url)
    postgres_proxy.refuse()

    postgres_proxy.accept()

    psycopg2.connect(url).close()


def test_a_pause_carries_nothing_and_shows_no_error(redis_server, redis_proxy):
    with socket.create_connection((HOST, redis_proxy.port)) as client:
        redis_proxy.pause()
        client.sendall(b"PING\r\n")
        # Silence can only be shown by listening for a while; it cannot end by itself, however slow the machine.
        client.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.recv(100)

        redis_proxy.resume()

        client.settimeout(60)
        assert client.recv(100).startswith(b"-NOAUTH")


def test_a_connection_made_in_a_pause_is_served_after_it(redis_server, redis_proxy):
    redis_proxy.pause()
    with socket.create_connection((HOST, redis_proxy.port), timeout=60) as client:
        client.sendall(b"PING\r\n")

        redis_proxy.resume()

        assert client.recv(100).startswith(b"-NOAUTH")


def test_a_lost_answer_means_that_the_request_happened(postgres_proxy, client, table):
    fault = postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(psycopg2.OperationalError):
        insert(client, 1)

    fault.wait()
    assert table() == [1]


def test_a_lost_request_means_that_it_did_not_happen(postgres_proxy, client, table):
    fault = postgres_proxy.lose_request(to=b"COMMIT")

    with pytest.raises(psycopg2.OperationalError):
        insert(client, 1)

    fault.wait()
    assert table() == []


def test_a_held_request_happens_when_it_is_released(postgres_proxy, client, table):
    fault = postgres_proxy.hold_request(to=b"COMMIT")
    with ThreadPoolExecutor() as pool:
        committing = pool.submit(insert, client, 1)
        fault.wait()
        assert table() == []
        assert not committing.done()

        fault.release()

        assert committing.result(timeout=60) is None
    assert table() == [1]


def test_a_held_request_whose_connection_is_lost_never_happens(postgres_url, postgres_proxy, client, table):
    fault = postgres_proxy.hold_request(to=b"COMMIT")
    with ThreadPoolExecutor() as pool:
        committing = pool.submit(insert, client, 1)
        fault.wait()
        postgres_proxy.cut()
        with pytest.raises(psycopg2.OperationalError):
            committing.result(timeout=60)

    fault.release()

    another = psycopg2.connect(postgres_proxy.url(postgres_url))
    insert(another, 2)
    assert table() == [2]
    another.close()


def test_a_held_answer_arrives_when_it_is_released(postgres_proxy, client, table):
    fault = postgres_proxy.hold_answer(to=b"COMMIT")
    with ThreadPoolExecutor() as pool:
        committing = pool.submit(insert, client, 1)
        fault.wait()
        assert table() == [1]
        assert not committing.done()

        fault.release()

        assert committing.result(timeout=60) is None


def test_a_fault_strikes_as_often_as_it_was_told_to(postgres_url, postgres_proxy, table):
    fault = postgres_proxy.lose_request(to=lambda request: b"INSERT" in request, times=2)
    outcomes = []

    for number in range(3):
        connection = psycopg2.connect(postgres_proxy.url(postgres_url))
        try:
            insert(connection, number)
            outcomes.append("done")
        except psycopg2.OperationalError:
            outcomes.append("lost")
        connection.close()

    assert outcomes == ["lost", "lost", "done"]
    assert fault.count == 2
    assert table() == [2]


def test_requests_are_counted_and_left_alone(postgres_proxy, client, table):
    commits = postgres_proxy.count(lambda request: request.endswith(b"COMMIT\0"))
    insert(client, 1)
    lost = postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(psycopg2.OperationalError):
        insert(client, 2)

    assert (commits.count, lost.count) == (2, 1)
    assert table() == [1, 2]


def test_waiting_for_a_fault_that_does_not_come_fails(postgres_proxy):
    fault = postgres_proxy.lose_answer(to=b"COMMIT")

    with pytest.raises(AssertionError, match="COMMIT"):
        fault.wait(within=0)


def test_a_server_that_is_down_ends_the_connection():
    def connect(proxy):
        with socket.create_connection((HOST, proxy.port), timeout=60) as client:
            client.recv(1)

    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        with Proxy(nobody.getsockname()[1]) as proxy, pytest.raises(ConnectionResetError):
            connect(proxy)


def test_an_error_in_a_tests_own_predicate_is_not_swallowed(redis_server):
    def wrong(request):
        raise ZeroDivisionError

    proxy = Proxy(redis_server.port)
    proxy.__enter__()
    proxy.lose_answer(to=wrong)
    with socket.create_connection((HOST, proxy.port), timeout=60) as client:
        client.sendall(b"PING\r\n")
        with pytest.raises(ConnectionResetError):
            client.recv(1)

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        proxy.__exit__(None, None, None)
