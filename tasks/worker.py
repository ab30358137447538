"""The worker program: Celery's own, which checks what it needs before it consumes, and drains as it leaves."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any, Final

import structlog
from billiard.exceptions import WorkerLostError
from celery import signals
from celery.apps.worker import Worker
from celery.concurrency.solo import TaskPool
from click import ClickException

from adk_worker.errors import ConfigurationError, StoreRefusedError, UnreadableMessageError
from adk_worker.pulse import Phase
from tasks.config import WORK_QUEUE
from tasks.consumer import FleetConsumer
from tasks.death import Death
from tasks.envelope import ADVANCE, RESUME, decode
from tasks.host import Host
from tasks.logs import configure_logging
from tasks.refusals import EX_CONFIG
from tasks.vitals import EVERY, Vitals

_LOOK_FOR_DEATHS: Final = 0.5

_FAREWELLS: Final = 8.0
"""How long after the end of the drain a worker may still be there, in s: within the ten that a platform is to allow."""

_log = structlog.get_logger(__name__)


class NotUsableError(ClickException, ConfigurationError):
    """What is configured cannot be used; Celery's command line prints it without a traceback."""

    exit_code = EX_CONFIG


class FleetWorker(Worker):
    """``celery -A tasks.app worker``."""

    vitals: Vitals
    _deaths: Any = None
    _last_resort: threading.Timer | None = None
    _beats: Any = None

    @property
    def _host(self) -> Host:
        host: Host = self.app.host
        return host

    def on_init_blueprint(self) -> None:
        """Prepare, in the parent, once there is a log and before anything is forked or consumed."""
        super().on_init_blueprint()
        configure_logging()
        if self.pool_cls.is_green:
            raise NotUsableError(
                "pools of greenlets (gevent, eventlet) patch what a worker's event loop stands on. Use -P threads, "
                "which is made for many slow calls at once, or -P prefork, or -P solo."
            )
        self.vitals = Vitals(
            self._host.settings,
            name=self.hostname,
            queues=tuple(self.app.amqp.queues.consume_from),
            slots=self.concurrency,
            solo=self.pool_cls is TaskPool,
        )
        self.vitals.begin()
        try:
            self._host.prepare(works=WORK_QUEUE in self.app.amqp.queues.consume_from)
        except (ConfigurationError, StoreRefusedError) as error:
            raise NotUsableError(str(error)) from error

    def on_start(self) -> None:
        """Listen to what the program is told, from here to its end."""
        super().on_start()
        signals.worker_shutting_down.connect(self._on_shutting_down, weak=False)
        signals.worker_process_shutdown.connect(self._on_child_shutdown, weak=False)
        signals.task_failure.connect(self._on_task_failure, weak=False)

    def register_with_event_loop(self, hub: Any) -> None:
        """Hear of a drain at once, and look after the children of a prefork pool more often than that does by itself.

        It looks when a child's pipe closes, which is a moment before the child can be waited for, and may then notice
        nothing until its own timer, five seconds later.
        """
        super().register_with_event_loop(hub)
        # Told to leave, the loop would look up with the next message only: one, perhaps, that was just handed over.
        hub.add_reader(self._host.drain, hub.remove, self._host.drain)
        maintain = getattr(self.pool, "maintain_pool", None)
        if self._deaths is not None:
            self._deaths.cancel()
        if maintain is not None:
            self._deaths = hub.call_repeatedly(_LOOK_FOR_DEATHS, maintain)
        if self._beats is not None:
            self._beats.cancel()
        self.vitals.enter(Phase.CONSUMING)
        self._beats = hub.call_repeatedly(EVERY, self.vitals.beat)

    def on_consumer_ready(self, consumer: Any) -> None:
        """Say that it is ready, and free the runs that waited for it: now the broker takes their messages."""
        super().on_consumer_ready(consumer)
        self._host.arrive()

    def start(self) -> None:
        """Run until told to stop."""
        super().start()
        self.vitals.end()
        if self._host.close():
            _log.warning("left_with_tools_running")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(self.exitcode or 0)

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None) -> None:  # noqa: FBT001, FBT002 - Celery's
        """Leave when all work has been handed over."""
        self._host.drain.send()
        self.vitals.enter(Phase.LEAVING)
        if not in_sighandler and isinstance(self.consumer, FleetConsumer):
            self.consumer.stop_taking()
        super().stop(in_sighandler=in_sighandler, exitcode=exitcode)

    def terminate(self, in_sighandler: bool = False) -> None:  # noqa: FBT001, FBT002 - Celery's
        """Leave sooner."""
        self._host.drain.send()
        super().terminate(in_sighandler=in_sighandler)

    def _on_shutting_down(self, **_: Any) -> None:
        # In a signal's handler: the solo pool would come to `stop` only once its task has ended.
        self._host.drain.send()
        if self._last_resort is None:
            self._last_resort = threading.Timer(self._host.settings.drain_timeout + _FAREWELLS, self._leave)
            self._last_resort.daemon = True
            self._last_resort.start()

    def _leave(self) -> None:
        """End, whatever is still waited for: the work has been handed over by now, or has ended itself (L8).

        What is left is to take leave of a broker that may have fallen silent, a time-out for each of some ten requests.
        """
        _log.warning("left_without_farewell")
        self.vitals.end()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.exitcode or 0)

    def _on_child_shutdown(self, **_: Any) -> None:
        self._host.close()

    def _on_task_failure(self, sender: Any = None, exception: Any = None, **said: Any) -> None:
        if not isinstance(exception, WorkerLostError) or sender.name not in {ADVANCE, RESUME}:
            return
        try:
            message = decode(said["args"], said["kwargs"], recovery=False)
        except UnreadableMessageError:
            return
        self._host.undertaker.report(Death(message.tenant, message.run_id, said["task_id"]))
