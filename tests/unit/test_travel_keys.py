"""Keys, bars and fences at the booking service: what makes it a far side that a probe can ask."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.travel.client import RejectedError
from examples.travel.journal import RunName
from tests.travel import Caller, TravelService


@pytest.fixture
def travel(tmp_path):
    with TravelService.start(tmp_path) as service:
        yield service


@pytest.fixture
def client(travel):
    return Caller(travel)


@pytest.fixture
def threads():
    with ThreadPoolExecutor(16) as pool:
        yield pool


class TestAKey:
    def test_is_not_honoured_so_that_a_second_call_is_a_second_effect(self, travel, client):
        client.hold()

        first, second = client.book(), client.book()

        assert (first["booking"], second["booking"]) == ("B1", "B2")
        assert first["seat"] == second["seat"]
        assert client.known("book") == {"state": "happened", "outcome": first, "times": 2}
        verdict = travel.verdict()
        assert not verdict.ok
        assert {(fault.what, fault.name, fault.times) for fault in verdict.duplicates} == {
            ("key", "book", 2),
            ("seat", f"LISBER1 {first['seat']}", 2),
        }

    def test_is_always_honoured_by_a_hold(self, travel, client):
        assert client.hold() == client.hold()
        assert [entry.event for entry in travel.control.entries(kind="hold")] == [
            "arrived",
            "effect",
            "arrived",
            "repeated",
        ]

    def test_is_honoured_by_all_if_the_service_is_told_to(self, tmp_path, threads):
        with TravelService.start(tmp_path, "--dedupe") as travel:
            client = Caller(travel)
            price = client.hold()["price_cents"]

            bookings = list(threads.map(lambda _: client.book(), range(8)))
            payments = [client.pay(price), client.pay(price)]

            assert bookings == [bookings[0]] * 8
            assert payments == [payments[0]] * 2
            assert travel.verdict(runs=[("acme", "run_1")]).ok

    def test_that_comes_with_another_request_is_refused_where_it_is_honoured(self, client):
        client.hold()

        with pytest.raises(RejectedError, match="key_reused"):
            client.hold(passenger="Grace")

    def test_of_which_nothing_was_heard_has_no_state(self, client):
        assert client.known("book") == {"state": "none"}

    def test_may_be_anything_that_a_path_can_carry(self, client):
        client.hold("a/b ?*")

        assert client.known("a%2Fb%20%3F%2A")["state"] == "happened"


class TestABar:
    def test_refuses_the_key_from_then_on(self, travel, client):
        client.hold()

        assert client.bar("book") == {"state": "barred"}

        with pytest.raises(RejectedError, match="barred"):
            client.book()
        assert client.known("book") == {"state": "barred"}
        assert client.book("another key")["booking"] == "B1"
        assert travel.verdict(runs=[("acme", "run_1")], each={"book": 1}).ok

    def test_comes_too_late_for_what_has_happened_and_says_so(self, travel, client):
        client.hold()
        booking = client.book()

        assert client.bar("book") == {"state": "happened", "outcome": booking, "times": 1}
        assert travel.control.entries("barred") == ()

    def test_decides_about_a_request_that_has_arrived_and_waits(self, travel, client, threads):
        client.hold()
        held = travel.hold("book")
        late = threads.submit(client.book)
        held.wait()
        assert client.known("book") == {"state": "in_flight"}

        assert client.bar("book") == {"state": "barred"}
        held.release()

        with pytest.raises(RejectedError, match="barred"):
            late.result(30)
        assert travel.verdict().by_run == {RunName("acme", "run_1"): {"hold": 1}}

    def test_and_the_request_that_it_races_with_never_both_win(self, travel, client, threads):
        """I7: what a probe was told stays true."""
        client.hold()

        def race(number):
            booking = threads.submit(client.book, f"book-{number}")
            barred = client.bar(f"book-{number}")["state"] == "barred"
            return barred, isinstance(booking.exception(30), RejectedError)

        for number in range(60):
            barred, rejected = race(number)
            assert barred == rejected
        assert travel.verdict().by_run[RunName("acme", "run_1")]["book"] == 60 - len(travel.control.entries("refused"))

    def test_below_a_fence_lets_the_next_worker_send_the_call_again(self, travel, client):
        client.hold()

        assert client.bar("book", below=2) == {"state": "barred"}

        for fence in (1, None):
            with pytest.raises(RejectedError, match="barred"):
                Caller(travel, fence=fence).book()
        assert Caller(travel, fence=2).book()["booking"] == "B1"

    def test_is_never_lowered_by_another(self, travel, client):
        client.hold()
        client.bar("book", below=3)
        client.bar("book", below=2)

        with pytest.raises(RejectedError, match="barred"):
            Caller(travel, fence=2).book()

        client.bar("book")
        client.bar("book", below=3)
        with pytest.raises(RejectedError, match="barred"):
            Caller(travel, fence=9).book()

    @pytest.mark.parametrize("below", ["2", True, 1.5])
    def test_below_what_is_no_fence_is_refused(self, travel, below):
        with pytest.raises(RejectedError, match="'below' is a fence"):
            Caller(travel).bar("book", below=below)


class TestAFence:
    def test_that_is_superseded_is_refused_if_the_service_is_told_to(self, tmp_path):
        """F3: the far side can refuse too."""
        with TravelService.start(tmp_path, "--fence") as travel:
            Caller(travel, fence=1).hold()
            Caller(travel, fence=2).hold("hold-2")

            with pytest.raises(RejectedError, match="stale_fence"):
                Caller(travel, fence=1).book()
            with pytest.raises(RejectedError, match="fence_missing"):
                Caller(travel, fence=None).book()
            Caller(travel, run_id="run_2", fence=1).hold("hold-3")
            Caller(travel, fence=2).book()

            assert [entry.note for entry in travel.control.entries("refused")] == ["stale_fence", "fence_missing"]

    def test_is_superseded_by_a_request_that_has_only_arrived(self, tmp_path, threads):
        with TravelService.start(tmp_path, "--fence") as travel:
            Caller(travel, fence=1).hold()
            held = travel.hold("book", times=2)
            old = threads.submit(Caller(travel, fence=1).book)
            held.wait()
            new = threads.submit(Caller(travel, fence=2).book)
            first, second = held.wait(at_least=2)
            assert (first.fence, second.fence) == (1, 2)

            travel.release(request=first.request)

            with pytest.raises(RejectedError, match="stale_fence"):
                old.result(30)
            held.release()
            assert new.result(30)["booking"] == "B1"

    def test_is_of_no_interest_otherwise(self, travel, client):
        Caller(travel, fence=2).hold()

        assert Caller(travel, fence=1).book()["booking"] == "B1"
