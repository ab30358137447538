"""Many runs queued again or cancelled at once, over a store in memory and a list for a broker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.bulk import BulkResult
from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import (
    ConfigurationError,
    FrontierLostError,
    InvalidNameError,
    NotAllowedError,
    RunStateError,
    StoreUnavailableError,
)
from adk_worker.filters import RunFilter
from adk_worker.memory import MemoryRunStore, memory_stores
from adk_worker.memory.data import MemoryData
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention, Reason, Then


class Broker:
    """Keeps what was dispatched, or counts how often it was asked in vain."""

    def __init__(self):
        self.sent = []
        self.away = False
        self.asked = 0

    async def dispatch(self, message):
        self.asked += 1
        if self.away:
            raise ConnectionRefusedError("no broker")
        self.sent.append(message.run_id)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def stores():
    return memory_stores()


@pytest.fixture
def fleet(stores, broker):
    return Fleet(stores, broker)


async def failed(stores, run_id, *, tenant="acme", agent="booking"):
    driver = Driver(stores, tenant=tenant, run_id=run_id)
    await driver.submit(agent=agent)
    await driver.runs.fail(await driver.worker(), detail="the model's provider was down")
    return driver


async def parked(stores, run_id, attention=Attention.OVER_BUDGET):
    driver = Driver(stores, run_id=run_id)
    await driver.runs.park(await driver.worker(), attention=attention, detail="somebody has to look")
    return driver


async def backing_off(stores, run_id, attention=Attention.MODEL_UNAVAILABLE):
    driver = Driver(stores, run_id=run_id)
    await driver.give_back(await driver.worker(), Reason.CONFLICT, attention=attention)
    return driver


async def told(outcomes):
    return {outcome.run.run_id: outcome.result for outcome in [one async for one in outcomes]}


# --- resume -----------------------------------------------------------------------------------------------------------


async def test_what_rests_or_backs_off_is_queued_again_and_published(fleet, stores, broker):
    """P2: and nothing else is: not what moves, waits for a person's decision, or has ended otherwise."""
    await failed(stores, "failed")
    await parked(stores, "parked")
    await backing_off(stores, "backing-off")
    await Driver(stores, run_id="queued").submit()
    await Driver(stores, run_id="running").worker()
    await Driver(stores, run_id="asking").commit(await Driver(stores, run_id="asking").worker(), 1, Then.WAIT_APPROVAL)
    await Driver(stores, run_id="done").commit(await Driver(stores, run_id="done").worker(), 1, Then.COMPLETE)

    came = await told(fleet.resume_many(RunFilter(), by="ana"))

    assert came == {"failed": BulkResult.DONE, "parked": BulkResult.DONE, "backing-off": BulkResult.DONE}
    assert sorted(broker.sent) == ["backing-off", "failed", "parked"]
    for run_id in came:
        run = await fleet.get(run_id, tenant="acme")
        assert (run.status, run.attention) == (RunStatus.QUEUED, None)
        (requeued,) = [event async for event in fleet.events(run_id, tenant="acme") if event.kind == "requeued"]
        assert requeued.data["by"] == "ana"


async def test_those_alone_that_are_asked_for(fleet, stores):
    """P2: a cause has an agent, an attention, a tenant."""
    await failed(stores, "one")
    await failed(stores, "two", agent="refunds")
    await failed(stores, "three", tenant="other", agent="refunds")
    await parked(stores, "four", Attention.POISONED)
    await parked(stores, "five", Attention.OVER_BUDGET)

    where = RunFilter(tenant="acme", status=RunStatus.FAILED, agent="refunds")
    assert await told(fleet.resume_many(where, by="ana")) == {"two": BulkResult.DONE}
    assert await told(fleet.resume_many(RunFilter(attention=Attention.POISONED), by="ana")) == {"four": BulkResult.DONE}
    assert await told(fleet.resume_many(RunFilter(tenant="other"), by="ana")) == {"three": BulkResult.DONE}


async def test_a_poisoned_run_may_die_as_often_again(fleet, stores):
    """C3: the counter begins anew for those whose cause somebody has mended."""
    driver = Driver(stores, run_id="poisoned")
    for _ in range(driver.policy.max_crashes):
        await driver.give_back(await driver.worker())
    assert (await driver.run()).attention is Attention.POISONED

    assert await told(fleet.resume_many(RunFilter(attention=Attention.POISONED), by="ana")) == {
        "poisoned": BulkResult.DONE
    }

    assert ((await driver.run()).crashes, (await driver.run()).tries) == (0, 0)


async def test_a_dry_run_tells_the_same_and_writes_nothing(fleet, stores, broker):
    """P2: of a run whose frontier is lost it tells the reason too (C3)."""
    drivers = [await failed(stores, "one"), await parked(stores, "two"), Driver(stores, run_id="lost")]
    lease = await drivers[-1].worker()
    await drivers[-1].commit(lease, 1)
    await drivers[-1].commit(lease, 2, Then.PARK, stored=False, attention=Attention.FRONTIER_LOST)
    before = [await driver.picture() for driver in drivers]

    outcomes = [one async for one in fleet.resume_many(RunFilter(), by="ana", dry_run=True)]

    assert {one.run.run_id: one.result for one in outcomes} == {
        "one": BulkResult.DUE,
        "two": BulkResult.DUE,
        "lost": BulkResult.REFUSED,
    }
    (lost,) = [one.error for one in outcomes if one.error is not None]
    assert isinstance(lost, FrontierLostError)
    assert lost.sequence == 1
    assert [await driver.picture() for driver in drivers] == before
    assert broker.sent == []
    assert await told(fleet.resume_many(RunFilter(), by="ana")) == {
        "one": BulkResult.DONE,
        "two": BulkResult.DONE,
        "lost": BulkResult.REFUSED,
    }


async def test_one_that_has_moved_since_it_was_listed_is_skipped_and_told(fleet, stores):
    """P2: somebody else has queued it again, and it has failed anew, perhaps for another reason."""
    for name in ("one", "two", "three"):
        await failed(stores, name)
    listed = [run async for run in fleet.list(status=RunStatus.FAILED)]
    await fleet.resume("two", tenant="acme", by="bob")
    moved = Driver(stores, run_id="two")
    await moved.runs.fail(await moved.worker(), detail="something else")
    before = await moved.picture()

    outcomes = [one async for one in fleet.resume_many(listed, by="ana")]

    assert [(one.run.run_id, one.result) for one in outcomes] == [
        ("three", BulkResult.DONE),
        ("two", BulkResult.CHANGED),
        ("one", BulkResult.DONE),
    ]
    assert isinstance(outcomes[1].error, RunStateError)
    assert await moved.picture() == before


async def test_one_that_was_removed_since_is_told_as_changed(fleet, stores):
    """P2: nothing is left of it."""
    await failed(stores, "gone")
    listed = [run async for run in fleet.list()]
    assert [one.removed async for one in fleet.prune(older_than=0.0, failed=True, by="ana")] == [1]

    assert await told(fleet.resume_many(listed, by="ana")) == {"gone": BulkResult.CHANGED}


async def test_runs_that_can_not_be_asked_are_refused_one_by_one(fleet, stores):
    """P1, P2: a list of somebody's own may hold anything."""
    await Driver(stores, run_id="queued").submit()
    asking = Driver(stores, run_id="asking")
    await asking.commit(await asking.worker(), 1, Then.WAIT_APPROVAL)
    listed = [run async for run in fleet.list()]

    assert await told(fleet.resume_many(listed, by="ana")) == {
        "queued": BulkResult.REFUSED,
        "asking": BulkResult.REFUSED,
    }
    await told(fleet.cancel_many(listed, by="ana"))
    ended = [run async for run in fleet.list()]
    assert await told(fleet.resume_many(ended, by="ana")) == {
        "queued": BulkResult.REFUSED,
        "asking": BulkResult.REFUSED,
    }


async def test_a_broker_that_is_away_is_asked_once(fleet, stores, broker):
    """P2: each message in vain may take seconds; all runs are queued, and the reaper publishes them."""
    for number in range(5):
        await failed(stores, f"run-{number}")
    broker.away = True

    came = await told(fleet.resume_many(RunFilter(status=RunStatus.FAILED), by="ana"))

    assert set(came.values()) == {BulkResult.DONE}
    assert broker.asked == 1


async def test_no_more_than_so_many(fleet, stores):
    """P2: to see with a few whether the cause is gone."""
    for number in range(5):
        await failed(stores, f"run-{number}")

    assert await told(fleet.resume_many(RunFilter(), by="ana", limit=2)) == {
        "run-4": BulkResult.DONE,
        "run-3": BulkResult.DONE,
    }
    assert len(await told(fleet.resume_many(RunFilter(), by="ana", limit=10))) == 3


async def test_what_cannot_be_done_is_not_counted(fleet, stores):
    """P2: else those that are always refused would stand before all others, however often it is asked."""
    await failed(stores, "due")
    await Driver(stores, run_id="queued").submit()
    listed = [run async for run in fleet.list()]

    for dry_run, came in ((True, BulkResult.DUE), (False, BulkResult.DONE)):
        outcomes = await told(fleet.resume_many(listed, by="ana", limit=1, dry_run=dry_run))
        assert outcomes == {"queued": BulkResult.REFUSED, "due": came}


async def test_what_has_moved_is_not_counted(fleet, stores):
    """P2: it was not done."""
    for name in ("due", "moved"):
        await failed(stores, name)
    listed = [run async for run in fleet.list()]
    await fleet.resume("moved", tenant="acme", by="bob")

    outcomes = await told(fleet.resume_many(listed, by="ana", limit=1))

    assert outcomes == {"moved": BulkResult.CHANGED, "due": BulkResult.DONE}


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.RUNNING, RunStatus.WAITING_APPROVAL])
async def test_a_status_that_cannot_be_queued_again_is_refused_at_once(fleet, status):
    with pytest.raises(ConfigurationError, match="failed, parked, queued"):
        await told(fleet.resume_many(RunFilter(status=status), by="ana"))


# --- cancel -----------------------------------------------------------------------------------------------------------


async def test_whatever_has_not_ended_is_cancelled(fleet, stores):
    """P2: at once, or at its worker's next write."""
    await failed(stores, "failed")
    await parked(stores, "parked")
    await backing_off(stores, "backing-off")
    await Driver(stores, run_id="queued").submit()
    await Driver(stores, run_id="running").worker()
    await Driver(stores, run_id="asking").commit(await Driver(stores, run_id="asking").worker(), 1, Then.WAIT_APPROVAL)

    outcomes = [one async for one in fleet.cancel_many(RunFilter(tenant="acme"), by="ana")]

    stand = {one.run.run_id: one.run.status for one in outcomes}
    assert {one.result for one in outcomes} == {BulkResult.DONE}
    assert stand.pop("running") is RunStatus.RUNNING
    assert set(stand) == {"parked", "backing-off", "queued", "asking"}
    assert set(stand.values()) == {RunStatus.CANCELLED}
    assert (await fleet.get("running", tenant="acme")).cancel_requested
    assert (await fleet.get("failed", tenant="acme")).status is RunStatus.FAILED


async def test_a_run_that_goes_on_meanwhile_is_cancelled_all_the_same(stores, broker):
    """P2: it was queued when it was met, and is a worker's by the time of the write."""

    class Moving(MemoryRunStore):
        async def cancel(self, run_id, *, tenant, by, seen=None):
            await Driver(stores, run_id=run_id).worker()
            return await super().cancel(run_id, tenant=tenant, by=by, seen=seen)

    data = MemoryData()
    stores = memory_stores(data)
    await Driver(stores, run_id="busy").submit()
    fleet = Fleet(memory_stores_with(data, Moving), broker)

    assert await told(fleet.cancel_many(RunFilter(), by="ana")) == {"busy": BulkResult.DONE}
    assert (await fleet.get("busy", tenant="acme")).cancel_requested


def memory_stores_with(data, kind):
    return replace(memory_stores(data), runs=kind(data))


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_store_that_goes_away_midway_has_done_what_it_told(broker):
    """F5: and asking again does the rest."""

    class Leaving(MemoryRunStore):
        left = 2

        async def requeue(self, run_id, *, tenant, by, policy, seen=None):
            if not self.left:
                raise StoreUnavailableError(store="memory", reason="it went away")
            self.left -= 1
            return await super().requeue(run_id, tenant=tenant, by=by, policy=policy, seen=seen)

    data = MemoryData()
    stores = memory_stores_with(data, Leaving)
    fleet = Fleet(stores, broker)
    for number in range(5):
        await failed(stores, f"run-{number}")
    came = []

    async def resume():
        async for outcome in fleet.resume_many(RunFilter(), by="ana"):
            came.append((outcome.run.run_id, outcome.result))  # noqa: PERF401 - what came until it raised

    with pytest.raises(StoreUnavailableError):
        await resume()
    stores.runs.left = 10
    rest = await told(fleet.resume_many(RunFilter(), by="ana"))

    assert came == [("run-4", BulkResult.DONE), ("run-3", BulkResult.DONE)]
    assert rest == {"run-2": BulkResult.DONE, "run-1": BulkResult.DONE, "run-0": BulkResult.DONE}
    assert sorted(broker.sent) == [f"run-{number}" for number in range(5)]


async def test_the_verifier_is_asked_for_all_together_and_for_each(stores, broker):
    """P5: who may act on one run may not on any, and a run that is nobody's to touch is refused by itself."""
    asked = []

    def verifier(actor, action, *, tenant, run_id):
        asked.append((actor.name, action, tenant, run_id))
        if run_id == "two":
            raise NotAllowedError(actor=actor.name, action=action, reason="legal hold")
        if actor.name != "ana":
            raise NotAllowedError(actor=actor.name, action=action, reason="no operator")

    fleet = Fleet(stores, broker, verifier=verifier)
    for name in ("one", "two"):
        await failed(stores, name)

    for ask in (fleet.resume_many, fleet.cancel_many):
        with pytest.raises(NotAllowedError):
            await told(ask(RunFilter(tenant="acme"), by="bob"))
    came = await told(fleet.resume_many(RunFilter(tenant="acme"), by="ana"))

    assert came == {"two": BulkResult.REFUSED, "one": BulkResult.DONE}
    assert asked[0] == ("bob", "resume", "acme", None)
    assert asked[2:] == [
        ("ana", "resume", "acme", None),
        ("ana", "resume", "acme", "two"),
        ("ana", "resume", "acme", "one"),
    ]


async def test_who_acts_has_to_be_named(fleet):
    """P5: before anything is looked at."""
    with pytest.raises(InvalidNameError):
        await told(fleet.cancel_many(RunFilter(), by=""))


# --- find -------------------------------------------------------------------------------------------------------------


async def test_a_run_is_found_without_its_tenant_by_who_may(stores, broker):
    """T1, P5: the verifier is asked about no tenant, so that it can keep this to operators."""
    asked = []

    async def verifier(actor, action, *, tenant, run_id):
        asked.append((action, tenant, run_id))
        if actor.name != "ana":
            raise NotAllowedError(actor=actor.name, action=action, reason="no operator")

    fleet = Fleet(stores, broker, verifier=verifier)
    for tenant in ("acme", "other"):
        await Driver(stores, tenant=tenant, run_id="wanted").submit()
    await Driver(stores, run_id="another").submit()

    assert [run.tenant async for run in fleet.find("wanted", by="ana")] == ["other", "acme"]
    assert [run async for run in fleet.find("nowhere", by="ana")] == []
    with pytest.raises(NotAllowedError):
        _ = [run async for run in fleet.find("wanted", by="bob")]
    with pytest.raises(InvalidNameError):
        _ = [run async for run in fleet.find("", by="ana")]
    assert asked == [("find", None, "wanted"), ("find", None, "nowhere"), ("find", None, "wanted")]


async def test_a_time_that_no_run_can_have_is_refused():
    for times in ({"updated_since": 2.0, "updated_until": 2.0}, {"created_since": float("nan")}):
        with pytest.raises(ConfigurationError, match="no run is"):
            RunFilter(**times)


async def test_the_blocking_face_has_them_too(fleet, stores):
    await failed(stores, "one")
    assert [one.result for one in fleet.sync.resume_many(RunFilter(), by="ana", dry_run=True)] == [BulkResult.DUE]
