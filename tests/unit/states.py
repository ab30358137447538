"""States of a run and its lease, for the tests of the pure tables."""

from __future__ import annotations

from adk_worker.transitions.leases import Holding, LeaseState, StoreTime
from adk_worker.transitions.runs import FleetPolicy, State

NOW = 1_000.0
AT = StoreTime(NOW)
POLICY = FleetPolicy(dispatch_grace=30, dispatch_grace_max=100, retry_backoff=1, retry_backoff_max=5, max_crashes=3)
TTL = 60.0


def held(fence=7, *, expires_at=NOW + TTL):
    return LeaseState(fence, Holding.WORKER, "one", expires_at)


def queued(fence=7, *, expires_at=NOW + 30, wait=30.0):
    return LeaseState(fence, Holding.QUEUE, None, expires_at, wait)


def running(**fields):
    return State(lease=held(), sequence=4, committed_by=5, **fields)


FREE = LeaseState(7)
