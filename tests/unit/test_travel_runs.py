"""Whole runs of the travel agent in process: what the booking service's journal says about each."""

from __future__ import annotations

import asyncio

import pytest

from adk_worker import (
    AgentRunner,
    Checkpointer,
    IndeterminateToolCallError,
    MemoryCheckpointStore,
    MemoryIdempotencyStore,
)
from examples.travel.agents import travel as travel_agent
from examples.travel.journal import RunName
from tests.travel import TravelService

RUN = RunName("acme", "run_1")


@pytest.fixture
def service(tmp_path, monkeypatch):
    with TravelService.start(tmp_path) as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        yield service


@pytest.fixture
def runner():
    return AgentRunner(idempotency=MemoryIdempotencyStore(), checkpoints=Checkpointer(MemoryCheckpointStore()))


class TestTheAgent:
    async def test_books_one_seat_and_pays_for_it(self, service, runner):
        ended = await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        verdict = service.verdict(runs=[RUN])
        assert verdict.ok
        assert verdict.by_run[RUN] == {"hold": 1, "book": 1, "pay": 1}
        [seat] = verdict.seats[RUN]
        flight, _, place = seat.partition(" ")
        assert ended.output == f"Booked seat {place} on {flight} for Ada: booking B1, payment P1."

    async def test_sends_its_key_and_its_run_with_every_call_that_changes_something(self, service, runner):
        """I1, F3: one key for each call."""
        await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        effects = service.control.entries("effect")
        assert len({entry.key for entry in effects}) == len(effects) == 3
        assert {entry.run for entry in service.control.entries("arrived")} == {RUN}

    async def test_books_a_seat_for_each_of_many_runs(self, service, runner):
        runs = [("acme", f"run_{number}") for number in range(8)]

        await asyncio.gather(
            *(runner.run(travel_agent, "Go.", tenant=tenant, run_id=run_id) for tenant, run_id in runs)
        )

        assert service.verdict(runs=runs).ok

    async def test_asks_again_with_a_new_call_when_a_booking_was_refused(self, service, runner):
        service.control.refuse("book")

        await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert service.verdict(runs=[RUN]).ok
        first, second = service.control.entries("arrived", "book")
        assert first.key != second.key

    async def test_ends_with_what_went_wrong_when_nothing_helps(self, service, runner):
        service.control.refuse("hold", times=None)

        ended = await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert ended.output is not None
        assert ended.output.startswith("I give up: hold_seat failed 3 times")
        assert service.verdict().by_run == {}

    async def test_has_a_search_and_a_hold_repeated_that_got_no_answer(self, service, runner):
        """I7: read-only and idempotent calls may be sent again, the latter under the same key."""
        service.control.answer("search", at="before_answer", status=503)
        service.control.drop("hold", at="before_answer")

        await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert service.verdict(runs=[RUN]).by_run[RUN] == {"hold": 1, "book": 1, "pay": 1}
        assert [entry.event for entry in service.control.entries(kind="hold")] == [
            "arrived",
            "effect",
            "fault",
            "arrived",
            "repeated",
        ]

    @pytest.mark.parametrize("kind", ["book", "pay"])
    async def test_is_told_by_its_probe_that_what_got_no_answer_had_happened(self, service, runner, kind):
        """I7, I10: the call is indeterminate, and the far side is asked before a person is."""
        service.control.drop(kind, at="before_answer")

        ended = await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert ended.output is not None
        assert ended.output.startswith("Booked seat")
        assert service.verdict(runs=[RUN]).ok
        assert len(service.control.entries("arrived", kind)) == 1

    async def test_books_again_once_its_probe_has_barred_what_got_no_answer(self, service, runner):
        """I7: it did not happen and never will, so that another call is no second one."""
        service.control.drop("book", at="before_effect")

        await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert service.verdict(runs=[RUN]).ok
        assert len(service.control.entries("barred")) == 1

    async def test_does_not_pay_again_while_nobody_can_say_whether_it_paid(self, service, runner):
        """I7: "not yet" is no permission while the call's owner is alive."""
        service.control.drop("pay", at="before_effect")

        with pytest.raises(IndeterminateToolCallError, match="pay"):
            await runner.run(travel_agent, "Get me to Berlin.", tenant="acme", run_id="run_1")

        assert service.verdict().by_run[RUN] == {"hold": 1, "book": 1}
        assert len(service.control.entries("arrived", "pay")) == 1
