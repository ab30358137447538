"""Transcripts (H1-H3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adk_worker.history import Handle, assemble
from adk_worker.memory import MemoryHistoryStore
from adk_worker.messages import Message
from adk_worker.names import check_name, check_run
from stores.redis.data import RunData
from stores.redis.keys import Keys, bucket_of_run
from stores.redis.lifecycle import RedisLifecycle
from stores.redis.reference import at_once
from stores.redis.rows import transcript_of
from stores.redis.server import Process, Server
from stores.redis.target import Client


class RedisHistoryStore:
    """A :class:`~adk_worker.history.HistoryStore` in Redis; ``target`` and ``options`` are as for ``open_redis``."""

    def __init__(self, target: str | Client | Server, **options: Any) -> None:
        self._server = Server.of(target, options)
        self.lifecycle = RedisLifecycle(self._server)

    async def append(
        self,
        run_id: str,
        *,
        tenant: str,
        start: int,
        messages: Sequence[Message],
        fence: int | None = None,
        after: str | None = None,
    ) -> str:
        run = check_run(tenant, run_id)

        def append(data: RunData) -> str:
            history = MemoryHistoryStore(data)
            return at_once(
                history.append(run_id, tenant=tenant, start=start, messages=messages, fence=fence, after=after)
            )

        return await self._server.write(bucket_of_run(run), append)

    async def fetch(self, handle: str, *, tenant: str) -> tuple[Message, ...] | None:
        check_name(tenant, what="tenant")
        wanted = Handle.parse(handle)
        run = (tenant, wanted.run_id)
        bucket = bucket_of_run(run)
        key = Keys(bucket).transcript(run)

        def fetch(process: Process) -> tuple[Message, ...] | None:
            # In the store's thread: a long transcript takes a while to check and to validate.
            process.epoch(bucket)
            segments = transcript_of(process.ask(lambda client: client.hgetall(key), reading=True))
            if wanted.count > 0 and not segments:
                return None
            return assemble(wanted, segments)

        return await self._server.run(fetch)

    async def segments(self, run_id: str, *, tenant: str) -> Sequence[str]:
        run = check_run(tenant, run_id)
        bucket = bucket_of_run(run)
        key = Keys(bucket).transcript(run)

        def read(process: Process) -> Sequence[str]:
            process.epoch(bucket)
            kept = transcript_of(process.ask(lambda client: client.hgetall(key), reading=True))
            return [segment.payload for segment in kept.values()]

        return await self._server.run(read)
