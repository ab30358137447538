"""A run's ledger and the rules of booking in it: what is reserved, and what came of each reservation (C6, P3)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from enum import StrEnum

from adk_worker.ledger.amounts import Amount, Budget, Kind, Unaccounted


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one attempt at a model call may take at most. ``fence`` is that of the acquisition that makes it.

    ``priced`` is false where nobody knows the model's price: tokens alone are reserved then.
    """

    iteration: int
    fence: int
    amount: Amount
    priced: bool = True
    on_account: bool = False
    """Whether it stands on the tenant's account too."""

    def same_attempt(self, other: Reservation) -> bool:
        """Whether both are of the very same attempt at the same call of a run."""
        return (self.iteration, self.fence) == (other.iteration, other.fence)


class Scope(StrEnum):
    """Whose limit."""

    RUN = "run"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a call was not made: the limit that it would have gone over, and what stood against that."""

    scope: Scope
    kind: Kind
    limit: int
    spent: int
    reserved: int
    unaccounted: int
    wanted: Amount

    def words(self, *, tenant: str, run_id: str) -> str:
        """All of it for people, with the command that has the run go on."""
        option = "--tokens" if self.kind is Kind.TOKENS else "--cost"
        named = f"{shlex.quote(run_id)} " if self.scope is Scope.RUN else ""
        command = f"adk budget raise {named}--tenant {shlex.quote(tenant)} {option} N"
        # What others have reserved may come back by itself.
        waits = self.scope is Scope.TENANT and self.reserved > 0
        what = "It goes on by itself once there is room; to make some" if waits else "To have it go on"
        return f"{self.reason(tenant=tenant)}. {what}: {command}"

    def reason(self, *, tenant: str) -> str:
        """The limit, and all that stands against it, for people."""
        whose = "the run" if self.scope is Scope.RUN else f"tenant {tenant}"
        what = "tokens" if self.kind is Kind.TOKENS else "cost"
        say = self.kind.words
        return (
            f"over the budget of {whose}: {what} limit {say(self.limit)}, spent {say(self.spent)}, reserved "
            f"{say(self.reserved)}, unaccounted {say(self.unaccounted)}, and the next model call may take "
            f"{say(self.wanted.of(self.kind))}"
        )


@dataclass(frozen=True, slots=True)
class Charge:
    """What a model call took, by its provider's answer."""

    iteration: int
    amount: Amount


@dataclass(frozen=True, slots=True)
class Closed:
    """A reservation on a tenant's account that has come to its end, and what came of it."""

    reservation: Reservation
    spent: Amount = Amount()
    unaccounted: Unaccounted = Unaccounted()


@dataclass(frozen=True, slots=True)
class Ledger:
    """A run's. ``spent`` is what answers have said; ``unpriced`` counts calls that were made at no known price."""

    limits: Budget = Budget()
    spent: Amount = Amount()
    unaccounted: Unaccounted = Unaccounted()
    reserved: Reservation | None = None
    unpriced: int = 0
    asks: bool = True
    """Whether a model call is what comes next from the newest boundary: should its worker die, one may be in flight."""
    refused: Refusal | None = None
    """Why the run is parked for its budget."""

    def refusal(self, wanted: Amount) -> Refusal | None:
        """Why the run's own limits do not allow a call that may take ``wanted``; ``None`` if they do."""
        stood = self.reserved.amount if self.reserved else Amount()
        return refused_by(Scope.RUN, self.limits, self.spent, stood, self.unaccounted, wanted)


@dataclass(frozen=True, slots=True)
class Booked:
    """A ledger after a rule, and the reservation on the tenant's account that has ended with it."""

    ledger: Ledger
    closed: Closed | None = None


def reserve(ledger: Ledger, asked: Reservation) -> Booked:
    """The reservation stands now. One of an attempt before, of which nothing was heard, is unaccounted."""
    before = lost(ledger, in_flight=ledger.reserved is not None)
    unpriced = ledger.unpriced + (not asked.priced)
    return replace(before, ledger=replace(before.ledger, reserved=asked, unpriced=unpriced, refused=None))


def settle(ledger: Ledger, charge: Charge | None, *, fence: int, asks: bool) -> Booked:
    """A boundary, committed under ``fence``: its model call took ``charge``, if there was one, and is settled."""
    if charge is None:
        return Booked(replace(ledger, asks=asks))
    after = replace(ledger, spent=ledger.spent + charge.amount, asks=asks, refused=None)
    if ledger.reserved is not None and (ledger.reserved.iteration, ledger.reserved.fence) != (charge.iteration, fence):
        return lost(after, in_flight=True)
    return Booked(replace(after, reserved=None), _closed(ledger.reserved, spent=charge.amount))


def lost(ledger: Ledger, *, in_flight: bool | None = None) -> Booked:
    """The worker is gone, or has given up. Was a model call in flight? ``None`` is not known: one may have been.

    Without a reservation there is no amount to a call that may have been made, but there is the call.
    """
    if in_flight is None:
        in_flight = ledger.asks
    if not in_flight:
        return Booked(replace(ledger, reserved=None), _closed(ledger.reserved))
    gone = Unaccounted(1, ledger.reserved.amount if ledger.reserved else Amount())
    after = replace(ledger, reserved=None, unaccounted=ledger.unaccounted + gone)
    return Booked(after, _closed(ledger.reserved, unaccounted=gone))


def _closed(
    reservation: Reservation | None, *, spent: Amount = Amount(), unaccounted: Unaccounted = Unaccounted()
) -> Closed | None:
    if reservation is None or not reservation.on_account:
        return None
    return Closed(reservation, spent, unaccounted)


def refused_by(
    scope: Scope, limits: Budget, spent: Amount, reserved: Amount, unaccounted: Unaccounted, wanted: Amount
) -> Refusal | None:
    """Why these limits do not allow a call that may take ``wanted``, with what stands against them; or ``None``."""
    stands = spent + reserved + unaccounted.amount
    for kind in Kind:
        limit = limits.of(kind)
        # A limit that has been reached lets no call pass, be it one of which nobody knows the price.
        if limit is not None and (stands.of(kind) + wanted.of(kind) > limit or stands.of(kind) >= limit):
            counted = (spent.of(kind), reserved.of(kind), unaccounted.amount.of(kind))
            return Refusal(scope, kind, limit, *counted, wanted)
    return None
