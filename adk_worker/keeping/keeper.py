"""The keeper of a process's leases: one thread that renews them all, whatever the work does meanwhile (L8).

It runs an event loop of its own, on which the injected ``renew_many`` is awaited; give that a store connection of its
own. So neither a tool that blocks the work's loop nor a busy connection pool delays a renewal. In return it watches the
work: its loop by a heartbeat, every iteration by its age, and the whole when the process has to leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from adk_worker.errors import StoreUnavailableError
from adk_worker.interruption import Interruption
from adk_worker.keeping.roster import Roster
from adk_worker.lease import LeasePolicy, RunLease
from adk_worker.log import get_logger
from adk_worker.results import text_of
from adk_worker.runs import Renewal

RenewMany: TypeAlias = Callable[[Sequence[RunLease]], Awaitable[Sequence[Renewal]]]

_LONGEST_TURN: Final = 1.0

_log = get_logger(__name__)


class LeaseKeeper:
    """Renews leases and tells their work when to stop; a :class:`~adk_worker.steps.LeaseWatch`.

    :param renew_many: renews a batch; the answers are in its order.
    :param on_stuck: called with the reason, in the keeper's thread, once the process must end (L8); called again if
        the process does not.
    :param iteration_timeout: how long an iteration may take and ``loop`` stay silent; ``None`` is for ever (L8).
    :param drain_timeout: how long calls in flight are waited for once the process is leaving.
    :param loop: the loop in which the work runs, to be watched by a heartbeat.
    :param aclose: awaited in the keeper's loop when it stops.
    :param clock: monotonic, in seconds.
    """

    def __init__(
        self,
        renew_many: RenewMany,
        *,
        policy: LeasePolicy,
        on_stuck: Callable[[str], None],
        iteration_timeout: float | None = None,
        drain_timeout: float = math.inf,
        loop: asyncio.AbstractEventLoop | None = None,
        aclose: Callable[[], Awaitable[None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._renew_many = renew_many
        self._renew_within = policy.renew_within
        self._pause = min(policy.renew_within / 4, _LONGEST_TURN)
        self._roster = Roster(policy, iteration_timeout=iteration_timeout, drain_timeout=drain_timeout)
        self._on_stuck = on_stuck
        self._loop = loop
        self._aclose = aclose
        self._clock = clock
        self._renewing: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._wake: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._main, name="adk-keeper", daemon=True)

    # --- from any thread ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop renewing, and wait up to ``timeout`` seconds until the thread has ended."""
        self._stop.set()
        with contextlib.suppress(RuntimeError):  # its loop is closed already
            self._wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def enter(self, lease: RunLease, interruption: Interruption, *, since: float | None = None) -> None:
        """Renew ``lease`` from now on. ``since`` is when it was asked for, by the keeper's clock, if that is known."""
        self._roster.enter(lease, interruption, now=self._clock(), since=since)

    def leave(self, lease: RunLease) -> None:
        """Renew it no more. Harmless for a lease that is not kept."""
        self._roster.leave(lease)

    def lost(self, lease: RunLease) -> str | None:
        """Why ``lease`` must not be relied on any more, ``None`` while it may be. Asks the clock, not the thread."""
        return self._roster.lost(lease, now=self._clock())

    @property
    def busy(self) -> bool:
        """Whether anything is kept."""
        return len(self._roster) > 0

    @property
    def draining(self) -> bool:
        """Whether the process is leaving."""
        return self._roster.draining

    def drain(self) -> None:
        """The process is leaving: have all work hand over, what enters later too; after a while, cancel it."""
        self._roster.drain(now=self._clock())

    # --- in the keeper's thread ---------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Do what is due now. A renewal that the store does not answer holds nothing else up."""
        now = self._clock()
        self._beat(now)
        stuck = self._roster.look(now=now)
        if stuck is not None:
            self._on_stuck(stuck)
        if self._renewing is None or self._renewing.done():
            leases = self._roster.due(now + self._pause)
            self._renewing = asyncio.create_task(self._renew(leases)) if leases else None

    async def _renew(self, leases: Sequence[RunLease]) -> None:
        sent_at = self._clock()
        try:
            async with asyncio.timeout(self._renew_within):
                renewals = await self._renew_many(leases)
            self._roster.renewed(leases, renewals, sent_at=sent_at)
        except (StoreUnavailableError, TimeoutError) as error:
            _log.warning("leases_not_renewed", leases=len(leases), error=text_of(error))
            self._roster.failed(leases, now=self._clock())
        except Exception as error:  # noqa: BLE001 - a keeper that dies of a store's mistake would keep nothing
            _log.exception("renewal_broken", leases=len(leases), error=text_of(error))
            self._roster.failed(leases, now=self._clock())

    def _beat(self, now: float) -> None:
        if self._loop is not None:
            self._roster.beat_sent(now=now)
            with contextlib.suppress(RuntimeError):  # closed: the work is over
                self._loop.call_soon_threadsafe(self._roster.beat_heard)

    def _main(self) -> None:
        try:
            asyncio.run(self._keep())
        except BaseException as error:
            try:
                _log.exception("keeper_died")
            finally:  # the log may be what is broken
                self._on_stuck(f"the keeper of leases died: {text_of(error)}")
            raise

    async def _keep(self) -> None:
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        try:
            while not self._stop.is_set():
                await self.turn()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(woken.wait(), self._pause)
        finally:
            if self._renewing is not None:
                self._renewing.cancel()
                await asyncio.wait({self._renewing})
            await self._close()

    async def _close(self) -> None:
        if self._aclose is None:
            return
        try:
            await self._aclose()
        except Exception as error:  # noqa: BLE001 - nothing is kept any more: no reason to end the process for
            _log.warning("keeper_not_closed", error=text_of(error))
