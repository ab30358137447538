"""What is done about budgets beyond one write: runs that wait for room on a tenant's account go on, batch by batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from adk_worker.actors import Actor
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.rounds import Round
from adk_worker.runs import RunStore, Submitted
from adk_worker.transitions.runs import FleetPolicy

_BATCH: Final = 100
SYSTEM_BUDGET: Final = "system:budget"
"""Who has a run go on for which there is room again, where nobody's raise has done it."""


async def change_account(
    runs: RunStore,
    tenant: str,
    *,
    change: BudgetChange,
    by: Actor,
    policy: FleetPolicy,
    dispatch: Callable[[Submitted], Awaitable[bool]],
) -> tuple[Account, int]:
    """Change a tenant's limits, and queue and publish those that wait for room and have it now; how many these are.

    The others stay parked. What is left to be done, because somebody died in here or since what was queued takes less
    than it may, is the reaper's: the write of the limits says that there is something to be done
    (:mod:`adk_worker.ledger.waitlist`).
    """
    account = await runs.change_account(tenant, change=change, by=by)
    queued = await go_round(runs, Round.begun(tenant, account), by=by, policy=policy, dispatch=dispatch)
    return account, queued


async def go_round(
    runs: RunStore,
    begun: Round,
    *,
    by: Actor,
    policy: FleetPolicy,
    dispatch: Callable[[Submitted], Awaitable[bool]],
) -> int:
    """Make a round over a tenant's runs that wait; how many are queued now, and published unless the broker is away."""
    queued, publishes = 0, True
    made: Round | None = begun
    while made is not None:
        found, made = await runs.requeue_over_budget(made, by=by, policy=policy, limit=_BATCH)
        queued += len(found)
        for submitted in found:
            # Once the broker is away the reaper publishes what is queued.
            publishes = publishes and await dispatch(submitted)
    return queued
