"""What people and their apps write: submit, requeue, cancel."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select

from adk_worker import events, refusals, submission
from adk_worker.actors import Actor
from adk_worker.errors import RunExistsError, RunNotFoundError
from adk_worker.ledger.booking import Ledger
from adk_worker.messages import Usage
from adk_worker.runs import NewRun, Run, Submitted
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding, LeaseState, StoreTime
from adk_worker.transitions.runs import FleetPolicy, Phase, State, Verdict
from stores.sql import journal
from stores.sql.dialects import PerDialect, run_number
from stores.sql.locks import LockedRun, lock_lease, lock_run
from stores.sql.rows import lease_columns, ledger_column, state_columns
from stores.sql.schema import checkpoints, leases, runs
from stores.sql.writing import end_cancelled

_FIRST_LEASE: Final = PerDialect(lambda insert: insert(leases).on_conflict_do_nothing())
_CREATE: Final = insert(runs).values(number=run_number()).returning(runs.c.number)
_FRONTIER: Final = select(checkpoints.c.agent, checkpoints.c.sequence).where(
    checkpoints.c.tenant == bindparam("for_tenant"), checkpoints.c.run_id == bindparam("for_run")
)


def submit(tx: Connection, new: NewRun, *, policy: FleetPolicy) -> Submitted:
    """See :meth:`adk_worker.runs.RunStore.submit`; ``new`` has been checked."""
    # The row to lock. Of two submits under one name the second waits here for the first one's transaction to end.
    free = {**lease_columns(LeaseState()), "status": None}
    tx.execute(_FIRST_LEASE.on(tx), {"tenant": new.tenant, "run_id": new.run_id, **free})
    stands = lock_run(tx, new.tenant, new.run_id)
    if stands is not None:
        run = stands.view()
        if not submission.same_request(run, new):
            raise RunExistsError(tenant=run.tenant, run_id=run.run_id, agent=run.agent)
        queued = stands.state.phase is Phase.LIVE and stands.state.lease.holding is Holding.QUEUE
        return Submitted(run, stands.state.lease.fence if queued else None)
    lease = lock_lease(tx, new.tenant, new.run_id)
    if lease is None:
        raise AssertionError("the row was inserted, or stood there, and rows of leases are not removed meanwhile")
    frontier = tx.execute(_FRONTIER, {"for_tenant": new.tenant, "for_run": new.run_id}).one_or_none()
    if frontier is not None:
        # Of a run in process: what it has done is not this request's to carry on.
        raise RunExistsError(tenant=new.tenant, run_id=new.run_id, agent=frontier.agent)
    state = run_transitions.submit(at=lease.at, policy=policy, fence=lease.lease.fence)
    return Submitted(_create(tx, new, state, lease.at), state.lease.fence)


def _create(tx: Connection, new: NewRun, state: State, at: StoreTime) -> Run:
    columns: dict[str, Any] = {
        "tenant": new.tenant,
        "run_id": new.run_id,
        "agent": new.agent,
        "input": new.input,
        "metadata": dict(new.metadata),
        "revision": new.revision,
        "masks": dict(new.masks),
        "detail": None,
        "iteration": 0,
        "execution": 1,
        "usage": Usage().model_dump(mode="json"),
        "cost_micros": 0,
        "output": None,
        "ledger": ledger_column(Ledger(limits=new.budget)),
        "created_at": at.now,
        "updated_at": at.now,
        **state_columns(state),
    }
    number = tx.execute(_CREATE, columns).scalar_one()
    journal.write_lease(tx, new.tenant, new.run_id, state.lease, live=True, number=number)
    run = LockedRun(new.tenant, new.run_id, state, at, columns)
    journal.tell(tx, run, [events.submitted(new.agent)], fence=state.lease.fence)
    return run.view()


def requeue(
    tx: Connection, tenant: str, run_id: str, *, by: Actor, policy: FleetPolicy, seen: Run | None = None
) -> Submitted:
    """See :meth:`adk_worker.runs.RunStore.requeue`."""
    run = existing(tx, tenant, run_id)
    refusals.unless_changed(run.view(), seen)
    moved = run_transitions.requeue(run.state, at=run.at, policy=policy)
    if moved.verdict is not Verdict.DONE:
        frontier = tx.execute(_FRONTIER, {"for_tenant": tenant, "for_run": run_id}).one_or_none()
        raise refusals.requeue_refused(run.view(), stored=frontier.sequence if frontier else 0)
    journal.write(tx, run, moved.state, [events.requeued(by)], detail=None)
    return Submitted(run.view(moved.state, detail=None, updated_at=run.at.now), moved.state.lease.fence)


def cancel(tx: Connection, tenant: str, run_id: str, *, by: Actor, seen: Run | None = None) -> Run:
    """See :meth:`adk_worker.runs.RunStore.cancel`."""
    run = existing(tx, tenant, run_id)
    refusals.unless_changed(run.view(), seen)
    moved = run_transitions.cancel(run.state)
    told = () if run.state.cancel_requested else (events.cancel_requested(by),)
    changed: dict[str, Any] = {"updated_at": run.at.now}
    match moved.verdict:
        case Verdict.REFUSED:
            raise refusals.cancel_refused(run.view())
        case Verdict.CANCELLED:
            end_cancelled(tx, run, moved.state, told)
            changed["detail"] = None
        case Verdict.DONE:
            journal.write(tx, run, moved.state, told)
        case _:
            changed = {}
    return run.view(moved.state, **changed)


def existing(tx: Connection, tenant: str, run_id: str) -> LockedRun:
    """Lock the run.

    :raises RunNotFoundError: there is no such run.
    """
    run = lock_run(tx, tenant, run_id)
    if run is None:
        raise RunNotFoundError(tenant=tenant, run_id=run_id)
    return run
