"""The booking service as a process: what it does, what it refuses, and what it still knows after it was killed."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from examples.travel.client import NotSentError, RejectedError, UnansweredError, ask, ask_async
from examples.travel.journal import RunName
from tests.travel import ROOT, Caller, TravelService


@pytest.fixture
def travel(tmp_path):
    with TravelService.start(tmp_path) as service:
        yield service


@pytest.fixture(scope="module")
def any_travel(tmp_path_factory):
    """A service for requests that are refused whatever came before: starting one takes most of a second."""
    with TravelService.start(tmp_path_factory.mktemp("travel")) as service:
        client = Caller(service)
        client.hold()
        client.book()
        yield service


@pytest.fixture
def threads():
    with ThreadPoolExecutor(16) as pool:
        yield pool


STARTER = """
import pathlib, sys, threading
from tests.travel import TravelService

service = TravelService.start(pathlib.Path(sys.argv[1]))
print(service.url, flush=True)
threading.Event().wait()
"""


@pytest.fixture
def client(travel):
    return Caller(travel)


class TestATrip:
    def test_goes_from_a_search_to_a_payment_and_stands_in_the_journal(self, travel, client):
        found = ask(travel.url, "GET", "/flights?origin=LIS&destination=BER", headers=client.headers())
        flight = found["flights"][0]
        held = client.hold(flight=flight["flight"])
        booking = client.book(hold=held["hold"])
        payment = client.pay(booking["price_cents"], booking=booking["booking"])

        assert booking == {"booking": "B1", **held}
        assert payment == {"payment": "P1", "booking": "B1", "amount_cents": flight["price_cents"]}
        assert [(entry.event, entry.kind) for entry in travel.entries()] == [
            ("opened", None),
            ("arrived", "search"),
            *((event, kind) for kind in ("hold", "book", "pay") for event in ("arrived", "effect")),
        ]
        last = travel.entries()[-1]
        assert (last.run, last.key, last.fence, last.request) == (RunName("acme", "run_1"), "pay", 1, 4)
        assert travel.verdict(runs=[("acme", "run_1")]).ok

    def test_holds_another_seat_for_everybody(self, client, threads):
        held = list(threads.map(lambda number: client.hold(f"hold-{number}"), range(40)))

        assert len({hold["seat"] for hold in held}) == 40
        assert len({hold["hold"] for hold in held}) == 40

    def test_is_one_of_several_flights_of_which_some_may_be_sold_out(self, tmp_path):
        with TravelService.start(tmp_path, "--rows", "1") as travel:
            client = Caller(travel)
            for number in range(6):
                client.hold(f"hold-{number}")

            with pytest.raises(RejectedError, match="sold_out"):
                client.hold("hold-7")
            flights = ask(travel.url, "GET", "/flights?origin=LIS&destination=BER")["flights"]

        assert {flight["flight"]: flight["seats_left"] for flight in flights} == {
            "LISBER1": 0,
            "LISBER2": 6,
            "LISBER3": 6,
        }
        assert flights == sorted(flights, key=lambda flight: flight["price_cents"])

    def test_is_the_run_s_whose_name_it_carries_whatever_that_name_is(self, travel):
        """T1: no name reaches another's."""
        names = [
            ("a:b", "c"),
            ("a", "b:c"),
            ("*", "../.."),
            ("ten/ant", "l\u00e4uft\u202e 1"),
            ("x" * 512, "%2F"),
            ("a/b", "c"),
        ]

        for number, (tenant, run_id) in enumerate(names):
            Caller(travel, tenant=tenant, run_id=run_id).hold(f"hold-{number}")

        assert travel.verdict().by_run == {RunName(tenant, run_id): {"hold": 1} for tenant, run_id in names}


class TestARequest:
    @pytest.mark.parametrize(
        ("path", "body", "said"),
        [
            ("/holds", {"passenger": "Ada"}, "'flight' is missing"),
            ("/holds", {"flight": "LISBER1", "passenger": " "}, "'passenger' is missing"),
            ("/holds", {"flight": "LISBER9", "passenger": "Ada"}, "no_such_flight"),
            ("/bookings", {"hold": "H9"}, "no_such_hold"),
            ("/bookings", {"hold": 1}, "'hold' is missing or is not a text"),
            ("/payments", {"booking": "B9", "amount_cents": 1}, "no_such_booking"),
            ("/payments", {"booking": "B1", "amount_cents": 1}, "wrong_amount"),
            ("/payments", {"booking": "B1", "amount_cents": True}, "wrong_amount"),
            ("/flights", {}, "no_such_path"),
            ("/holds/1", {}, "no_such_path"),
        ],
    )
    def test_that_cannot_be_met_is_refused_with_what_to_do(self, any_travel, path, body, said):
        with pytest.raises(RejectedError, match=said):
            Caller(any_travel).post(path, "key", **body)
        assert any_travel.verdict().by_run == {RunName("acme", "run_1"): {"hold": 1, "book": 1}}

    @pytest.mark.parametrize(
        ("headers", "said"),
        [
            ({}, "key_missing"),
            ({"Idempotency-Key": "k", "Adk-Fence": "-1"}, "Adk-Fence is a whole number"),
            ({"Idempotency-Key": "k", "Adk-Fence": "²"}, "Adk-Fence is a whole number"),
            ({"Idempotency-Key": "k", "Adk-Run": "run_1"}, "Adk-Run is TENANT/RUN"),
            ({"Idempotency-Key": "k", "Adk-Run": "/run_1"}, "Adk-Run is TENANT/RUN"),
        ],
    )
    def test_with_headers_that_cannot_be_read_is_refused(self, any_travel, headers, said):
        body = {"flight": "LISBER1", "passenger": "Ada"}

        with pytest.raises(RejectedError, match=said):
            ask(any_travel.url, "POST", "/holds", body=body, headers=headers)
        assert any_travel.verdict().by_run == {RunName("acme", "run_1"): {"hold": 1, "book": 1}}

    @pytest.mark.parametrize(
        ("body", "status"),
        [(b"{", 400), (b"[]", 400), (b"[" * 60_000, 400), (b"\xff", 400), (b" " * 70_000, 413)],
    )
    def test_with_a_body_that_cannot_be_read_is_refused_and_stands_in_the_journal(self, any_travel, body, status):
        with socket.create_connection(("127.0.0.1", int(any_travel.url.rpartition(":")[2])), timeout=30) as raw:
            raw.sendall(
                b"POST /holds HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: k\r\n"
                + f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            answer = raw.makefile("rb").readline()

        assert answer.startswith(f"HTTP/1.1 {status} ".encode())
        arrived, refused = any_travel.entries()[-2:]
        assert (arrived.event, arrived.kind, arrived.request) == ("arrived", "hold", refused.request)
        assert (refused.event, refused.note) == ("refused", "invalid")

    def test_of_which_only_a_part_came_has_not_arrived(self, travel):
        with socket.create_connection(("127.0.0.1", int(travel.url.rpartition(":")[2])), timeout=30) as raw:
            raw.sendall(b'POST /holds HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{"flight":')
            raw.shutdown(socket.SHUT_WR)

            assert raw.makefile("rb").read() == b""
        assert travel.control.entries("arrived") == ()

    def test_that_no_service_takes_has_certainly_not_happened(self, travel, client):
        travel.stop()

        with pytest.raises(NotSentError, match="no connection to the booking service"):
            client.hold()
        travel.restart()

    async def test_of_either_kind_of_client_is_the_same_to_the_service(self, travel, client):
        """An answer, a refusal, an answer that never comes, and nobody there: for async tools as for the others."""
        body = {"flight": "LISBER1", "passenger": "Zoë"}

        async def hold(key, service=travel.url, **more):
            return await ask_async(service, "POST", "/holds", body={**body, **more}, headers=client.headers(key))

        held = await hold("k1")
        assert (held["hold"], held["passenger"]) == ("H1", "Zoë")
        with pytest.raises(RejectedError, match="no_such_flight"):
            await hold("k2", flight="LISBER9")
        travel.control.drop("hold", at="before_answer")
        with pytest.raises(UnansweredError):
            await hold("k3")
        travel.control.answer("hold", at="before_answer", status=503)
        with pytest.raises(UnansweredError, match="503"):
            await hold("k4")
        with pytest.raises(NotSentError):
            await hold("k5", service="http://127.0.0.1:1")
        with pytest.raises(NotSentError, match="set TRAVEL_URL"):
            await hold("k6", service="127.0.0.1")
        assert travel.verdict().effects == {(RunName("acme", "run_1"), "hold", key): 1 for key in ("k1", "k3", "k4")}


class TestAService:
    def test_stands_where_its_journal_ends_after_it_was_killed(self, travel, client):
        client.hold()
        booking = client.book()
        client.bar("barred")
        client.bar("barred-below", below=2)

        travel.kill()
        travel.restart()

        assert client.known("book") == {"state": "happened", "outcome": booking, "times": 1}
        assert client.known("barred") == {"state": "barred"}
        assert Caller(travel, fence=2).book("barred-below")["booking"] == "B2"
        assert client.hold() == {key: booking[key] for key in booking if key != "booking"}
        assert client.hold("another")["seat"] != booking["seat"]
        requests = [entry.request for entry in travel.control.entries("arrived")]
        assert requests == sorted(set(requests))
        assert [entry.event for entry in travel.entries()].count("opened") == 2

    def test_that_is_killed_in_mid_request_has_done_it_whole_or_not_at_all(self, travel, client, threads):
        client.hold()
        for at, state in (("before_effect", "none"), ("before_answer", "happened")):
            held = travel.hold("book", at=at)
            lost = threads.submit(client.book, f"book {at}".replace(" ", "-"))
            held.wait()

            travel.kill()

            with pytest.raises(UnansweredError):
                lost.result(30)
            travel.restart()
            assert client.known(f"book-{at}")["state"] == state

    def test_drops_what_it_holds_when_it_is_stopped(self, travel, client, threads):
        client.hold()
        held = travel.hold("book")
        lost = threads.submit(client.book)
        held.wait()

        travel.stop()

        with pytest.raises(UnansweredError):
            lost.result(30)
        assert travel.verdict().by_run == {RunName("acme", "run_1"): {"hold": 1}}
        travel.restart()

    def test_ends_rather_than_do_what_it_cannot_write_down(self, travel, client):
        client.hold()
        size = travel.journal.stat().st_size
        resource.prlimit(travel.pid, resource.RLIMIT_FSIZE, (size + 40, size + 40))

        with pytest.raises(UnansweredError):
            client.book()

        assert travel.wait() == 74
        assert "the booking service ends" in travel.log()
        assert travel.verdict().by_run == {RunName("acme", "run_1"): {"hold": 1}}

    def test_has_nothing_to_say_while_all_is_well(self, travel, client):
        client.hold()
        with pytest.raises(RejectedError):
            client.book(hold="H9")

        assert travel.log() == f"{travel.url}\n"

    def test_says_where_it_is_once_it_is_there(self, travel, tmp_path):
        assert json.loads((tmp_path / "travel.ready").read_text()) == {
            "url": travel.url,
            "pid": travel.pid,
            "journal": str(travel.journal),
        }

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--journal", "{journal}"], "another service has the journal"),
            (["--journal", "{journal}.new", "--port", "{port}"], "cannot listen on port"),
            (["--journal", "/no/such/folder/journal"], "No such file or directory"),
            ([], "--journal"),
        ],
    )
    def test_that_cannot_start_says_why_without_a_traceback(self, any_travel, arguments, said):
        values = {"journal": any_travel.journal, "port": any_travel.url.rpartition(":")[2]}
        command = [argument.format(**values) for argument in arguments]

        ended = subprocess.run(
            [sys.executable, "-m", "examples.travel.service", *command],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

        assert ended.returncode == 2
        assert said in ended.stderr
        assert "Traceback" not in ended.stderr

    def test_ends_with_whoever_started_it(self, tmp_path):
        """Its starter may be killed: the service sees that its standard input ends."""
        starter = subprocess.Popen(
            [
                sys.executable,
                "-c",
                STARTER,
                str(tmp_path),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert starter.stdout is not None
        url = starter.stdout.readline().strip()
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            starter.kill()
            starter.wait(30)

            # Closed, or reset, by the service's end, and by nothing else: the connection never asked for anything.
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        starter.stdout.close()
