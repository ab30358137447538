"""How the demo judges itself, and how it tells a run's story: functions of what is on record."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from adk_worker.events import Event
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState
from adk_worker.liveness import Holder, ProcessIdentity
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.runs import Attention
from examples.travel.demo import judged
from examples.travel.journal import Entry, RunName, judge
from examples.travel.model import ModelCall
from examples.travel.proof import Evidence, shortfalls
from examples.travel.show import Show
from examples.travel.story import Kill, Moment, Story, Tone, timeline

TENANT = "acme"


def holder(pid):
    return str(Holder(ProcessIdentity("box", pid, "1", "boot", "ns"), "task", "n"))


def events(*told):
    return tuple(
        Event(id=number, at=100.0 + number, kind=kind, fence=fence, data=data)
        for number, (kind, fence, data) in enumerate(told, start=1)
    )


def claim(run_id, tool, settled_by=BY_OWNER, owner=1):
    return Claim(
        tenant=TENANT,
        key=f"{run_id}-{tool}",
        owner=holder(owner),
        digest="d",
        state=ClaimState.SETTLED,
        settled_by=settled_by,
        tool=tool,
    )


def story(run_id, told, claims=(), **fields):
    run = Run(
        **{
            "tenant": TENANT,
            "run_id": run_id,
            "agent": "travel",
            "revision": "r",
            "input": "a seat",
            "status": RunStatus.COMPLETED,
            "output": "Booked.",
            **fields,
        }
    )
    return Story(run, events(*told), tuple(claims))


THINKER = story(
    "thinker",
    [
        ("submitted", 1, {"agent": "travel"}),
        ("taken", 2, {"holder": holder(11), "ticket": 1}),
        ("after_model_call", 2, {"sequence": 1, "iteration": 1, "calls": ["search_flights"]}),
        ("after_tool_result", 2, {"sequence": 2, "iteration": 1}),
        ("taken", 4, {"holder": holder(11), "ticket": 3}),
        ("recovered", 5, {"holder": holder(11), "crashes": 1, "known_dead": False}),
        ("taken", 6, {"holder": holder(12), "ticket": 5}),
        ("completed", 6, {"sequence": 3, "iteration": 2}),
    ],
    [claim("thinker", "book_seat"), claim("thinker", "pay")],
)
BOOKER = story(
    "booker",
    [
        ("submitted", 1, {"agent": "travel"}),
        ("taken", 2, {"holder": holder(12), "ticket": 1}),
        ("after_model_call", 2, {"sequence": 1, "iteration": 1, "calls": ["book_seat"]}),
        ("recovered", 3, {"holder": holder(12), "crashes": 1, "known_dead": True}),
        ("taken", 4, {"holder": holder(13), "ticket": 3}),
        ("settled", 4, {"key": "booker-book_seat", "by": "probe"}),
        ("after_tool_result", 4, {"sequence": 2, "iteration": 1}),
        ("taken", 6, {"holder": holder(13), "ticket": 5}),
        ("completed", 6, {"sequence": 3, "iteration": 2}),
    ],
    [claim("booker", "book_seat", settled_by="probe"), claim("booker", "pay")],
)
KILLS = (
    Kill("thinker", Moment.MODEL_CALL, 11, fence=4, at=105.5),
    Kill("booker", Moment.BOOKING, 12, fence=2, at=103.5, key="booker-book_seat"),
)
CALLS = (
    ModelCall("began", TENANT, "thinker", 1, 11),
    ModelCall("ended", TENANT, "thinker", 1, 11),
    ModelCall("began", TENANT, "thinker", 2, 11),
    ModelCall("began", TENANT, "thinker", 2, 12),
    ModelCall("ended", TENANT, "thinker", 2, 12),
)


def journal(*told):
    return [
        Entry(
            n=number,
            at="",
            event="effect",
            kind=kind,
            key=f"{run_id}-{kind}",
            tenant=TENANT,
            run_id=run_id,
            outcome=outcome,
        )
        for number, (kind, run_id, outcome) in enumerate(told, start=1)
    ]


JOURNAL = journal(
    ("book", "thinker", {"flight": "LISBER1", "seat": "1A"}),
    ("pay", "thinker", {"booking": "B1"}),
    ("book", "booker", {"flight": "LISBER1", "seat": "1B"}),
    ("pay", "booker", {"booking": "B2"}),
)


def verdict(entries):
    return judge(entries, runs=[(TENANT, "thinker"), (TENANT, "booker")])


GOOD = Evidence({"thinker": THINKER, "booker": BOOKER}, KILLS, CALLS, verdict(JOURNAL))


def without(of, kind):
    return replace(of, events=tuple(event for event in of.events if event.kind != kind))


class TestTheProof:
    def test_lacks_nothing_where_all_is_as_it_should_be(self):
        assert shortfalls(GOOD) == ()

    def test_names_a_seat_that_was_booked_twice(self):
        doctored = [*JOURNAL, *journal(("book", "booker", {"flight": "LISBER1", "seat": "1C"}))]

        found = shortfalls(replace(GOOD, verdict=verdict(doctored)))

        assert any("book happened 2 times" in line and "booker" in line for line in found), found

    def test_names_a_payment_that_is_not_there(self):
        found = shortfalls(replace(GOOD, verdict=verdict(JOURNAL[:-1])))

        assert any("no pay in the journal for run booker" in line for line in found), found

    def test_names_a_run_that_did_not_complete_and_why(self):
        parked = replace(
            BOOKER,
            run=BOOKER.run.model_copy(
                update={"status": RunStatus.PARKED, "attention": Attention.UNDECIDED_CALL, "detail": "book_seat"}
            ),
        )

        found = shortfalls(replace(GOOD, stories={"thinker": THINKER, "booker": parked}))

        assert found == ("run booker is parked (undecided_call: book_seat), not completed",)

    @pytest.mark.parametrize("run_id", ["thinker", "booker"])
    def test_names_a_kill_that_no_reaper_saw(self, run_id):
        stories = {**GOOD.stories, run_id: without(GOOD.stories[run_id], "recovered")}

        found = shortfalls(replace(GOOD, stories=stories))

        assert len(found) == 1
        assert f"run {run_id} has no 'recovered' event" in found[0]

    def test_names_a_recovery_from_another_worker_than_the_killed_one(self):
        kills = (replace(KILLS[0], pid=99), KILLS[1])

        found = shortfalls(replace(GOOD, kills=kills))

        assert any("names worker 99" in line for line in found), found

    def test_names_a_call_that_its_probe_did_not_settle(self):
        guessed = replace(BOOKER, claims=(claim("booker", "book_seat"), claim("booker", "pay")))

        found = shortfalls(replace(GOOD, stories={"thinker": THINKER, "booker": guessed}))

        assert found == ("the call of run booker that was in flight was settled by owner, not by its probe",)

    def test_names_a_call_in_flight_that_has_no_claim(self):
        unclaimed = replace(BOOKER, claims=BOOKER.claims[1:])

        found = shortfalls(replace(GOOD, stories={"thinker": THINKER, "booker": unclaimed}))

        assert found == ("run booker has no claim on the call that was in flight, key booker-book_seat",)

    def test_names_a_booking_that_was_asked_for_again(self):
        again = replace(claim("booker", "book_seat"), key="another")
        twice = replace(BOOKER, claims=(*BOOKER.claims, again))

        found = shortfalls(replace(GOOD, stories={"thinker": THINKER, "booker": twice}))

        assert len(found) == 1
        assert "called book_seat 2 times" in found[0]

    def test_names_a_model_call_that_was_over_before_the_kill(self):
        found = shortfalls(replace(GOOD, model_calls=(*CALLS, ModelCall("ended", TENANT, "thinker", 2, 11))))

        assert found == ("worker 11 was in no model call of run thinker when it was killed",)

    def test_names_a_model_call_that_nobody_made_again(self):
        found = shortfalls(replace(GOOD, model_calls=CALLS[:3]))

        assert found == ("the model call that was cut off, number 2 of run thinker, was never made again",)

    def test_names_a_kill_that_was_not_made(self):
        found = shortfalls(replace(GOOD, kills=KILLS[:1]))

        assert found == ("a worker was to be killed in each of: a model call, a booking; it was in: a model call",)


class TestTheExitCode:
    def test_is_0_where_all_is_as_it_should_be(self, tmp_path):
        out = io.StringIO()

        assert judged(Show(out), tmp_path, GOOD) == 0
        assert "How to go on" in out.getvalue()

    def test_is_1_where_the_journal_has_a_seat_too_many_and_says_so(self, tmp_path):
        out = io.StringIO()
        doctored = [*JOURNAL, *journal(("book", "booker", {"flight": "LISBER1", "seat": "1C"}))]

        assert judged(Show(out), tmp_path, replace(GOOD, verdict=verdict(doctored))) == 1
        assert "book happened 2 times" in out.getvalue()
        assert str(tmp_path) in out.getvalue()
        assert "How to go on" not in out.getvalue()


class TestATimeline:
    def test_has_a_line_for_each_acquisition_and_one_for_whatever_came_between(self):
        lines = [(line.who, line.what, line.fence) for line in timeline(THINKER, KILLS)]

        assert lines == [
            ("client", "submits it to agent travel", 1),
            ("worker 11", "search_flights", 2),
            ("worker 11", "asks the model …", 4),
            ("kill -9", "worker 11, in the middle of a model call", None),
            ("reaper", "its lease lapsed: queues the run again", 5),
            ("worker 12", "“Booked.”", 6),
        ]

    def test_says_what_a_killed_worker_was_in_the_middle_of_and_how_that_was_settled(self):
        lines = [(line.who, line.what, line.tone) for line in timeline(BOOKER, KILLS)]

        assert lines == [
            ("client", "submits it to agent travel", Tone.PLAIN),
            ("worker 12", "book_seat …", Tone.PLAIN),
            ("kill -9", "worker 12, in the middle of a booking", Tone.KILLED),
            ("its host", "the worker is dead: queues the run again", Tone.MENDED),
            ("worker 13", "book_seat settled by the tool's probe", Tone.MENDED),
            ("worker 13", "“Booked.”", Tone.DONE),
        ]

    def test_marks_a_kill_of_a_worker_that_held_this_run_by_the_way(self):
        kill = Kill("another", Moment.MODEL_CALL, 11, fence=9, at=105.5)

        lines = timeline(THINKER, (kill,))

        assert ("kill -9", "worker 11, which held this run too") in [(line.who, line.what) for line in lines]

    def test_tells_of_what_it_knows_nothing_about_with_its_own_words(self):
        odd = story("odd", [("submitted", 1, {"agent": "travel"}), ("healed", 2, {"key": "k"}), ("cancelled", 2, {})])

        assert [line.what for line in timeline(odd)][1:] == ["healed: key k", "cancelled"]

    def test_is_of_rising_times(self):
        at = [line.at for line in timeline(BOOKER, KILLS)]

        assert at == sorted(at)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestTheShow:
    @pytest.fixture(autouse=True)
    def _no_say_of_whoever_runs_the_tests(self, monkeypatch):
        for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("TERM", "xterm")

    def test_prints_plain_text_to_what_is_no_terminal(self):
        out = io.StringIO()
        show = Show(out)
        show.begin(100.0)

        show.act("An act")
        show.happened(101.5, "[bold]it happened[/bold]", Tone.KILLED)
        show.timelines([THINKER, BOOKER], KILLS)
        show.count(GOOD.verdict, [RunName(TENANT, "thinker"), RunName(TENANT, "booker")])

        text = out.getvalue()
        assert "\x1b" not in text
        assert "+1.50 s  [bold]it happened[/bold]" in text
        assert "worker 12, in the middle of a booking" in text
        assert "2 seats booked, each of them once" in text

    def test_gives_a_terminal_the_colour_of_what_it_tells_and_of_that_alone(self):
        out = Terminal()

        Show(out).happened(1.5, "it happened", Tone.KILLED)

        assert out.getvalue() == "\x1b[2m   +1.50 s  \x1b[0m\x1b[1;31mit happened\x1b[0m\n"

    def test_gives_a_terminal_no_colour_that_wants_none(self, monkeypatch):
        monkeypatch.setenv("NO_COLOR", "1")
        out = Terminal()

        Show(out).happened(1.5, "it happened", Tone.KILLED)

        assert "31m" not in out.getvalue()

    def test_shows_nothing_that_a_terminal_would_obey(self):
        out = io.StringIO()
        hostile = replace(THINKER, run=THINKER.run.model_copy(update={"output": "\x1b[2Jgone"}))

        Show(out).timelines([hostile], ())

        assert "\x1b" not in out.getvalue()

    def test_says_how_often_what_should_have_happened_once(self):
        out = io.StringIO()
        doctored = [*JOURNAL, *journal(("book", "booker", {"flight": "LISBER1", "seat": "1C"}))]

        Show(out).count(verdict(doctored), [RunName(TENANT, "booker")])

        assert "2 times" in out.getvalue()
