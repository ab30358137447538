"""The consumer of a worker that loses its broker."""

from __future__ import annotations

import uuid

import amqp
import pytest
from celery import Celery
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from celery.worker.state import reserved_requests
from kombu import Connection, Queue
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


class Controller:
    """The worker program, which is told what its consumer is about."""

    def __init__(self):
        self.vitals = self
        self.phases = []

    def enter(self, phase):
        self.phases.append(phase)


@pytest.fixture
def consumer():
    consumer = FleetConsumer.__new__(FleetConsumer)
    consumer.connection = Lost()
    consumer.controller = Controller()
    consumer.event_dispatcher = None
    return consumer


def test_a_lost_connection_that_cannot_be_closed_does_not_end_the_worker(consumer):
    with capture_logs() as told:
        consumer.on_connection_error_after_connected(ConnectionError("Connection closed by server."))

    assert consumer.connection is None
    assert consumer.controller.phases == ["connecting"]
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


class Reserved:
    """A message's request, as Celery keeps it until a slot is free."""

    acknowledged = False


class TestLeaving:
    @pytest.fixture
    def taking(self, consumer):
        """A consumer of a queue in which there was one message, which it has in hand."""
        with Connection("memory://") as connection:
            queue = Queue(uuid.uuid4().hex)(connection.channel())
            queue.declare()
            connection.Producer().publish("first", routing_key=queue.name)
            consumer.task_consumer = connection.Consumer(queue, callbacks=[lambda *_: None])
            consumer.task_consumer.channel.do_restore = True  # as a broker's; the one in memory does not care
            consumer.task_consumer.consume()
            connection.drain_events(timeout=5)
            yield queue

    def test_gives_back_at_once_what_waits_for_a_slot(self, consumer, taking):
        """Celery would keep it until the last task has ended."""
        waiting = Reserved()
        reserved_requests.add(waiting)
        assert taking.get() is None

        consumer.stop_taking()

        assert taking.get().payload == "first"
        assert waiting.acknowledged  # by no channel: that is closed
        assert consumer.task_consumer is None
        consumer.stop_taking()

    def test_a_broker_that_is_away_is_no_obstacle(self, consumer):
        class Away:
            def cancel(self):
                raise ConnectionError("no broker")

        consumer.task_consumer = Away()
        with capture_logs() as told:
            consumer.stop_taking()

        assert [line["event"] for line in told] == ["messages_not_given_back"]


def test_the_fleets_workers_use_it():
    app = Celery("adk", set_as_current=False)
    app.conf.update(celery_config(Settings(store_url="sqlite:///x.db", broker_url="redis://127.0.0.1/0")))

    assert app.conf.worker_consumer == "tasks.consumer:FleetConsumer"


def test_no_queues_are_declared_for_messages_with_a_time_to_wait_for():
    """Celery would make 28 of them beside quorum queues."""
    steps = FleetConsumer.Blueprint.default_steps
    assert not [step for step in steps if "delayed" in step]
    assert len(steps) == len(Consumer.Blueprint.default_steps) - 1


def test_a_queue_of_another_type_ends_the_worker(consumer):
    refusal = amqp.PreconditionFailed("inequivalent arg 'x-queue-type'", (50, 10), "Queue.declare", 406)

    with capture_logs() as told, pytest.raises(WorkerShutdown) as ended:
        consumer.on_connection_error_after_connected(refusal)

    assert ended.value.code == 78
    assert "ADK_QUEUE_TYPE" in told[0]["why"]


def test_a_channel_that_was_closed_for_a_message_in_hand_does_not(consumer):
    """RabbitMQ's consumer_timeout."""
    refusal = amqp.PreconditionFailed("delivery acknowledgement on channel 1 timed out", (0, 0), "", 406)

    consumer.on_connection_error_after_connected(refusal)

    assert consumer.connection is None


def test_a_login_that_is_refused_ends_the_worker(consumer):
    with capture_logs() as told, pytest.raises(WorkerShutdown) as ended:
        consumer.on_connection_error_before_connected(amqp.AccessRefused("Login was refused", (0, 0), "", 403))

    assert ended.value.code == 78
    assert "ADK_BROKER_URL" in told[0]["why"]
