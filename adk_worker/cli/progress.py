"""How a run that is waited for shows itself: one live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final, Protocol

from adk_worker.cli.output import note
from adk_worker.client import Fleet
from adk_worker.describe import describe_event
from adk_worker.errors import StoreUnavailableError, WaitTimeoutError
from adk_worker.events import Event
from adk_worker.liveness import short_name
from adk_worker.printable import printable
from adk_worker.runs import Run, RunStatus

_FIRST_LOOK: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_OUTAGE: Final = 60.0
"""For how many seconds a store that is away is waited for, unless a time-out says less."""
_QUIET: Final = 10.0
"""After so many seconds in the queue in which nothing happens, it is said that nobody takes the run."""


class Show(Protocol):
    """Shows what was seen of a run."""

    def event(self, event: Event) -> None:
        """Something happened."""
        ...

    def standing(self, run: Run) -> None:
        """This is how it stands."""
        ...

    def untaken(self, run: Run) -> None:
        """It is queued, and has been for long enough that somebody should know."""
        ...


async def follow(
    fleet: Fleet,
    run_id: str,
    *,
    tenant: str,
    timeout: float | None,
    show: Show | None = None,
    outage: float | None = None,
) -> Run:
    """Show how the run goes until it rests, and return it then.

    :param show: what shows it; on the standard error by default.
    :param outage: for how many seconds a store that is away is waited for; a minute by default.
    :raises WaitTimeoutError: ``timeout`` seconds are over.
    :raises StoreUnavailableError: the store has been away for too long.
    """
    patience = _OUTAGE if outage is None else outage
    with nullcontext(show) if show is not None else _shown() as shows:
        watching = asyncio.timeout(timeout)
        try:
            async with watching:
                return await _watch(fleet, run_id, tenant=tenant, show=shows, outage=patience)
        except TimeoutError:
            if watching.expired() and timeout is not None:
                raise WaitTimeoutError.of_run(run_id, timeout) from None
            raise


async def _watch(fleet: Fleet, run_id: str, *, tenant: str, show: Show, outage: float) -> Run:
    after, pause = 0, _FIRST_LOOK
    away_since: float | None = None
    quiet_since: float | None = time.monotonic()
    while True:
        try:
            run = await fleet.get(run_id, tenant=tenant)
            show.standing(run)
            seen = after
            async for event in fleet.events(run_id, tenant=tenant, after=after):
                after = event.id
                show.event(event)
            away_since = None
            if run.status.resting:
                return run
            if after > seen or run.status is not RunStatus.QUEUED:
                quiet_since = time.monotonic()
            elif quiet_since is not None and time.monotonic() - quiet_since >= _QUIET:
                show.untaken(run)
                quiet_since = None  # said once, until something happens
            pause = _FIRST_LOOK if after > seen else min(pause * 1.5, _LONGEST_PAUSE)
        except StoreUnavailableError as error:
            if not error.retryable:
                raise
            now = time.monotonic()
            if away_since is None:
                note(f"note: {error} Waiting for it.")
                away_since = now
            if now - away_since >= outage:
                raise
            pause = _LONGEST_PAUSE
        await asyncio.sleep(pause)


@contextmanager
def _shown() -> Iterator[Show]:
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    with console.status(Text("submitted")) as status:

        class Live:
            def event(self, event: Event) -> None:
                """One line holds how it stands, and nothing else."""

            def standing(self, run: Run) -> None:
                status.update(Text(standing_line(run)))

            def untaken(self, run: Run) -> None:
                console.print(untaken_note(run), style="yellow")

        yield Live()


class _Lines:
    def event(self, event: Event) -> None:
        note(describe_event(event))

    def standing(self, run: Run) -> None:
        """Its events say it."""

    def untaken(self, run: Run) -> None:
        note(untaken_note(run))


def untaken_note(run: Run) -> str:
    """What to say of a run that waits in the queue."""
    return f"note: no worker takes {printable(run.run_id)}: does one run, does it know the agent, or is it busy?"


def standing_line(run: Run) -> str:
    """How a live run stands, in one line."""
    parts = [printable(run.run_id), run.status.value]
    if run.status is RunStatus.RUNNING and run.holder:
        parts.append(f"on {printable(short_name(run.holder))}")
    parts.append(f"iteration {run.iteration}, {run.usage.input_tokens} in, {run.usage.output_tokens} out")
    if run.attention is not None:
        parts.append(f"in its way: {run.attention.value}")
    if run.crashes:
        parts.append(f"crashes: {run.crashes}")
    return "  ".join(parts)
