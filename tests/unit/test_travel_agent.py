"""The travel agent against its booking service: the script, the tools and the probes, each by itself."""

from __future__ import annotations

import asyncio
import json

import pytest

from adk_worker import Happened, NeverWill, NotYet, ToolContext, ToolError, Unknown
from adk_worker.messages import Message, ToolCallPart, ToolResultPart
from adk_worker.model import ModelRequest
from adk_worker.registry import Registry
from examples.travel.agents import travel as travel_agent
from examples.travel.client import NotSentError, RejectedError, UnansweredError
from examples.travel.model import ModelCall, ModelSide, due, script
from examples.travel.tools import book_seat, hold_seat, pay, search_flights, was_it_booked, was_it_paid
from tests.travel import TravelService
from tests.waiting import eventually


@pytest.fixture
def service(tmp_path, monkeypatch):
    with TravelService.start(tmp_path) as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        yield service


def context(key, *, run_id="run_1", fence=1):
    return ToolContext(tenant="acme", run_id=run_id, agent="travel", call_id="c", idempotency_key=key, fence=fence)


def transcript(*results):
    """A transcript in which these tools have answered: ``(tool, content)``, or an exception for a failure."""
    messages = [Message.user("Get me to Berlin.")]
    for number, (tool, content) in enumerate(results):
        failed = isinstance(content, Exception)
        call = ToolCallPart(id=str(number), name=tool, arguments={})
        told = ToolResultPart(call_id=call.id, name=tool, content=str(content) if failed else content, is_error=failed)
        messages += [Message.assistant(calls=[call]), Message.tool([told])]
    return tuple(messages)


FOUND = ("search_flights", {"flights": [{"flight": "LISBER1", "price_cents": 9900, "seats_left": 2}]})
HELD = ("hold_seat", {"hold": "H1", "flight": "LISBER1", "seat": "1A", "passenger": "Ada", "price_cents": 9900})
BOOKED = ("book_seat", {"booking": "B1", **HELD[1]})
PAID = ("pay", {"payment": "P1", "booking": "B1", "amount_cents": 9900})


class TestTheScript:
    @pytest.mark.parametrize(
        ("results", "turn"),
        [
            ([], ("search_flights", {"origin": "LIS", "destination": "BER"})),
            ([FOUND], ("hold_seat", {"flight": "LISBER1", "passenger": "Ada"})),
            ([FOUND, HELD], ("book_seat", {"hold": "H1"})),
            ([FOUND, HELD, BOOKED], ("pay", {"booking": "B1", "amount_cents": 9900})),
            ([FOUND, HELD, BOOKED, PAID], "Booked seat 1A on LISBER1 for Ada: booking B1, payment P1."),
            ([FOUND, HELD, ("book_seat", OSError("barred"))], ("book_seat", {"hold": "H1"})),
            ([FOUND, HELD, ("book_seat", OSError("barred")), BOOKED], ("pay", {"booking": "B1", "amount_cents": 9900})),
            (
                [("search_flights", OSError("gone"))] * 3,
                "I give up: search_flights failed 3 times, the last time with: gone",
            ),
            ([("search_flights", {"flights": []})], "There is no seat left from LIS to BER."),
            (
                [FOUND, HELD, ("book_seat", "done by hand")],
                "book_seat happened, but what it returned is not known: 'done by hand'.",
            ),
        ],
    )
    def test_says_what_the_transcript_asks_for(self, results, turn):
        assert due(transcript(*results), {}) == turn

    def test_reads_the_trip_from_the_metadata(self):
        metadata = {"origin": "OPO", "destination": "VIE", "passenger": "Zoë"}

        assert due(transcript(), metadata) == ("search_flights", {"origin": "OPO", "destination": "VIE"})
        assert due(transcript(FOUND), metadata) == ("hold_seat", {"flight": "LISBER1", "passenger": "Zoë"})

    def test_takes_the_cheapest_flight_that_has_seats(self):
        full = {"flight": "LISBER2", "price_cents": 1, "seats_left": 0}
        found = ("search_flights", {"flights": [full, *FOUND[1]["flights"]]})

        assert due(transcript(found), {}) == ("hold_seat", {"flight": "LISBER1", "passenger": "Ada"})


class TestTheModelsSide:
    @pytest.fixture
    def side(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TRAVEL_MODEL_DIR", str(tmp_path))
        return ModelSide(tmp_path)

    @pytest.fixture
    def request_1(self):
        return ModelRequest(
            tenant="acme",
            run_id="run_1",
            agent="travel",
            iteration=1,
            model="m",
            instructions="",
            messages=transcript(),
        )

    async def test_sees_every_call_begin_and_end(self, side, request_1):
        assert side.calls() == ()

        await script(request_1)

        assert [(call.event, call.tenant, call.run_id, call.iteration) for call in side.calls()] == [
            ("began", "acme", "run_1", 1),
            ("ended", "acme", "run_1", 1),
        ]

    async def test_keeps_a_call_from_ending_until_it_is_let_go(self, side, request_1):
        side.hold("run_1", tenant="acme", iteration=1)
        side.hold("run_1", tenant="globex", iteration=1)
        call = asyncio.create_task(script(request_1))
        await eventually(lambda: side.calls("began"), what="the model call to begin")
        assert side.calls("ended") == ()
        assert not call.done()

        side.release("run_1", tenant="acme", iteration=1)

        assert await call == ("search_flights", {"origin": "LIS", "destination": "BER"})
        assert len(side.calls("ended")) == 1

    async def test_lets_a_call_that_is_held_be_aborted(self, side, request_1):
        side.hold("run_1", tenant="acme", iteration=1)
        call = asyncio.create_task(script(request_1))
        await eventually(lambda: side.calls("began"), what="the model call to begin")

        call.cancel()

        with pytest.raises(asyncio.CancelledError):
            await call
        assert side.calls("ended") == ()

    def test_reads_lines_of_many_processes_up_to_one_that_is_torn(self, side, tmp_path):
        whole = {"event": "began", "tenant": "acme", "run_id": "run_1", "iteration": 1, "pid": 7}
        (tmp_path / "model-calls.jsonl").write_text(json.dumps(whole) + '\n{"event": "be')

        assert side.calls() == (ModelCall("began", "acme", "run_1", 1, 7),)

    @pytest.mark.parametrize("delay", [{"model_delay": 0.001}, {}])
    async def test_is_not_needed(self, monkeypatch, request_1, delay):
        monkeypatch.delenv("TRAVEL_MODEL_DIR", raising=False)
        monkeypatch.setenv("TRAVEL_MODEL_DELAY", "0.001")

        turn = await script(
            ModelRequest(**{name: getattr(request_1, name) for name in request_1.__slots__} | {"metadata": delay})
        )

        assert turn == due(transcript(), {})


class TestAProbe:
    @pytest.fixture
    async def booked(self, service):
        held = await hold_seat(context("hold"), "LISBER1", "Ada")
        return await book_seat(context("book/1"), held["hold"])

    async def test_of_a_booking_finds_what_happened(self, booked):
        assert await was_it_booked("book/1", {}) == Happened(booked)

    async def test_of_a_booking_makes_sure_that_it_never_will(self, service, booked):
        assert isinstance(await was_it_booked("book/2", {}), NeverWill)

        with pytest.raises(RejectedError, match="barred"):
            await book_seat(context("book/2"), booked["hold"])

    async def test_of_a_payment_only_looks(self, service, booked):
        assert was_it_paid("pay", {}) == NotYet()

        paid = pay(context("pay"), booked["booking"], booked["price_cents"])

        assert was_it_paid("pay", {}) == Happened(paid)

    async def test_of_a_payment_does_not_know_while_one_is_under_way(self, service, booked):
        held = service.hold("pay")
        paying = asyncio.create_task(asyncio.to_thread(pay, context("pay"), booked["booking"], booked["price_cents"]))
        await asyncio.to_thread(held.wait)

        assert was_it_paid("pay", {}) == Unknown("the booking service says in_flight")

        held.release()
        paid = await paying
        assert was_it_paid("pay", {}) == Happened(paid)

    async def test_that_cannot_ask_says_so_by_raising(self, service):
        service.control.drop("lookup", at="before_answer")
        service.control.answer("refuse", at="before_answer")

        with pytest.raises(UnansweredError):
            was_it_paid("pay", {})
        with pytest.raises(UnansweredError):
            await was_it_booked("book", {})


class TestATool:
    def test_without_the_service_s_url_says_what_to_set_and_that_nothing_happened(self, monkeypatch):
        monkeypatch.delenv("TRAVEL_URL", raising=False)

        with pytest.raises(ToolError, match="TRAVEL_URL is not set") as raised:
            pay(context("k"), "B1", 1)
        assert raised.value.happened is False

    def test_knows_of_a_refused_connection_that_nothing_happened(self, monkeypatch):
        monkeypatch.setenv("TRAVEL_URL", "http://127.0.0.1:1")

        with pytest.raises(NotSentError) as raised:
            pay(context("k"), "B1", 1)
        assert isinstance(raised.value, pay.did_not_happen)
        assert isinstance(raised.value, book_seat.did_not_happen)

    def test_of_every_effect_and_of_both_kinds_is_there(self):
        kinds = {tool.name: (str(tool.effect), tool.is_async) for tool in travel_agent.tools}

        assert kinds == {
            "search_flights": ("read_only", False),
            "hold_seat": ("idempotent", True),
            "book_seat": ("effectful", True),
            "pay": ("effectful", False),
        }
        assert search_flights in travel_agent.tools

    def test_reports_progress(self, monkeypatch):
        monkeypatch.setenv("TRAVEL_URL", "http://127.0.0.1:1")
        said = []
        watched = ToolContext(
            tenant="acme", run_id="run_1", agent="travel", call_id="c", sink=lambda text, _: said.append(text)
        )

        with pytest.raises(NotSentError):
            pay(watched, "B1", 9900)

        assert said == ["paying 9900 cents for B1"]


def test_the_module_registers_its_agent():
    assert Registry.load(["examples.travel.agents"]).get("travel") is travel_agent
