"""One request for many runs, for the morning after an outage: which ones are meant, and what came of each.

Each run is a write of its own, and is acted on only while it is as it was seen: one that has moved since is left alone,
and named. So whatever ends a bulk in the middle, the store that goes away or Ctrl-C, leaves every run either
done or as it was, and asking again goes on with those that are left.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from adk_worker import refusals
from adk_worker.actors import Action, Actor, Verifier, verify
from adk_worker.errors import AdkError, ConfigurationError, RunNotFoundError, RunStateError, StoreUnavailableError
from adk_worker.filters import RunFilter
from adk_worker.runs import Run, RunStatus, Stores
from adk_worker.walk import each_run

STATUSES: Final = {
    Action.RESUME: (RunStatus.FAILED, RunStatus.PARKED, RunStatus.QUEUED),
    Action.CANCEL: (RunStatus.PARKED, RunStatus.WAITING_APPROVAL, RunStatus.QUEUED, RunStatus.RUNNING),
}
"""The statuses of runs of which it can be asked. Of queued runs, a resume is for those that back off."""

Which = RunFilter | Iterable[Run]
"""A filter, or the runs themselves as somebody has seen them."""


class BulkResult(StrEnum):
    """What came of it for one run."""

    DONE = "done"
    DUE = "due"
    """A dry run: it would be done."""
    REFUSED = "refused"
    CHANGED = "changed"
    """It has moved since it was seen, or is gone: nothing was done."""


@dataclass(frozen=True, slots=True)
class BulkOutcome:
    """``run`` is as it stands once it is done, else as it was seen; ``error`` says why it is not."""

    run: Run
    result: BulkResult
    error: AdkError | None = None


@dataclass(frozen=True, slots=True)
class Errand:
    """What is asked, by whom, and ``act``, which asks it of one run as long as that is as it was seen."""

    action: Action
    actor: Actor
    verifier: Verifier | None
    act: Callable[[Run], Awaitable[Run]]


async def carry_out(
    errand: Errand, stores: Stores, which: Which, *, dry_run: bool = False, limit: int | None = None
) -> AsyncIterator[BulkOutcome]:
    """What came of each run, one after the other as they are asked for, until ``limit`` of them are done, or due.

    The verifier is asked for all of them together, and then for each (P5). A ``dry_run`` writes nothing; that somebody
    holds the lease of a run is not seen in it.

    :raises NotAllowedError: they may not ask it of many.
    :raises ConfigurationError: no run of that status can be asked.
    :raises StoreUnavailableError: what came so far, stays; of the run that it was at, nothing is known if it is a
        ``CommitUnknownError``. Asking again is safe.
    """
    left = limit
    tenant = which.tenant if isinstance(which, RunFilter) else None
    await verify(errand.verifier, errand.actor, errand.action, tenant=tenant, run_id=None)
    async for run in _chosen(errand.action, stores, which):
        if left is not None and left <= 0:
            return
        outcome = await _outcome(errand, stores, run, dry_run=dry_run)
        if left is not None and outcome.result in {BulkResult.DONE, BulkResult.DUE}:
            left -= 1  # what is always refused must not stand in front of all others, however often it is asked
        yield outcome


async def _outcome(errand: Errand, stores: Stores, run: Run, *, dry_run: bool) -> BulkOutcome:
    try:
        await verify(errand.verifier, errand.actor, errand.action, tenant=run.tenant, run_id=run.run_id)
        await _refuse(errand.action, stores, run)
        if dry_run:
            return BulkOutcome(run, BulkResult.DUE)
        return BulkOutcome(await _acted(errand, run), BulkResult.DONE)
    except _Changed as changed:
        return BulkOutcome(run, BulkResult.CHANGED, changed.error)
    except StoreUnavailableError:
        raise
    except AdkError as error:
        return BulkOutcome(run, BulkResult.REFUSED, error)


class _Changed(Exception):  # noqa: N818 - a signal within this module
    def __init__(self, error: AdkError) -> None:
        super().__init__(str(error))
        self.error = error


async def _acted(errand: Errand, run: Run) -> Run:
    try:
        return await errand.act(run)
    except (RunStateError, RunNotFoundError) as error:
        # As it was seen, nothing in its state was in the way.
        raise _Changed(error) from error


async def _refuse(action: Action, stores: Stores, run: Run) -> None:
    """Refuse what the state of the run, as it was seen, does not allow."""
    if action is Action.CANCEL:
        if run.status not in STATUSES[action]:
            raise refusals.cancel_refused(run)
        return
    backs_off = run.status is RunStatus.QUEUED and run.attention is not None
    if not backs_off and run.status not in {RunStatus.FAILED, RunStatus.PARKED}:
        raise refusals.requeue_refused(run, stored=run.sequence)
    if run.behind:
        await stores.checkpoints.latest(run.run_id, tenant=run.tenant)  # raises what knows since when (C3)


async def _chosen(action: Action, stores: Stores, which: Which) -> AsyncIterator[Run]:
    if not isinstance(which, RunFilter):
        for run in which:
            yield run
        return
    statuses = STATUSES[action] if which.status is None else (which.status,)
    if not set(statuses) <= set(STATUSES[action]):
        known = ", ".join(status.value for status in STATUSES[action])
        raise ConfigurationError(f"{action.value} is for runs that are {known}, and not for one that is {which.status}")
    if action is not Action.RESUME:
        async for run in each_run(stores.runs, statuses, where=which):
            yield run
        return
    for status in statuses:
        of_these = replace(which, status=status)
        if status is RunStatus.QUEUED and which.attention is None:
            of_these = replace(of_these, attention=True)
        async for run in each_run(stores.runs, [status], where=of_these):
            yield run
