"""A Redis that holds a new store, and nothing else: a real one, a cluster, and the fake."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

import fakeredis
import redis

from adk_worker.runs import Stores
from stores.redis import RedisOptions, migrate, open_redis
from stores.redis.keys import BUCKETS, Keys
from stores.redis.target import make_client


class Emptied:
    """A bundle that a test finds unused: emptying its keys takes less time than opening another."""

    def __init__(self, target: Any, client: Any) -> None:
        migrate.upgrade(target)
        self._client = client
        self._new = {key: client.get(key) for key in (Keys(bucket).store for bucket in range(BUCKETS))}
        self._stores = open_redis(target)

    def stores(self) -> Stores:
        """The bundle over a new store."""
        if isinstance(self._client, redis.RedisCluster):
            self._client.flushall(target_nodes=redis.RedisCluster.PRIMARIES)
        else:
            self._client.flushdb()
        with self._client.pipeline(transaction=False) as pipe:
            for key, value in self._new.items():
                pipe.set(key, value)
            pipe.execute()
        return self._stores

    def close(self) -> None:
        """End it."""
        asyncio.run(self._stores.lifecycle.close())
        self._client.close()


@contextmanager
def opened(url: str) -> Iterator[Emptied]:
    """Lend a bundle over a real server, to be used in whichever event loop a test runs."""
    emptied = Emptied(url, make_client(url, RedisOptions()))
    try:
        yield emptied
    finally:
        emptied.close()


@contextmanager
def faked() -> Iterator[Emptied]:
    """Lend a bundle over fakeredis."""
    client = fakeredis.FakeRedis(server=fakeredis.FakeServer(), decode_responses=True)
    emptied = Emptied(client, client)
    try:
        yield emptied
    finally:
        emptied.close()


def made(url: str) -> str:
    """Make a new store in a database that holds nothing, and return its URL."""
    migrate.upgrade(url)
    return url


def naming(script: str) -> bytes:
    """What a request has in it that runs one of the store's scripts, ``look`` or ``apply``."""
    text = files("stores.redis").joinpath(f"{script}.lua").read_bytes()
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
