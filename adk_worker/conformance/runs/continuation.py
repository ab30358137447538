"""A run that crosses into a new execution: in the write of its boundary, whole or not at all (K1)."""

from __future__ import annotations

from typing import Any

import pytest

from adk_worker.checkpoint import Journal, decode_checkpoint
from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.errors import StaleFenceError
from adk_worker.events import CONTINUED, Event, continued
from adk_worker.filters import RunFilter
from adk_worker.lease import RunLease
from adk_worker.runs import Committed, RunStatus, Stores
from adk_worker.transitions.runs import Then, Verdict

_LEFT = Journal(steps=2, history_bytes=70)


class ContinuationConformance:
    """What crosses is in the frontier; what stays behind stays."""

    async def test_a_run_crosses_in_the_write_of_its_boundary(self, stores: Stores) -> None:
        """K1: the frontier, the number and the event are one write with the hand-over."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        assert (await driver.run()).execution == 1

        committed = await self._cross(driver, lease, 2)

        run = await driver.run()
        assert (committed.verdict, committed.ticket) == (Verdict.DONE, run.fence)
        assert (run.status, run.execution, run.sequence, run.iteration) == (RunStatus.QUEUED, 2, 2, 2)
        assert decode_checkpoint(await driver.payload() or "").execution == 2
        (event,) = await self._told(driver)
        assert event.data == {"execution": 2, "steps": 2, "history_bytes": 70}
        assert event.fence == lease.fence

    async def test_what_is_left_behind_stays(self, stores: Stores) -> None:
        """K1, I2: claims and events of the execution before are evidence for as long as the run's row is there."""
        driver = Driver(stores)
        lease = await driver.worker()
        (claim,) = await driver.begin(lease, 0)
        await driver.commit(lease, 1, settled=[(claim, BOOKED)])
        before = await driver.picture()

        await self._cross(driver, lease, 2)
        await driver.commit(await driver.worker(), 3, Then.HAND_OVER, frontier={"execution": 2})

        assert await driver.claims() == list(before.claims)
        assert (await driver.events())[: len(before.events)] == list(before.events)
        assert (await driver.run()).execution == 2

    async def test_a_superseded_worker_does_not_cross(self, stores: Stores) -> None:
        """K1, F1: nothing is written, the number neither."""
        driver = Driver(stores)
        dead = await driver.dead_worker()
        await driver.reap()
        before = await driver.picture()

        with pytest.raises(StaleFenceError):
            await self._cross(driver, dead, 1)

        assert await driver.picture() == before

    async def test_a_crossing_whose_answer_was_lost_is_found_done(self, stores: Stores) -> None:
        """K1, F5: the run has crossed once."""
        driver = Driver(stores)
        lease = await driver.worker()
        await self._cross(driver, lease, 1)

        again = await self._cross(driver, lease, 1)

        run = await driver.run()
        assert (again.verdict, again.ticket) == (Verdict.REPEATED, run.fence)
        assert run.execution == 2
        assert len(await self._told(driver)) == 1

    async def test_a_run_that_is_cancelled_as_it_crosses_ends(self, stores: Stores) -> None:
        """K1, P2: the boundary is written, and the run goes on in no execution."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.cancel()

        committed = await self._cross(driver, lease, 1)

        run = await driver.run()
        assert (committed.verdict, committed.ticket) == (Verdict.CANCELLED, None)
        assert (run.status, run.execution) == (RunStatus.CANCELLED, 2)

    async def test_an_execution_outlives_whatever_happens_to_the_run(self, stores: Stores) -> None:
        """K1: it is parked, queued again, given back and taken in the same one."""
        driver = Driver(stores)
        await self._cross(driver, await driver.worker(), 1)
        await driver.park(await driver.worker())
        await driver.requeue()
        await driver.give_back(await driver.worker())
        run = await driver.run()

        taken = await driver.take(run.fence)

        assert taken is not None
        assert (taken.run.execution, decode_checkpoint(taken.payload or "").execution) == (2, 2)
        page, _ = await stores.runs.list(RunFilter(), limit=1)
        assert [run.execution for run in page] == [2]

    @staticmethod
    async def _cross(driver: Driver, lease: RunLease, sequence: int) -> Committed:
        told: dict[str, Any] = {"frontier": {"execution": 2}, "events": (continued(2, _LEFT),)}
        return await driver.commit(lease, sequence, Then.HAND_OVER, **told)

    @staticmethod
    async def _told(driver: Driver) -> list[Event]:
        return [event for event in await driver.events() if event.kind == CONTINUED]
