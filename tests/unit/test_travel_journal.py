"""The booking service's journal: what survives, what counts, and what the verdict names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from examples.travel.journal import (
    Duplicate,
    Entry,
    Journal,
    JournalError,
    Lost,
    RunName,
    judge,
    read_journal,
)

RUN = RunName("acme", "run_1")
OTHER = RunName("acme", "run_2")


def effect(kind, key, *, run=RUN, n=1, **outcome):
    return Entry(n=n, at="", event="effect", kind=kind, key=key, tenant=run.tenant, run_id=run.run_id, outcome=outcome)


def booked(key, seat, *, run=RUN):
    return effect("book", key, run=run, flight="LISBER1", seat=seat)


def paid(key, booking, *, run=RUN):
    return effect("pay", key, run=run, booking=booking)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "travel.jsonl"


def write(path: Path, *entries: Entry) -> None:
    journal = Journal(path)
    for entry in entries:
        journal.append(entry)
    journal.close()


class TestAJournal:
    def test_reads_back_what_was_appended(self, path):
        entries = [
            Entry(n=1, at="then", event="opened"),
            effect("book", "k", n=2, seat="1A", passenger="Zoë \ud800"),
        ]

        write(path, *entries)

        assert read_journal(path) == tuple(entries)

    def test_ends_before_a_line_that_was_torn_by_the_death_of_its_service(self, path):
        write(path, Entry(n=1, at="", event="opened"))
        whole = path.read_bytes()

        for torn in (b'{"n": 2, "at', b'{"n": 2, "at": "", "event": "opened"}', b"\xff\xfe"):
            path.write_bytes(whole + torn)

            assert [entry.n for entry in read_journal(path)] == [1]

    def test_goes_on_behind_its_last_whole_line(self, path):
        write(path, Entry(n=1, at="", event="opened"))
        with path.open("ab") as file:
            file.write(b'{"n": 2, "at": "", "event": "eff')

        journal = Journal(path)
        journal.append(Entry(n=2, at="", event="opened"))
        journal.close()

        assert [(entry.n, entry.event) for entry in read_journal(path)] == [(1, "opened"), (2, "opened")]

    @pytest.mark.parametrize(
        ("damage", "said"),
        [
            (b"not JSON\n", "line 2"),
            (b'{"n": 2, "at": "", "event": "no such event"}\n', "line 2"),
            (b'{"n": 3, "at": "", "event": "opened"}\n', "says that it is line 3"),
            (b"\n", "line 2"),
        ],
    )
    def test_does_not_pass_over_a_whole_line_that_it_cannot_read(self, path, damage, said):
        write(path, Entry(n=1, at="", event="opened"))
        with path.open("ab") as file:
            file.write(damage)

        with pytest.raises(JournalError, match=said):
            read_journal(path)
        with pytest.raises(JournalError, match=said):
            Journal(path)

    def test_is_one_writers_at_a_time(self, path):
        first = Journal(path)

        with pytest.raises(JournalError, match="another service has the journal"):
            Journal(path)

        first.close()
        Journal(path).close()

    def test_says_which_file_is_missing(self, path):
        with pytest.raises(JournalError, match=r"travel\.jsonl cannot be read: No such file"):
            read_journal(path)
        with pytest.raises(JournalError, match="cannot be opened: Is a directory"):
            Journal(path.parent)

    def test_does_not_take_a_line_that_the_disk_has_no_room_for(self, path, monkeypatch):
        journal = Journal(path)
        monkeypatch.setattr(os, "write", lambda _file, data: len(data) - 1)

        with pytest.raises(OSError, match="only a part of a line"):
            journal.append(Entry(n=1, at="", event="opened"))
        journal.close()


class TestTheVerdict:
    def test_is_good_when_every_seat_was_booked_and_paid_once(self):
        entries = [
            booked("k1", "1A"),
            paid("k2", "B1"),
            booked("k3", "1B", run=OTHER),
            paid("k4", "B2", run=OTHER),
        ]

        verdict = judge(entries, runs=[RUN, OTHER])

        assert verdict.ok
        assert verdict.by_run == {RUN: {"book": 1, "pay": 1}, OTHER: {"book": 1, "pay": 1}}
        assert verdict.seats == {RUN: ("LISBER1 1A",), OTHER: ("LISBER1 1B",)}
        assert verdict.effects[RUN, "book", "k1"] == 1
        assert str(verdict) == "2 seats booked, each of them once"

    def test_names_a_call_that_was_made_twice_under_its_key(self):
        verdict = judge([booked("k1", "1A"), booked("k1", "1A")])

        assert not verdict.ok
        assert verdict.duplicates == (
            Duplicate(RUN, "book", "key", "k1", 2),
            Duplicate(RUN, "book", "seat", "LISBER1 1A", 2),
        )
        assert "book happened 2 times for key k1 (run run_1, tenant acme)" in str(verdict)

    def test_names_a_seat_that_two_runs_have(self):
        verdict = judge([booked("k1", "1A"), booked("k2", "1A", run=OTHER)])

        assert [fault.name for fault in verdict.duplicates] == ["LISBER1 1A"]

    def test_names_a_booking_that_was_paid_under_two_keys(self):
        verdict = judge([paid("k1", "B1"), paid("k2", "B1")])

        assert verdict.duplicates == (Duplicate(RUN, "pay", "booking", "B1", 2),)

    def test_names_a_run_that_booked_two_seats_under_two_keys(self):
        verdict = judge([booked("k1", "1A"), booked("k2", "1B"), paid("k3", "B1")], runs=[RUN])

        assert verdict.duplicates == (Duplicate(RUN, "book", "run", "run_1", 2),)

    def test_names_what_is_missing_of_the_runs_that_should_have_ended(self):
        verdict = judge([booked("k1", "1A")], runs=[RUN, OTHER])

        assert verdict.lost == (Lost(RUN, "pay"), Lost(OTHER, "book"), Lost(OTHER, "pay"))
        assert "no pay in the journal for run run_1, tenant acme" in str(verdict)

    def test_takes_no_offence_at_a_hold_that_was_asked_for_twice(self):
        hold = effect("hold", "k1", flight="LISBER1", seat="1A")

        verdict = judge([hold, hold])

        assert verdict.ok
        assert verdict.by_run == {RUN: {"hold": 2}}

    def test_counts_effects_and_not_requests(self):
        asked = [Entry(n=1, at="", event="arrived", kind="book", key="k1", tenant="acme", run_id="run_1")] * 3

        verdict = judge([*asked, booked("k1", "1A")])

        assert verdict.ok
        assert verdict.by_run == {RUN: {"book": 1}}

    def test_keeps_tenants_with_equal_run_ids_apart(self):
        namesake = RunName("globex", "run_1")

        verdict = judge([booked("k1", "1A"), booked("k2", "1B", run=namesake)], runs=[RUN, namesake], each={"book": 1})

        assert verdict.ok
        assert set(verdict.by_run) == {RUN, namesake}
