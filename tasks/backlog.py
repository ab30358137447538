"""How many messages wait on the broker: asked on a connection of its own, by whoever doubts a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from celery import Celery
from kombu.connection import Connection
from kombu.exceptions import ChannelError

from adk_worker.errors import BrokerUnavailableError
from adk_worker.results import text_of
from adk_worker.settings import Settings
from adk_worker.urls import without_secrets
from tasks.config import celery_config


def waiting(settings: Settings, queues: Sequence[str]) -> dict[str, int]:
    """The messages that wait on each queue, blocking; one that nobody has declared yet holds none.

    :raises ConfigurationError: no broker is set.
    :raises BrokerUnavailableError: it does not answer.
    """
    app = Celery("adk", set_as_current=False, config_source=celery_config(settings))
    with app.connection_for_read() as connection:
        try:
            connection.ensure_connection(max_retries=1, timeout=settings.socket_timeout)
            return {queue: _waiting(connection, queue) for queue in queues}
        except Exception as error:
            reason = without_secrets(text_of(error))
            raise BrokerUnavailableError(broker=without_secrets(settings.required_broker_url), reason=reason) from error


def _waiting(connection: Connection, queue: str) -> int:
    with cast("Any", connection).channel() as channel:
        try:
            return int(channel.queue_declare(queue=queue, passive=True).message_count)
        except (ChannelError, *connection.channel_errors):
            return 0
