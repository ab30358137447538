"""What runs may spend and what they have spent: limits, reservations, and the rules about them (C6, P3).

A run has a :class:`Ledger`, a tenant with limits an :class:`Account`. What the next model call may take at most is
reserved in both before it is made, and settled by what it took in the boundary's own commit. A call has a key, which
is its run and iteration, and every attempt at it the fence of its acquisition: a reservation that comes again changes
nothing, and one that is settled is gone.

What became of a call whose worker died, or which was aborted, nobody knows: it is *unaccounted*, neither free nor taken
for spent. It counts against every limit as what was reserved for it, so that a crash loop ends at the limit.

Everything here is pure: a store reads under its lock, asks, and writes the answer.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from pydantic import TypeAdapter

from adk_worker.actors import Actor
from adk_worker.errors import BudgetError

if TYPE_CHECKING:
    from adk_worker.lease import RunLease
    from adk_worker.runs import Committed, Submitted
    from adk_worker.transitions.runs import FleetPolicy

HIGHEST: Final = 1 << 53
"""Amounts stay within what every reader of JSON carries exactly."""
CHANGES_KEPT: Final = 20
"""How many of the newest changes of its limits an account remembers."""


class Kind(StrEnum):
    """What is limited."""

    TOKENS = "tokens"
    """Tokens, in and out."""
    COST = "cost_micros"
    """Cost, in millionths of a currency unit."""

    def words(self, number: int) -> str:
        """A number of it, for people: tokens as they are, a cost in currency units."""
        return str(number) if self is Kind.TOKENS else in_units(number)


@dataclass(frozen=True, slots=True)
class Amount:
    """So many tokens, in and out, and millionths of a currency unit."""

    tokens: int = 0
    cost_micros: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.cost_micros + other.cost_micros)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(max(0, self.tokens - other.tokens), max(0, self.cost_micros - other.cost_micros))

    def of(self, kind: Kind) -> int:
        """The number of one kind."""
        return self.tokens if kind is Kind.TOKENS else self.cost_micros


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits; ``None`` is none.

    :raises BudgetError: one is no whole number from 0 up.
    """

    tokens: int | None = None
    cost_micros: int | None = None

    def __post_init__(self) -> None:
        for kind in Kind:
            limit = self.of(kind)
            if limit is not None and (type(limit) is not int or limit < 0):
                raise BudgetError(f"a budget of {limit!r} {kind.value} is none; give a whole number from 0 up.")
            if limit is not None and limit > HIGHEST:
                raise BudgetError(f"a budget of {limit} {kind.value} is above {HIGHEST}, the highest there is.")

    def of(self, kind: Kind) -> int | None:
        """The limit of one kind."""
        return self.tokens if kind is Kind.TOKENS else self.cost_micros

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self.tokens is not None or self.cost_micros is not None


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """Limits to be set ``to`` a number (``None`` takes a limit away), or raised ``by`` one.

    The keys are ``tokens`` and ``cost_micros``.

    :raises BudgetError: it changes nothing, or one limit twice, or raises by nothing, or there is no such limit.
    """

    to: Mapping[Kind | str, int | None] = field(default_factory=dict)
    by: Mapping[Kind | str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.to or self.by):
            raise BudgetError("nothing is to be changed: name tokens, or a cost.")
        if self.to.keys() & self.by.keys():
            raise BudgetError("a limit is either set or raised, not both.")
        for changes in (self.to, self.by):
            unknown = changes.keys() - set(Kind)
            if unknown:
                raise BudgetError(
                    f"there is no limit of {', '.join(sorted(unknown))}; there are those of {', '.join(Kind)}."
                )
            Budget(changes.get(Kind.TOKENS), changes.get(Kind.COST))
        if any(limit <= 0 for limit in self.by.values()):
            raise BudgetError("a limit is raised by a whole number above 0; set it to lower it.")

    def applied(self, limits: Budget) -> Budget:
        """The limits after it.

        :raises BudgetError: one is to be raised that is not there.
        """
        after: dict[str, int | None] = {kind: limits.of(kind) for kind in Kind} | dict(self.to)
        for kind, more in self.by.items():
            stands = limits.of(Kind(kind))
            if stands is None:
                raise BudgetError(f"there is no limit of {Kind(kind).value} to be raised; set one.")
            after[kind] = stands + more
        return Budget(after[Kind.TOKENS], after[Kind.COST])


@dataclass(frozen=True, slots=True)
class Unaccounted:
    """Calls of which nobody knows what they took, and what was reserved for them."""

    calls: int = 0
    amount: Amount = Amount()

    def __add__(self, other: Unaccounted) -> Unaccounted:
        return Unaccounted(self.calls + other.calls, self.amount + other.amount)


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
        return f"{self.reason(tenant=tenant)}. To have it go on: {command}"

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
        return _refusal(Scope.RUN, self.limits, self.spent, stood, self.unaccounted, wanted)


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


@dataclass(frozen=True, slots=True)
class AccountChange:
    """Who changed an account's limits, when by the store's clock, and to what."""

    at: float
    by: str
    os_user: str | None
    limits: Budget


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant's, over all of its runs, from the moment at which it was first given limits."""

    limits: Budget = Budget()
    spent: Amount = Amount()
    reserved: Amount = Amount()
    unaccounted: Unaccounted = Unaccounted()
    changes: tuple[AccountChange, ...] = ()
    """The newest changes of its limits, the newest last."""

    def refusal(self, wanted: Amount) -> Refusal | None:
        """Why the tenant's limits do not allow a call that may take ``wanted``; ``None`` if they do."""
        return _refusal(Scope.TENANT, self.limits, self.spent, self.reserved, self.unaccounted, wanted)

    def reserve(self, asked: Reservation) -> Account:
        """The reservation stands now."""
        return replace(self, reserved=self.reserved + asked.amount)

    def close(self, closed: Closed) -> Account:
        """A reservation has come to its end."""
        return replace(
            self,
            reserved=self.reserved - closed.reservation.amount,
            spent=self.spent + closed.spent,
            unaccounted=self.unaccounted + closed.unaccounted,
        )

    def change(self, change: BudgetChange, *, by: Actor, at: float) -> Account:
        """Other limits.

        :raises BudgetError: one is to be raised that is not there.
        """
        limits = change.applied(self.limits)
        told = AccountChange(at, by.name, by.os_user, limits)
        return replace(self, limits=limits, changes=(*self.changes, told)[-CHANGES_KEPT:])


def _refusal(
    scope: Scope, limits: Budget, spent: Amount, reserved: Amount, unaccounted: Unaccounted, wanted: Amount
) -> Refusal | None:
    stands = spent + reserved + unaccounted.amount
    for kind in Kind:
        limit = limits.of(kind)
        # A limit that has been reached lets no call pass, be it one of which nobody knows the price.
        if limit is not None and (stands.of(kind) + wanted.of(kind) > limit or stands.of(kind) >= limit):
            counted = (spent.of(kind), reserved.of(kind), unaccounted.amount.of(kind))
            return Refusal(scope, kind, limit, *counted, wanted)
    return None


def in_units(micros: int) -> str:
    """A cost in currency units: ``1.5`` for 1,500,000 millionths."""
    return f"{(Decimal(micros) / 1_000_000).normalize():f}"


LEDGER: Final = TypeAdapter(Ledger)
"""Between a ledger and its JSON."""
ACCOUNT: Final = TypeAdapter(Account)
"""Between an account and its JSON."""
CHANGES: Final = TypeAdapter(tuple[AccountChange, ...])
"""Between an account's changes and their JSON."""
RESERVATION: Final = TypeAdapter(Reservation)
"""Between a reservation and its JSON."""


class LedgerStore(Protocol):
    """What a run store does about budgets. Each method is one atomic operation, as :class:`RunStore`'s are.

    Where a run and its tenant's account are not in one transaction, the account is written first when something is
    reserved, and last when that ends. A crash between the two leaves a reservation on the account, which counts against
    the tenant's limits as one that is unaccounted does, and is shown as such.
    """

    async def reserve(self, lease: RunLease, asked: Reservation) -> Committed:
        """Reserve what a model call may take, before it is made; or park the run as ``over_budget`` (P3).

        ``PARKED`` says which limit in ``detail``. ``CANCELLED`` ends the run. Asking again for the same attempt finds
        its reservation (F5).

        :raises StaleFenceError: the lease may not write (F1).
        """
        ...

    async def change_budget(
        self, run_id: str, *, tenant: str, change: BudgetChange, by: Actor, policy: FleetPolicy
    ) -> Submitted:
        """Change a run's limits. One that is parked on them is queued again in this write, if they allow its call now.

        :raises RunNotFoundError: there is none.
        :raises RunStateError: it has completed, or was cancelled.
        :raises BudgetError: a limit is to be raised that it has not.
        """
        ...

    async def account(self, tenant: str) -> Account | None:
        """A tenant's account, or ``None`` if it was never given limits. Only reads."""
        ...

    async def change_account(self, tenant: str, *, change: BudgetChange, by: Actor) -> Account:
        """Change a tenant's limits; its account begins with the first. Calls that begin later are held to them.

        :raises BudgetError: a limit is to be raised that it has not.
        """
        ...

    async def requeue_over_budget(
        self, tenant: str, *, by: Actor, policy: FleetPolicy, limit: int, after: str | None = None
    ) -> tuple[Sequence[Submitted], str | None]:
        """Queue again runs that are parked on the tenant's limits, after these have been raised.

        Looks at up to ``limit`` of them, each in a write of its own; returns those that are queued now, and the cursor
        of the next batch or ``None``.
        """
        ...
