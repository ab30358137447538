"""Reading all runs of some statuses while a fleet moves them."""

from __future__ import annotations

import pytest

from adk_worker.conformance.runs.driver import Driver
from adk_worker.memory import memory_stores
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Then
from adk_worker.walk import each_run

LIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


@pytest.fixture
def stores():
    return memory_stores()


class Moving:
    """A store whose run is wherever nobody looks: taken before the first look, handed over before the second."""

    def __init__(self, driver):
        self._driver = driver
        self._lease = None
        self.looks = []

    async def list(self, which, **page):
        self.looks.append(which.status)
        match len(self.looks):
            case 1:
                self._lease = await self._driver.worker()
            case 2:
                await self._driver.commit(self._lease, 1, Then.HAND_OVER)
        return await self._driver.runs.list(which, **page)


async def met(runs, *statuses):
    return [run.run_id async for run in each_run(runs, statuses)]


async def test_a_run_that_moves_from_under_each_look_is_met_all_the_same(stores):
    runs = Moving(Driver(stores, run_id="busy"))
    assert await met(runs, *LIVE) == ["busy"]
    assert runs.looks[:3] == [*LIVE, RunStatus.QUEUED]


async def test_each_run_is_met_once(stores):
    await Driver(stores, run_id="queued").submit()
    await Driver(stores, run_id="running").worker()
    await Driver(stores, run_id="asking").commit(await Driver(stores, run_id="asking").worker(), 1, Then.WAIT_APPROVAL)
    assert await met(stores.runs, *LIVE, RunStatus.WAITING_APPROVAL) == ["queued", "running", "asking"]


async def test_more_than_a_page_of_them_is_met(stores):
    names = [f"run_{number}" for number in range(101)]
    for name in names:
        await Driver(stores, run_id=name).submit()
    assert await met(stores.runs, *LIVE) == names[::-1]
