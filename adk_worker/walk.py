"""Every run of certain statuses, read beside a fleet that moves them from one status to another."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Final

from adk_worker.filters import RunFilter
from adk_worker.runs import Run, RunStatus, RunStore

_PAGE: Final = 100
_ROUNDS: Final = 4


async def each_run(
    runs: RunStore, statuses: Sequence[RunStatus], *, where: RunFilter | None = None
) -> AsyncIterator[Run]:
    """Each run of these statuses once, as it was when it was met; newest first within a status. Only reads.

    ``where`` says what else they have to be.

    One status is read after the other, and a run that is taken and handed over meanwhile may be in neither when it is
    looked for there. So the statuses between which runs move by themselves are read again, until nobody new is met and
    in four rounds at most: to be passed over, a run has to have been elsewhere at every look.
    """
    moving = [status for status in statuses if not status.resting]
    met: set[tuple[str, str]] = set()
    look_at = tuple(statuses)
    for again in range(_ROUNDS):
        before = len(met)
        for status in look_at:
            async for run in _of(runs, replace(where or RunFilter(), status=status)):
                name = (run.tenant, run.run_id)
                if name not in met:
                    if status in moving:  # of those that rest there may be any number
                        met.add(name)
                    yield run
        look_at = tuple(moving)
        if again and len(met) == before:
            return


async def _of(runs: RunStore, which: RunFilter) -> AsyncIterator[Run]:
    cursor: str | None = None
    while True:
        page, cursor = await runs.list(which, limit=_PAGE, after=cursor)
        for run in page:
            yield run
        if cursor is None:
            return
