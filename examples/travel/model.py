"""The travel agent's model: a script, so that the example runs offline and does the same thing every time.

:func:`script` is a function of the transcript and the run's metadata alone. Whatever process is asked, and however
often, the answer to the same transcript is the same.

A model is an outside port, as the booking service is. With ``TRAVEL_MODEL_DIR`` set, a :class:`ModelSide` on that
folder sees every model call begin and end, and can keep one from ending: that is how a test kills a worker in the
middle of one.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import JsonValue

from adk_worker.messages import Message, ToolResultPart
from adk_worker.model import ModelRequest

ATTEMPTS = 3
"""How often the script asks for a tool that fails before it gives up."""

_LOOKS_AGAIN = 0.02
"""Seconds between two looks at whether a held call has been let go."""

Turn = str | tuple[str, dict[str, JsonValue]]
"""What the script says: a final answer, or a tool and its arguments."""


async def script(request: ModelRequest) -> Turn:
    """Search, hold, book, pay, and say which seat it is.

    Metadata that it reads: ``origin`` and ``destination`` (LIS and BER), ``passenger`` (Ada), and ``model_delay``, the
    seconds that each call takes (``TRAVEL_MODEL_DELAY`` in the environment, else 0).
    """
    folder = os.environ.get("TRAVEL_MODEL_DIR")
    side = ModelSide(Path(folder)) if folder else None
    if side:
        side.note("began", request)
    delay = request.metadata.get("model_delay", os.environ.get("TRAVEL_MODEL_DELAY") or 0)
    await asyncio.sleep(float(str(delay)))
    while side and side.holds(request):  # noqa: ASYNC110 - it is let go by another process
        await asyncio.sleep(_LOOKS_AGAIN)
    turn = due(request.messages, request.metadata)
    if side:
        side.note("ended", request)
    return turn


def due(messages: tuple[Message, ...], metadata: Mapping[str, JsonValue]) -> Turn:
    """The turn that the transcript asks for."""
    trip = _Trip(messages)
    origin, destination = str(metadata.get("origin", "LIS")), str(metadata.get("destination", "BER"))
    passenger = str(metadata.get("passenger", "Ada"))

    def next_step() -> Turn:
        found = trip.result("search_flights", "flights")
        if found is None:
            return trip.ask("search_flights", origin=origin, destination=destination)
        free = [flight for flight in found["flights"] if flight["seats_left"] > 0]
        if not free:
            return f"There is no seat left from {origin} to {destination}."
        held = trip.result("hold_seat", "hold")
        if held is None:
            return trip.ask("hold_seat", flight=free[0]["flight"], passenger=passenger)
        booking = trip.result("book_seat", "booking")
        if booking is None:
            return trip.ask("book_seat", hold=held["hold"])
        payment = trip.result("pay", "payment")
        if payment is None:
            return trip.ask("pay", booking=booking["booking"], amount_cents=booking["price_cents"])
        return (
            f"Booked seat {booking['seat']} on {booking['flight']} for {booking['passenger']}: booking "
            f"{booking['booking']}, payment {payment['payment']}."
        )

    try:
        return next_step()
    except _GivesUpError as error:
        return str(error)


class _GivesUpError(Exception):
    """The script has nothing more to try; the message is its final answer."""


class _Trip:
    """The results of the transcript, by tool."""

    def __init__(self, messages: tuple[Message, ...]) -> None:
        self._results = [part for message in messages for part in message.parts if isinstance(part, ToolResultPart)]

    def result(self, tool: str, field: str) -> dict[str, Any] | None:
        """What ``tool`` returned, or None if it has not succeeded yet.

        A call that happened and of which nobody knows the ``field`` any more is not repeated: that would do it twice.
        """
        for part in self._results:
            if part.name == tool and not part.is_error:
                if not isinstance(part.content, dict) or field not in part.content:
                    raise _GivesUpError(f"{tool} happened, but what it returned is not known: {part.content!r}.")
                return part.content
        return None

    def ask(self, tool: str, **arguments: JsonValue) -> Turn:
        """Ask for the call, unless it has failed too often."""
        failed = [part for part in self._results if part.name == tool and part.is_error]
        if len(failed) >= ATTEMPTS:
            raise _GivesUpError(
                f"I give up: {tool} failed {len(failed)} times, the last time with: {failed[-1].content}"
            )
        return tool, arguments


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One line about one model call. ``pid`` is the process that made it."""

    event: Literal["began", "ended"]
    tenant: str
    run_id: str
    iteration: int
    pid: int


class ModelSide:
    """The model's own record of the calls made to it, and a way to keep one from ending: files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = folder / "model-calls.jsonl"

    def calls(self, event: Literal["began", "ended"] | None = None) -> tuple[ModelCall, ...]:
        """The calls on record, oldest first."""
        return tuple(call for call in self._read() if event in {None, call.event})

    def hold(self, run_id: str, *, tenant: str, iteration: int) -> None:
        """Keep that model call, and its repetitions after a crash, from ending until :meth:`release`."""
        self._gate(tenant, run_id, iteration).touch()

    def release(self, run_id: str, *, tenant: str, iteration: int) -> None:
        """Let it end, now and whenever it is made again."""
        self._gate(tenant, run_id, iteration).unlink(missing_ok=True)

    def holds(self, request: ModelRequest) -> bool:
        """Whether that call is to wait. For the model."""
        return self._gate(request.tenant, request.run_id, request.iteration).exists()

    def note(self, event: Literal["began", "ended"], request: ModelRequest) -> None:
        """Put a line on record. For the model."""
        call = ModelCall(event, request.tenant, request.run_id, request.iteration, os.getpid())
        line = json.dumps(asdict(call)).encode() + b"\n"
        file = os.open(self._calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            # One write of one line: lines of several workers never mix.
            os.write(file, line)
        finally:
            os.close(file)

    def _read(self) -> Iterator[ModelCall]:
        try:
            content = self._calls.read_bytes()
        except FileNotFoundError:
            return
        for line in content.split(b"\n")[:-1]:
            yield ModelCall(**json.loads(line))

    def _gate(self, tenant: str, run_id: str, iteration: int) -> Path:
        # A digest, as names may be longer than file names, and may hold what those cannot.
        digest = hashlib.sha256(json.dumps([tenant, run_id, iteration]).encode()).hexdigest()
        return self._folder / f"hold-{digest[:32]}"
