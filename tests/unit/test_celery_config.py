"""Celery's configuration, as far as something rests on it."""

from __future__ import annotations

import socket

import pytest
from celery import Celery
from celery.app.defaults import DEFAULTS
from celery.utils.quorum_queues import detect_quorum_queues

from adk_worker.errors import ConfigurationError
from adk_worker.settings import Settings
from tasks.config import celery_config


def config(broker="redis://:secret@broker:6379/0", **given):
    return celery_config(Settings(store_url="sqlite:///runs.db", broker_url=broker, **given))


@pytest.fixture
def app():
    return Celery("adk", set_as_current=False, config_source=config())


def test_every_setting_is_one_that_celery_knows():
    """A misspelt one would be ignored without a word."""
    assert set(config()) - set(DEFAULTS) == set()


def test_json_alone_is_written_and_read():
    """T2."""
    found = config()
    assert found["accept_content"] == found["result_accept_content"] == ["json"]
    assert found["task_serializer"] == found["result_serializer"] == "json"


def test_results_are_kept_nowhere(app):
    assert app.conf.task_ignore_result
    assert app.backend.as_uri() == "disabled://"


@pytest.mark.parametrize(
    ("task", "queue"), [("adk.advance", "adk"), ("adk.resume", "adk"), ("adk.reap", "adk.control")]
)
def test_the_reaper_has_a_queue_of_its_own(app, task, queue):
    assert app.amqp.router.route({}, task)["queue"].name == queue


def test_a_queue_that_does_not_exist_cannot_be_consumed(app):
    with pytest.raises(KeyError):
        app.amqp.queues.select(["adk.contrl"])


def test_the_reaper_is_sent_as_often_as_the_settings_say():
    (entry,) = config(reap_every=7)["beat_schedule"].values()
    assert entry["schedule"] == 7
    assert entry["options"]["queue"] == "adk.control"
    assert entry["options"]["expires"] >= 7
    (entry,) = config(reap_every=300)["beat_schedule"].values()
    assert entry["options"]["expires"] == 300


def test_beat_keeps_no_file():
    assert config()["beat_scheduler"] == "celery.beat:Scheduler"


@pytest.mark.parametrize("scheme", ["redis", "rediss", "sentinel", "redis+socket"])
def test_a_redis_that_falls_silent_is_noticed(scheme):
    options = config(f"{scheme}://broker/0", socket_timeout=3)["broker_transport_options"]
    assert options["socket_timeout"] == options["socket_connect_timeout"] == 3
    assert options["socket_keepalive"]
    assert options["health_check_interval"] == 3


@pytest.mark.parametrize("scheme", ["amqp", "amqps", "pyamqp"])
def test_rabbitmq_confirms_what_it_takes_and_its_silence_is_noticed(scheme):
    found = config(f"{scheme}://guest@broker//", socket_timeout=3)
    options = found["broker_transport_options"]
    assert options["confirm_publish"]
    assert options["read_timeout"] == options["write_timeout"] == found["broker_heartbeat"] == 3
    assert options["socket_settings"][socket.TCP_USER_TIMEOUT] == 3000


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_rabbitmqs_queues_are_of_the_type_that_is_set(queue_type):
    """Said either way: a virtual host may have another default."""
    app = Celery("adk", set_as_current=False, config_source=config("amqp://broker//", queue_type=queue_type))
    types = {queue.name: queue.queue_arguments["x-queue-type"] for queue in app.amqp.queues.values()}
    assert types == {"adk": queue_type, "adk.control": queue_type}
    assert detect_quorum_queues(app, "amqp")[0] is (queue_type == "quorum")


def test_a_redis_has_no_types_of_queues(app):
    assert {queue.name: queue.queue_arguments for queue in app.amqp.queues.values()} == {
        "adk": None,
        "adk.control": None,
    }


def test_another_broker_gets_no_options_of_these_two():
    assert config("memory://")["broker_transport_options"] == {}


def test_a_broker_that_is_away_is_waited_for_without_end_but_not_by_a_publish():
    found = config()
    assert found["broker_connection_retry_on_startup"]
    assert found["broker_connection_max_retries"] is None
    assert found["task_publish_retry_policy"]["max_retries"] <= 3


def test_nothing_of_celery_s_carries_a_message_out_twice():
    """Acknowledged early, and not given back when a worker dies: that is the reaper's business."""
    found = config()
    assert not found["task_acks_late"]
    assert not found["task_reject_on_worker_lost"]
    assert found["worker_prefetch_multiplier"] == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://:hunter22@broker", "no such broker is known"),
        ("kafka://:hunter22@broker", "not installed"),
        ("redis://:hunter22@broker:99999/0", "cannot be read"),
        ("redis://:hunter22/x@broker/0", "cannot be read"),
    ],
)
def test_a_broker_that_cannot_be_used_is_told_in_a_sentence(url, said):
    """Without its password; what Celery makes of it is a traceback."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        config(url)
    assert "ADK_BROKER_URL" in str(caught.value)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("url", ["sentinel://:one@a:1;sentinel://:two@b:2", "amqp://guest@broker//", "rediss://b/0"])
def test_a_broker_that_can_be_used_is_taken_as_it_is(url):
    assert config(url)["broker_url"] == url


def test_without_a_broker_nothing_is_configured():
    with pytest.raises(ConfigurationError, match="ADK_BROKER_URL"):
        celery_config(Settings(store_url="sqlite:///runs.db"))
