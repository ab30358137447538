"""How ``adk watch`` looks, and what it shows of what it sees."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from adk_worker.cli.exits import ExitCode
from adk_worker.cli.output import check_reader, counted, emit, note, say
from adk_worker.cli.progress import follow, untaken_note
from adk_worker.cli.report import event_object, run_object
from adk_worker.cli.runs import table
from adk_worker.client import Fleet
from adk_worker.describe import describe, describe_event
from adk_worker.errors import StoreUnavailableError
from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.printable import printable, time_of
from adk_worker.runs import Run, RunStatus

if TYPE_CHECKING:
    from rich.live import Live

# --- one run --------------------------------------------------------------------------------------------------------


class _Events:
    """Shows a run's events, a line each."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def event(self, event: Event) -> None:
        if self._as_json:
            emit({"event": event_object(event), "run": None})
        else:
            say(describe_event(event))

    def standing(self, run: Run) -> None:
        """Its events say it. They may be long in coming."""
        check_reader()

    def untaken(self, run: Run) -> None:
        note(untaken_note(run))


async def watch_one(fleet: Fleet, run_id: str, *, tenant: str, as_json: bool) -> ExitCode:
    """Show a run's events until it rests, and then how it stands; return the exit code.

    :raises RunNotFoundError: there is no such run.
    """
    run = await follow(fleet, run_id, tenant=tenant, timeout=None, show=_Events(as_json=as_json), outage=math.inf)
    if as_json:
        emit({"event": None, "run": run_object(run)})
    else:
        say(describe(run))
    return ExitCode.DONE if run.status is RunStatus.COMPLETED else ExitCode.NOT_COMPLETED


# --- all of them ----------------------------------------------------------------------------------------------------


class _View(Protocol):
    """Shows the runs that were seen, and that the store is away."""

    def seen(self, runs: Sequence[Run], changed: Sequence[Run]) -> None:
        """These are there, in order; of these and of those that are not among them any more, these have changed."""
        ...

    def away(self, error: StoreUnavailableError, seconds: float) -> None:
        """The store has not answered for so long."""
        ...


async def watch_all(fleet: Fleet, where: RunFilter, *, limit: int, every: float, as_json: bool) -> None:
    """Show the newest runs, and what changes of them, for ever."""
    known: dict[tuple[str, str], tuple[object, ...]] = {}
    away_since: float | None = None
    with _view(as_json=as_json) as view:
        while True:
            check_reader()
            try:
                runs = await _newest(fleet, where, limit)
                gone = await _gone(fleet, known, runs)
                away_since = None
                changed = [run for run in (*reversed(runs), *gone) if known.get(_name(run)) != _standing(run)]
                known = {_name(run): _standing(run) for run in (*runs, *gone)}
                view.seen(runs, changed)
            except StoreUnavailableError as error:
                if not error.retryable:
                    raise
                away_since = away_since or time.monotonic()
                view.away(error, time.monotonic() - away_since)
            await asyncio.sleep(every)


async def _newest(fleet: Fleet, where: RunFilter, limit: int) -> list[Run]:
    found: list[Run] = []
    async for run in fleet.list(where):
        found.append(run)
        if len(found) >= limit:
            break
    return found


async def _gone(fleet: Fleet, known: dict[tuple[str, str], tuple[object, ...]], runs: Sequence[Run]) -> list[Run]:
    """Those that were seen and are not listed any more, as they stand and only if they have changed."""
    listed = {_name(run) for run in runs}
    found: list[Run] = []
    for tenant, run_id in known.keys() - listed:
        run = await fleet.stores.runs.get(run_id, tenant=tenant)
        if run is not None and _standing(run) != known[tenant, run_id]:
            found.append(run)
    return found


def _name(run: Run) -> tuple[str, str]:
    return run.tenant, run.run_id


def _standing(run: Run) -> tuple[object, ...]:
    return run.status, run.attention, run.sequence, run.crashes, run.cancel_requested


@contextmanager
def _view(*, as_json: bool) -> Iterator[_View]:
    if as_json or not sys.stdout.isatty():
        yield _Lines(as_json=as_json)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(markup=False, highlight=False, emoji=False)
    with Live(console=console, auto_refresh=False) as live:
        yield _Table(live)


class _Lines:
    """A line for each change; where nobody looks at a terminal, and for programs."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told_away = False

    def seen(self, runs: Sequence[Run], changed: Sequence[Run]) -> None:
        if self._told_away:
            note("note: the store answers again")
            self._told_away = False
        for run in changed:
            if self._as_json:
                emit({"event": None, "run": run_object(run)})
            else:
                say(line(run))

    def away(self, error: StoreUnavailableError, seconds: float) -> None:
        if not self._told_away:
            note(f"note: {error} Waiting for it.")
            self._told_away = True


class _Table:
    """A table that is drawn again and again, with the time of what it shows on a line below it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._shown = "nothing was seen yet"

    def seen(self, runs: Sequence[Run], changed: Sequence[Run]) -> None:
        self._shown = table(runs) if runs else "no such runs"
        self._draw(f"{counted(len(runs), 'run')} at {time_of(time.time())}; Ctrl-C ends this")

    def away(self, error: StoreUnavailableError, seconds: float) -> None:
        self._draw(printable(f"as it was {seconds:.0f} s ago: {error} Waiting for it."))

    def _draw(self, below: str) -> None:
        from rich.text import Text

        self._live.update(Text(f"{self._shown}\n{below}"), refresh=True)


def line(run: Run) -> str:
    """How a run stands, on one line."""
    parts = [time_of(run.updated_at), printable(run.tenant), printable(run.run_id), printable(run.agent)]
    parts.append(run.status.value + (f" ({run.attention.value})" if run.attention else ""))
    parts.append(f"iteration {run.iteration}")
    return "  ".join(parts)
