"""Holding one run's lease in process: :class:`Leaseholder`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from adk_worker.errors import LeaseLostError, StaleFenceError, StoreUnavailableError
from adk_worker.interruption import Cause, Interruption
from adk_worker.keeping.keeper import LeaseKeeper
from adk_worker.lease import LeasePolicy, LeaseStore, RunLease
from adk_worker.log import get_logger
from adk_worker.runs import Renewal

_log = get_logger(__name__)

_NOT_ENTERED = "the leaseholder has not been entered: use `async with Leaseholder(…) as held:`"


class Leaseholder:
    """Holds a lease for as long as it is entered (L10).

    ::

        async with Leaseholder(store, "run_1", tenant="acme", holder=str(Holder.new("cli"))) as held:
            ...
            held.check()

    Entering acquires the lease and raises as :meth:`LeaseStore.acquire` does. A thread renews it then, at least every
    ``policy.renew_within`` seconds, whatever blocks the event loop (L8). The way out releases it, also on an exception
    and a cancellation; where the store is away it is left to lapse. An instance is entered once.

    :param holder: names this acquisition alone (L4); :meth:`adk_worker.liveness.Holder.new` makes such names.
    """

    def __init__(
        self,
        store: LeaseStore,
        run_id: str,
        *,
        tenant: str,
        holder: str,
        policy: LeasePolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._tenant = tenant
        self._holder = holder
        self._policy = policy or LeasePolicy()
        self._clock = clock
        self._adopted: RunLease | None = None
        self._lease: RunLease | None = None
        self._interruption: Interruption | None = None
        self._keeper: LeaseKeeper | None = None
        self._lost: str | None = None

    @classmethod
    def adopt(cls, store: LeaseStore, lease: RunLease, *, policy: LeasePolicy | None = None) -> Self:
        """Hold a lease that was acquired elsewhere. Entering renews it; ``StaleFenceError`` if it is gone."""
        adopting = cls(store, lease.run_id, tenant=lease.tenant, holder=lease.holder, policy=policy)
        adopting._adopted = lease
        return adopting

    async def __aenter__(self) -> Self:
        if self._lease is not None:
            raise RuntimeError("a leaseholder is entered once; make another one")
        asked_at = self._clock()
        self._lease = await self._obtain()
        self._interruption = Interruption()
        self._keeper = LeaseKeeper(self._renew, policy=self._policy, on_stuck=self._on_stuck, clock=self._clock)
        self._keeper.enter(self._lease, self._interruption, since=asked_at)
        self._keeper.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

    @property
    def lease(self) -> RunLease:
        """The lease as it was renewed last; after the release, as it was then."""
        if self._lease is None:
            raise RuntimeError(_NOT_ENTERED)
        return self._lease

    @property
    def interruption(self) -> Interruption:
        """Tells work in the loop that entered to stop, once the lease is lost."""
        if self._interruption is None:
            raise RuntimeError(_NOT_ENTERED)
        return self._interruption

    @property
    def lost(self) -> bool:
        """Whether the lease was superseded, or could not be renewed for so long that it may have been (L9)."""
        if self._lost is None and self._keeper is not None:
            self._lost = self._keeper.lost(self.lease)
        return self._lost is not None

    def check(self) -> None:
        """Return while the lease may be relied on; from any thread.

        :raises LeaseLostError: it may not (L9).
        """
        lease = self.lease
        if self.lost:
            reason = self._lost or ""
            raise LeaseLostError(tenant=lease.tenant, run_id=lease.run_id, fence=lease.fence, reason=reason)

    async def release(self) -> None:
        """Stop renewing and release the lease. Harmless when that has been done.

        Frees nothing if the lease has been handed over or taken meanwhile (L10).
        """
        keeper = self._keeper
        if keeper is None:
            return
        _ = self.lost  # note it while the keeper knows
        self._keeper = None
        releasing = asyncio.ensure_future(self._release(keeper))
        try:
            await asyncio.shield(releasing)
        except asyncio.CancelledError:
            await asyncio.wait({releasing})
            raise

    async def _release(self, keeper: LeaseKeeper) -> None:
        await asyncio.to_thread(keeper.stop)
        lease = self.lease
        try:
            await self._store.release(lease)
        except StoreUnavailableError as error:
            _log.warning("lease_left_to_lapse", tenant=lease.tenant, run_id=lease.run_id, error=str(error))

    async def _obtain(self) -> RunLease:
        ttl = self._policy.ttl_seconds
        if self._adopted is not None:
            return await self._store.renew(self._adopted, ttl_seconds=ttl)
        acquiring = asyncio.ensure_future(
            self._store.acquire(self._run_id, tenant=self._tenant, holder=self._holder, ttl_seconds=ttl)
        )
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            # A store cannot be stopped in the middle: it may still grant what nobody waits for any more.
            await asyncio.wait({acquiring})
            if not acquiring.cancelled() and acquiring.exception() is None:
                await self._store.release(acquiring.result())
            raise

    async def _renew(self, _: Sequence[RunLease]) -> Sequence[Renewal]:
        try:
            self._lease = await self._store.renew(self.lease, ttl_seconds=self._policy.ttl_seconds)
        except StaleFenceError:
            return [Renewal(None)]
        return [Renewal(self._lease)]

    def _on_stuck(self, why: str) -> None:
        """The keeper broke: nothing renews the lease any more, so it must not be relied on."""
        self._lost = why
        self.interruption.set(Cause.SUPERSEDED)
