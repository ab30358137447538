"""What we use of fakeredis's private module is there, and does what we use it for."""

from __future__ import annotations

import socket
import threading
from socketserver import StreamRequestHandler, ThreadingTCPServer

import pytest
import redis
from fakeredis import TcpFakeServer
from fakeredis._clients import _tcp_server

from tasks.embedded import EmbeddedBroker, publish_address


@pytest.fixture
def broker():
    broker = EmbeddedBroker()
    serving = threading.Thread(target=broker.serve)
    serving.start()
    yield broker
    broker.stop()
    serving.join(30)
    assert not serving.is_alive()


@pytest.fixture
def client(broker):
    with redis.Redis.from_url(broker.url, socket_timeout=10) as client:
        yield client


def test_the_private_names_that_we_lean_on_are_what_they_were():
    """A release of fakeredis that moves them must be noticed here, not by a broker that is slow or does not end."""
    assert issubclass(_tcp_server.TCPFakeRequestHandler, StreamRequestHandler)
    assert issubclass(TcpFakeServer, ThreadingTCPServer)
    assert isinstance(StreamRequestHandler.disable_nagle_algorithm, bool)
    assert isinstance(ThreadingTCPServer.daemon_threads, bool)
    assert isinstance(ThreadingTCPServer.block_on_close, bool)


def test_its_sockets_send_at_once(broker, monkeypatch):
    """TCP_NODELAY; without it a hop of a message takes a tenth of a second."""
    found = threading.Event()
    setup = _tcp_server.TCPFakeRequestHandler.setup

    def watched(handler):
        setup(handler)
        if handler.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY):
            found.set()

    monkeypatch.setattr(_tcp_server.TCPFakeRequestHandler, "setup", watched)
    with redis.Redis.from_url(broker.url, socket_timeout=10) as client:
        client.ping()
    assert found.is_set()


def test_it_listens_on_the_loopback_alone_and_on_a_port_of_its_own(broker):
    other = EmbeddedBroker()
    assert broker.url.startswith("redis://127.0.0.1:")
    assert other.url != broker.url
    other.close()


def test_it_ends_while_a_client_waits_for_a_message(broker):
    port = int(broker.url.rpartition(":")[2].partition("/")[0])
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"*1\r\n$4\r\nPING\r\n*3\r\n$5\r\nBRPOP\r\n$7\r\nnothing\r\n$1\r\n0\r\n")
        assert client.recv(7) == b"+PONG\r\n"
        broker.stop()


def test_what_kombu_asks_of_a_broker_it_answers(client):
    """Lists, the hash and the sorted set of unacknowledged messages, sets, publications, and a lock in Lua."""
    client.lpush("adk", "one")
    assert client.brpop(["adk", "adk.control"], timeout=60) == (b"adk", b"one")
    with client.pipeline() as pipe:
        pipe.zadd("unacked_index", {"tag": 1.0})
        pipe.hset("unacked", "tag", "body")
        pipe.execute()
    assert client.zrevrangebyscore("unacked_index", 2, 0) == [b"tag"]
    assert client.sadd("_kombu.binding.adk", "member") == 1
    listener = client.pubsub()
    listener.subscribe("/0.celeryev")
    messages = iter(listener.listen())
    assert next(messages)["type"] == "subscribe"
    client.publish("/0.celeryev", "event")
    assert next(messages)["data"] == b"event"
    listener.close()
    assert client.lock("mutex", timeout=5).acquire(blocking=False)
    assert client.eval("return redis.call('exists', KEYS[1])", 1, "mutex") == 1


def test_its_address_appears_whole_or_not_at_all(tmp_path):
    ready = tmp_path / "broker.url"
    publish_address("redis://127.0.0.1:1/0", ready)
    publish_address("redis://127.0.0.1:2/0", ready)
    assert ready.read_text() == "redis://127.0.0.1:2/0\n"
    assert list(tmp_path.iterdir()) == [ready]
