"""What ``adk resume`` says of a bulk that ended in the middle, over a store in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.cli.bulk import resume
from adk_worker.cli.program import Invocation, perform
from adk_worker.cli.source import Given
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import StoreUnavailableError
from adk_worker.memory import MemoryRunStore, memory_stores
from adk_worker.memory.data import MemoryData

ASKED = ("--tenant", "acme", "--status", "failed", "--yes")


class Ending(MemoryRunStore):
    """Queues two runs again; then something ends it."""

    left = 2
    by = None

    async def requeue(self, run_id, **fields):
        if self.left == 0 and self.by is not None:
            raise self.by
        self.left -= 1
        return await super().requeue(run_id, **fields)


class Broker:
    async def dispatch(self, message):
        """Publish."""


@pytest.fixture
async def stores():
    data = MemoryData()
    stores = replace(memory_stores(data), runs=Ending(data))
    for number in range(4):
        driver = Driver(stores, run_id=f"run_{number}")
        await driver.runs.fail(await driver.worker(), detail="the provider was down")
    return stores


@pytest.mark.parametrize(
    ("by", "code", "said"),
    [
        (StoreUnavailableError(store="memory", reason="it went away"), 69, "error: the store memory is not answering"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_it_says_how_far_it_came_and_goes_on_when_it_is_asked_again(stores, capsys, by, code, said):
    """P2: what is done is done, and all else is as it was."""
    invocation = Invocation(Given(stores, dispatcher=Broker()))
    stores.runs.by = by
    assert perform(resume, ASKED, prog="resume", invocation=invocation) == code
    out, err = capsys.readouterr()
    assert [line.split()[2] for line in out.splitlines()] == ["run_3", "run_2"]
    assert "it came as far as this: 2 runs: 2 done. Ask again: it goes on with what is left" in err
    assert said in err

    stores.runs.by = None
    assert perform(resume, ASKED, prog="resume", invocation=invocation) == 0
    out, err = capsys.readouterr()
    assert [line.split()[2] for line in out.splitlines()] == ["run_1", "run_0"]
