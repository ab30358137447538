"""Ledgers of runs in process. They live as long as their process: a run that outlives it begins a new one."""

from __future__ import annotations

import threading
from dataclasses import replace

from adk_worker.ledger import booking
from adk_worker.ledger.amounts import Budget, BudgetChange
from adk_worker.ledger.booking import Charge, Ledger, Refusal, Reservation
from adk_worker.names import check_run


class MemoryLedgers:
    """What the runs of :class:`~adk_worker.runner.AgentRunner` may spend; usable from any thread and event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._attempts = 0

    def get(self, run_id: str, *, tenant: str) -> Ledger:
        """The run's ledger; an empty one for a run that has none."""
        with self._lock:
            return self._ledgers.get(check_run(tenant, run_id), Ledger())

    def limit(self, run_id: str, *, tenant: str, budget: Budget) -> None:
        """Give the run these limits."""
        with self._lock:
            self._put(tenant, run_id, replace(self._of(tenant, run_id), limits=budget))

    def change(self, run_id: str, *, tenant: str, change: BudgetChange) -> Ledger:
        """Change the run's limits; it goes on when it is resumed.

        :raises BudgetError: a limit is to be raised that is not set.
        """
        with self._lock:
            stands = self._of(tenant, run_id)
            return self._put(tenant, run_id, replace(stands, limits=change.applied(stands.limits)))

    def attempt(self) -> int:
        """A number for whoever carries a run on now, that nobody else has."""
        with self._lock:
            self._attempts += 1
            return self._attempts

    def reserve(self, run_id: str, *, tenant: str, asked: Reservation) -> Refusal | None:
        """Reserve what a model call may take, or say which limit is in its way."""
        with self._lock:
            stands = self._of(tenant, run_id)
            before = booking.lost(stands, in_flight=stands.reserved is not None).ledger
            refusal = before.refusal(asked.amount)
            refused = replace(before, refused=refusal)
            self._put(tenant, run_id, refused if refusal else booking.reserve(before, asked).ledger)
            return refusal

    def settle(self, run_id: str, *, tenant: str, charge: Charge, attempt: int) -> None:
        """A model call has taken so much."""
        with self._lock:
            stands = self._of(tenant, run_id)
            self._put(tenant, run_id, booking.settle(stands, charge, fence=attempt, asks=True).ledger)

    def leave(self, run_id: str, *, tenant: str, asked: bool) -> None:
        """Nobody carries the run on now; a call was made of which nobody knows what it took, if ``asked``."""
        with self._lock:
            self._put(tenant, run_id, booking.lost(self._of(tenant, run_id), in_flight=asked).ledger)

    def _of(self, tenant: str, run_id: str) -> Ledger:
        return self._ledgers.get(check_run(tenant, run_id), Ledger())

    def _put(self, tenant: str, run_id: str, after: Ledger) -> Ledger:
        self._ledgers[tenant, run_id] = after
        return after
