"""What a test does to the messages on a broker, whichever that is: Celery's own transports reach it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis
from kombu import Connection

QUEUE = "adk"


def waiting(url: str) -> int:
    """How many messages wait for a worker."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return int(client.llen(QUEUE))
    with _channel(url) as channel:
        return int(channel.queue_declare(QUEUE, passive=True).message_count)


def empty(url: str) -> None:
    """Take away all messages that wait, and with Redis whatever else is there."""
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            client.flushdb()
        return
    with _channel(url) as channel:
        channel.queue_purge(QUEUE)


@contextmanager
def _channel(url: str) -> Iterator[Any]:
    with Connection(url, connect_timeout=60) as connection, connection.channel() as channel:
        yield channel
