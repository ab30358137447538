"""What a run store does about budgets: :class:`LedgerStore`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from adk_worker.actors import Actor

if TYPE_CHECKING:
    from adk_worker.lease import RunLease
    from adk_worker.ledger.accounts import Account
    from adk_worker.ledger.amounts import BudgetChange
    from adk_worker.ledger.booking import Reservation
    from adk_worker.ledger.rounds import Round
    from adk_worker.runs import Committed, Submitted
    from adk_worker.transitions.runs import FleetPolicy


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

    async def rounds_due(self, *, limit: int, after: str | None = None) -> tuple[Sequence[Round], str | None]:
        """The rounds that are to be made: of up to ``limit`` tenants whose runs wait, and may fit now. Only reads.

        And the cursor of the next page, or ``None``. Whatever makes room on an account where somebody may wait says so
        in its own write: :meth:`change_account`, and the end of a reservation that took less than was reserved.
        """
        ...

    async def requeue_over_budget(
        self, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
    ) -> tuple[Sequence[Submitted], Round | None]:
        """Go on with a round: queue again, of runs that are parked on a tenant's limits, those that fit into them now.

        Looks at up to ``limit`` of them, the oldest first, each in a write of its own, and passes over those that do
        not fit. Returns those that are queued now, and the round as it stands, or ``None`` once all have been looked
        at. If it has found none that fits, it is then noted that it was made (:mod:`adk_worker.ledger.waitlist`); else
        it stays due, since what was queued may come to take less, or nothing. Any number may be made at once.
        """
        ...
