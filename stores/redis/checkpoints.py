"""Checkpoints (C2, C4, C5)."""

from __future__ import annotations

from typing import Any

from adk_worker.checkpoint import Checkpoint
from adk_worker.memory import MemoryCheckpointStore
from adk_worker.names import check_run
from stores.redis.data import RunData
from stores.redis.keys import bucket_of_run
from stores.redis.lifecycle import RedisLifecycle
from stores.redis.reference import at_once
from stores.redis.server import Server
from stores.redis.target import Client


class RedisCheckpointStore:
    """A :class:`~adk_worker.checkpoint.CheckpointStore` in Redis; arguments are as for ``open_redis``.

    A frontier over ``max_value_bytes`` is refused before anything is sent, with an error that names that cap and the
    policy's (C2).
    """

    def __init__(self, target: str | Client | Server, **options: Any) -> None:
        self._server = Server.of(target, options)
        self.lifecycle = RedisLifecycle(self._server)

    async def put(self, checkpoint: Checkpoint, *, fence: int | None = None) -> None:
        run = check_run(checkpoint.tenant, checkpoint.run_id)

        def put(data: RunData) -> None:
            at_once(MemoryCheckpointStore(data).put(checkpoint, fence=fence))

        await self._server.write(bucket_of_run(run), put)

    async def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        run = check_run(tenant, run_id)

        def latest(data: RunData) -> Checkpoint | None:
            data.look(runs=[run], checkpoints=[run])
            return at_once(MemoryCheckpointStore(data).latest(run_id, tenant=tenant))

        return await self._server.write(bucket_of_run(run), latest)

    async def forget(self, run_id: str, *, tenant: str, fence: int | None = None) -> None:
        run = check_run(tenant, run_id)

        def forget(data: RunData) -> None:
            at_once(MemoryCheckpointStore(data).forget(run_id, tenant=tenant, fence=fence))

        await self._server.write(bucket_of_run(run), forget)
