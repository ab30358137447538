"""Events for Flower, and a broker that does not take them."""

from __future__ import annotations

import pytest

from adk_worker.settings import Settings
from tasks import observing
from tasks.app import FleetApp
from tests.unit.clock import Clock


class Broker:
    """Takes what is published, or fails after so many seconds."""

    def __init__(self, clock):
        self.taken = []
        self.tries = 0
        self.fails_after = None
        self._clock = clock

    def publish(self, event, *, retry, **_):
        assert not retry, "it would be tried for as long as the broker is away"
        self.tries += 1
        if self.fails_after is not None:
            self._clock.now += self.fails_after
            raise ConnectionError("timed out")
        self.taken.append(event["type"])


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(observing.time, "monotonic", clock)
    return clock


@pytest.fixture
def broker(clock):
    return Broker(clock)


@pytest.fixture
def events(broker):
    app = FleetApp(Settings(store_url="sqlite:///runs.db", broker_url="memory://events"))
    dispatcher = app.events.Dispatcher(app.connection_for_write())
    dispatcher.producer = broker
    return dispatcher


def test_a_worker_s_sign_of_life_is_tried_once(events, broker):
    """Celery's own asks for it to be tried until it gets through."""
    events.send("worker-heartbeat", retry=True)
    assert broker.taken == ["worker-heartbeat"]


def test_after_one_that_did_not_get_through_none_is_tried_for_a_while(events, broker, clock):
    broker.fails_after = 10
    events.send("worker-heartbeat", retry=True)
    events.send("worker-heartbeat", retry=True)
    assert broker.tries == 1

    clock.now += 20
    broker.fails_after = None
    events.send("worker-heartbeat", retry=True)
    events.flush()
    assert broker.taken == ["worker-heartbeat"] * 3


def test_of_what_could_not_be_sent_no_more_is_kept_than_so_much(events, broker, clock):
    broker.fails_after = 1
    for _ in range(2000):
        events.send("worker-heartbeat", retry=True)
    broker.fails_after = None
    clock.now += 60
    events.flush()
    assert len(broker.taken) == 1000
