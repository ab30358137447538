"""The client of web apps, over a store in memory and a list for a broker."""

from __future__ import annotations

import asyncio

import pytest

from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import (
    CommitUnknownError,
    ConfigurationError,
    InvalidNameError,
    NotJSONError,
    RunExistsError,
    RunNotFoundError,
    RunStateError,
    StoreUnavailableError,
    UnknownAgentError,
    WaitTimeoutError,
)
from adk_worker.filters import RunFilter
from adk_worker.memory import memory_stores
from adk_worker.registry import Registry
from adk_worker.runs import Dispatch, RunStatus
from tests.unit.far_side import agent_with


class Broker:
    """Keeps what was dispatched; raises it instead when it is told to be away."""

    def __init__(self):
        self.sent = []
        self.away = False

    async def dispatch(self, message):
        if self.away:
            raise ConnectionRefusedError("no broker")
        self.sent.append(message)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def fleet(broker):
    return Fleet(memory_stores(), broker)


async def submit(fleet, run_id="run_1", **fields):
    return await fleet.submit("booking", "book", **{"tenant": "acme", "run_id": run_id, **fields})


async def test_a_submit_is_stored_and_then_dispatched(fleet, broker):
    run = await submit(fleet, metadata={"seats": 1})
    assert (run.status, run.metadata) == (RunStatus.QUEUED, {"seats": 1})
    assert broker.sent == [Dispatch("acme", "run_1", run.fence)]


async def test_the_very_same_submit_again_is_the_same_run(fleet):
    """F5: a web app may repeat a request whose answer it did not get."""
    assert await submit(fleet) == await submit(fleet)


async def test_another_request_under_a_taken_id_is_refused(fleet):
    await submit(fleet)
    with pytest.raises(RunExistsError):
        await fleet.submit("booking", "something else", tenant="acme", run_id="run_1")


async def test_a_run_id_is_made_up_where_none_is_given(fleet):
    assert (await submit(fleet, run_id=None)).run_id != (await submit(fleet, run_id=None)).run_id


async def test_a_broker_that_is_away_loses_no_submit(fleet, broker):
    """The ticket is in the store; the reaper publishes it."""
    broker.away = True
    assert (await submit(fleet)).status is RunStatus.QUEUED
    assert await fleet.get("run_1", tenant="acme")


async def test_what_is_submitted_is_masked_where_it_enters(fleet):
    """R1: the store never sees it."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    run = await fleet.submit("booking", f"use {secret}", tenant="acme", metadata={"token": secret})
    assert secret not in run.model_dump_json()


@pytest.mark.parametrize("names", [{"tenant": ""}, {"tenant": "a\0"}, {"run_id": " "}, {"run_id": "x" * 513}])
async def test_a_name_that_cannot_be_one_is_refused_with_its_reason(fleet, broker, names):
    """T1: before anything is written."""
    with pytest.raises(InvalidNameError):
        await submit(fleet, **names)
    assert broker.sent == []


async def test_metadata_that_is_not_json_is_refused(fleet):
    """T2."""
    with pytest.raises(NotJSONError):
        await submit(fleet, metadata={"at": object()})


async def test_an_agent_that_nobody_knows_is_refused_where_agents_are_known(broker):
    fleet = Fleet(memory_stores(), broker, registry=Registry([agent_with()]))
    with pytest.raises(UnknownAgentError) as refused:
        await fleet.submit("bookin", "x", tenant="acme")
    assert refused.value.known == ("booking",)


async def test_another_tenants_run_is_not_found(fleet):
    """T1: it reads the same as one that is not there."""
    await submit(fleet)
    with pytest.raises(RunNotFoundError) as hers:
        await fleet.get("run_1", tenant="other")
    with pytest.raises(RunNotFoundError) as nobodys:
        await fleet.get("run_2", tenant="other")
    assert str(hers.value).replace("run_1", "run_2") == str(nobodys.value)


async def test_a_wait_ends_when_the_run_rests(fleet):
    await submit(fleet)
    waiting = asyncio.create_task(fleet.wait("run_1", tenant="acme", timeout=30))
    await fleet.cancel("run_1", tenant="acme", by="ana")
    assert (await waiting).status is RunStatus.CANCELLED


async def test_a_wait_of_no_number_is_refused(fleet):
    """It would never be over."""
    await submit(fleet)
    with pytest.raises(ConfigurationError, match="NaN"):
        await fleet.wait("run_1", tenant="acme", timeout=float("nan"))


async def test_a_wait_that_takes_too_long_says_so_and_changes_nothing(fleet):
    await submit(fleet)
    with pytest.raises(WaitTimeoutError):
        await fleet.wait("run_1", tenant="acme", timeout=0)
    assert (await fleet.get("run_1", tenant="acme")).status is RunStatus.QUEUED


async def test_events_come_in_order_and_follow_until_the_run_rests(fleet):
    await submit(fleet)
    await fleet.cancel("run_1", tenant="acme", by="ana")
    events = [event async for event in fleet.events("run_1", tenant="acme", follow=True)]
    assert [event.kind for event in events] == ["submitted", "cancel_requested", "cancelled"]
    rest = [event async for event in fleet.events("run_1", tenant="acme", after=events[0].id)]
    assert rest == events[1:]


async def test_runs_are_listed_page_by_page_and_by_what_is_asked(fleet):
    for number in range(250):
        await submit(fleet, run_id=f"run_{number}")
    await submit(fleet, tenant="other")
    await fleet.cancel("run_7", tenant="acme", by="ana")
    assert len([run async for run in fleet.list(tenant="acme")]) == 250
    assert [run.run_id async for run in fleet.list(status=RunStatus.CANCELLED)] == ["run_7"]


@pytest.mark.parametrize("more", [{"tenant": "acme"}, {"status": RunStatus.QUEUED}, {"attention": False}])
async def test_no_condition_of_a_list_is_passed_over(fleet, more):
    """T1: a tenant that is named beside a filter without one must not give everybody's runs."""
    await submit(fleet, tenant="other")
    with pytest.raises(ConfigurationError, match=f"{next(iter(more))}.*RunFilter"):
        _ = [run async for run in fleet.list(RunFilter(agent="booking"), **more)]


async def test_a_run_that_does_not_rest_is_not_queued_again(fleet):
    await submit(fleet)
    with pytest.raises(RunStateError) as refused:
        await fleet.resume("run_1", tenant="acme", by="ana")
    assert refused.value.status == "queued"


def test_the_blocking_face_has_the_same_methods(fleet, broker):
    """For Flask and Django: from any thread, iterators included."""
    run = fleet.sync.submit("booking", "book", tenant="acme", run_id="run_1")
    assert broker.sent == [Dispatch("acme", "run_1", run.fence)]
    assert fleet.sync.get("run_1", tenant="acme") == run
    assert [event.kind for event in fleet.sync.events("run_1", tenant="acme")] == ["submitted"]
    assert [found.run_id for found in fleet.sync.list(tenant="acme")] == ["run_1"]
    with pytest.raises(RunNotFoundError):
        fleet.sync.get("run_2", tenant="acme")


async def test_metadata_that_holds_itself_is_refused_before_it_is_walked_through(fleet):
    """T2: masking would never come back from it."""
    endless = {}
    endless["self"] = endless
    with pytest.raises(NotJSONError):
        await submit(fleet, metadata=endless)


async def test_an_input_that_is_no_text_is_refused(fleet):
    """T2."""
    with pytest.raises(NotJSONError):
        await fleet.submit("booking", 5, tenant="acme")


async def test_a_submit_whose_commit_may_have_happened_is_asked_for_again(fleet, broker):
    """F5: the second one finds the run, so that a made up id is not lost with the answer."""
    runs = fleet.stores.runs
    submitting = runs.submit

    answers = iter([False])

    async def losing_the_answer(*args, **kwargs):
        submitted = await submitting(*args, **kwargs)
        if next(answers, True):
            return submitted
        raise CommitUnknownError(store="memory", reason="the connection was lost in COMMIT")

    runs.submit = losing_the_answer
    run = await submit(fleet, run_id=None)
    assert [found.run_id async for found in fleet.list()] == [run.run_id]
    assert [message.run_id for message in broker.sent] == [run.run_id]


async def test_a_revision_is_pinned_only_where_one_is_given(fleet):
    """C7."""
    assert (await submit(fleet)).revision == ""
    assert (await submit(fleet, run_id="run_2", revision="r7")).revision == "r7"
    with pytest.raises(InvalidNameError):
        await submit(fleet, run_id="run_3", revision="")


async def test_a_run_that_rests_is_queued_again_and_dispatched_as_a_recovery(broker):
    """Flower shows recoveries apart."""
    driver = Driver(memory_stores())
    await driver.park(await driver.worker())
    run = await Fleet(driver.stores, broker).resume("run", tenant="acme", by="ana")
    assert broker.sent == [Dispatch("acme", "run", run.fence, recovery=True)]


async def test_who_acts_has_a_name(fleet):
    """P5: it is kept with the run."""
    await submit(fleet)
    for act in (fleet.cancel, fleet.resume):
        with pytest.raises(InvalidNameError):
            await act("run_1", tenant="acme", by=" ")


async def test_a_run_is_inspected_with_the_agents_that_the_process_knows(fleet):
    await submit(fleet)
    assert (await fleet.inspect("run_1", tenant="acme")).run.run_id == "run_1"
    with pytest.raises(RunNotFoundError):
        await fleet.inspect("run_2", tenant="acme")


async def test_a_wait_outlasts_a_store_that_is_away_for_a_moment(fleet):
    await submit(fleet)
    await fleet.cancel("run_1", tenant="acme", by="ana")
    runs = fleet.stores.runs
    reading = runs.get

    async def away(*args, **kwargs):
        runs.get = reading
        raise StoreUnavailableError(store="memory", reason="gone for a moment")

    runs.get = away
    assert (await fleet.wait("run_1", tenant="acme", timeout=30)).status is RunStatus.CANCELLED


async def test_closing_gives_back_what_the_stores_and_the_dispatcher_have(broker):
    closed = []

    class Closing(Broker):
        async def close(self):
            closed.append("dispatcher")

    stores = memory_stores()

    async def close():
        closed.append("stores")

    stores.lifecycle.close = close
    await Fleet(stores, broker).close()
    await Fleet(stores, Closing()).close()
    assert closed == ["stores", "dispatcher", "stores"]
