"""The booking service's control plane: which request a rule takes, where it stops it, and how a test waits for that."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.travel.client import RejectedError, UnansweredError, ask
from examples.travel.control import NeverCameError
from examples.travel.faults import Rule
from tests.travel import ROOT, TravelService

CLIENT = """
import sys
from examples.travel.client import ask

body, headers = {"flight": "LISBER1", "passenger": "Ada"}, {"Idempotency-Key": "k1"}
ask(sys.argv[1], "POST", "/holds", body=body, headers=headers)
"""


@pytest.fixture
def travel(tmp_path):
    with TravelService.start(tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def any_travel(tmp_path_factory):
    """A service for what is refused whatever came before."""
    with TravelService.start(tmp_path_factory.mktemp("travel")) as service:
        yield service


@pytest.fixture
def threads(travel):
    with ThreadPoolExecutor(16) as pool:
        yield pool
        # Whatever a failed test left inside a hold would keep its thread.
        travel.release(then="drop")


@pytest.fixture
def send(travel):
    """Hold a seat with the given key, for the given run."""

    def send(key, *, tenant="acme", run_id="run_1"):
        headers = {"Idempotency-Key": key, "Adk-Run": f"{tenant}/{run_id}", "Adk-Fence": "1"}
        body = {"flight": "LISBER1", "passenger": "Ada"}
        return ask(travel.url, "POST", "/holds", body=body, headers=headers)

    return send


def keys(travel, event):
    return [entry.key for entry in travel.control.entries(event)]


class TestAHold:
    def test_before_the_effect_keeps_a_request_of_which_nothing_is_done(self, travel, send, threads):
        held = travel.hold("hold", at="before_effect")
        answer = threads.submit(send, "k1")

        [waiting] = held.wait()

        assert (waiting.key, waiting.run_id, waiting.kind, waiting.at) == ("k1", "run_1", "hold", "before_effect")
        assert (keys(travel, "arrived"), keys(travel, "effect")) == (["k1"], [])
        assert held.release() == (waiting.request,)
        assert answer.result(30)["hold"] == "H1"
        assert keys(travel, "effect") == ["k1"]

    def test_before_the_answer_keeps_a_request_that_is_done(self, travel, send, threads):
        held = travel.hold("hold", at="before_answer")
        answer = threads.submit(send, "k1")

        held.wait()

        assert keys(travel, "effect") == ["k1"]
        assert not answer.done()
        held.release()
        assert answer.result(30)["hold"] == "H1"

    @pytest.mark.parametrize(("at", "done"), [("before_effect", []), ("before_answer", ["k1"])])
    @pytest.mark.parametrize("then", ["drop", "answer"])
    def test_can_end_without_an_answer_or_with_an_error(self, travel, send, threads, at, done, then):
        held = travel.hold("hold", at=at)
        answer = threads.submit(send, "k1")
        held.wait()

        held.release(then=then)

        with pytest.raises(UnansweredError):
            answer.result(30)
        assert keys(travel, "effect") == done
        assert [entry.note for entry in travel.control.entries("fault")] == [f"hold {at}, then {then}"]

    def test_that_is_released_before_its_request_came_holds_nothing(self, travel, send):
        held = travel.hold("hold")

        assert held.release() == ()

        assert send("k1")["hold"] == "H1"

    def test_lets_one_request_go_and_keeps_the_others(self, travel, send, threads):
        held = travel.hold("hold", times=None)
        answers = {key: threads.submit(send, key) for key in ("k1", "k2", "k3")}
        waiting = {one.key: one.request for one in held.wait(at_least=3)}

        assert travel.release(request=waiting["k2"]) == (waiting["k2"],)

        assert answers["k2"].result(30)["hold"] == "H1"
        assert {one.key for one in held.wait(at_least=2)} == {"k1", "k3"}
        assert held.release() == (*sorted((waiting["k1"], waiting["k3"])),)
        assert travel.waiting() == ()
        assert {answers[key].result(30)["hold"] for key in ("k1", "k3")} == {"H2", "H3"}
        assert send("k4")["hold"] == "H4"

    def test_shows_nothing_of_what_it_has_let_go(self, travel, send, threads):
        """No test can see a request as held that its own release has freed, however slow the request's thread is."""
        for number in range(30):
            held = travel.hold("hold")
            answer = threads.submit(send, f"k{number}")
            [waiting] = held.wait()

            assert held.release() == (waiting.request,)
            assert travel.waiting() == ()
            assert held.release() == ()
            answer.result(30)

    def test_that_ended_its_request_leaves_nothing_in_flight(self, travel, send, threads):
        for number in range(30):
            held = travel.hold("hold", times=None)
            answer = threads.submit(send, f"k{number}")
            [waiting] = held.wait()

            travel.release(request=waiting.request, then="drop") if number % 2 else held.release(then="answer")

            assert ask(travel.url, "GET", f"/effects/k{number}") == {"state": "none"}
            assert isinstance(answer.exception(30), UnansweredError)
            held.release()

    def test_outlives_the_client_that_was_killed(self, travel):
        """I7: a request may outlive its sender, and have its effect when its sender is long dead."""
        held = travel.hold("hold")
        client = subprocess.Popen(
            [
                sys.executable,
                "-c",
                CLIENT,
                travel.url,
            ],
            cwd=ROOT,
        )
        held.wait()

        client.kill()
        client.wait(30)

        assert keys(travel, "effect") == []
        held.release()
        assert [entry.key for entry in travel.control.entries("effect", at_least=1)] == ["k1"]

    def test_can_be_followed_by_another_of_the_same_request(self, travel, send, threads):
        first = travel.hold("hold", at="before_effect")
        second = travel.hold("hold", at="before_answer")
        answer = threads.submit(send, "k1")

        first.wait()
        assert second.control.waiting(rule=second.number) == ()
        first.release()
        second.wait()
        second.release()

        assert answer.result(30)["hold"] == "H1"


class TestARule:
    def test_takes_the_requests_that_meet_all_its_conditions(self, travel, send):
        travel.add(Rule(do="refuse", kind="hold", tenant="acme", run_id="run_1", key="k2", times=None))

        send("k1")
        send("k2", run_id="run_2")
        send("k2", tenant="globex")
        with pytest.raises(RejectedError, match="rejected"):
            send("k2")

        assert keys(travel, "refused") == ["k2"]

    def test_takes_the_nth_that_matches_and_as_many_as_it_says(self, travel, send):
        rule = travel.control.refuse("hold", run_id="run_1", nth=2, times=2)
        refused = []

        for number in range(1, 6):
            send(f"other-{number}", run_id="run_2")
            try:
                send(f"k{number}")
            except RejectedError:
                refused.append(number)

        assert refused == [2, 3]
        assert rule.seen == 5

    def test_takes_exactly_its_nth_of_requests_that_come_at_once(self, travel, send, threads):
        travel.control.refuse("hold", nth=7, times=3)

        answers = [threads.submit(send, f"k{number}") for number in range(16)]

        errors = [type(answer.exception(30)) for answer in answers]
        assert errors.count(RejectedError) == 3
        assert errors.count(type(None)) == 13
        arrived, refused = keys(travel, "arrived"), set(keys(travel, "refused"))
        assert set(arrived[6:9]) == refused

    def test_counts_requests_from_when_it_was_made(self, travel, send):
        send("k1")

        travel.control.refuse("hold")

        with pytest.raises(RejectedError):
            send("k2")

    def test_that_was_ended_takes_no_more(self, travel, send):
        rule = travel.control.refuse("hold", times=None)
        with pytest.raises(RejectedError):
            send("k1")

        rule.release()

        assert send("k1")["hold"] == "H1"

    def test_of_a_probe_works_like_any_other(self, travel, send):
        send("k1")
        travel.control.answer("lookup", at="before_effect", status=503)
        travel.control.drop("refuse", at="before_answer")

        with pytest.raises(UnansweredError, match="503"):
            ask(travel.url, "GET", "/effects/k1")
        with pytest.raises(UnansweredError):
            ask(travel.url, "POST", "/refuse/k2", body={})

        assert ask(travel.url, "GET", "/effects/k1")["state"] == "happened"
        assert ask(travel.url, "GET", "/effects/k2")["state"] == "barred"

    def test_delays_a_request_and_lets_it_go_on(self, travel, send):
        travel.control.delay("hold", seconds=0.01)

        assert send("k1")["hold"] == "H1"
        assert [entry.note for entry in travel.control.entries("fault")] == ["delay before_effect"]

    @pytest.mark.parametrize(("at", "done"), [("before_effect", []), ("before_answer", ["k1"])])
    def test_drops_the_connection(self, travel, send, at, done):
        travel.control.drop("hold", at=at)

        with pytest.raises(UnansweredError):
            send("k1")
        assert keys(travel, "effect") == done

    def test_that_dropped_a_request_leaves_nothing_in_flight(self, travel, send):
        travel.control.drop("hold", at="before_effect")

        with pytest.raises(UnansweredError):
            send("k1")

        assert ask(travel.url, "GET", "/effects/k1") == {"state": "none"}

    @pytest.mark.parametrize(
        "rule",
        [
            {"do": "explode"},
            {"do": "hold", "nth": 0},
            {"do": "hold", "times": 0},
            {"do": "hold", "at": "sometime"},
            {"do": "hold", "kind": "fly"},
            {"do": "hold", "typo": 1},
            {"do": "answer", "status": 200},
            {"do": "delay", "seconds": -1},
            {"do": "refuse", "at": "before_answer"},
            {},
        ],
    )
    def test_that_makes_no_sense_is_refused(self, any_travel, rule):
        with pytest.raises(RejectedError, match="invalid"):
            ask(any_travel.url, "POST", "/control/rules", body=rule)
        assert any_travel.control.rules() == ()


class TestWaiting:
    def test_ends_as_soon_as_enough_requests_are_held(self, travel, send, threads):
        held = travel.hold("hold", times=None)
        waits = threads.submit(held.wait, at_least=2)

        answers = [threads.submit(send, key) for key in ("k1", "k2")]

        assert {one.key for one in waits.result(30)} == {"k1", "k2"}
        held.release()
        assert all(answer.result(30) for answer in answers)

    def test_says_what_there_is_when_it_was_in_vain(self, travel, send):
        held = travel.hold("hold")
        send_nothing = 0.01

        with pytest.raises(NeverCameError, match="for 1 held requests; held are"):
            held.wait(within=send_nothing)
        with pytest.raises(NeverCameError, match="for 2 lines in the journal"):
            travel.control.entries("effect", at_least=2, within=send_nothing)

    def test_for_the_journal_ends_with_the_line_that_was_wanted(self, travel, send, threads):
        found = threads.submit(travel.control.entries, "effect", "hold", run_id="run_1", at_least=2)

        send("k1")
        send("k2", run_id="run_2")
        send("k3")

        assert [entry.key for entry in found.result(30)] == ["k1", "k3"]
        assert all(entry in travel.entries() for entry in found.result())

    @pytest.mark.parametrize(
        ("method", "path", "said"),
        [
            ("GET", "/control/waiting?rule=9", "there is no rule 9"),
            ("GET", "/control/waiting?timeout=forever", "invalid"),
            ("GET", "/control/waiting?timeout=600", "invalid"),
            ("GET", "/control/entries?what=ever", "invalid"),
            ("GET", "/control/nothing", "no_such_path"),
            ("POST", "/control/waiting", "no_such_path"),
        ],
    )
    def test_for_what_cannot_come_is_refused(self, any_travel, method, path, said):
        with pytest.raises(RejectedError, match=said):
            ask(any_travel.url, method, path, body={} if method == "POST" else None)

    def test_is_over_for_what_is_not_there_to_be_released(self, any_travel):
        with pytest.raises(RejectedError, match="there is no rule 9"):
            any_travel.release(rule=9)
        with pytest.raises(RejectedError, match="request 9 is not held"):
            any_travel.release(request=9)
