"""Lease stores that lie."""

from __future__ import annotations

import time
from dataclasses import replace

from adk_worker.conformance import LeaseStoreConformance
from adk_worker.lease import RunLease
from adk_worker.memory import MemoryData, MemoryLeaseStore
from adk_worker.transitions.leases import Holding, LeaseState
from tests.conformance.liars.lie import Lie


class Forgetful(MemoryLeaseStore):
    """Deletes the row on release, so that the fence starts again (L2)."""

    async def release(self, lease):
        await super().release(lease)
        self._data.leases.pop((lease.tenant, lease.run_id), None)


class Level(MemoryLeaseStore):
    """Grants a lapsed lease under the fence that it had (L2)."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        before = self._data.lease((tenant, run_id))
        granted = await super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds)
        if before.holding is Holding.FREE:
            return granted
        self._data.leases[tenant, run_id] = replace(self._data.leases[tenant, run_id], fence=before.fence)
        return replace(granted, fence=before.fence)


class Trusting(MemoryLeaseStore):
    """Takes a holder's name for a password (L4)."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        held = await self.held(run_id, tenant=tenant)
        if held and held.holder == holder:
            return held
        return await super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds)


class Joining(MemoryLeaseStore):
    """Joins the two names into one (T1)."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        joined = await super().acquire(f"{tenant}:{run_id}", tenant="all", holder=holder, ttl_seconds=ttl_seconds)
        return replace(joined, tenant=tenant, run_id=run_id)


class Kind(MemoryLeaseStore):
    """Frees whatever stands under the name (L10)."""

    async def release(self, lease):
        key = (lease.tenant, lease.run_id)
        self._data.leases[key] = LeaseState(self._data.lease(key).fence)


class Reviving(MemoryLeaseStore):
    """Renews what was released, since its fence is equal still (L3)."""

    async def renew(self, lease, *, ttl_seconds):
        key = (lease.tenant, lease.run_id)
        stored = self._data.lease(key)
        if stored.holding is Holding.FREE and stored.fence == lease.fence:
            self._data.leases[key] = replace(stored, holding=Holding.WORKER, holder=lease.holder)
        return await super().renew(lease, ttl_seconds=ttl_seconds)


class Renewing(MemoryLeaseStore):
    """Renews whoever asks (L3)."""

    async def renew(self, lease, *, ttl_seconds):
        stored = self._data.lease((lease.tenant, lease.run_id))
        return await super().renew(replace(lease, fence=stored.fence), ttl_seconds=ttl_seconds)


class Strict(MemoryLeaseStore):
    """Does not renew a lease that has lapsed, though nobody took it (L3)."""

    async def renew(self, lease, *, ttl_seconds):
        if await self.held(lease.run_id, tenant=lease.tenant) is None:
            await self.release(lease)
        return await super().renew(lease, ttl_seconds=ttl_seconds)


class CallersTime(MemoryLeaseStore):
    """Asks whoever calls what time it is (L1)."""

    def __init__(self):
        super().__init__(MemoryData(lambda: time.time()))  # noqa: PLW0108 - looked up in each call: that is the lie


class Lingering(MemoryLeaseStore):
    """Takes a lease that expires now for one that is alive (L6)."""

    async def held(self, run_id, *, tenant):
        lease = self._data.lease((tenant, run_id))
        if lease.holding is Holding.WORKER and lease.expires_at == self._data.clock():
            return RunLease(tenant, run_id, lease.holder, lease.fence, lease.expires_at)
        return await super().held(run_id, tenant=tenant)


class Racing(MemoryLeaseStore):
    """Looks whether the lease is free, and takes it a moment later (L7)."""

    async def acquire(self, run_id, *, tenant, holder, ttl_seconds):
        free = await self.held(run_id, tenant=tenant) is None
        time.sleep(0.002)  # noqa: ASYNC251, TID251 - the moment in which another one looks too
        if free:
            with self._data.lock:
                lease = self._data.lease((tenant, run_id))
                self._data.leases[tenant, run_id] = replace(lease, holding=Holding.FREE)
                return await super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds)
        return await super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds)


LIES = (
    Lie(LeaseStoreConformance, Forgetful, "test_the_fence_survives_release_and_never_falls"),
    Lie(LeaseStoreConformance, Level, "test_a_lapsed_lease_is_granted_under_a_higher_fence"),
    Lie(LeaseStoreConformance, Trusting, "test_the_same_holder_is_refused_while_its_lease_lives"),
    Lie(LeaseStoreConformance, Joining, "test_no_name_reaches_anothers_lease"),
    Lie(LeaseStoreConformance, Kind, "test_release_of_a_superseded_lease_frees_nothing"),
    Lie(LeaseStoreConformance, Reviving, "test_a_released_lease_is_not_renewed"),
    Lie(LeaseStoreConformance, Renewing, "test_a_superseded_lease_is_not_renewed"),
    Lie(LeaseStoreConformance, Strict, "test_a_lapsed_lease_that_nobody_took_is_renewed"),
    Lie(LeaseStoreConformance, CallersTime, "test_the_callers_clock_decides_no_expiry"),
    Lie(LeaseStoreConformance, Lingering, "test_a_lease_that_expires_now_has_lapsed"),
    Lie(LeaseStoreConformance, Racing, "test_of_many_acquirers_in_threads_exactly_one_wins"),
)
