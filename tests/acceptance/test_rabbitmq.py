"""RabbitMQ as the broker, with classic and with quorum queues: what the fleet survives on Redis it survives there."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import amqp
import pytest
from kombu import Connection

from tests.acceptance import scenarios
from tests.acceptance.conftest import MakeFleet
from tests.acceptance.fleet import LONG, PATIENCE
from tests.servers import OrphanGuard, Proxy, RabbitServer
from tests.servers.demand import or_skip
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

both = pytest.mark.parametrize("queue_type", ["classic", "quorum"])

IMPATIENT = {"consumer_timeout": 5000, "channel_tick_interval": 500}
"""A broker that waits five seconds, instead of half an hour, for a message to be acknowledged, and looks often."""


@pytest.fixture
def make_fleet(make_fleet_on: MakeFleet, rabbitmq_url: str) -> MakeFleet:
    return partial(make_fleet_on, rabbitmq_url)


def test_a_kill_in_a_model_call(make_fleet):
    """The frontier before it is carried on; no call of a tool is repeated."""
    scenarios.killed_in_a_model_call(make_fleet(queue_type="classic"), pool="prefork")


def test_a_kill_between_effect_and_record(make_fleet):
    """I2, I7: the probe finds the booking; its outcome is recorded and the call not made again."""
    scenarios.killed_between_effect_and_record(make_fleet(queue_type="quorum"), pool="threads")


def test_a_kill_between_commit_and_publish(make_fleet, rabbitmq_proxy: Proxy):
    """The store has handed over, and no message was sent: the queued lease lapses and the reaper publishes."""
    fleet = make_fleet(queue_type="quorum")
    scenarios.killed_between_commit_and_publish(fleet, pool="threads", behind=rabbitmq_proxy)


def test_a_purged_queue(make_fleet):
    """Nothing is lost but time."""
    scenarios.broker_emptied(make_fleet(), pool="threads")


@pytest.mark.parametrize(("queue_type", "end"), [("classic", "kill"), ("quorum", "stop")])
def test_a_broker_that_restarts_brings_its_messages_back(make_fleet, rabbitmq_server: RabbitServer, queue_type, end):
    """Busy slots, messages in hand and messages in the queue; nothing of it is recovered by a lease that lapses.

    The quorum queue is spared the kill: a node writes the list of its quorum queues a while after they were declared,
    so one that is killed seconds later has a queue without a leader.
    """
    fleet = make_fleet(times=LONG, queue_type=queue_type)
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    worker = fleet.worker("worker", slots=2)
    names = [f"kept-{number}" for number in range(6)]
    for name in names:
        fleet.submit(name)
    held.wait(at_least=2, within=PATIENCE)
    getattr(rabbitmq_server, end)()
    wait_until(lambda: worker.says("onnection to broker lost"), within=PATIENCE, what="the worker to notice")
    rabbitmq_server.start()
    wait_until(lambda: worker.log().count("Connected to amqp") > 1, within=PATIENCE, what="the worker to come back")
    held.release()
    fleet.done_once(*names)
    assert not [name for name in names if fleet.events(name, "published_again")]


@both
def test_a_connection_that_is_cut_in_mid_step(make_fleet, rabbitmq_proxy: Proxy, queue_type):
    """Consumer, events and publishers lose theirs at once; the step goes on, and so does the worker."""
    fleet = make_fleet(times=LONG, queue_type=queue_type)
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    worker = fleet.worker("worker", slots=1, ADK_BROKER_URL=rabbitmq_proxy.url(fleet.broker_url))
    names = ["cut-running", "cut-in-hand", "cut-queued"]
    for name in names:
        fleet.submit(name)
    held.wait(within=PATIENCE)
    rabbitmq_proxy.cut()
    wait_until(lambda: worker.log().count("Connected to amqp") > 1, within=PATIENCE, what="the worker to come back")
    held.release()
    fleet.done_once(*names)


@pytest.fixture(scope="module")
def impatient_server(orphan_guard: OrphanGuard) -> Iterator[RabbitServer]:
    with or_skip(lambda: RabbitServer(settings=IMPATIENT, guard=orphan_guard)) as server:
        yield server


@both
def test_a_step_that_outlasts_the_consumer_timeout(make_fleet_on, impatient_server: RabbitServer, queue_type):
    """Its message was acknowledged as it began, so the broker waits for nothing.

    That a timeout has passed is told by a message of another consumer's, taken later and never acknowledged. And what
    a busy worker has in hand for that long is taken from it, with the channel; it comes again, and is carried out once.
    """
    fleet = make_fleet_on(impatient_server.fresh_vhost(), times=LONG, queue_type=queue_type)
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    worker = fleet.worker("worker", slots=1)
    fleet.submit("long")
    held.wait(within=PATIENCE)
    timed_out_elsewhere(impatient_server)
    assert not worker.says("onnection to broker lost")

    fleet.submit("in-hand")
    wait_until(lambda: worker.says("acknowledgement on channel"), within=PATIENCE, what="the broker to lose patience")
    wait_until(lambda: worker.log().count("Connected to amqp") > 1, within=PATIENCE, what="it to come back")
    held.release()
    fleet.done_once("long", "in-hand")
    assert not fleet.events("long", "published_again") + fleet.events("in-hand", "published_again")


def timed_out_elsewhere(server: RabbitServer) -> None:
    """Take a message of another queue and keep it until the broker has lost its patience."""
    with Connection(server.url(), connect_timeout=60) as connection:
        channel = connection.channel()
        channel.queue_declare("canary", auto_delete=True)
        channel.basic_publish(amqp.Message(b"{}"), exchange="", routing_key="canary")
        channel.basic_consume("canary", no_ack=False, callback=lambda _: None)
        with pytest.raises(amqp.PreconditionFailed, match="delivery acknowledgement"):
            wait_until(lambda: connection.drain_events(timeout=PATIENCE), within=PATIENCE)
