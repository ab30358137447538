"""The booking service behind its HTTP face: one lock, and under it the journal, the desk and the faults.

Whatever is decided about a request is one step under the lock: look at the desk, write the journal, take it in. So a
probe that bars a key and a late request with that key never both get their way, and what a client is told is in the
journal before it is told.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from examples.travel.desk import Desk, RefusedError, Request
from examples.travel.faults import Faults, Place, Played
from examples.travel.journal import Entry, Event, Journal, Kind, RunName

CANNOT_WRITE = 74
"""Exit code (EX_IOERR) of a service that could not write its journal."""

CHANGES = frozenset({"hold", "book", "pay"})
"""Kinds of request that may have an effect."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client is told."""

    status: int
    body: Mapping[str, Any]

    @classmethod
    def refusing(cls, error: RefusedError) -> Self:
        """What says that it was not done, and why."""
        return cls(error.status, {"error": error.code, "message": str(error)})


class Wanted(BaseModel):
    """Which lines of the journal are asked for; of the conditions, those given must hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: Event | None = None
    kind: Kind | None = None
    tenant: str | None = None
    run_id: str | None = None
    key: str | None = None
    at_least: int = Field(default=0, ge=0)
    """Wait until there are so many."""
    timeout: float = Field(default=0.0, ge=0, le=60, allow_inf_nan=False)
    """For how many seconds, at most."""

    def matches(self, entry: Entry) -> bool:
        """Whether ``entry`` is one of those asked for."""
        return (
            self.event in {None, entry.event}
            and self.kind in {None, entry.kind}
            and self.tenant in {None, entry.tenant}
            and self.run_id in {None, entry.run_id}
            and self.key in {None, entry.key}
        )


class Office:
    """Serves requests from many threads. Opening it takes the journal's past in."""

    def __init__(self, journal: Journal, desk: Desk) -> None:
        self._room = threading.Condition()
        self._journal = journal
        self._desk = desk
        self._entries = list(journal.entries)
        self._requests = max((entry.request or 0 for entry in self._entries), default=0)
        self._undecided: dict[int, Request] = {}
        self.faults = Faults(self._room)
        for entry in self._entries:
            desk.apply(entry)
        with self._room:
            self._write("opened", note=f"pid {os.getpid()}")

    # --- the life of a request ----------------------------------------------------------------------------------

    def arrive(
        self, kind: Kind, *, run: RunName, key: str | None, fence: int | None, body: Mapping[str, Any]
    ) -> Request:
        """Take a request in: it stands in the journal, and the faults that it will meet are settled."""
        with self._room:
            self._requests += 1
            request = Request(self._requests, kind, run, key, fence, body)
            if kind in CHANGES:
                self._undecided[request.id] = request
            self._write("arrived", request, body=dict(body))
            self.faults.arrived(request)
            return request

    def decide(self, request: Request) -> Answer:
        """Do what ``request`` asks for, or refuse it."""
        with self._room:
            try:
                return self._done(request)
            except RefusedError as error:
                return self._refused(request, error)
            finally:
                self._undecided.pop(request.id, None)

    def refuse(self, request: Request, error: RefusedError) -> Answer:
        """Refuse ``request`` for a reason that the desk does not know of."""
        with self._room:
            self._undecided.pop(request.id, None)
            return self._refused(request, error)

    def play(self, place: Place, request: Request) -> Iterator[Played]:
        """Play the faults that took ``request`` at ``place``, and keep what was played in the journal."""
        for played in self.faults.play(place, request):
            with self._room:
                then = f", then {played.ending}" if played.rule.do == "hold" and played.ending else ""
                self._write("fault", request, note=f"{played.rule.do} {place}{then}")
            yield played

    def left(self, request: Request) -> None:
        """The request is over: answered, or its connection closed."""
        with self._room:
            self._undecided.pop(request.id, None)
            self.faults.left(request)

    # --- what is asked about it ---------------------------------------------------------------------------------

    def entries(self, wanted: Wanted) -> tuple[Entry, ...]:
        """The lines that ``wanted`` describes, once there are enough of them or its time is over."""

        def found() -> tuple[Entry, ...]:
            return tuple(entry for entry in self._entries if wanted.matches(entry))

        with self._room:
            self._room.wait_for(lambda: len(found()) >= wanted.at_least, wanted.timeout)
            return found()

    # --- under the lock -----------------------------------------------------------------------------------------

    def _done(self, request: Request) -> Answer:
        if request.kind == "search":
            origin, destination = (str(request.body.get(name, "")) for name in ("origin", "destination"))
            return Answer(200, self._desk.search(origin, destination))
        if request.kind == "lookup":
            return Answer(200, self._known(str(request.key)))
        if request.kind == "refuse":
            return Answer(200, self._bar(request))
        event, outcome = self._desk.decide(request)
        self._write(event, request, body=dict(request.body), outcome=outcome)
        return Answer(201 if event == "effect" else 200, outcome)

    def _refused(self, request: Request, error: RefusedError) -> Answer:
        self._write("refused", request, note=error.code)
        return Answer.refusing(error)

    def _known(self, key: str) -> dict[str, Any]:
        done = self._desk.effects(key)
        if done:
            return {"state": "happened", "outcome": done[0].outcome, "times": len(done)}
        asked = [request for request in self._undecided.values() if request.key == key]
        if any(not self._desk.is_barred(key, request.fence) for request in asked):
            return {"state": "in_flight"}
        return {"state": "barred" if self._desk.has_bar(key) else "none"}

    def _bar(self, request: Request) -> dict[str, Any]:
        key, below = str(request.key), request.body.get("below")
        if below is not None and (isinstance(below, bool) or not isinstance(below, int)):
            raise RefusedError(400, "invalid", f"'below' is a fence, a whole number, not {below!r}")
        if not self._desk.effects(key):
            self._write("barred", request, fence=below)
        return self._known(key)

    def _write(self, event: Event, request: Request | None = None, **fields: Any) -> None:
        known: dict[str, Any] = {}
        if request is not None:
            known = {
                "request": request.id,
                "kind": request.kind,
                "tenant": request.run.tenant,
                "run_id": request.run.run_id,
                "key": request.key,
                "fence": request.fence,
            }
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        entry = Entry(n=len(self._entries) + 1, at=now, event=event, **{**known, **fields})
        try:
            self._journal.append(entry)
        except OSError as error:
            # Nobody may be told of an effect that is not on the disk, and nobody can say whether this one is.
            print(f"the booking service ends: {error}", file=sys.stderr, flush=True)
            os._exit(CANNOT_WRITE)
        self._entries.append(entry)
        self._desk.apply(entry)
        self._room.notify_all()
