from __future__ import annotations

import amqp
import pytest
from kombu import Connection, Queue

from tests.servers.orphans import started_at


def put(url, text, *, name="kept"):
    with Connection(url, transport_options={"confirm_publish": True}) as connection:
        queue = Queue(name, exchange="", routing_key=name, durable=True)
        connection.Producer().publish(text, routing_key=name, declare=[queue], delivery_mode=2)


def take(url, *, name="kept"):
    with Connection(url) as connection, connection.channel() as channel:
        found = channel.basic_get(name, no_ack=True)
        return found and found.body


def test_a_test_gets_a_virtual_host_in_which_nothing_is_declared(rabbitmq_server, rabbitmq_url):
    put(rabbitmq_url, "mine")

    other = rabbitmq_server.fresh_vhost()

    assert rabbitmq_server.queues(rabbitmq_url) == {"kept": "classic"}
    assert rabbitmq_server.queues(other) == {}


def test_a_server_that_was_stopped_comes_back_on_its_port_with_its_data(rabbitmq_server, rabbitmq_url):
    put(rabbitmq_url, "kept")
    before = rabbitmq_server.pid

    rabbitmq_server.stop()

    assert started_at(before) is None
    with pytest.raises(OSError, match="refused"):
        take(rabbitmq_url)
    rabbitmq_server.start()
    assert rabbitmq_server.pid != before
    assert take(rabbitmq_url) == "kept"


def test_a_server_that_was_killed_comes_back_on_its_port(rabbitmq_server, rabbitmq_url):
    """What was declared a moment before is not on its disk yet, so nothing is said of the data."""
    before = rabbitmq_server.pid

    rabbitmq_server.kill()

    assert started_at(before) is None
    rabbitmq_server.start()
    put(rabbitmq_url, "fresh")
    assert take(rabbitmq_url) == "fresh"


def test_only_the_password_opens_it(rabbitmq_server):
    connection = amqp.Connection(host=f"127.0.0.1:{rabbitmq_server.port}", userid="tests", password="guess")
    with pytest.raises(amqp.AccessRefused):
        connection.connect()
