"""Publishing, on a broker in memory. Real ones, and forks, are in tests/integration."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid

import pytest
from celery import Celery

from adk_worker.errors import BrokerUnavailableError
from adk_worker.runs import Dispatch
from adk_worker.settings import Settings
from tasks.config import celery_config
from tasks.dispatch import CeleryDispatcher

MESSAGE = Dispatch("acme", "run_1", 7)


@pytest.fixture
def settings():
    # A broker of this test's own: kombu's in memory is one per process, by the name of its virtual host.
    return Settings(store_url="sqlite:///runs.db", broker_url=f"memory://localhost/{uuid.uuid4().hex}")


@pytest.fixture
def app(settings):
    return Celery("adk", set_as_current=False, config_source=celery_config(settings))


@pytest.fixture
async def dispatcher(app):
    dispatcher = CeleryDispatcher(app, timeout=10)
    yield dispatcher
    await dispatcher.close()


def received(app, queue="adk"):
    """All messages that wait on a queue."""
    found = []
    with app.connection_for_read() as connection:
        channel = connection.default_channel
        while (message := app.amqp.queues[queue](channel).get(no_ack=True)) is not None:
            found.append(message)
    return found


async def test_a_message_arrives_on_the_queue_of_work(app, dispatcher):
    await dispatcher.dispatch(MESSAGE)
    (message,) = received(app)
    args, kwargs, _ = json.loads(message.body)
    assert (args, kwargs) == ([], {"v": 1, "tenant": "acme", "run_id": "run_1", "ticket": 7})
    assert message.headers["task"] == "adk.advance"
    assert message.content_type == "application/json"


async def test_a_recovery_is_another_task(app, dispatcher):
    await dispatcher.dispatch(Dispatch("acme", "run_1", 7, recovery=True))
    (message,) = received(app)
    assert message.headers["task"] == "adk.resume"


async def test_what_is_shown_of_it_is_the_run_and_its_ticket(app, dispatcher):
    """Flower shows arguments as they are, to whoever may look."""
    await dispatcher.dispatch(MESSAGE)
    (message,) = received(app)
    assert message.headers["argsrepr"] == "()"
    assert message.headers["kwargsrepr"] == "{'run_id': 'run_1', 'ticket': 7}"
    assert "acme" not in json.dumps(message.headers)


async def test_it_has_neither_a_time_to_wait_for_nor_a_result(app, dispatcher):
    """Redis delivers a message twice whose ETA lies past the visibility timeout."""
    await dispatcher.dispatch(MESSAGE)
    (message,) = received(app)
    headers = message.headers
    assert (headers["eta"], headers["expires"], headers["ignore_result"]) == (None, None, True)


async def test_many_at_once_all_arrive(app, dispatcher):
    await asyncio.gather(*(dispatcher.dispatch(Dispatch("acme", f"run_{n}", 1)) for n in range(50)))
    assert sorted(json.loads(message.body)[1]["run_id"] for message in received(app)) == sorted(
        f"run_{n}" for n in range(50)
    )


async def test_it_serves_several_event_loops(app, dispatcher):
    def elsewhere():
        asyncio.run(dispatcher.dispatch(Dispatch("acme", "run_2", 1)))

    await dispatcher.dispatch(MESSAGE)
    await asyncio.to_thread(elsewhere)
    assert len(received(app)) == 2


async def test_it_can_be_closed_and_used_again(app, dispatcher):
    await dispatcher.close()
    await dispatcher.dispatch(MESSAGE)
    await dispatcher.close()
    assert "adk-publish" not in {thread.name.partition("_")[0] for thread in threading.enumerate()}
    await dispatcher.dispatch(MESSAGE)
    assert len(received(app)) == 2


async def test_a_broker_that_does_not_answer_holds_up_nobody_for_longer_than_that(app):
    """The publish blocks its own thread, and the loop goes on."""
    release = threading.Event()
    app.send_task = lambda *_, **__: release.wait(30)
    dispatcher = CeleryDispatcher(app, timeout=0.01)
    try:
        with pytest.raises(BrokerUnavailableError, match="no answer within"):
            await dispatcher.dispatch(MESSAGE)
    finally:
        release.set()
        await dispatcher.close()


async def test_a_message_that_had_to_wait_in_vain_is_not_sent_later(app):
    """A thousand of them, all at once when the broker is back, would only find their tickets spent."""
    release, sent = threading.Event(), []

    def send(*_, kwargs, **__):
        sent.append(kwargs["run_id"])
        release.wait(30)

    app.send_task = send
    dispatcher = CeleryDispatcher(app, timeout=0.2)
    outcomes = await asyncio.gather(
        *(dispatcher.dispatch(Dispatch("acme", f"run_{n}", 1)) for n in range(20)), return_exceptions=True
    )
    release.set()
    await dispatcher.close()
    assert {type(outcome) for outcome in outcomes} == {BrokerUnavailableError}
    assert len(sent) < 20


@pytest.mark.parametrize("error", [ConnectionRefusedError("refused"), OSError("no route to redis://:hunter2@broker")])
async def test_whatever_the_broker_raises_is_one_error_that_says_what_to_do(app, error):
    def fail(*_, **__):
        raise error

    app.send_task = fail
    dispatcher = CeleryDispatcher(app, timeout=10)
    with pytest.raises(BrokerUnavailableError, match="ADK_BROKER_URL") as raised:
        await dispatcher.dispatch(MESSAGE)
    assert raised.value.__cause__ is error
    assert "hunter2" not in str(raised.value)
    assert raised.value.retryable
    await dispatcher.close()


async def test_an_error_shows_no_password():
    settings = Settings(store_url="sqlite:///runs.db", broker_url="redis://:hunter2@127.0.0.1:1/0", socket_timeout=5)
    dispatcher = CeleryDispatcher.from_settings(settings)
    with pytest.raises(BrokerUnavailableError) as raised:
        await dispatcher.dispatch(MESSAGE)
    assert "hunter2" not in str(raised.value)
    await dispatcher.close()
