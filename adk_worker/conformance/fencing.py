"""Fences for the suites of stores that are written under one."""

from __future__ import annotations

from adk_worker.conformance.waiting import LONG
from adk_worker.lease import LeaseStore, RunLease


class Fences:
    """Gives one acquisition's fence after the other for a run, the ones before it being stale from then on.

    They come from the store's own leases, or are plain numbers for a store that keeps none.
    """

    def __init__(self, leases: LeaseStore | None, *, tenant: str, run_id: str) -> None:
        self._leases = leases
        self._tenant = tenant
        self._run_id = run_id
        self._number = 0
        self._lease: RunLease | None = None

    async def next(self) -> int:
        """Supersede the fence before, and return the one that may write now."""
        self._number += 1
        if self._leases is None:
            return self._number
        if self._lease is not None:
            await self._leases.release(self._lease)
        self._lease = await self._leases.acquire(
            self._run_id, tenant=self._tenant, holder=f"holder-{self._number}", ttl_seconds=LONG
        )
        return self._lease.fence
