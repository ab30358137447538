"""The consumer of a worker that loses its broker."""

from __future__ import annotations

import pytest
from celery import Celery
from kombu.transport.virtual import Transport
from structlog.testing import capture_logs

from adk_worker.settings import Settings
from tasks.config import celery_config
from tasks.consumer import FleetConsumer


class Emptied(Transport):
    """What a first tidying up leaves behind: channels ask it where the server is, and it does not know any more."""

    def __init__(self):
        self.client = None


class Lost:
    """A connection that is lost, and in such a state that it cannot even be closed."""

    connection_errors = channel_errors = (ConnectionError,)
    transport = None

    def __init__(self):
        self._transport = self.emptied = Emptied()

    def collect(self, socket_timeout=None):
        raise ConnectionError("Error 111 connecting to 127.0.0.1:6379")

    def close(self):
        raise AttributeError("'NoneType' object has no attribute 'hostname'")


@pytest.fixture
def consumer():
    consumer = FleetConsumer.__new__(FleetConsumer)
    consumer.connection = Lost()
    return consumer


def test_a_lost_connection_that_cannot_be_closed_does_not_end_the_worker(consumer):
    with capture_logs() as told:
        consumer.on_connection_error_after_connected(ConnectionError("Connection closed by server."))

    assert consumer.connection is None
    assert [(line["event"], "hostname" in line["error"]) for line in told] == [("lost_connection_not_tidied_up", True)]


def test_messages_in_hand_find_the_server_when_they_are_acknowledged(consumer):
    """By the connection by which they came, and so by one that was lost meanwhile."""
    lost = consumer.connection

    consumer.on_connection_error_after_connected(ConnectionError("Connection closed by server."))

    assert lost.emptied.client is lost


def test_an_error_before_the_connection_was_given_up_is_not_kept_quiet(consumer, monkeypatch):
    monkeypatch.setattr("celery.worker.consumer.consumer.bound_open_broker_sockets", None)

    with pytest.raises(TypeError):
        consumer.on_connection_error_after_connected(ConnectionError())


def test_the_fleets_workers_use_it():
    app = Celery("adk", set_as_current=False)
    app.conf.update(celery_config(Settings(store_url="sqlite:///x.db", broker_url="redis://127.0.0.1/0")))

    assert app.conf.worker_consumer == "tasks.consumer:FleetConsumer"
