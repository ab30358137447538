"""Makes a store in a Redis, from a program. There is one format so far, and nothing to bring it from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stores.redis.lifecycle import format_of, make
from stores.redis.server import Process, Server
from stores.redis.target import Client, RedisOptions


def upgrade(target: str | Client) -> None:
    """Make the store, or what is missing of it; harmless if it is there. ``target`` is as for ``open_redis``.

    :raises ConfigurationError: the target cannot be used.
    :raises SchemaVersionError: there is one of another format.
    :raises StoreUnavailableError: no answer.
    """
    with _connected(target) as process:
        make(process)


def current(target: str | Client) -> str | None:
    """The format of the store; ``None`` without one, or where a part is missing."""
    with _connected(target) as process:
        return format_of(process)


@contextmanager
def _connected(target: str | Client) -> Iterator[Process]:
    process = Server(target, RedisOptions(pool_size=1)).blocking()
    try:
        yield process
    finally:
        process.close()
