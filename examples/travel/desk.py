"""What the booking service knows: flights, seats, bookings, payments, and the keys that it has seen.

A :class:`Desk` is a fold over the journal. A decision is made here without changing anything, written to the
journal by the caller, and applied only then; a service that starts again reads the journal through the same ``apply``
and stands where it stood.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from examples.travel.journal import Entry, RunName

FLIGHTS_A_ROUTE = 3
SEATS_A_ROW = "ABCDEF"

_AIRPORT = re.compile("[A-Z]{3}")
_FLIGHT = re.compile(f"[A-Z]{{6}}[1-{FLIGHTS_A_ROUTE}]")


class RefusedError(Exception):
    """The desk does not do it, now or later: the request had no effect.

    ``status`` is HTTP's; ``code`` is for programs; the message says what to do instead.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True)
class Request:
    """One request for the desk, as it arrived."""

    id: int
    kind: str
    run: RunName
    key: str | None
    fence: int | None
    body: Mapping[str, Any]


class Desk:
    """The state of the booking service. Not safe for threads: the caller serialises.

    ``dedupe``: a booking or a payment whose key was honoured before is answered with the earlier outcome. Without it
    the effect happens again, and the journal shows it. (A hold always honours its key.)
    ``check_fence``: a request whose fence is below the highest that its run has shown is refused.
    ``rows``: rows of six seats in each aircraft.
    """

    def __init__(self, *, dedupe: bool = False, check_fence: bool = False, rows: int = 30) -> None:
        self._dedupe = dedupe
        self._check_fence = check_fence
        self._rows = rows
        self._done: dict[str, list[Entry]] = {}
        self._bars: dict[str, int | None] = {}
        self._fences: dict[RunName, int] = {}
        self._taken: dict[str, int] = {}
        self._holds: dict[str, dict[str, Any]] = {}
        self._bookings: dict[str, dict[str, Any]] = {}
        self._payments = 0
        self._make: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hold": self._new_hold,
            "book": self._new_booking,
            "pay": self._new_payment,
        }

    # --- what happened, from the journal or just now ------------------------------------------------------------

    def apply(self, entry: Entry) -> None:
        """Take in one line of the journal. Lines that change nothing are ignored."""
        if entry.event == "arrived" and entry.fence is not None:
            self._fences[entry.run] = max(entry.fence, self._fences.get(entry.run, entry.fence))
        elif entry.event == "barred" and entry.key is not None:
            self._bars[entry.key] = self._merged(entry.key, entry.fence)
        elif entry.event == "effect" and entry.key is not None and entry.outcome is not None:
            self._done.setdefault(entry.key, []).append(entry)
            if entry.kind == "hold":
                self._holds[entry.outcome["hold"]] = entry.outcome
                self._taken[entry.outcome["flight"]] = self._taken.get(entry.outcome["flight"], 0) + 1
            elif entry.kind == "book":
                self._bookings[entry.outcome["booking"]] = entry.outcome
            else:
                self._payments += 1

    def _merged(self, key: str, below: int | None) -> int | None:
        if key not in self._bars:
            return below
        earlier = self._bars[key]
        return None if earlier is None or below is None else max(earlier, below)

    # --- what is asked ------------------------------------------------------------------------------------------

    def effects(self, key: str) -> tuple[Entry, ...]:
        """Every effect that was done under ``key``, oldest first."""
        return tuple(self._done.get(key, ()))

    def is_barred(self, key: str, fence: int | None) -> bool:
        """Whether a request with ``key`` and ``fence`` will never have an effect.

        A bar below a fence refuses a request without one too, as nothing shows that it is the newer.
        """
        if key not in self._bars:
            return False
        below = self._bars[key]
        return below is None or fence is None or fence < below

    def has_bar(self, key: str) -> bool:
        """Whether any bar was set on ``key``."""
        return key in self._bars

    def search(self, origin: str, destination: str) -> dict[str, Any]:
        """The flights between two airports, cheapest first: a function of their codes alone, but for seats left."""
        route = _airport(origin) + _airport(destination)
        flights = [
            {
                "flight": flight,
                "price_cents": self._price(flight),
                "seats_left": self._rows * len(SEATS_A_ROW) - self._taken.get(flight, 0),
            }
            for flight in (f"{route}{number}" for number in range(1, FLIGHTS_A_ROUTE + 1))
        ]
        flights.sort(key=lambda flight: (flight["price_cents"], flight["flight"]))
        return {"flights": flights}

    def decide(self, request: Request) -> tuple[Literal["effect", "repeated"], dict[str, Any]]:
        """What ``request`` would come to now, and its outcome. Changes nothing.

        ``effect``: it would be done. ``repeated``: its key was honoured before, and the outcome is the earlier one.
        Raises :class:`RefusedError` if it is not done and never will be.
        """
        self._admit(request)
        done = self._done.get(request.key or "", [])
        if done and (self._dedupe or request.kind == "hold"):
            if (done[0].kind, done[0].body) != (request.kind, dict(request.body)):
                raise RefusedError(422, "key_reused", "this key came with another request before; use a new one")
            return "repeated", dict(done[0].outcome or {})
        if self.is_barred(request.key or "", request.fence):
            raise RefusedError(409, "barred", "this key was barred by POST /refuse: nothing is done under it")
        return "effect", self._make[request.kind](request.body)

    def _admit(self, request: Request) -> None:
        if not self._check_fence:
            return
        if request.fence is None:
            raise RefusedError(400, "fence_missing", "this service runs with --fence: send Adk-Fence")
        highest = self._fences.get(request.run, request.fence)
        if request.fence < highest:
            raise RefusedError(
                412, "stale_fence", f"fence {request.fence} is superseded: this run has shown fence {highest}"
            )

    def _new_hold(self, body: Mapping[str, Any]) -> dict[str, Any]:
        flight, passenger = _text(body, "flight"), _text(body, "passenger")
        if not _FLIGHT.fullmatch(flight):
            raise RefusedError(404, "no_such_flight", f"there is no flight {flight!r}; GET /flights lists them")
        number = self._taken.get(flight, 0)
        if number >= self._rows * len(SEATS_A_ROW):
            raise RefusedError(409, "sold_out", f"no seat is left on {flight}; hold one on another flight")
        row, place = divmod(number, len(SEATS_A_ROW))
        return {
            "hold": f"H{len(self._holds) + 1}",
            "flight": flight,
            "seat": f"{row + 1}{SEATS_A_ROW[place]}",
            "passenger": passenger,
            "price_cents": self._price(flight),
        }

    def _new_booking(self, body: Mapping[str, Any]) -> dict[str, Any]:
        name = _text(body, "hold")
        if name not in self._holds:
            raise RefusedError(404, "no_such_hold", f"there is no hold {name!r}; POST /holds makes one")
        held = self._holds[name]
        return {"booking": f"B{len(self._bookings) + 1}", **held}

    def _new_payment(self, body: Mapping[str, Any]) -> dict[str, Any]:
        name, amount = _text(body, "booking"), body.get("amount_cents")
        if name not in self._bookings:
            raise RefusedError(404, "no_such_booking", f"there is no booking {name!r}; POST /bookings makes one")
        price = self._bookings[name]["price_cents"]
        if amount != price or isinstance(amount, bool):
            raise RefusedError(409, "wrong_amount", f"booking {name} costs {price} cents, not {amount!r}")
        return {"payment": f"P{self._payments + 1}", "booking": name, "amount_cents": price}

    def _price(self, flight: str) -> int:
        digest = hashlib.sha256(flight.encode()).digest()
        return 4900 + int.from_bytes(digest[:2], "big") % 200 * 100


def _airport(code: str) -> str:
    if not _AIRPORT.fullmatch(code):
        raise RefusedError(404, "no_such_airport", f"{code!r} is not an airport; use three letters, such as LIS")
    return code


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value.strip():
        raise RefusedError(400, "invalid", f"{name!r} is missing or is not a text")
    return value
