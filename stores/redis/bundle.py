"""The bundle of all stores over one Redis."""

from __future__ import annotations

from typing import Any

from adk_worker.checkpoint import check_caps
from adk_worker.runs import Stores
from stores.redis.checkpoints import RedisCheckpointStore
from stores.redis.history import RedisHistoryStore
from stores.redis.idempotency import RedisIdempotencyStore
from stores.redis.leases import RedisLeaseStore
from stores.redis.lifecycle import RedisLifecycle
from stores.redis.runs import RedisRunStore
from stores.redis.server import Server
from stores.redis.target import Client


def open_redis(target: str | Client, **options: Any) -> Stores:
    """All stores over one Redis; nothing is connected yet.

    :param target: ``redis://:password@host:6379/0``, ``rediss://`` for TLS, ``redis+cluster://`` and
        ``rediss+cluster://`` for a cluster, of which one node has to be named; or a client of redis-py's that decodes
        responses, and that stays the caller's. ``?max_value_bytes=…`` in the URL raises that cap for a fleet.
    :param options: those of :class:`~stores.redis.target.RedisOptions`.
    :raises ConfigurationError: the URL or an option cannot be used, or the largest value that the store takes is below
        the policy's cap on checkpoints (C2).
    """
    server = Server.of(target, options)
    check_caps(policy=server.options.checkpoint_max_bytes, store=server.options.max_value_bytes)
    return Stores(
        runs=RedisRunStore(server),
        leases=RedisLeaseStore(server),
        checkpoints=RedisCheckpointStore(server),
        idempotency=RedisIdempotencyStore(server),
        history=RedisHistoryStore(server),
        lifecycle=RedisLifecycle(server),
        max_value_bytes=server.options.max_value_bytes,
    )
