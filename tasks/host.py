"""What a worker program has before it forks, and the process that each of its children makes of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn

import structlog
from celery import Celery
from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from adk_worker.errors import ConfigurationError, StoreUnavailableError
from adk_worker.providers import Providers
from adk_worker.registry import Registry
from adk_worker.runs import Stores
from adk_worker.settings import Settings
from stores import open_stores
from tasks.arrival import Arrival
from tasks.death import Undertaker
from tasks.dispatch import CeleryDispatcher
from tasks.drain import Drain, Watch
from tasks.forking import ForkLock
from tasks.process import WorkerProcess

EX_SOFTWARE: Final = 70
"""The exit code of a process that ended itself because it was stuck."""

_LONGEST_WAIT: Final = 30.0
_UNTIL_REPORTED: Final = 0.5
"""How long after its last step a child that was told to end lives, so that its parent hears of that step, in s."""

_TELLING: Final = 2.0

_log = structlog.get_logger(__name__)


class Host:
    """One per app; what is made here before a fork is inherited, what :meth:`process` makes is not."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self.settings = settings
        self.drain = Drain()
        self.dispatcher = CeleryDispatcher(app, timeout=settings.socket_timeout)
        self._no_forks = ForkLock(settings.store_url)
        self.undertaker = Undertaker(
            lambda: _small(settings), self.dispatcher, settings.fleet_policy, no_forks=self._no_forks
        )
        self._app = app
        self._registry: Registry | None = None
        self._arrival: Arrival | None = None
        self._main = os.getpid()
        self._slots: dict[int, _Slot] = {}

    def prepare(self, *, works: bool) -> None:
        """Check, before anything is consumed, what this worker needs, and wait until the store answers.

        ``works`` says whether it carries out runs, and so needs their agents.

        :raises ConfigurationError: it can never work as it is set up.
        """
        if self.settings.store_url.startswith("memory:"):
            raise ConfigurationError(
                "a store in memory is shared with no other process, so that no worker can serve it. Set ADK_STORE_URL "
                "to postgresql://…, redis://… or sqlite:///…"
            )
        self._registry = Registry()
        if works:
            if not self.settings.agents:
                raise ConfigurationError(
                    "ADK_AGENTS is not set: this worker consumes runs and would know none of their agents. Name the "
                    "modules that hold them, or consume adk.control alone (-Q adk.control)."
                )
            _ = self.settings.redactor  # each step will ask for it
            _look_here_too()
            self._registry = Registry.load(self.settings.agents)
            providers = Providers(self.settings.model_policy)
            for agent in self._registry:
                providers.check(agent.model)
            _log.info("agents_loaded", agents=", ".join(self._registry.names))
        self._await_store()

    def arrive(self) -> None:
        """Free the runs that can go on because this program has started: once, in the background."""
        if self._arrival is None:
            self._arrival = Arrival(
                lambda: _small(self.settings),
                lambda: CeleryDispatcher(self._app, timeout=self.settings.socket_timeout),
                self.settings.fleet_policy,
                self._registry or Registry(),
                no_forks=self._no_forks,
            )
            self._arrival.start()

    def process(self) -> WorkerProcess:
        """This process's own, made when it is first asked for."""
        pid = os.getpid()
        # A slot is made by whoever needs it, so that its lock was never held across a fork.
        slot = self._slots.get(pid) or self._slots.setdefault(pid, _Slot())
        with slot.lock:
            if slot.process is None:
                slot.process = self._make(slot)
            return slot.process

    def close(self) -> bool:
        """End this process's own, if there is one. Whether threads are left in which tools hang."""
        slot = self._slots.pop(os.getpid(), None)
        if slot is None or slot.process is None:
            return False
        if slot.watch is not None:
            slot.watch.stop()
        hanging = slot.process.close()
        asyncio.run(self.dispatcher.close())
        return hanging

    def _make(self, slot: _Slot) -> WorkerProcess:
        registry = Registry.load(self.settings.agents) if self._registry is None else self._registry
        process = WorkerProcess(self.settings, registry, dispatcher=self.dispatcher, on_stuck=_end)
        process.start()
        slot.watch = self.drain.watch(process.keeper.drain)
        if os.getpid() != self._main and threading.current_thread() is threading.main_thread():
            _Leaving(process).install()
        return process

    def _await_store(self) -> None:
        def said(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            _log.warning("store_away", error=str(error), again_in=round(state.upcoming_sleep, 1))

        waiting = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, StoreUnavailableError) and error.retryable),
            wait=wait_exponential(multiplier=0.5, max=_LONGEST_WAIT),
            before_sleep=said,
            sleep=_pause,
            reraise=True,
        )
        waiting(lambda: asyncio.run(_verify(self.settings)))


def _look_here_too() -> None:
    """Find agents in the working folder, as ``adk`` does; behind all else, so that nothing there hides a package."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


class _Slot:
    """What one process has of a host."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: WorkerProcess | None = None
        self.watch: Watch | None = None


class _Leaving:
    """SIGTERM to a child of prefork: it hands its run over, and only then ends as it would have ended at once.

    A worker's parent sends it on a cold shutdown, and a service manager that signals the whole group does. Its default
    would end the child in the middle of a call.
    """

    def __init__(self, process: WorkerProcess) -> None:
        self._process = process
        self._default: Any = None
        self._ending: asyncio.Task[None] | None = None

    def install(self) -> None:
        self._default = signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, self._default)
        self._process.call_soon(self._leave)

    def _leave(self) -> None:
        self._process.keeper.drain()
        self._ending = asyncio.create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        while self._process.keeper.busy:  # noqa: ASYNC110 - on its way out, and never for long
            await asyncio.sleep(_UNTIL_REPORTED / 10)
        await asyncio.sleep(_UNTIL_REPORTED)
        os.kill(os.getpid(), signal.SIGTERM)


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def _small(settings: Settings) -> Stores:
    """A bundle for a moment, with one connection."""
    return open_stores(
        settings.store_url,
        pool_size=1,
        socket_timeout=settings.socket_timeout,
        checkpoint_max_bytes=settings.checkpoint_max_bytes,
    )


async def _verify(settings: Settings) -> None:
    stores = _small(settings)
    try:
        await stores.lifecycle.verify()
    finally:
        await stores.lifecycle.close()


def _end(why: str) -> NoReturn:
    """End a process that nothing else can end: the thread in which to raise an exception is the one that is stuck."""
    # What is stuck may be the log itself, on a pipe that nobody reads.
    telling = threading.Thread(target=_tell, args=(why,), daemon=True)
    telling.start()
    telling.join(_TELLING)
    os._exit(EX_SOFTWARE)


def _tell(why: str) -> None:
    _log.critical("process_stuck", why=why)
    logging.shutdown()
