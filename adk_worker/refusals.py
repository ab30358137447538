"""The errors with which every run store refuses people's actions, so that they read the same whatever the store."""

from __future__ import annotations

from adk_worker.errors import AdkError, FrontierLostError, RunLeaseError, RunStateError
from adk_worker.runs import Run, RunStatus


def requeue_refused(run: Run, *, stored: int) -> AdkError:
    """Why ``run`` is not queued again. ``stored`` is the sequence of its stored frontier, 0 without one."""
    if run.status is RunStatus.WAITING_APPROVAL:
        return _state(run, "a decision on the approval carries it on, not a requeue")
    if run.status not in {RunStatus.PARKED, RunStatus.FAILED}:
        return _state(run, "only a run that is parked, has failed or backs off is queued again")
    if run.behind:
        return FrontierLostError(tenant=run.tenant, run_id=run.run_id, sequence=stored)
    return RunLeaseError(
        tenant=run.tenant,
        run_id=run.run_id,
        holder=run.holder or "",
        fence=run.fence,
        expires_at=run.expires_at or 0.0,
    )


def cancel_refused(run: Run) -> AdkError:
    """Why ``run`` is not cancelled."""
    return _state(run, "a run that has ended stays as it is")


def _state(run: Run, wanted: str) -> RunStateError:
    return RunStateError(tenant=run.tenant, run_id=run.run_id, status=run.status.value, wanted=wanted)
