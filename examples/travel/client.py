"""HTTP to the booking service, for tools of both kinds: :func:`ask` blocks its thread, :func:`ask_async` does not.

Both say what an agent has to know about a failure: whether the request can have had an effect.

::

    TravelError
    ├── NotSentError     no connection was made: it did not happen
    ├── RejectedError    the service says that it did not do it and never will
    └── UnansweredError  the request left, and no answer says what became of it
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlsplit

TIMEOUT = 20.0
"""Seconds for a whole exchange, unless the caller says otherwise."""


class TravelError(Exception):
    """The booking service did not do what it was asked to, or did not say so."""


class NotSentError(TravelError):
    """No connection to the service was made."""


class RejectedError(TravelError):
    """The service refused; ``code`` is for programs, the message is the service's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.args[1]}"


class UnansweredError(TravelError):
    """The request may have had its effect, or have it still."""


def ask(
    url: str,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> dict[str, Any]:
    """Send one request to the service at ``url``, and return its answer's JSON object.

    ``timeout`` is in seconds, for making the connection and then for each wait. Raises :class:`TravelError`.
    """
    host, port = _address(url)
    tape = _Tape()
    connection = _request(tape, host, port, method, path, body, headers)
    try:
        sock = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise NotSentError(f"no connection to the booking service at {url}: {error}") from error
    with sock:
        try:
            sock.sendall(tape.sent)
            with sock.makefile("rb") as stream:
                tape.received = stream.read()
            return _read(connection.getresponse())
        except (OSError, HTTPException) as error:
            raise UnansweredError(f"no answer to {method} {path} from the booking service: {error!r}") from error


async def ask_async(
    url: str,
    method: str,
    path: str,
    *,
    body: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
) -> dict[str, Any]:
    """Do as :func:`ask` does while the event loop runs on. ``timeout`` is for connecting, and for the whole rest."""
    host, port = _address(url)
    tape = _Tape()
    connection = _request(tape, host, port, method, path, body, headers)
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        raise NotSentError(f"no connection to the booking service at {url}: {error}") from error
    try:
        async with asyncio.timeout(timeout):
            writer.write(tape.sent)
            await writer.drain()
            tape.received = await reader.read()
        return _read(connection.getresponse())
    except (OSError, HTTPException) as error:
        raise UnansweredError(f"no answer to {method} {path} from the booking service: {error!r}") from error
    finally:
        writer.close()


class _Tape:
    """Stands where http.client expects its socket: http.client speaks HTTP, and others carry the bytes."""

    def __init__(self) -> None:
        self.sent = b""
        self.received = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self.received)

    def close(self) -> None:
        """Nothing is open."""


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None or parts.port is None:
        raise NotSentError(f"the booking service's URL is http://HOST:PORT, not {url!r}; set TRAVEL_URL")
    return parts.hostname, parts.port


def _request(
    tape: _Tape,
    host: str,
    port: int,
    method: str,
    path: str,
    body: Mapping[str, Any] | None,
    headers: Mapping[str, str] | None,
) -> HTTPConnection:
    """Put the request on the tape. What cannot be one (a path with a blank) raises here, before anything is sent."""
    connection = HTTPConnection(host, port)
    connection.sock = tape
    # One exchange a connection: the end of the answer is the end of the stream.
    fields = {"Connection": "close", **(headers or {})}
    connection.request(method, path, body=None if body is None else json.dumps(body).encode(), headers=fields)
    return connection


def _read(response: HTTPResponse) -> dict[str, Any]:
    content = response.read()
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise UnansweredError(f"the booking service answered {response.status} without JSON") from error
    if not isinstance(answer, dict):
        raise UnansweredError(f"the booking service answered {response.status} with JSON that is no object")
    if response.status in range(200, 300):
        return answer
    if response.status in range(400, 500):
        raise RejectedError(str(answer.get("error")), str(answer.get("message")))
    raise UnansweredError(f"the booking service answered {response.status}")
