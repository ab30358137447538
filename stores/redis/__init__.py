"""Stores in Redis.

:func:`open_redis` opens the bundle that a fleet needs; the lone stores serve runs in process. The store is made by
:mod:`stores.redis.migrate`, never by opening it. :mod:`stores.redis.keys` explains every key, and
:mod:`stores.redis.transaction` why a write is safe.
"""

from __future__ import annotations

from stores.redis.bundle import open_redis
from stores.redis.checkpoints import RedisCheckpointStore
from stores.redis.history import RedisHistoryStore
from stores.redis.idempotency import RedisIdempotencyStore
from stores.redis.leases import RedisLeaseStore
from stores.redis.target import RedisOptions

__all__ = [
    "RedisCheckpointStore",
    "RedisHistoryStore",
    "RedisIdempotencyStore",
    "RedisLeaseStore",
    "RedisOptions",
    "open_redis",
]
