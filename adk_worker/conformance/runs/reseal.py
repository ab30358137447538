"""Replacing what a run has sealed, beside workers that carry it on (R2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adk_worker.checkpoint import decode_checkpoint, encode_checkpoint
from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.lease import RunLease
from adk_worker.runs import Stores
from adk_worker.sealing.resealing import Reseal
from adk_worker.transitions.runs import Reason, Then

OLD: dict[str, Any] = {"last": 1, "sealed": {"1": "s1.old.AAAA"}}
NEW: dict[str, Any] = {"last": 1, "sealed": {"1": "s1.new.BBBB"}}
TOLD, TOLD_ANEW = (BOOKED.model_copy(update={"sealed": {"2": seal}}) for seal in ("s1.old.CCCC", "s1.new.DDDD"))


class ResealConformance:
    """What is replaced is replaced whole, if nobody has moved the run."""

    async def _given(self, driver: Driver, then: Then = Then.PARK) -> None:
        """A run with seals in its row, in its frontier, and in the outcome of a call."""
        await driver.submit(masks=OLD)
        lease = await driver.worker()
        claims = await driver.begin(lease, 0, 1)
        await driver.stores.idempotency.record(claims[0], TOLD)
        await driver.commit(lease, 1, then, frontier={"masks": OLD})

    async def _refused(self, driver: Driver, change: Reseal) -> None:
        before = await driver.picture()
        assert not await driver.reseal(change)
        assert await driver.picture() == before

    @pytest.mark.parametrize("then", [Then.PARK, Then.HAND_OVER, Then.WAIT_APPROVAL, Then.FAIL])
    async def test_seals_are_replaced_wherever_they_stand(self, stores: Stores, then: Then) -> None:
        """R2: in the row, the frontier and outcomes; nothing else of the run changes."""
        driver = Driver(stores)
        await self._given(driver, then)
        before = await driver.picture()

        assert await driver.reseal(await driver.change(NEW, TOLD_ANEW))

        after = await driver.picture()
        assert before.run is not None
        assert after.run == before.run.model_copy(update={"masks": NEW})
        assert before.payload is not None
        assert after.payload == encode_checkpoint(decode_checkpoint(before.payload).updated(masks=NEW))
        assert [claim.outcome for claim in after.claims] == [TOLD_ANEW, None]
        assert (after.events, after.held) == (before.events, before.held)

    async def test_before_the_first_frontier_there_is_only_the_row(self, stores: Stores) -> None:
        """R2: whoever takes the run then begins with the new seals."""
        driver = Driver(stores)
        submitted = await driver.submit(masks=OLD)
        assert submitted.ticket is not None
        assert await driver.reseal(await driver.change(NEW, TOLD_ANEW))
        taken = await driver.take(submitted.ticket)
        assert taken is not None
        assert (taken.run.masks, taken.payload) == (NEW, None)

    async def test_a_worker_that_takes_the_run_then_has_the_new_ones(self, stores: Stores) -> None:
        """R2, F1: and goes on as ever."""
        driver = Driver(stores)
        await self._given(driver, Then.HAND_OVER)
        assert await driver.reseal(await driver.change(NEW, TOLD_ANEW))
        taken = await driver.take((await driver.run()).fence)
        assert taken is not None
        assert taken.payload is not None
        assert decode_checkpoint(taken.payload).masks == NEW
        await driver.commit(taken.lease, 2, Then.COMPLETE)

    async def test_a_run_that_a_worker_holds_is_left_alone(self, stores: Stores) -> None:
        """R2, F1: it has the old seals in its memory, and writes them anew itself."""
        driver = Driver(stores)
        await self._given(driver, Then.HAND_OVER)
        await driver.worker()
        await self._refused(driver, await driver.change(NEW, TOLD_ANEW))

    async def test_seals_of_a_run_that_has_moved_since_are_left_alone(self, stores: Stores) -> None:
        """R2, F1: its fence tells."""
        driver = Driver(stores)
        await self._given(driver, Then.HAND_OVER)
        change = await driver.change(NEW, TOLD_ANEW)
        lease = await driver.worker()
        await driver.give_back(lease, Reason.DRAIN)
        await self._refused(driver, change)

    @pytest.mark.parametrize("part", ["masks", "payload", "outcomes"])
    async def test_what_is_not_as_it_was_seen_is_not_replaced(self, stores: Stores, part: str) -> None:
        """R2: not one part of it, so that no seal is put in the place of another secret's."""
        driver = Driver(stores)
        await self._given(driver)
        seen = await driver.change(NEW, TOLD_ANEW)
        other: dict[str, Any] = {
            "masks": ({"last": 7}, NEW),
            "payload": ("{}", seen.payload[1]),
            "outcomes": dict.fromkeys(seen.outcomes, (BOOKED, TOLD_ANEW)),
        }
        parts = {"masks": seen.masks, "payload": seen.payload, "outcomes": seen.outcomes}
        await self._refused(driver, Reseal(seen.fence, **{**parts, part: other[part]}))

    async def test_doing_it_again_is_refused(self, stores: Stores) -> None:
        """F5: whoever lost the answer reads, and finds it done."""
        driver = Driver(stores)
        await self._given(driver)
        change = await driver.change(NEW, TOLD_ANEW)
        assert await driver.reseal(change)
        await self._refused(driver, change)

    @pytest.mark.parametrize("end", ["completed", "cancelled"])
    async def test_a_run_that_is_over_is_left_alone(self, stores: Stores, end: str) -> None:
        """R2: nobody carries it on."""
        driver = Driver(stores)
        await self._given(driver, Then.KEEP if end == "completed" else Then.PARK)
        if end == "completed":
            run = await driver.run()
            lease = RunLease(driver.tenant, driver.run_id, str(run.holder), run.fence, run.expires_at or 0.0)
            await driver.commit(lease, 2, Then.COMPLETE)
        else:
            await driver.cancel()
        await self._refused(driver, await driver.change(NEW, TOLD_ANEW))

    async def test_a_run_that_nobody_knows_has_none(self, stores: Stores) -> None:
        """T1: neither has another tenant's of the same name."""
        driver = Driver(stores)
        await self._given(driver)
        change = await driver.change(NEW, TOLD_ANEW)
        before = await driver.picture()
        assert not await stores.runs.reseal(driver.run_id, tenant="elsewhere", change=change)
        assert not await stores.runs.reseal("another", tenant=driver.tenant, change=change)
        assert await driver.picture() == before

    async def test_beside_takes_one_of_the_two_comes_first(self, stores: Stores) -> None:
        """R2, F1: a worker has the new seals, or the run is left alone. Never both."""
        drivers = [Driver(stores, run_id=f"run-{number}") for number in range(8)]
        for driver in drivers:
            await self._given(driver, Then.HAND_OVER)
        seen = [(driver, await driver.change(NEW, TOLD_ANEW), (await driver.run()).fence) for driver in drivers]

        async def race(driver: Driver, change: Reseal, ticket: int) -> None:
            resealed, taken = await asyncio.gather(driver.reseal(change), driver.take(ticket))
            assert taken is not None
            assert taken.payload is not None
            assert decode_checkpoint(taken.payload).masks == (NEW if resealed else OLD)

        await asyncio.gather(*(race(*one) for one in seen))
