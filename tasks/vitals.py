"""How a worker keeps its :mod:`adk_worker.pulse`: from the loop in which it consumes, and from nowhere else.

No thread does it, which would go on while the loop hangs, and which the parent of a prefork pool had better not have.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from celery.worker import state

from adk_worker.errors import ConfigurationError
from adk_worker.liveness import Holder
from adk_worker.own_files import own_folder
from adk_worker.pulse import Phase, Pulse, PulseFile
from adk_worker.results import text_of
from adk_worker.settings import Settings

EVERY: Final = 2.0
"""How often the loop says that it turns, in s."""

_SLACK: Final = 3.0

_log = structlog.get_logger(__name__)


class Vitals:
    """The pulse of one worker program. All methods are called in its main thread.

    A pulse that cannot be written is logged once, and does the worker no harm.

    :param solo: it carries tasks out in its loop, which stands still meanwhile.
    """

    def __init__(self, settings: Settings, *, name: str, queues: tuple[str, ...], slots: int, solo: bool) -> None:
        silent = settings.socket_timeout
        # A loop that turns may wait for a few answers of the broker one after the other.
        beat_within = 3 * silent + EVERY + _SLACK
        self._file = PulseFile(settings.alive_dir or own_folder(), pid=os.getpid())
        self._told = False
        self._heard_at = now = time.monotonic()
        self._pulse = Pulse(
            name=name,
            process=str(Holder.new("worker")),
            queues=queues,
            slots=slots,
            beat_within=beat_within + (settings.iteration_timeout + settings.lease_ttl if solo else 0.0),
            # The heartbeats of RabbitMQ fail after two of these, a wait for Redis after one.
            heard_within=3 * silent + _SLACK,
            at=now,
            since=now,
        )

    def enter(self, phase: Phase) -> None:
        """The worker is in this phase from now on."""
        now = self._heard_at = time.monotonic()
        if phase is not self._pulse.phase:
            self._pulse = self._pulse.entering(phase, now=now)
            self._write()

    def hearing(self, on_readable: Callable[..., Any]) -> Callable[..., Any]:
        """The same handler of what comes from the broker, which takes note that something came."""

        def handle(*args: Any, **kwargs: Any) -> Any:
            self.heard()
            return on_readable(*args, **kwargs)

        return handle

    def heard(self) -> None:
        """The broker was heard."""
        self._heard_at = time.monotonic()

    def beat(self) -> None:
        """The loop turns."""
        running = len(state.active_requests)
        self._pulse = self._pulse.beating(
            now=time.monotonic(),
            heard_at=self._heard_at,
            started=state.all_total_count[0],
            running=running,
            in_hand=max(0, len(state.reserved_requests) - running),
        )
        self._write()

    def begin(self) -> None:
        """Say for the first time that there is a worker."""
        self._write()

    def end(self) -> None:
        """The worker is no more."""
        self._file.remove()

    def _write(self) -> None:
        try:
            self._file.write(self._pulse)
        except (OSError, ConfigurationError) as error:
            if not self._told:
                self._told = True
                _log.warning("pulse_not_written", error=text_of(error), hint="adk alive will not find this worker")
