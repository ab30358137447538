"""Removing runs that are over, beside others that are not."""

from __future__ import annotations

import pytest

from adk_worker.conformance.runs.driver import ANN, BOOKED, Driver, left_in_flight
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import ClaimOwnerError, StaleFenceError
from adk_worker.filters import RunFilter
from adk_worker.lease import RunLease
from adk_worker.pruning import Prune, Pruned
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Then

OVER = Prune(older_than=0.0)
"""All runs that are over: every one of them is at least as old as that."""


class PruneConformance:
    """What is removed is gone whole, and nothing else is touched."""

    async def test_a_run_that_is_over_goes_whole(self, stores: Stores) -> None:
        """Its frontier, transcript, claims and events; H2: its handle resolves to nothing."""
        driver = Driver(stores)
        lease = await driver.worker()
        segment = driver.segment("hello")
        await driver.commit(lease, 1, segment=segment)
        (claim,) = await driver.begin(lease, 0)
        await driver.commit(lease, 2, Then.COMPLETE, settled=[(claim, BOOKED)])

        assert await stores.runs.prune(OVER, limit=10) == Pruned(1, 0, None)

        assert await driver.run_or_none() is None
        assert (await driver.claims(), await driver.events(), await driver.payload()) == ([], [], None)
        assert await stores.history.fetch(str(segment.handle), tenant=driver.tenant) is None
        assert await stores.idempotency.peek([claim.key], tenant=driver.tenant) == {claim.key: None}
        assert await stores.runs.list(RunFilter(), limit=10) == ([], None)

    async def test_its_fences_are_never_given_again(self, stores: Stores) -> None:
        """L2, F1: under its name too, where a message and a worker of its old days may still come."""
        driver = Driver(stores)
        first = (await driver.submit()).ticket
        lease = await driver.worker()
        await driver.commit(lease, 1, Then.COMPLETE)
        await stores.runs.prune(OVER, limit=10)

        again = (await driver.submit(input="something else")).ticket

        assert first is not None
        assert again is not None
        assert again > lease.fence > first
        assert await driver.take(first) is None
        with pytest.raises(StaleFenceError):
            await driver.commit(lease, 2)
        assert await driver.take(again) is not None

    async def test_what_comes_late_brings_nothing_back(self, stores: Stores) -> None:
        """F1, F4."""
        driver = Driver(stores)
        lease = await driver.worker()
        (claim,) = await driver.begin(lease, 0)
        await driver.commit(lease, 1, Then.COMPLETE, settled=[(claim, BOOKED)])
        await stores.runs.prune(OVER, limit=10)

        with pytest.raises(ClaimOwnerError):
            await stores.idempotency.record(claim, BOOKED)
        with pytest.raises(StaleFenceError):
            await driver.commit(lease, 2)

        assert await driver.run_or_none() is None
        assert (await driver.claims(), await driver.events()) == ([], [])

    async def test_no_other_run_is_touched(self, stores: Stores) -> None:
        """T1: those that go on or rest, whatever their names; C5: a failed one may be carried on."""
        ends = {
            "run:1": Then.PARK,
            "run": Then.HAND_OVER,
            "run%": Then.KEEP,
            "run_1": Then.WAIT_APPROVAL,
            "RUN": Then.FAIL,
        }
        others = [Driver(stores, run_id=name) for name in ends]
        for other, then in zip(others, ends.values(), strict=True):
            lease = await other.worker()
            await other.commit(lease, 1, segment=other.segment("hello"))
            (claim,) = await other.begin(lease, 0)
            await other.commit(lease, 2, then, settled=[(claim, BOOKED)])
        gone = Driver(stores, run_id="run:")
        await gone.commit(await gone.worker(), 1, Then.COMPLETE)
        before = [await other.picture() for other in others]

        assert (await stores.runs.prune(OVER, limit=10)).removed == 1

        assert [await other.picture() for other in others] == before
        for other in others:
            segment = other.segment("hello")
            assert await stores.history.fetch(str(segment.handle), tenant=other.tenant) is not None

    async def test_failed_runs_go_where_that_is_asked_for(self, stores: Stores) -> None:
        """C5: with them goes the chance to carry them on."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.FAIL)

        assert (await stores.runs.prune(OVER, limit=10)).removed == 0
        assert (await stores.runs.prune(Prune(older_than=0.0, failed=True), limit=10)).removed == 1

        assert await driver.payload() is None

    async def test_a_run_that_has_just_ended_is_kept(self, stores: Stores) -> None:
        """L1: by the store's clock, from its last write."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.COMPLETE)

        assert (await stores.runs.prune(Prune(older_than=LONG), limit=10)).removed == 0

        assert (await driver.run()).status is RunStatus.COMPLETED

    async def test_a_run_with_an_undecided_call_is_kept_until_that_is_decided(self, stores: Stores) -> None:
        """P2: its claims are all the evidence that there is."""
        driver, _, claim = await left_in_flight(stores)
        await self._cancel(driver)

        assert await stores.runs.prune(OVER, limit=10) == Pruned(0, 1, None)
        assert [one.key for one in await driver.claims()] == [claim.key]
        await stores.idempotency.record(claim, BOOKED)
        assert await stores.runs.prune(OVER, limit=10) == Pruned(1, 0, None)

    async def test_it_goes_through_all_in_batches(self, stores: Stores) -> None:
        """Each is looked at once, the oldest first, those that stay in between too."""
        for number in range(10):
            driver = Driver(stores, run_id=f"run-{number}")
            await driver.commit(await driver.worker(), 1, Then.PARK if number % 3 == 0 else Then.COMPLETE)

        removed, cursor, batches = 0, None, 0
        while batches == 0 or cursor is not None:
            pruned = await stores.runs.prune(OVER, limit=4, after=cursor)
            removed, cursor, batches = removed + pruned.removed, pruned.cursor, batches + 1
            assert pruned.removed <= 4

        assert removed == 6
        left, _ = await stores.runs.list(RunFilter(), limit=20)
        assert [run.run_id for run in left] == ["run-9", "run-6", "run-3", "run-0"]

    @staticmethod
    async def _cancel(driver: Driver) -> None:
        """Have the run end as cancelled: at once, or with the next write of whoever holds it."""
        run = await driver.runs.cancel(driver.run_id, tenant=driver.tenant, by=ANN)
        if run.status is RunStatus.RUNNING:
            held = await driver.held()
            assert isinstance(held, RunLease)
            await driver.give_back(held)
        assert (await driver.run()).status is RunStatus.CANCELLED
