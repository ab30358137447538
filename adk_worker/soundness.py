"""Whether what is stored can be loaded: asked of every run that may still be carried on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from adk_worker.checkpoint import decode_checkpoint
from adk_worker.errors import AdkError, CheckpointError, NoCheckpointError
from adk_worker.inspection import missing_history
from adk_worker.runs import Run, RunStatus, Stores
from adk_worker.walk import each_run

_OPEN: Final = tuple(status for status in RunStatus if status not in {RunStatus.COMPLETED, RunStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class Examined:
    """A run that is not over, and what keeps its frontier or its transcript from being loaded, if anything does."""

    run: Run
    error: AdkError | None


async def examine(stores: Stores) -> AsyncIterator[Examined]:
    """Load the frontier and the transcript of every run that is not over. Takes no lease and changes nothing.

    A run that moves meanwhile is met once.
    """
    async for run in each_run(stores.runs, _OPEN):
        yield Examined(run, await _unloadable(stores, run))


async def _unloadable(stores: Stores, run: Run) -> AdkError | None:
    payload = await stores.runs.payload(run.run_id, tenant=run.tenant)
    if payload is None:
        now = await stores.runs.get(run.run_id, tenant=run.tenant)
        # One without a boundary begins from its input, one that went over the cap has no frontier (C3), and one that
        # is over by now needs none.
        if now is None or now.sequence == 0 or now.behind or now.status not in _OPEN:
            return None
        return NoCheckpointError(tenant=run.tenant, run_id=run.run_id)
    try:
        frontier = decode_checkpoint(payload)
    except CheckpointError as error:
        return error
    return await missing_history(frontier, stores)
