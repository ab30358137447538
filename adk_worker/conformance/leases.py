"""What every :class:`~adk_worker.lease.LeaseStore` has to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import pytest_asyncio

from adk_worker.conformance.clocks import YEAR, SetClock, caller_off_by
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.waiting import LONG, SOON, race, race_in_threads, until, winners
from adk_worker.errors import ConfigurationError, InvalidNameError, RunLeaseError, StaleFenceError
from adk_worker.lease import QUEUE, LeaseStore, RunLease

TENANT = "acme"
_KEYS = 20
_RACERS = 8


class LeaseStoreConformance:
    """Override the fixture ``make_store``: it gives a function that makes a lease store that nobody has used."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[LeaseStore]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest.fixture
    def set_clock(self) -> SetClock | None:
        """Give what sets the store's clock; ``None`` where nobody can, for it is a server's."""
        return None

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[LeaseStore]) -> LeaseStore:
        """The store of one test."""
        return await made(make_store)

    async def test_a_free_lease_is_granted(self, store: LeaseStore) -> None:
        """L2: an acquisition says what it is, and its fence is above that of a lease which nobody ever had."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        assert (lease.tenant, lease.run_id, lease.holder) == (TENANT, "run", "one")
        assert lease.fence > 0
        assert await store.held("run", tenant=TENANT) == lease

    async def test_nobody_holds_a_lease_that_was_never_granted(self, store: LeaseStore) -> None:
        """L1: looking is not taking."""
        assert await store.held("run", tenant=TENANT) is None

    async def test_expiry_is_the_stores_time_plus_the_ttl(self, store: LeaseStore) -> None:
        """L1: both expiries come from one clock that does not go backwards, and the TTL counts in full."""
        first = await store.acquire("run-1", tenant=TENANT, holder="one", ttl_seconds=LONG)
        second = await store.acquire("run-2", tenant=TENANT, holder="one", ttl_seconds=LONG + 60.25)

        assert second.expires_at - first.expires_at > 60.2

    async def test_the_callers_clock_decides_no_expiry(self, store: LeaseStore) -> None:
        """L1: neither that a lease has lapsed nor that it has not, and it stamps none."""
        live = await store.acquire("live", tenant=TENANT, holder="one", ttl_seconds=LONG)
        lapsed = await self._lapsed(store)

        with caller_off_by(YEAR):
            assert await store.held("live", tenant=TENANT) == live
            with pytest.raises(RunLeaseError):
                await store.acquire("live", tenant=TENANT, holder="two", ttl_seconds=LONG)
            renewed = await store.renew(live, ttl_seconds=LONG)
        with caller_off_by(-YEAR):
            assert await store.held("run", tenant=TENANT) is None
            taken = await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)

        assert taken.fence > lapsed.fence
        for stamped in (renewed, taken):
            assert stamped.expires_at == pytest.approx(live.expires_at, abs=LONG / 2)

    async def test_a_lease_that_expires_now_has_lapsed(self, store: LeaseStore, set_clock: SetClock | None) -> None:
        """L6: and one that expires a moment later has not."""
        if set_clock is None:
            pytest.skip("nobody sets this store's clock")
        set_clock(1000.0)
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=8.0)

        set_clock(1007.75)
        with pytest.raises(RunLeaseError):
            await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=8.0)
        held = await store.held("run", tenant=TENANT)
        set_clock(1008.0)

        assert (lease.expires_at, held) == (1008.0, lease)
        assert await store.held("run", tenant=TENANT) is None
        assert (await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=8.0)).fence > lease.fence

    async def test_a_live_lease_is_refused_and_the_refusal_names_its_holder(self, store: LeaseStore) -> None:
        """L5, L7: who has it, under which fence, and until when."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        with pytest.raises(RunLeaseError) as refused:
            await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)

        assert (refused.value.tenant, refused.value.run_id) == (TENANT, "run")
        assert (refused.value.holder, refused.value.fence) == ("one", lease.fence)
        assert refused.value.expires_at == lease.expires_at
        assert await store.held("run", tenant=TENANT) == lease

    async def test_the_same_holder_is_refused_while_its_lease_lives(self, store: LeaseStore) -> None:
        """L4: a holder's name is no password."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        with pytest.raises(RunLeaseError):
            await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        assert await store.held("run", tenant=TENANT) == lease

    async def test_a_lapsed_lease_is_granted_under_a_higher_fence(self, store: LeaseStore) -> None:
        """L2, L6: and nobody holds it in between."""
        lapsed = await self._lapsed(store)

        taken = await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)

        assert taken.fence > lapsed.fence
        assert taken.superseded_by(lapsed) is False
        assert lapsed.superseded_by(taken) is True
        assert await store.held("run", tenant=TENANT) == taken

    async def test_the_fence_survives_release_and_never_falls(self, store: LeaseStore) -> None:
        """L2: the fake that forgets the row on release starts again at 1."""
        fences = []
        for _ in range(5):
            lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
            fences.append(lease.fence)
            await store.release(lease)

        assert fences == sorted(set(fences))

    async def test_renewal_extends_under_the_same_fence(self, store: LeaseStore) -> None:
        """L3: a renewed lease is the same acquisition."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        renewed = await store.renew(lease, ttl_seconds=2 * LONG)

        assert (renewed.fence, renewed.holder) == (lease.fence, lease.holder)
        assert renewed.expires_at > lease.expires_at
        assert await store.held("run", tenant=TENANT) == renewed

    async def test_renewal_may_shorten(self, store: LeaseStore) -> None:
        """L3: the new expiry is the store's time plus the TTL, whatever stood before."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        renewed = await store.renew(lease, ttl_seconds=1)

        assert renewed.expires_at < lease.expires_at

    async def test_a_lapsed_lease_that_nobody_took_is_renewed(self, store: LeaseStore) -> None:
        """L3: a worker that was late, and alone, goes on."""
        lapsed = await self._lapsed(store)

        renewed = await store.renew(lapsed, ttl_seconds=LONG)

        assert renewed.fence == lapsed.fence
        assert await store.held("run", tenant=TENANT) == renewed

    async def test_a_superseded_lease_is_not_renewed(self, store: LeaseStore) -> None:
        """L3: the refusal names both fences, and the lease of whoever came after is untouched."""
        lapsed = await self._lapsed(store)
        taken = await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)

        with pytest.raises(StaleFenceError) as refused:
            await store.renew(lapsed, ttl_seconds=2 * LONG)

        assert (refused.value.presented, refused.value.current) == (lapsed.fence, taken.fence)
        assert await store.held("run", tenant=TENANT) == taken

    async def test_a_released_lease_is_not_renewed(self, store: LeaseStore) -> None:
        """L3: released is released, though nobody took it since."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
        await store.release(lease)

        with pytest.raises(StaleFenceError) as refused:
            await store.renew(lease, ttl_seconds=LONG)

        assert (refused.value.presented, refused.value.current) == (lease.fence, lease.fence)
        assert await store.held("run", tenant=TENANT) is None

    async def test_a_lease_that_was_never_granted_is_not_renewed(self, store: LeaseStore) -> None:
        """L3: a made-up lease opens nothing."""
        with pytest.raises(StaleFenceError):
            await store.renew(RunLease(TENANT, "run", "one", 1, 0.0), ttl_seconds=LONG)

        assert await store.held("run", tenant=TENANT) is None

    async def test_release_frees(self, store: LeaseStore) -> None:
        """L10: the next one need not wait for a lapse."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        await store.release(lease)

        assert await store.held("run", tenant=TENANT) is None
        assert (await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)).fence > lease.fence

    async def test_release_of_a_superseded_lease_frees_nothing(self, store: LeaseStore) -> None:
        """L10: whoever came after keeps it."""
        lapsed = await self._lapsed(store)
        taken = await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=LONG)

        await store.release(lapsed)

        assert await store.held("run", tenant=TENANT) == taken

    async def test_releasing_again_is_harmless(self, store: LeaseStore) -> None:
        """L10: also a lease that was never granted."""
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)

        await store.release(lease)
        await store.release(lease)
        await store.release(RunLease(TENANT, "another", "one", 1, 0.0))

        assert await store.held("run", tenant=TENANT) is None
        assert await store.held("another", tenant=TENANT) is None

    async def test_of_many_acquirers_exactly_one_wins(self, store: LeaseStore) -> None:
        """L7, L5: and all others are told of that one."""
        for number in range(_KEYS):
            run_id = f"run-{number}"
            answers = await race(
                [
                    store.acquire(run_id, tenant=TENANT, holder=f"racer-{racer}", ttl_seconds=LONG)
                    for racer in range(_RACERS)
                ]
            )

            self._only_one(answers)

    async def test_of_many_acquirers_in_threads_exactly_one_wins(self, store: LeaseStore) -> None:
        """L7: a store may be used from any thread and any event loop."""

        async def acquire_all(holder: str) -> list[RunLease | RunLeaseError]:
            answers: list[RunLease | RunLeaseError] = []
            for number in range(_KEYS):
                try:
                    run_id = f"run-{number}"
                    answers.append(await store.acquire(run_id, tenant=TENANT, holder=holder, ttl_seconds=LONG))
                except RunLeaseError as error:
                    answers.append(error)
            return answers

        racers = [lambda name=f"racer-{racer}": acquire_all(name) for racer in range(_RACERS)]
        answered = winners(await race_in_threads(racers), RunLeaseError)

        for answers in zip(*answered, strict=True):
            self._only_one(answers)

    async def test_of_many_acquirers_of_a_lapsed_lease_exactly_one_wins(self, store: LeaseStore) -> None:
        """L7: the lapse is decided in the same operation as the grant."""
        lapsed = [await store.acquire(f"run-{n}", tenant=TENANT, holder="dead", ttl_seconds=SOON) for n in range(_KEYS)]
        for lease in lapsed:
            await self._wait_for_lapse(store, lease.run_id)

        for lease in lapsed:
            answers = await race(
                [
                    store.acquire(lease.run_id, tenant=TENANT, holder=f"racer-{racer}", ttl_seconds=LONG)
                    for racer in range(_RACERS)
                ]
            )

            assert self._only_one(answers).fence > lease.fence

    async def test_no_name_reaches_anothers_lease(self, store: LeaseStore) -> None:
        """T1: all of them are granted side by side, and the end of one is not the end of another."""
        leases = {
            (tenant, run_id): await store.acquire(run_id, tenant=tenant, holder=f"holder-{number}", ttl_seconds=LONG)
            for number, (tenant, run_id) in enumerate(HOSTILE_RUNS)
        }

        for run in HOSTILE_RUNS:
            await store.release(leases.pop(run))
            for (tenant, run_id), lease in leases.items():
                assert await store.held(run_id, tenant=tenant) == lease

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, store: LeaseStore, name: str) -> None:
        """T1: of a tenant, of a run, and of a holder, by every method."""
        with pytest.raises(InvalidNameError):
            await store.acquire(name, tenant=TENANT, holder="one", ttl_seconds=LONG)
        with pytest.raises(InvalidNameError):
            await store.acquire("run", tenant=name, holder="one", ttl_seconds=LONG)
        with pytest.raises(InvalidNameError):
            await store.acquire("run", tenant=TENANT, holder=name, ttl_seconds=LONG)
        with pytest.raises(InvalidNameError):
            await store.held(name, tenant=TENANT)
        with pytest.raises(InvalidNameError):
            await store.held("run", tenant=name)
        with pytest.raises(InvalidNameError):
            await store.renew(RunLease(name, "run", "one", 1, 0.0), ttl_seconds=LONG)
        with pytest.raises(InvalidNameError):
            await store.release(RunLease(TENANT, name, "one", 1, 0.0))

    async def test_nobody_is_called_like_the_queue(self, store: LeaseStore) -> None:
        """L5: a refusal that names the queue means the queue."""
        with pytest.raises(InvalidNameError):
            await store.acquire("run", tenant=TENANT, holder=QUEUE, ttl_seconds=LONG)

    @pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf])
    async def test_a_ttl_that_cannot_be_is_refused(self, store: LeaseStore, ttl: float) -> None:
        """L6: such a lease would be lapsed at once, or never; a lease that stands is left as it is."""
        with pytest.raises(ConfigurationError):
            await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=ttl)
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
        with pytest.raises(ConfigurationError):
            await store.renew(lease, ttl_seconds=ttl)

        assert await store.held("run", tenant=TENANT) == lease

    @staticmethod
    def _only_one(answers: Sequence[RunLease | BaseException]) -> RunLease:
        (won,) = winners(answers, RunLeaseError)
        lost = [answer for answer in answers if isinstance(answer, RunLeaseError)]
        assert {(error.holder, error.fence) for error in lost} == {(won.holder, won.fence)}
        return won

    async def _lapsed(self, store: LeaseStore) -> RunLease:
        lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=SOON)
        await self._wait_for_lapse(store, "run")
        return lease

    @staticmethod
    async def _wait_for_lapse(store: LeaseStore, run_id: str) -> None:
        async def lapsed() -> bool:
            return await store.held(run_id, tenant=TENANT) is None

        await until(lapsed, what=f"the lease of {run_id} to lapse")
