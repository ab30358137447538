"""What people do about budgets, beyond one write: a tenant's is raised, and its runs go on, batch by batch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from adk_worker.actors import Actor
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.runs import RunStore, Submitted
from adk_worker.transitions.runs import FleetPolicy

_BATCH: Final = 100


async def change_account(
    runs: RunStore,
    tenant: str,
    *,
    change: BudgetChange,
    by: Actor,
    policy: FleetPolicy,
    dispatch: Callable[[Submitted], Awaitable[bool]],
) -> tuple[Account, int]:
    """Change a tenant's limits, and queue and publish the runs that were parked on them; how many these were.

    One that its limits still do not allow is parked again before its next model call. Whoever is interrupted does it
    again: changing the limits to what they are harms nothing.
    """
    account = await runs.change_account(tenant, change=change, by=by)
    queued, cursor, publishes, more = 0, None, True, True
    while more:
        found, cursor = await runs.requeue_over_budget(tenant, by=by, policy=policy, limit=_BATCH, after=cursor)
        queued += len(found)
        for submitted in found:
            # Once the broker is away the reaper publishes what is queued.
            publishes = publishes and await dispatch(submitted)
        more = cursor is not None
    return account, queued
