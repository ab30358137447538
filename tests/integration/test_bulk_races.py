"""Two operators on the morning after the same outage, on real servers: each run is done once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from adk_worker.bulk import BulkResult
from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import Driver
from adk_worker.events import EventKind
from adk_worker.filters import RunFilter
from adk_worker.runs import RunStatus

RUNS = 150
OPERATORS = ("ana", "bob", "cleo")

pytestmark = pytest.mark.timeout(240)


class Broker:
    """Counts what is published."""

    def __init__(self):
        self.sent = Counter()

    async def dispatch(self, message):
        self.sent[message.run_id] += 1


async def failed(stores, name):
    """One that the outage has failed."""
    driver = Driver(stores, run_id=name)
    await driver.runs.fail(await driver.worker(), detail="the provider was down")


async def test_operators_who_resume_the_same_runs_queue_each_once(stores):
    """P2, L7: of more than a page; whoever comes second is told, or does not meet it any more."""
    names = [f"run-{number}" for number in range(RUNS)]
    await asyncio.gather(*(failed(stores, name) for name in names))
    broker = Broker()
    fleet = Fleet(stores, broker)

    async def resume(by):
        return [(one.run.run_id, one.result) async for one in fleet.resume_many(RunFilter(tenant="acme"), by=by)]

    told = [one for outcomes in await asyncio.gather(*map(resume, OPERATORS)) for one in outcomes]

    assert {came for _, came in told} <= {BulkResult.DONE, BulkResult.CHANGED}
    done = Counter(name for name, came in told if came is BulkResult.DONE)
    assert done == Counter(names)
    assert broker.sent == Counter(names)
    for name in names:
        events = [event async for event in fleet.events(name, tenant="acme")]
        assert [event.kind for event in events].count(EventKind.REQUEUED) == 1


async def test_operators_who_resume_and_cancel_the_same_runs_leave_none_in_between(stores):
    """P2: each was queued again or cancelled as somebody saw it; what was cancelled stays so."""
    names = [f"run-{number}" for number in range(RUNS)]
    await asyncio.gather(*(failed(stores, name) for name in names))
    fleet = Fleet(stores, Broker())
    await asyncio.gather(*(fleet.resume(name, tenant="acme", by="ana") for name in names[::2]))
    seen = [run async for run in fleet.list(tenant="acme")]

    async def asked(outcomes):
        return {one.run.run_id: one.result async for one in outcomes}

    resumed, cancelled = await asyncio.gather(
        asked(fleet.resume_many(seen, by="ana")), asked(fleet.cancel_many(reversed(seen), by="bob"))
    )

    # Those that were queued already can only be cancelled, those that had failed can only be queued again.
    assert cancelled == {name: BulkResult.DONE if name in names[::2] else cancelled[name] for name in names}
    assert {cancelled[name] for name in names[1::2]} <= {BulkResult.REFUSED, BulkResult.CHANGED}
    assert resumed == {name: BulkResult.DONE if name in names[1::2] else resumed[name] for name in names}
    assert {resumed[name] for name in names[::2]} == {BulkResult.REFUSED}
    stand = {run.run_id: run.status async for run in fleet.list(tenant="acme")}
    assert stand == {name: RunStatus.CANCELLED if name in names[::2] else RunStatus.QUEUED for name in names}
