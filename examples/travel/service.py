"""A small booking service with a journal of its own: the far side of the travel agent's tools.

::

    python -m examples.travel.service --port 0 --journal travel.jsonl --ready-file travel.ready

It listens on loopback. When it does, it writes ``{"url": …, "pid": …, "journal": …}`` to the ready file (whole or not
at all) and prints the URL. SIGTERM and SIGINT stop it, whatever it holds; SIGKILL may: on the next start it stands
where its journal ends.

What an app uses; requests and answers are JSON objects:

``GET /flights?origin=LIS&destination=BER``
    ``{"flights": [{"flight", "price_cents", "seats_left"}, …]}``
``POST /holds {"flight", "passenger"}``
    ``{"hold", "flight", "seat", "passenger", "price_cents"}``
``POST /bookings {"hold"}``
    ``{"booking", "hold", "flight", "seat", "passenger", "price_cents"}``
``POST /payments {"booking", "amount_cents"}``
    ``{"payment", "booking", "amount_cents"}``
``GET /effects/KEY``
    ``{"state": …}``: what is known of the key, see below
``POST /refuse/KEY {}``, or ``{"below": FENCE}``
    the same, after barring the key (to fences below FENCE) if nothing was done under it: from the answer on, nothing
    will be. What has happened, and what may come, are settled in one step

201: it was done. 200: it was only asked, or had been done under this key before. 4xx: it was not done and never will
be, with ``{"error": CODE, "message": …}``. 5xx or no answer: the client cannot know.

The states of a key: ``happened`` (with the first ``outcome``, and how many ``times``), ``in_flight`` (a request arrived
that is neither decided nor barred), ``barred``, ``none`` (nothing arrived, which says nothing of what is on its way).

Requests carry what ``ToolContext.headers()`` gives: ``Adk-Run`` (``TENANT/RUN``, each percent-encoded), ``Adk-Fence``
and ``Idempotency-Key``. One that changes something must carry the key; the others may be missing. *The key is not
honoured* for bookings and payments: a second call is a second effect, for all to see in the journal. ``--dedupe``
honours it. With ``--fence`` a request is refused (412) once its run has shown a higher fence. A hold always honours
its key.

What tests and the demo use (:mod:`examples.travel.faults` says what rules mean; :mod:`examples.travel.control` is the
client):

``POST /control/rules RULE``
    ``{"rule": N}``: in force once the answer is there
``GET /control/rules``
    ``{"rules": [{"rule": N, "seen", "ended", …RULE}, …]}``
``GET /control/waiting?rule=&at_least=&timeout=``
    ``{"waiting": [{"request", "rule", "at", "kind", "tenant", "run_id", "key", "fence"}, …]}``: the requests inside a
    hold, as soon as there are so many, or when the timeout (seconds) is over
``POST /control/release {"rule"} | {"request"} | {}``, each with ``"then": "go_on" | "drop" | "answer"`` if wanted
    ``{"released": [REQUEST, …]}``
``GET /control/entries?event=&kind=&tenant=&run_id=&key=&at_least=&timeout=``
    ``{"entries": [LINE, …]}`` of the journal, waiting in the same way
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import socket
import socketserver
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from examples.travel.controlplane import control
from examples.travel.desk import Desk, RefusedError, Request
from examples.travel.faults import Place
from examples.travel.journal import Journal, JournalError, Kind, RunName
from examples.travel.office import CHANGES, Answer, Office

MAX_BODY = 64 * 1024
"""Longest body in bytes."""

_PATHS: Mapping[tuple[str, str], Kind] = {
    ("GET", "flights"): "search",
    ("POST", "holds"): "hold",
    ("POST", "bookings"): "book",
    ("POST", "payments"): "pay",
    ("GET", "effects"): "lookup",
    ("POST", "refuse"): "refuse",
}
_WITH_KEY = ("effects", "refuse")
_WHOLE_NUMBER = re.compile("[0-9]{1,16}")
"""Sixteen digits hold every fence: those stay within 53 bits (L2)."""


class _DropError(Exception):
    """Close the connection without an answer."""


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, port: int, office: Office) -> None:
        self.office = office
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own looks its host name up, which may take seconds where there is no resolver.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def handle_error(self, request: object, client_address: object) -> None:
        # A client that was killed resets its connection. That is its end, not an error of this service.
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Otherwise the body waits up to 40 ms for the head to be acknowledged.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def _serve(self, method: str) -> None:
        try:
            self._send(self._answer(method))
        except (_DropError, OSError):
            # Either asked for, or the client has gone: there is nobody to tell.
            self.close_connection = True
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return

    def _answer(self, method: str) -> Answer:
        address = urlsplit(self.path)
        first, *rest = [unquote(segment) for segment in address.path.split("/")[1:]]
        query = dict(parse_qsl(address.query, keep_blank_values=True))
        try:
            body = self._body() if method == "POST" else query
            problem = None
        except RefusedError as error:
            body, problem = {}, error
        if first == "control" and len(rest) == 1:
            return Answer.refusing(problem) if problem else control(self.server.office, method, rest[0], body)
        kind = _PATHS.get((method, first))
        if kind is None or len(rest) != (first in _WITH_KEY):
            known = ", ".join(f"{method} /{path}" for method, path in _PATHS)
            return Answer.refusing(RefusedError(404, "no_such_path", f"there are {known} and /control"))
        return self._business(kind, rest[0] if rest else self.headers.get("Idempotency-Key"), body, problem)

    def _business(self, kind: Kind, key: str | None, body: Mapping[str, Any], problem: RefusedError | None) -> Answer:
        run, fence = RunName("", ""), None
        try:
            run = _run(self.headers.get("Adk-Run"))
            fence = _fence(self.headers.get("Adk-Fence"))
        except RefusedError as error:
            problem = problem or error
        if not key and kind in CHANGES:
            problem = problem or RefusedError(400, "key_missing", "send an Idempotency-Key: this changes something")
        office = self.server.office
        request = office.arrive(kind, run=run, key=key, fence=fence, body=body)
        try:
            return self._play("before_effect", request) or self._decided(request, problem)
        finally:
            office.left(request)

    def _decided(self, request: Request, problem: RefusedError | None) -> Answer:
        office = self.server.office
        answer = office.refuse(request, problem) if problem else office.decide(request)
        return self._play("before_answer", request) or answer

    def _play(self, place: Place, request: Request) -> Answer | None:
        office = self.server.office
        for played in office.play(place, request):
            if played.ending == "drop":
                raise _DropError
            if played.ending == "answer":
                return Answer(played.rule.status, {"error": "injected", "message": "a rule asked for this answer"})
            if played.ending == "refuse":
                return office.refuse(request, RefusedError(409, "rejected", "a rule asked for this refusal"))
        return None

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not _WHOLE_NUMBER.fullmatch(length):
            self.close_connection = True
            raise RefusedError(411, "invalid", "send a Content-Length")
        if int(length) > MAX_BODY:
            self.close_connection = True
            raise RefusedError(413, "invalid", f"the body is longer than {MAX_BODY} bytes")
        content = self.rfile.read(int(length))
        if len(content) < int(length):
            # The sender died in the middle of it. A part of a request has not arrived.
            raise _DropError
        try:
            body = json.loads(content or b"{}")
        except (ValueError, RecursionError) as error:
            raise RefusedError(400, "invalid", f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise RefusedError(400, "invalid", "the body is not a JSON object")
        return body

    def _send(self, answer: Answer) -> None:
        content = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is http.server's
        """Say nothing: the journal says it all."""


def _run(text: str | None) -> RunName:
    if text is None:
        return RunName("", "")
    names = [unquote(name) for name in text.split("/")]
    if len(names) != 2 or not all(names):  # noqa: PLR2004 - a tenant and a run
        raise RefusedError(400, "invalid", f"Adk-Run is TENANT/RUN, not {text!r}")
    return RunName(*names)


def _fence(text: str | None) -> int | None:
    if text is None:
        return None
    if not _WHOLE_NUMBER.fullmatch(text):
        raise RefusedError(400, "invalid", f"Adk-Fence is a whole number, not {text!r}")
    return int(text)


def _stop_with_stdin() -> None:
    # os.read, as a thread that sits in sys.stdin's buffer makes the interpreter abort on its way out.
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _announce(ready: Path, url: str, journal: Path) -> None:
    text = json.dumps({"url": url, "pid": os.getpid(), "journal": str(journal.absolute())})
    unfinished = ready.with_name(ready.name + ".new")
    unfinished.write_text(text)
    unfinished.replace(ready)


def main(argv: list[str] | None = None) -> int:
    """Run the service until a signal stops it; 0 then, 2 if it could not start."""
    parser = argparse.ArgumentParser(prog="python -m examples.travel.service", description="A small booking service.")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--journal", type=Path, required=True, help="file of JSON lines; continued if it is there")
    parser.add_argument("--ready-file", type=Path, help="where to write the URL once requests are served")
    parser.add_argument("--dedupe", action="store_true", help="honour idempotency keys of bookings and payments")
    parser.add_argument("--fence", action="store_true", help="refuse fences below the highest that a run has shown")
    parser.add_argument("--rows", type=int, default=30, help="rows of six seats in each aircraft")
    parser.add_argument("--stop-with-stdin", action="store_true", help="stop when standard input ends")
    options = parser.parse_args(argv)
    if options.ready_file:
        options.ready_file.unlink(missing_ok=True)
    # Blocked before any thread starts, so that no thread but this one ever takes them.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        journal = Journal(options.journal)
        office = Office(journal, Desk(dedupe=options.dedupe, check_fence=options.fence, rows=options.rows))
        server = _Server(options.port, office)
    except JournalError as error:
        print(f"the booking service cannot start: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"the booking service cannot listen on port {options.port}: {error.strerror}", file=sys.stderr)
        return 2
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    if options.stop_with_stdin:
        threading.Thread(target=_stop_with_stdin, name="stdin", daemon=True).start()
    if options.ready_file:
        _announce(options.ready_file, server.url, options.journal)
    print(server.url, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    # The end of the process closes whatever it holds, as its clients' connections are to be dropped anyway.
    return 0


if __name__ == "__main__":
    sys.exit(main())
