"""Submitting runs."""

from __future__ import annotations

from typing import Any

import pytest

from adk_worker.checkpoint import Checkpoint
from adk_worker.conformance.runs.driver import PATIENT, TENANT, Driver
from adk_worker.conformance.texts import CONTENTS, MEGABYTE, TRICKY
from adk_worker.conformance.waiting import LONG, race_in_threads, winners
from adk_worker.errors import InvalidNameError, NotJSONError, RunExistsError, StaleFenceError
from adk_worker.events import EventKind
from adk_worker.lease import QUEUE
from adk_worker.runs import NewRun, RunStatus, Stores
from adk_worker.transitions.runs import Then

_RACERS = 8


class SubmitConformance:
    """How a run comes to be."""

    async def test_a_new_run_is_queued_under_its_first_ticket(self, stores: Stores) -> None:
        """L2: a live run's lease is never free; the queue has this one until the message comes."""
        driver = Driver(stores)

        submitted = await driver.submit(metadata={"trip": 7}, masks={"[secret:1]": "x"})

        run = submitted.run
        assert (run.tenant, run.run_id, run.agent, run.revision) == (TENANT, "run", "booking", "r1")
        assert (run.input, run.metadata, run.masks) == ("book the flight", {"trip": 7}, {"[secret:1]": "x"})
        assert (run.status, run.holder, run.fence) == (RunStatus.QUEUED, QUEUE, submitted.ticket)
        assert (run.sequence, run.crashes, run.tries, run.attention) == (0, 0, 0, None)
        assert (run.expires_at or 0) - run.created_at == pytest.approx(LONG)
        assert await driver.run() == run
        held = await driver.held()
        assert held is not None
        assert (held.holder, held.fence, held.expires_at) == (QUEUE, submitted.ticket, run.expires_at)

    async def test_a_submit_is_told(self, stores: Stores) -> None:
        """H1: the first event of every run."""
        driver = Driver(stores)

        submitted = await driver.submit()

        (event,) = await driver.events()
        assert (event.kind, event.data, event.fence) == (EventKind.SUBMITTED, {"agent": "booking"}, submitted.ticket)
        assert event.at == submitted.run.created_at

    async def test_the_same_request_finds_the_run(self, stores: Stores) -> None:
        """F5: with the ticket that is to be dispatched, as long as it is queued; nothing is written."""
        driver = Driver(stores)
        first = await driver.submit(metadata={"a": 1, "b": [2]})
        before = await driver.picture()

        again = await driver.submit(metadata={"b": [2], "a": 1}, revision="r2")

        assert again == first
        assert await driver.picture() == before

    async def test_the_same_request_finds_a_run_that_moved_on(self, stores: Stores) -> None:
        """F5: there is nothing to dispatch then."""
        driver = Driver(stores)
        lease = await driver.worker()
        running = await driver.submit()
        await driver.commit(lease, 1, Then.COMPLETE)

        completed = await driver.submit()

        assert (running.ticket, running.run.status) == (None, RunStatus.RUNNING)
        assert (completed.ticket, completed.run.status) == (None, RunStatus.COMPLETED)

    @pytest.mark.parametrize("other", [{"agent": "refunds"}, {"input": "book two"}, {"metadata": {"trip": 8}}])
    async def test_another_request_under_the_same_id_is_refused(self, stores: Stores, other: dict[str, Any]) -> None:
        """F5: the error names the agent of the run that is there, and nothing is written."""
        driver = Driver(stores)
        await driver.submit(metadata={"trip": 7})
        before = await driver.picture()

        with pytest.raises(RunExistsError) as refused:
            await driver.submit(**{"metadata": {"trip": 7}, **other})

        assert (refused.value.tenant, refused.value.run_id, refused.value.agent) == (TENANT, "run", "booking")
        assert await driver.picture() == before

    async def test_a_frontier_of_a_run_in_process_is_not_carried_on(self, stores: Stores) -> None:
        """F5: the id is taken by what was checkpointed under it, which is not this request's to go on with."""
        driver = Driver(stores)
        frontier = Checkpoint(tenant=TENANT, run_id="run", agent="local", revision="r1", sequence=4)
        await stores.checkpoints.put(frontier)

        with pytest.raises(RunExistsError) as refused:
            await driver.submit()

        assert refused.value.agent == "local"
        assert await driver.run_or_none() is None

    async def test_a_lease_that_stood_before_is_superseded(self, stores: Stores) -> None:
        """L2: the first ticket is above every fence that was given under that name."""
        driver = Driver(stores)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="before", ttl_seconds=LONG)

        submitted = await driver.submit()

        assert submitted.ticket is not None
        assert submitted.ticket > lease.fence
        with pytest.raises(StaleFenceError):
            await stores.leases.renew(lease, ttl_seconds=LONG)

    async def test_of_many_that_submit_the_same_all_find_one_run(self, stores: Stores) -> None:
        """F5, L7: a form that is sent twice."""
        for number in range(5):
            drivers = [Driver(stores, run_id=f"run-{number}") for _ in range(_RACERS)]

            submitted = winners(await race_in_threads([driver.submit for driver in drivers]), RunExistsError)

            assert {(one.run.fence, one.ticket) for one in submitted} == {(submitted[0].run.fence,) * 2}
            assert len(submitted) == _RACERS
            assert len(await drivers[0].events()) == 1

    async def test_of_many_that_submit_different_requests_one_is_there(self, stores: Stores) -> None:
        """F5, L7: and the others are told."""
        for number in range(5):
            driver = Driver(stores, run_id=f"run-{number}")
            racers = [lambda text=f"racer-{racer}": driver.submit(input=text) for racer in range(_RACERS)]  # noqa: B023

            (won,) = winners(await race_in_threads(racers), RunExistsError)

            assert (await driver.run()).input == won.run.input
            assert len(await driver.events()) == 1

    @pytest.mark.parametrize("content", CONTENTS)
    async def test_every_json_reads_as_it_was_written(self, stores: Stores, content: object) -> None:
        """T2: every script, NUL, and a megabyte, wherever a submit carries text."""
        driver = Driver(stores)

        submitted = await driver.submit(metadata={"content": content, TRICKY: 1}, masks={TRICKY: content})

        assert submitted.run.metadata == {"content": content, TRICKY: 1}
        assert submitted.run.masks == {TRICKY: content}
        assert await driver.run() == submitted.run

    @pytest.mark.parametrize("text", ["", TRICKY, "\u00e9" * MEGABYTE], ids=["empty", "tricky", "large"])
    async def test_every_input_reads_as_it_was_written(self, stores: Stores, text: str) -> None:
        """T2: what people type, and paste."""
        driver = Driver(stores)

        submitted = await driver.submit(input=text)

        assert submitted.run.input == text
        assert await driver.run() == submitted.run

    @pytest.mark.parametrize(
        "fields",
        [
            {"metadata": {"a": (1, 2)}},
            {"metadata": {"a": b"x"}},
            {"metadata": {"a": float("nan")}},
            {"metadata": {1: "a"}},
            {"masks": {"a": {1}}},
            {"metadata": {"a": "\ud800"}},
            {"input": "\ud800"},
            {"input": b"book"},
        ],
        ids=repr,
    )
    async def test_what_is_not_json_is_refused(self, stores: Stores, fields: dict[str, Any]) -> None:
        """T2: before anything is written."""
        driver = Driver(stores)

        with pytest.raises(NotJSONError):
            await driver.submit(**fields)

        assert await driver.run_or_none() is None

    @pytest.mark.parametrize("agent", ["", "a\x00b", "\ud800", 7], ids=repr)
    async def test_what_names_no_agent_is_refused(self, stores: Stores, agent: str) -> None:
        """T1: before anything is written."""
        driver = Driver(stores)

        with pytest.raises(InvalidNameError):
            await stores.runs.submit(NewRun(TENANT, "run", agent, "book the flight"), policy=PATIENT)

        assert await driver.run_or_none() is None
