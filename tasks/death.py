"""What the parent of a prefork pool does when one of its children was killed: its run is taken over at once.

The parent alone learns of it, and it has the proof that the kit asks for (I11): it has waited for the child, on the
same host. So the run need not rest until its lease lapses.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import structlog

from adk_worker.liveness import Holder
from adk_worker.reaper import bury
from adk_worker.results import text_of
from adk_worker.runs import Stores
from adk_worker.transitions.runs import FleetPolicy
from tasks.dispatch import CeleryDispatcher

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Death:
    """A task whose process is gone. ``label`` is the task's id, by which the holder's name tells what it held."""

    tenant: str
    run_id: str
    label: str


class Undertaker:
    """Takes over the runs of dead children, in a thread that lives for as long as there are any.

    Neither the thread nor a connection is kept between deaths: the parent goes on forking children, and they should
    inherit as little as can be. Nothing here is ever raised to the parent; what fails is left to the reaper.

    :param open_stores: opens a small bundle, to be closed again.
    :param no_forks: what to hold meanwhile, so that no child is forked.
    """

    def __init__(
        self,
        open_stores: Callable[[], Stores],
        dispatcher: CeleryDispatcher,
        policy: FleetPolicy,
        no_forks: AbstractContextManager[None],
    ) -> None:
        self._open_stores = open_stores
        self._no_forks = no_forks
        self._dispatcher = dispatcher
        self._policy = policy
        self._deaths: queue.SimpleQueue[Death] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def report(self, death: Death) -> None:
        """See to it, soon. Returns at once."""
        self._deaths.put(death)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="adk-undertaker", daemon=True)
                self._thread.start()

    def wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until all that was reported has been seen to."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def _main(self) -> None:
        while (death := self._next()) is not None:
            try:
                with self._no_forks:
                    asyncio.run(self._all_from(death))
            except Exception as error:  # noqa: BLE001 - the parent's consumer must not notice, whatever it is
                _left_to_the_reaper(death, error)

    def _next(self) -> Death | None:
        with self._lock:
            try:
                return self._deaths.get_nowait()
            except queue.Empty:
                self._thread = None
                return None

    async def _all_from(self, death: Death | None) -> None:
        stores = self._open_stores()
        try:
            while death is not None:
                try:
                    await self._see_to(death, stores)
                except Exception as error:  # noqa: BLE001 - the next one's run is another's
                    _left_to_the_reaper(death, error)
                death = None if self._deaths.empty() else self._deaths.get_nowait()
        finally:
            await stores.lifecycle.close()
            await self._dispatcher.close()

    async def _see_to(self, death: Death, stores: Stores) -> None:
        run = await stores.runs.get(death.run_id, tenant=death.tenant)
        holder = None if run is None or run.holder is None else Holder.parse(run.holder)
        if run is None or run.holder is None or holder is None:
            return  # handed over, or at rest
        if holder.label != Holder.new(death.label).label or not holder.process.known_dead():
            return  # somebody else's by now
        message = await bury(
            stores.runs, self._dispatcher, self._policy, tenant=death.tenant, run_id=death.run_id, holder=run.holder
        )
        _log.warning("child_died", tenant=death.tenant, run_id=death.run_id, carried_on=message is not None)


def _left_to_the_reaper(death: Death, error: Exception) -> None:
    _log.warning("death_left_to_the_reaper", tenant=death.tenant, run_id=death.run_id, error=text_of(error))
