"""What budgets do to a run's state: it is parked before a call that they do not allow, and goes on after a raise (P3).

What they allow is decided in :mod:`adk_worker.ledger`.
"""

from __future__ import annotations

from dataclasses import replace

from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import Attention, FleetPolicy, Moved, Phase, State, Verdict


def park(state: State, *, fence: int) -> Moved:
    """Park the run before a model call that is over a limit.

    A marked run cannot rest and be carried on: what it is parked for is its lost frontier (C3).
    """
    attention = Attention.FRONTIER_LOST if state.behind else Attention.OVER_BUDGET
    return run_transitions.park(state, fence=fence, attention=attention)


def afford(state: State, *, at: StoreTime, policy: FleetPolicy) -> Moved:
    """Queue a run again that is parked for its budget; refused for any other.

    Whoever holds the lease of the resting run loses it: nobody would raise the budget again once they have let go.
    """
    if state.phase is not Phase.PARKED or state.attention is not Attention.OVER_BUDGET:
        return Moved(state, Verdict.REFUSED)
    free = replace(state, lease=replace(state.lease, holding=Holding.FREE, holder=None))
    return run_transitions.requeue(free, at=at, policy=policy)
