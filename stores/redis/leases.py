"""Leases (L1-L7, L10)."""

from __future__ import annotations

from typing import Any

from adk_worker.lease import RunLease
from adk_worker.memory import MemoryLeaseStore
from adk_worker.names import check_run
from stores.redis.data import RunData
from stores.redis.keys import bucket_of_run
from stores.redis.lifecycle import RedisLifecycle
from stores.redis.reference import at_once
from stores.redis.server import Server
from stores.redis.target import Client


class RedisLeaseStore:
    """A :class:`~adk_worker.lease.LeaseStore` in Redis; ``target`` and ``options`` are as for ``open_redis``."""

    def __init__(self, target: str | Client | Server, **options: Any) -> None:
        self._server = Server.of(target, options)
        self.lifecycle = RedisLifecycle(self._server)

    async def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float) -> RunLease:
        run = check_run(tenant, run_id)

        def acquire(data: RunData) -> RunLease:
            leases = MemoryLeaseStore(data)
            return at_once(leases.acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds))

        return await self._server.write(bucket_of_run(run), acquire)

    async def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        run = check_run(lease.tenant, lease.run_id)

        def renew(data: RunData) -> RunLease:
            return at_once(MemoryLeaseStore(data).renew(lease, ttl_seconds=ttl_seconds))

        return await self._server.write(bucket_of_run(run), renew)

    async def release(self, lease: RunLease) -> None:
        run = check_run(lease.tenant, lease.run_id)
        await self._server.write(bucket_of_run(run), lambda data: at_once(MemoryLeaseStore(data).release(lease)))

    async def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        run = check_run(tenant, run_id)
        return await self._server.write(
            bucket_of_run(run), lambda data: at_once(MemoryLeaseStore(data).held(run_id, tenant=tenant))
        )
