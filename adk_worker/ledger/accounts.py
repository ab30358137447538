"""A tenant's account: its limits over all of its runs, and what these have spent and reserved (P3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from adk_worker.actors import Actor
from adk_worker.ledger.amounts import Amount, Budget, BudgetChange, Kind, Unaccounted
from adk_worker.ledger.booking import Closed, Refusal, Reservation, Scope, refused_by
from adk_worker.ledger.waitlist import Waitlist

CHANGES_KEPT: Final = 20
"""How many of the newest changes of its limits an account remembers."""


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
    waitlist: Waitlist = field(default_factory=Waitlist)
    """Whether runs that it has turned away wait, and whether there may be room for them."""

    @property
    def stands(self) -> Amount:
        """All that counts against the limits."""
        return self.spent + self.reserved + self.unaccounted.amount

    def refusal(self, wanted: Amount) -> Refusal | None:
        """Why the tenant's limits do not allow a call that may take ``wanted``; ``None`` if they do."""
        return refused_by(Scope.TENANT, self.limits, self.spent, self.reserved, self.unaccounted, wanted)

    def reserve(self, asked: Reservation) -> Account:
        """The reservation stands now."""
        return replace(self, reserved=self.reserved + asked.amount)

    def close(self, closed: Closed) -> Account:
        """A reservation has come to its end."""
        after = replace(
            self,
            reserved=self.reserved - closed.reservation.amount,
            spent=self.spent + closed.spent,
            unaccounted=self.unaccounted + closed.unaccounted,
        )
        more = any(after.stands.of(kind) < self.stands.of(kind) for kind in Kind)
        return replace(after, waitlist=after.waitlist.free()) if more else after

    def turn_away(self) -> Account:
        """A run has asked for more than there is, and is parked."""
        return replace(self, waitlist=self.waitlist.join())

    def change(self, change: BudgetChange, *, by: Actor, at: float) -> Account:
        """Other limits.

        :raises BudgetError: one is to be raised that is not there.
        """
        limits = change.applied(self.limits)
        told = AccountChange(at, by.name, by.os_user, limits)
        changes = (*self.changes, told)[-CHANGES_KEPT:]
        return replace(self, limits=limits, changes=changes, waitlist=self.waitlist.free())
