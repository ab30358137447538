"""What a worker program does once it consumes: it frees the runs that can go on because it has started."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Final

import structlog

from adk_worker.actors import Actor
from adk_worker.arrival import bury_predecessors, recall
from adk_worker.liveness import ProcessIdentity
from adk_worker.registry import Registry
from adk_worker.results import text_of
from adk_worker.runs import Stores
from adk_worker.transitions.runs import FleetPolicy
from tasks.dispatch import CeleryDispatcher

_THREAD: Final = "adk-arrival"

_log = structlog.get_logger(__name__)


class Arrival:
    """Looks once, in a thread that ends when it has; see :mod:`adk_worker.arrival`.

    Nothing here is ever raised to the program; what fails is left to the reaper and to the backoff.

    :param open_stores: opens a small bundle, to be closed again.
    :param make_dispatcher: makes one for this thread alone, to be closed again.
    :param registry: the agents of this worker; an empty one recalls nothing.
    :param no_forks: what to hold meanwhile, so that no child is forked.
    """

    def __init__(
        self,
        open_stores: Callable[[], Stores],
        make_dispatcher: Callable[[], CeleryDispatcher],
        policy: FleetPolicy,
        registry: Registry,
        *,
        no_forks: AbstractContextManager[None],
    ) -> None:
        self._no_forks = no_forks
        self._open_stores = open_stores
        self._make_dispatcher = make_dispatcher
        self._policy = policy
        self._registry = registry
        self._thread = threading.Thread(target=self._main, name=_THREAD, daemon=True)

    def start(self) -> None:
        """Begin to look. Returns at once; to be called once."""
        self._thread.start()

    def wait(self, timeout: float) -> None:
        """Wait up to ``timeout`` seconds until it is done."""
        self._thread.join(timeout)

    def _main(self) -> None:
        try:
            with self._no_forks:
                asyncio.run(self._look())
        except Exception as error:  # noqa: BLE001 - the worker works all the same
            _log.warning("arrival_cut_short", error=text_of(error))

    async def _look(self) -> None:
        async with AsyncExitStack() as closing:
            stores = self._open_stores()
            closing.push_async_callback(stores.lifecycle.close)
            dispatcher = self._make_dispatcher()
            closing.push_async_callback(dispatcher.close)
            recovered = await bury_predecessors(stores.runs, dispatcher, self._policy)
            recalled = 0
            if len(self._registry):
                by = Actor.here(f"worker:{ProcessIdentity.current().host}")
                recalled = await recall(stores.runs, dispatcher, self._policy, self._registry, by=by)
            _log.info("arrived", recovered=recovered, recalled=recalled)
