from __future__ import annotations

import pytest
import redis


@pytest.fixture
def connect():
    clients = []

    def connect(url, **options):
        clients.append(redis.Redis.from_url(url, decode_responses=True, **options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def test_a_test_gets_a_database_that_holds_nothing(redis_server, redis_url, connect):
    connect(redis_url).set("mine", "1")

    other = redis_server.fresh_database()

    assert other != redis_url
    assert connect(other).keys() == []


def test_a_database_that_comes_round_again_is_empty(redis_server, redis_url, connect):
    connect(redis_url).set("old", "1")

    again = next(url for url in iter(redis_server.fresh_database, None) if url == redis_url)

    assert connect(again).keys() == []


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_server_that_ended_comes_back_on_its_port_with_its_data(redis_server, redis_url, connect, end):
    connect(redis_url).set("kept", "1")
    before = redis_server.pid

    getattr(redis_server, end)()

    assert redis_server.pid is None
    with pytest.raises(redis.exceptions.ConnectionError):
        connect(redis_url, retry=None).ping()
    redis_server.start()
    assert redis_server.pid != before
    assert connect(redis_url).get("kept") == "1"


def test_only_the_password_opens_it(redis_server, redis_url, connect):
    with pytest.raises(redis.exceptions.AuthenticationError):
        connect(f"redis://:guess@127.0.0.1:{redis_server.port}/0").ping()
