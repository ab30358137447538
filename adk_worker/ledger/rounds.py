"""A round over the runs that wait for room on a tenant's account: how far it is, and who of them fits (P3).

A store takes the account as it stands and those who wait in order, the oldest run first, asks for each whether it fits,
and queues it if it does. What was queued has reserved nothing yet; it is *promised*: the next one has to fit beside it.
Otherwise room for one would have all of them come running, and all but one be parked again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount
from adk_worker.ledger.booking import Reservation
from adk_worker.ledger.waitlist import Waitlist


@dataclass(frozen=True, slots=True)
class Round:
    """How far a round is. ``seen`` is the tenant's waitlist as the round began."""

    tenant: str
    seen: Waitlist
    after: str | None = None
    """The store's cursor: those behind it have not been looked at."""
    promised: Amount = field(default_factory=Amount)
    """What those may take that it has queued."""
    moved: bool = False
    """Whether it has queued any, or could not ask one."""
    empty: bool = True
    """Whether it has met none."""

    @classmethod
    def begun(cls, tenant: str, account: Account) -> Round:
        """A round that begins with the account as it stands."""
        return cls(tenant, account.waitlist)

    def fits(self, account: Account, wanted: Amount) -> bool:
        """Whether a call that may take ``wanted`` fits beside all that is promised, as the account stands now."""
        return account.reserve(Reservation(0, 0, self.promised)).refusal(wanted) is None

    def promise(self, wanted: Amount) -> Round:
        """One has been queued whose call may take ``wanted``."""
        return replace(self, promised=self.promised + wanted, moved=True)

    def miss(self) -> Round:
        """One that fits could not be asked whether it waits."""
        return replace(self, moved=True)

    def meet(self) -> Round:
        """Somebody waits."""
        return replace(self, empty=False)

    def on(self, after: str) -> Round:
        """A batch is through, up to ``after``, and there is a next one."""
        return replace(self, after=after)

    def served(self, account: Account) -> Account:
        """The account once the round is over."""
        if self.moved:
            return account
        return replace(account, waitlist=account.waitlist.serve(self.seen, empty=self.empty))
