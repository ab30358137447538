"""Celery's configuration, every setting with its reason. A deployment's own overrides belong into celeryconfig.py.

Correctness rests on none of it: the store's tickets and fences make a lost, late or doubled message harmless. These
settings make such messages rare, and keep a worker alive when the broker is not.
"""

from __future__ import annotations

import socket
from typing import Any, Final, cast

from kombu.connection import Connection
from kombu.transport import get_transport_cls

from adk_worker.errors import ConfigurationError
from adk_worker.settings import Settings
from adk_worker.urls import without_secrets
from tasks.envelope import ADVANCE, REAP, RESUME

WORK_QUEUE: Final = "adk"
CONTROL_QUEUE: Final = "adk.control"

_AMQP: Final = frozenset({"amqp", "amqps", "pyamqp"})

_REAP_EXPIRES: Final = 30.0
"""A reap message is valid for at least so many seconds: the clocks of beat's host and of the worker's may differ."""


def celery_config(settings: Settings) -> dict[str, Any]:
    """The configuration of an app of the fleet, worker, beat, Flower and publishers alike.

    :raises ConfigurationError: no broker is set, or none that can be used.
    """
    return {**_messages(), **_queues(settings), **_broker(settings), **_worker(), **_observation(), **_beat(settings)}


def _messages() -> dict[str, Any]:
    return {
        # JSON alone, both ways (T2): a pickled message is refused before it is read.
        "accept_content": ["json"],
        "task_serializer": "json",
        "result_accept_content": ["json"],
        "result_serializer": "json",
        # The store is the truth about a run; a second copy in a result backend could only disagree with it.
        "task_ignore_result": True,
        "result_backend": None,
        # Early: a message counts as done once its worker begins. A late one would come again to find its ticket spent,
        # since the take that makes the first use of a ticket is its last; the reaper alone knows better, from the
        # store. And a step longer than Redis's visibility timeout, or RabbitMQ's consumer_timeout, would be delivered
        # twice while it runs. Both were measured, and are as fast (docs/measurements.md).
        "task_acks_late": False,
        # True loops for ever on a task that kills its worker. The reaper counts such deaths, and parks the run.
        "task_reject_on_worker_lost": False,
        # RabbitMQ writes messages to the disk: one that restarts brings them back itself, sooner than the reaper would.
        "task_default_delivery_mode": "persistent",
        # Few and quick: the run's next ticket is in the store already, and the reaper publishes it if we do not.
        "task_publish_retry": True,
        "task_publish_retry_policy": {
            "max_retries": 2,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 0.5,
        },
    }


def _queues(settings: Settings) -> dict[str, Any]:
    # Said either way: RabbitMQ's virtual host may have another default, and the type decides how many messages in hand
    # are asked for (per consumer with quorum queues, which know no other way; Celery looks it up here).
    kind = {"queue_arguments": {"x-queue-type": settings.queue_type}} if _speaks_amqp(settings) else {}
    return {
        # A queue misspelt with -Q is an error, not a new queue on which nothing ever comes.
        "task_create_missing_queues": False,
        "task_queues": {name: dict(kind) for name in (WORK_QUEUE, CONTROL_QUEUE)},
        "task_default_queue": WORK_QUEUE,
        # The reaper has a queue of its own, so that a backlog of work cannot keep it from mending the backlog.
        "task_routes": {
            ADVANCE: {"queue": WORK_QUEUE},
            RESUME: {"queue": WORK_QUEUE},
            REAP: {"queue": CONTROL_QUEUE},
        },
        "worker_detect_quorum_queues": True,
    }


def _broker(settings: Settings) -> dict[str, Any]:
    url = _usable(settings.required_broker_url)
    return {
        "broker_url": url,
        # A worker that starts before its broker waits for it, and one that loses it comes back, however long it takes.
        "broker_connection_retry_on_startup": True,
        "broker_connection_retry": True,
        "broker_connection_max_retries": None,
        # A channel that the broker closes, not the connection, is no reason to end either: RabbitMQ does so when a
        # message was in hand for longer than its consumer_timeout, or while a queue's node is away.
        "broker_channel_error_retry": True,
        "broker_connection_timeout": settings.socket_timeout,
        # RabbitMQ: a consumer's connection on which nothing came for two of these is given up, and the broker does the
        # same at its end. Redis has no such thing; see health_check_interval.
        "broker_heartbeat": max(1, round(settings.socket_timeout)),
        "broker_transport_options": _transport_options(url, settings.socket_timeout),
    }


def _usable(url: str) -> str:
    try:
        cast("Any", Connection)(url)
    except Exception:  # noqa: BLE001 - what a URL makes of kombu, or the import of a driver that is not there
        # The cause may repeat a part of the password.
        why = (
            "its driver is not installed, or no such broker is known" if _unknown(url) else "it cannot be read as a URL"
        )
        raise ConfigurationError(
            f"ADK_BROKER_URL {without_secrets(url)!r}: {why}. It has to be redis://:password@host/0 or "
            "amqp://user:password@host/vhost, with special characters percent-encoded."
        ) from None
    return url


def _unknown(url: str) -> bool:
    try:
        get_transport_cls(url.partition("://")[0])
    except Exception:  # noqa: BLE001 - whatever the import of a driver that is not there raises
        return True
    return False


def _transport_options(url: str, socket_timeout: float) -> dict[str, Any]:
    scheme = _scheme(url)
    if scheme in {"redis", "rediss", "sentinel"}:
        return {
            # Without it a publish to a broker that vanished (failover, firewall) waits for ever.
            "socket_timeout": socket_timeout,
            "socket_connect_timeout": socket_timeout,
            # The kernel finds dead peers on connections that only listen.
            "socket_keepalive": True,
            # And kombu drops a subscription, or a wait for messages, whose answer is overdue by this much.
            "health_check_interval": max(1, round(socket_timeout)),
        }
    if scheme in _AMQP:
        return {
            # A publish returns once the broker has the message, and raises if it refuses it.
            "confirm_publish": True,
            # The kernel's, on each read and write: the driver waits for an answer, that confirmation above all, for as
            # long as the connection stands.
            "read_timeout": socket_timeout,
            "write_timeout": socket_timeout,
            # For what is sent and not acknowledged the driver's own is one second, which is a hiccup of a network; for
            # a peer that is gone while one only listens, minutes.
            "socket_settings": _socket_settings(socket_timeout),
            # What an operator sees in RabbitMQ's list of connections.
            "client_properties": {"connection_name": "adk-worker"},
        }
    return {}


def _socket_settings(silent: float) -> dict[int, int]:
    named = {
        "TCP_USER_TIMEOUT": round(silent * 1000),
        "TCP_KEEPIDLE": max(1, round(silent / 2)),
        "TCP_KEEPINTVL": max(1, round(silent / 6)),
        "TCP_KEEPCNT": 3,
    }
    return {getattr(socket, name): value for name, value in named.items() if hasattr(socket, name)}


def _scheme(url: str) -> str:
    return url.partition("://")[0].partition("+")[0]


def _speaks_amqp(settings: Settings) -> bool:
    return _scheme(settings.required_broker_url) in _AMQP


def _worker() -> dict[str, Any]:
    return {
        # One message in hand per slot: what a worker hoards, no idle worker can carry out.
        "worker_prefetch_multiplier": 1,
        # As many after a reconnect, too. Celery begins with fewer, for late acknowledgements' sake, and raises the
        # number message by message, which quorum queues do not allow.
        "worker_enable_prefetch_count_reduction": False,
        # It outlives a broker that goes away while messages are in hand (tasks.consumer).
        "worker_consumer": "tasks.consumer:FleetConsumer",
        # Children inherit the agents, and the pipe through which a drain reaches them. Fresh interpreters would not.
        "worker_pool_start_method": "fork",
        # A dead child's run is taken over at once; the default waits ten seconds for a result that is in the store.
        "worker_lost_wait": 1.0,
        # Time limits and drains are the fleet's own, per iteration, for Celery's have no effect in a pool of threads.
        "task_time_limit": None,
        "task_soft_time_limit": None,
        "worker_soft_shutdown_timeout": 0.0,
        # Work goes on while the broker is away: nothing of it needs the broker until the next message.
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        # What an agent prints is not a warning of the worker's.
        "worker_redirect_stdouts": False,
        # The worker's own handlers and format, for our log lines too (tasks.logs).
        "worker_hijack_root_logger": True,
        "worker_log_format": "[%(asctime)s %(levelname)s %(process)d] %(message)s",
        "worker_task_log_format": "[%(asctime)s %(levelname)s %(process)d] %(message)s",
        # Rate limits are not used; without them a worker handles each message in one step less.
        "worker_disable_rate_limits": True,
    }


def _observation() -> dict[str, Any]:
    return {
        # Without these three Flower shows nothing.
        "worker_send_task_events": True,
        "task_send_sent_event": True,
        "task_track_started": True,
        # Tracebacks stay in the worker's log.
        "task_remote_tracebacks": False,
    }


def _beat(settings: Settings) -> dict[str, Any]:
    every = settings.reap_every
    return {
        # In memory: a schedule file would only remember when the reaper was sent last, which the store knows, and two
        # beats on one machine would fight for it.
        "beat_scheduler": "celery.beat:Scheduler",
        "beat_max_loop_interval": min(every, 60.0),
        "beat_schedule": {
            REAP: {
                "task": REAP,
                "schedule": every,
                # What was not swept in time is swept by the next: a pile of these would do nothing more.
                "options": {"queue": CONTROL_QUEUE, "expires": max(every, _REAP_EXPIRES)},
            }
        },
    }
