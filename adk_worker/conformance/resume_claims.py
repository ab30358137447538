"""What every :class:`~adk_worker.idempotency.ResumeClaims` has to do (I9)."""

from __future__ import annotations

import math

import pytest
import pytest_asyncio

from adk_worker.conformance.clocks import YEAR, caller_off_by
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.waiting import LONG, SOON, race, race_in_threads, until, winners
from adk_worker.errors import ConfigurationError, InvalidNameError, ResumeConflictError
from adk_worker.idempotency import ResumeClaims

TENANT = "acme"
_RUNS = 20
_RACERS = 8


class ResumeClaimsConformance:
    """Override the fixture ``make_store``: it gives a function that makes an unused store of resume claims."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[ResumeClaims]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[ResumeClaims]) -> ResumeClaims:
        """The store of one test."""
        return await made(make_store)

    async def test_a_second_resume_is_refused(self, store: ResumeClaims) -> None:
        """I9: until the first one ends."""
        await store.claim_resume("run", tenant=TENANT, owner="one")

        with pytest.raises(ResumeConflictError) as refused:
            await store.claim_resume("run", tenant=TENANT, owner="two")
        await store.end_resume("run", tenant=TENANT, owner="one")

        assert (refused.value.tenant, refused.value.run_id) == (TENANT, "run")
        await store.claim_resume("run", tenant=TENANT, owner="two")

    async def test_the_same_resume_claims_again(self, store: ResumeClaims) -> None:
        """I9, F5: after an answer that was lost; an owner's name is given once."""
        await store.claim_resume("run", tenant=TENANT, owner="one", fence=3)

        await store.claim_resume("run", tenant=TENANT, owner="one", fence=3)

        assert await self._refused(store, owner="two")

    async def test_the_end_of_a_resume_ends_no_other(self, store: ResumeClaims) -> None:
        """I9: only the owner's own claim ends, and ending nothing is harmless."""
        await store.end_resume("run", tenant=TENANT, owner="one")
        await store.claim_resume("run", tenant=TENANT, owner="one")

        await store.end_resume("run", tenant=TENANT, owner="two")

        assert await self._refused(store, owner="two")

    async def test_a_claim_expires_by_the_stores_clock(self, store: ResumeClaims) -> None:
        """I9: whoever resumed and died stands in the way for a while, not for ever."""
        await store.claim_resume("run", tenant=TENANT, owner="dead", ttl_seconds=SOON)

        async def claimed() -> bool:
            return not await self._refused(store, owner="two")

        await until(claimed, what="the claim to expire")
        assert await self._refused(store, owner="three")

    async def test_the_callers_clock_ends_no_claim(self, store: ResumeClaims) -> None:
        """I9, L1: it expires by the store's."""
        await store.claim_resume("run", tenant=TENANT, owner="one", ttl_seconds=LONG)

        with caller_off_by(YEAR):
            assert await self._refused(store, owner="two")

    async def test_a_higher_fence_replaces_a_lower_one(self, store: ResumeClaims) -> None:
        """I9: under a lease, the one that came after it resumes; the one before ends no claim but its own."""
        await store.claim_resume("run", tenant=TENANT, owner="one", fence=3)

        await store.claim_resume("run", tenant=TENANT, owner="two", fence=4)
        await store.end_resume("run", tenant=TENANT, owner="one")

        assert await self._refused(store, owner="one", fence=3)
        assert await self._refused(store, owner="three", fence=4)
        assert not await self._refused(store, owner="three", fence=5)

    async def test_without_a_fence_one_waits_and_is_waited_for(self, store: ResumeClaims) -> None:
        """I9: a fence is above another fence, not above somebody who has none."""
        await store.claim_resume("run", tenant=TENANT, owner="one", fence=3)
        assert await self._refused(store, owner="two")
        await store.end_resume("run", tenant=TENANT, owner="one")

        await store.claim_resume("run", tenant=TENANT, owner="two")

        assert await self._refused(store, owner="one", fence=4)

    async def test_of_many_resumes_exactly_one_claims(self, store: ResumeClaims) -> None:
        """I9, I3: in one event loop."""
        for number in range(_RUNS):
            racers = [
                store.claim_resume(f"run-{number}", tenant=TENANT, owner=f"racer-{racer}") for racer in range(_RACERS)
            ]

            assert len(winners(await race(racers), ResumeConflictError)) == 1

    async def test_of_many_resumes_in_threads_exactly_one_claims(self, store: ResumeClaims) -> None:
        """I9, I3: a store may be used from any thread and any event loop."""

        async def claim_all(owner: str) -> list[bool]:
            return [not await self._refused(store, owner=owner, run_id=f"run-{number}") for number in range(_RUNS)]

        racers = [lambda owner=f"racer-{racer}": claim_all(owner) for racer in range(_RACERS)]
        claimed = winners(await race_in_threads(racers), ResumeConflictError)

        assert [sum(won) for won in zip(*claimed, strict=True)] == [1] * _RUNS

    async def test_no_name_reaches_anothers_claim(self, store: ResumeClaims) -> None:
        """T1: all of them resume side by side."""
        for tenant, run_id in HOSTILE_RUNS:
            await store.claim_resume(run_id, tenant=tenant, owner="one")

        for tenant, run_id in HOSTILE_RUNS:
            await store.end_resume(run_id, tenant=tenant, owner="one")
            await store.claim_resume(run_id, tenant=tenant, owner="two")

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, store: ResumeClaims, name: str) -> None:
        """T1: of a tenant, a run and an owner."""
        with pytest.raises(InvalidNameError):
            await store.claim_resume(name, tenant=TENANT, owner="one")
        with pytest.raises(InvalidNameError):
            await store.claim_resume("run", tenant=name, owner="one")
        with pytest.raises(InvalidNameError):
            await store.claim_resume("run", tenant=TENANT, owner=name)
        with pytest.raises(InvalidNameError):
            await store.end_resume(name, tenant=TENANT, owner="one")

    @pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf])
    async def test_a_ttl_that_cannot_be_is_refused(self, store: ResumeClaims, ttl: float) -> None:
        """I9: no claim stands for ever."""
        with pytest.raises(ConfigurationError):
            await store.claim_resume("run", tenant=TENANT, owner="one", ttl_seconds=ttl)

        assert not await self._refused(store, owner="two")

    @staticmethod
    async def _refused(store: ResumeClaims, *, owner: str, fence: int | None = None, run_id: str = "run") -> bool:
        try:
            await store.claim_resume(run_id, tenant=TENANT, owner=owner, fence=fence, ttl_seconds=LONG)
        except ResumeConflictError:
            return True
        return False
