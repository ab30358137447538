"""The travel agent's tools, as an app would write them: one of each effect, some sync, some async.

They find the booking service through ``TRAVEL_URL``, read when a call is made.

The two effectful tools show the two kinds of far side that a probe can meet. Bookings can be *barred*: the probe of
``book_seat`` has the service refuse the key from then on, and so always knows. Payments can only be *looked up*: that
nothing is there yet proves nothing while the request may be under way, so ``pay`` declares how long that may be.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote, urlencode

from pydantic import JsonValue

from adk_worker import Happened, NeverWill, NotYet, ProbeAnswer, ToolContext, ToolError, Unknown, tool
from examples.travel.client import NotSentError, RejectedError, ask, ask_async

_NOTHING_HAPPENED = (RejectedError, NotSentError)


def _url() -> str:
    url = os.environ.get("TRAVEL_URL")
    if not url:
        raise ToolError("TRAVEL_URL is not set: the worker does not know where the booking service is.", happened=False)
    return url


@tool(effect="read_only", retries=2, did_not_happen=RejectedError)
def search_flights(ctx: ToolContext, origin: str, destination: str) -> dict[str, Any]:
    """Find flights between two airports, given by their three-letter codes; the cheapest comes first."""
    query = urlencode({"origin": origin, "destination": destination})
    return ask(_url(), "GET", f"/flights?{query}", headers=ctx.headers())


@tool(effect="idempotent", retries=2, did_not_happen=RejectedError)
async def hold_seat(ctx: ToolContext, flight: str, passenger: str) -> dict[str, Any]:
    """Hold a seat on a flight for a passenger; the seat is theirs to book."""
    body = {"flight": flight, "passenger": passenger}
    return await ask_async(_url(), "POST", "/holds", body=body, headers=ctx.headers())


async def was_it_booked(key: str, _arguments: dict[str, JsonValue]) -> ProbeAnswer:
    """Bar the key. Either the booking had happened, or it never will: the service settles which in one step."""
    known = await ask_async(_url(), "POST", f"/refuse/{quote(key, safe='')}", body={})
    if known["state"] == "happened":
        return Happened(known["outcome"])
    if known["state"] == "barred":
        return NeverWill("the booking service refuses its key from now on")
    return Unknown(f"the booking service says {known['state']}")


@tool(timeout=30, probe=was_it_booked, did_not_happen=_NOTHING_HAPPENED)
async def book_seat(ctx: ToolContext, hold: str) -> dict[str, Any]:
    """Book the seat that is held."""
    ctx.progress(f"booking {hold}")
    return await ask_async(_url(), "POST", "/bookings", body={"hold": hold}, headers=ctx.headers())


def was_it_paid(key: str, _arguments: dict[str, JsonValue]) -> ProbeAnswer:
    """Look the key up, and change nothing."""
    known = ask(_url(), "GET", f"/effects/{quote(key, safe='')}")
    if known["state"] == "happened":
        return Happened(known["outcome"])
    if known["state"] == "none":
        return NotYet()
    # It has arrived and is not decided: it may yet happen however long its sender is dead.
    return Unknown(f"the booking service says {known['state']}")


@tool(timeout=30, probe=was_it_paid, did_not_happen=_NOTHING_HAPPENED, max_in_flight=5)
def pay(ctx: ToolContext, booking: str, amount_cents: int) -> dict[str, Any]:
    """Pay for a booking. The amount is the booking's price in cents."""
    ctx.progress(f"paying {amount_cents} cents for {booking}")
    body = {"booking": booking, "amount_cents": amount_cents}
    return ask(_url(), "POST", "/payments", body=body, headers=ctx.headers())
