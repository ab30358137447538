"""One process of a worker: its event loop, its stores, its keeper, and the steps that run there.

Made after the fork, when the first task asks for it. Celery's own threads submit to the loop and wait; sync tools have
threads of their own, and so has the store, so that neither waits behind the other.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import structlog

from adk_worker.errors import BrokerUnavailableError, StoreUnavailableError
from adk_worker.keeping.keeper import LeaseKeeper, RenewMany
from adk_worker.keeping.roster import LAST_WORDS
from adk_worker.lease import RunLease
from adk_worker.providers import Providers
from adk_worker.reaper import SweepReport, sweep
from adk_worker.registry import Registry
from adk_worker.results import text_of
from adk_worker.runs import Dispatch, Renewal, RunStore, Stores
from adk_worker.settings import Settings
from adk_worker.steps import Dispatcher, Stepper
from stores import open_stores

T = TypeVar("T")

_KEEPER_POOL: Final = 2
"""The keeper's connections: one renewal is under way at a time, and one may have been given up without an answer."""

_TOOLS: Final = "adk-tool"
_PAUSE: Final = 1.0

_log = structlog.get_logger(__name__)


class WorkerProcess:
    """Carries out the messages of one process.

    :param on_stuck: ends the process; called with the reason in the keeper's thread (L8).
    """

    def __init__(
        self,
        settings: Settings,
        registry: Registry,
        *,
        dispatcher: Dispatcher,
        on_stuck: Callable[[str], None],
    ) -> None:
        self._policy = settings.fleet_policy
        # Where sweeps are further apart than a TTL, such a gap is the rule, and says nothing about an outage.
        self._gap = max(settings.lease_ttl, 3 * settings.reap_every)
        self._dispatcher = dispatcher
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_loop_exception)
        self._on_stuck = on_stuck
        self._thread = threading.Thread(target=self._main, name="adk-loop", daemon=True)
        self._stores = _open(settings, pool_size=settings.store_pool)
        self._providers = Providers(settings.model_policy)
        self._tools = ThreadPoolExecutor(settings.tool_threads, thread_name_prefix=_TOOLS)
        kept = _open(settings, pool_size=_KEEPER_POOL)
        self.keeper = LeaseKeeper(
            _renewal(kept.runs, settings.lease_ttl),
            policy=settings.lease_policy,
            on_stuck=on_stuck,
            iteration_timeout=settings.iteration_timeout,
            drain_timeout=settings.drain_timeout,
            loop=self._loop,
            aclose=kept.lifecycle.close,
        )
        self._stepper = Stepper(
            stores=self._stores,
            registry=registry,
            dispatcher=dispatcher,
            watch=self.keeper,
            policy=self._policy,
            checkpoint_max_bytes=settings.checkpoint_max_bytes,
            continuation=settings.continuation_policy,
            tool_executor=self._tools,
            providers=self._providers,
            redactor=settings.redactor,
            tool_result_max_bytes=settings.tool_result_max_bytes,
            approval_expires=settings.approval_expires,
        )

    def start(self) -> None:
        """Start the loop and the keeper."""
        self._thread.start()
        self.keeper.start()

    def carry_out(self, message: Dispatch, *, label: str) -> str:
        """Carry out one message, blocking the calling thread, which is Celery's; return what came of it.

        ``label`` is the task's id.
        """
        work = self._pass_on(message) if self.keeper.draining else self._step(message, label)
        return self._run(work)

    def reap(self) -> SweepReport | None:
        """Sweep, blocking the calling thread; ``None`` while the store is away."""
        try:
            return self._run(sweep(self._stores.runs, self._dispatcher, self._policy, gap=self._gap))
        except StoreUnavailableError as error:
            _log.warning("not_swept", error=str(error))
            return None

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Have ``callback`` run in the loop. From any thread, and from a signal handler."""
        self._loop.call_soon_threadsafe(callback, *args)

    def close(self) -> bool:
        """End it once no step runs any more. Outcomes of calls that outlived their time-out are waited for (F4).

        Returns whether something is left that does not end: a tool's thread, or the loop. Python cannot stop a thread.
        """
        try:
            self._run(self._stepper.settle_late(LAST_WORDS), timeout=2 * LAST_WORDS)
            self.keeper.stop(LAST_WORDS)
            self._run(self._providers.close(), timeout=LAST_WORDS)
            self._run(self._stores.lifecycle.close(), timeout=LAST_WORDS)
        except TimeoutError:
            return True
        self._tools.shutdown(wait=False, cancel_futures=True)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LAST_WORDS)
        return self._thread.is_alive() or _tools_hang()

    async def _step(self, message: Dispatch, label: str) -> str:
        return (await self._stepper.step(message, label=label)).value

    async def _pass_on(self, message: Dispatch) -> str:
        """Leave a message, ticket unspent, to a process that is not leaving.

        This one's consumer may not have stopped yet and bring it back at once, hence the pause: it keeps one slot
        occupied for a moment, and the message from going in circles.
        """
        try:
            await self._dispatcher.dispatch(message)
        except BrokerUnavailableError as error:
            _log.warning("dispatch_failed", run_id=message.run_id, ticket=message.ticket, error=str(error))
        await asyncio.sleep(_PAUSE)
        return "passed_on"

    def _run(self, work: Coroutine[Any, Any, T], *, timeout: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _main(self) -> None:
        try:
            self._loop.run_forever()
        except BaseException as error:
            # A SystemExit that somebody raised in the loop. All that waits for it would wait for ever.
            try:
                _log.exception("loop_died")
            finally:  # the log may be what is broken
                self._on_stuck(f"the event loop died: {text_of(error)}")
            raise
        finally:
            self._loop.close()


def _tools_hang() -> bool:
    return any(thread.name.startswith(_TOOLS) for thread in threading.enumerate())


def _open(settings: Settings, *, pool_size: int) -> Stores:
    return open_stores(
        settings.store_url,
        pool_size=pool_size,
        socket_timeout=settings.socket_timeout,
        checkpoint_max_bytes=settings.checkpoint_max_bytes,
    )


def _renewal(runs: RunStore, ttl_seconds: float) -> RenewMany:
    async def renew_many(leases: Sequence[RunLease]) -> Sequence[Renewal]:
        return await runs.renew_many(leases, ttl_seconds=ttl_seconds)

    return renew_many


def _loop_exception(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    _log.error("loop_exception", said=context.get("message"), error=text_of(error) if error else None, exc_info=error)
