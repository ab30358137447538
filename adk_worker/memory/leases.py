"""Leases in memory."""

from __future__ import annotations

from adk_worker.errors import RunLeaseError
from adk_worker.lease import RunLease, check_holder, check_ttl
from adk_worker.memory.data import MemoryData, as_run_lease, stale
from adk_worker.names import check_run
from adk_worker.transitions import leases as lease_transitions
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Phase


class MemoryLeaseStore:
    """A :class:`~adk_worker.lease.LeaseStore` for one process; usable from any thread and event loop."""

    def __init__(self, data: MemoryData | None = None) -> None:
        self._data = data or MemoryData()

    async def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float) -> RunLease:
        key = check_run(tenant, run_id)
        check_holder(holder)
        check_ttl(ttl_seconds)
        with self._data.lock:
            lease = self._data.lease(key)
            granted = lease_transitions.acquire(lease, holder=holder, at=self._data.at(), ttl=ttl_seconds)
            if granted is None:
                held = as_run_lease(key, lease)
                raise RunLeaseError(
                    tenant=tenant, run_id=run_id, holder=held.holder, fence=held.fence, expires_at=held.expires_at
                )
            self._data.leases[key] = granted
            return as_run_lease(key, granted)

    async def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        key = check_run(lease.tenant, lease.run_id)
        check_ttl(ttl_seconds)
        with self._data.lock:
            stored = self._data.lease(key)
            renewed = lease_transitions.renew(stored, fence=lease.fence, at=self._data.at(), ttl=ttl_seconds)
            if renewed is None:
                raise stale(key, presented=lease.fence, current=stored.fence)
            self._data.leases[key] = renewed
            return as_run_lease(key, renewed)

    async def release(self, lease: RunLease) -> None:
        key = check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            stored = self._data.leases.get(key)
            if stored is None:
                return
            run = self._data.runs.get(key)
            live = run is not None and run.state.phase is Phase.LIVE
            self._data.leases[key] = lease_transitions.release(stored, fence=lease.fence, live=live, at=self._data.at())

    async def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            lease = self._data.lease(key)
            if lease.holding is Holding.FREE or lease.lapsed(self._data.clock()):
                return None
            return as_run_lease(key, lease)
