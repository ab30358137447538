"""The errors with which every run store refuses people's actions, so that they read the same whatever the store."""

from __future__ import annotations

from typing import Final

from adk_worker.errors import AdkError, FrontierLostError, RunLeaseError, RunStateError
from adk_worker.idempotency import Claim
from adk_worker.runs import Run, RunStatus

_LIVE: Final = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})


def requeue_refused(run: Run, *, stored: int) -> AdkError:
    """Why ``run`` is not queued again. ``stored`` is the sequence of its stored frontier, 0 without one."""
    if run.status is RunStatus.WAITING_APPROVAL:
        return _state(run, "an answer to what it asks carries it on, not a resume")
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


def budget_refused(run: Run) -> AdkError:
    """Why the limits of ``run`` are not changed."""
    return _state(run, "it will never spend anything again")


def cancel_refused(run: Run) -> AdkError:
    """Why ``run`` is not cancelled."""
    return _state(run, "a run that has ended stays as it is")


def unless_changed(run: Run, seen: Run | None) -> None:
    """Refuse what somebody has decided about a run as they have ``seen`` it, if ``run``, as it is now, has moved on.

    One that was live has to be live still: it moves by itself from boundary to boundary. One that rested has to rest
    as it did, under the same fence, which rises with whatever queues it again.

    :raises RunStateError: it has moved.
    """
    if seen is None:
        return
    if seen.status in _LIVE:
        same = run.status in _LIVE
    else:
        same = (run.status, run.fence, run.attention) == (seen.status, seen.fence, seen.attention)
    if not same:
        was = f"{seen.status.value} ({seen.attention.value})" if seen.attention else seen.status.value
        raise _state(run, f"it was {was} under fence {seen.fence} when it was chosen, and has moved since: look again")


def decision_refused(run: Run, claim: Claim) -> AdkError:
    """Why a person's decision about a call of ``run`` is not taken, although nobody has decided it."""
    return _state(run, f"whoever carries it on finds out about the call of {claim.tool or 'its tool'} by itself")


def answer_refused(run: Run) -> AdkError:
    """Why an answer does not carry ``run`` on."""
    return _state(run, "it waits for no approval")


def nothing_undecided(run: Run) -> AdkError:
    """Why nothing of ``run`` is settled: it has ended, and all of its calls are decided."""
    return _state(run, "it has ended, and none of its calls is undecided")


def _state(run: Run, wanted: str) -> RunStateError:
    return RunStateError(tenant=run.tenant, run_id=run.run_id, status=run.status.value, wanted=wanted)
