"""Claims (I1-I4), and the claims of resumes (I9)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from adk_worker.idempotency import RESUME_CLAIM_SECONDS, Claim, check_claim
from adk_worker.memory import MemoryIdempotencyStore
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.settling.settlement import Settled, Settlement
from stores.redis.data import RunData
from stores.redis.keys import bucket_of_claim, bucket_of_run
from stores.redis.lifecycle import RedisLifecycle
from stores.redis.reference import at_once
from stores.redis.server import Process, Server
from stores.redis.target import Client

T = TypeVar("T")


class RedisIdempotencyStore:
    """An :class:`~adk_worker.idempotency.IdempotencyStore` in Redis, with the claims of resumes.

    ``target`` and ``options`` are as for ``open_redis``.
    """

    def __init__(self, target: str | Client | Server, **options: Any) -> None:
        self._server = Server.of(target, options)
        self.lifecycle = RedisLifecycle(self._server)

    async def begin(self, key: str, *, tenant: str, owner: str, digest: str) -> Claim:
        check_claim(tenant, key, owner)

        def begin(data: RunData) -> Claim:
            return at_once(MemoryIdempotencyStore(data).begin(key, tenant=tenant, owner=owner, digest=digest))

        return await self._server.write(bucket_of_claim((tenant, key)), begin)

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        check_name(tenant, what="tenant")
        parted: dict[int, list[str]] = defaultdict(list)
        for key in keys:
            parted[bucket_of_claim((tenant, key))].append(key)

        def peek(process: Process) -> dict[str, Claim | None]:
            found: dict[str, Claim | None] = {}
            for bucket, here in parted.items():
                found |= process.transact(bucket, partial(_peek, tenant=tenant, keys=here))
            return {key: found[key] for key in keys}

        return await self._server.run(peek)

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        await self._on(claim, lambda store: at_once(store.record(claim, outcome)))

    async def abandon(self, claim: Claim) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        await self._on(claim, lambda store: at_once(store.abandon(claim)))

    async def take_over(self, claim: Claim, owner: str) -> Claim:
        check_claim(claim.tenant, claim.key, owner)
        return await self._on(claim, lambda store: at_once(store.take_over(claim, owner)))

    async def decide(self, claim: Claim, asked: Settlement) -> Settled:
        check_claim(claim.tenant, claim.key, claim.owner)
        return await self._on(claim, lambda store: at_once(store.decide(claim, asked)))

    async def claim_resume(
        self,
        run_id: str,
        *,
        tenant: str,
        owner: str,
        fence: int | None = None,
        ttl_seconds: float = RESUME_CLAIM_SECONDS,
    ) -> None:
        run = check_run(tenant, run_id)

        def claim(data: RunData) -> None:
            store = MemoryIdempotencyStore(data)
            at_once(store.claim_resume(run_id, tenant=tenant, owner=owner, fence=fence, ttl_seconds=ttl_seconds))

        await self._server.write(bucket_of_run(run), claim)

    async def end_resume(self, run_id: str, *, tenant: str, owner: str) -> None:
        run = check_run(tenant, run_id)

        def end(data: RunData) -> None:
            at_once(MemoryIdempotencyStore(data).end_resume(run_id, tenant=tenant, owner=owner))

        await self._server.write(bucket_of_run(run), end)

    async def _on(self, claim: Claim, work: Callable[[MemoryIdempotencyStore], T]) -> T:
        bucket = bucket_of_claim((claim.tenant, claim.key))
        return await self._server.write(bucket, lambda data: work(MemoryIdempotencyStore(data)))


def _peek(data: RunData, tenant: str, keys: Sequence[str]) -> Mapping[str, Claim | None]:
    data.look(claims=[(tenant, key) for key in keys])
    return at_once(MemoryIdempotencyStore(data).peek(keys, tenant=tenant))
