"""Publishing on Celery's broker: :class:`CeleryDispatcher`.

Kombu's publish blocks, for as long as a time-out when the broker is away, so it is done by threads of the dispatcher's
own, each on a connection of its own, and never in an event loop. A process that was forked makes new ones.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from celery import Celery

from adk_worker.errors import BrokerUnavailableError
from adk_worker.results import text_of
from adk_worker.runs import Dispatch
from adk_worker.settings import Settings
from adk_worker.urls import without_secrets
from tasks.config import celery_config
from tasks.envelope import encode, shown, task_name
from tasks.refusals import other_queue_type

_THREADS: Final = 4
"""Each publishes in about a millisecond; more than one, so that a single slow answer holds up nothing else."""


class CeleryDispatcher:
    """A :class:`~adk_worker.steps.Dispatcher` over a Celery app, for workers and web apps alike.

    Usable from any event loop and thread, and across a fork. ``timeout`` is how long a message is waited for, in
    seconds; one that is under way then may still arrive, which does no harm.
    """

    def __init__(self, app: Celery, *, timeout: float) -> None:
        self._app = app
        self._timeout = timeout
        self._by_process: dict[int, _Publishers] = {}

    @classmethod
    def from_settings(cls, settings: Settings) -> CeleryDispatcher:
        """A dispatcher with an app of its own, for a process that is no worker. Nothing is connected yet.

        :raises ConfigurationError: no broker is set.
        """
        app = Celery("adk", set_as_current=False, config_source=celery_config(settings))
        return cls(app, timeout=settings.socket_timeout)

    async def dispatch(self, message: Dispatch) -> None:
        """Publish ``message``.

        :raises BrokerUnavailableError: the broker did not take it in time.
        """
        publishing = self._publishers().submit(message)
        try:
            await asyncio.wait_for(asyncio.wrap_future(publishing), self._timeout)
        except TimeoutError as error:
            reason = f"no answer within {self._timeout:g} s"
            raise BrokerUnavailableError(broker=self._broker, reason=reason) from error
        except Exception as error:
            reason = other_queue_type(error) or text_of(error)
            raise BrokerUnavailableError(broker=self._broker, reason=without_secrets(reason)) from error

    async def close(self) -> None:
        """Close this process's connections and end its threads."""
        publishers = self._by_process.pop(os.getpid(), None)
        if publishers is not None:
            await asyncio.to_thread(publishers.close)

    @property
    def _broker(self) -> str:
        return without_secrets(str(self._app.conf.broker_url))

    def _publishers(self) -> _Publishers:
        # No lock, which a fork could copy while it is held. What a parent made stays: a child must not even close it.
        pid = os.getpid()
        return self._by_process.get(pid) or self._by_process.setdefault(pid, _Publishers(self._app))


class _Publishers:
    """The publishing threads of one process. Nothing is started or connected before the first message."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="adk-publish")
        self._mine = threading.local()
        self._connections: list[Any] = []

    def submit(self, message: Dispatch) -> Future[None]:
        return self._threads.submit(self._publish, message)

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.release()

    def _publish(self, message: Dispatch) -> None:
        self._app.send_task(
            task_name(message),
            kwargs=encode(message),
            # What Flower and the logs show.
            argsrepr="()",
            kwargsrepr=shown(message),
            producer=self._producer(),
            ignore_result=True,
            add_to_parent=False,
        )

    def _producer(self) -> Any:
        producer = getattr(self._mine, "producer", None)
        if producer is None:
            connection = self._app.connection_for_write()
            self._connections.append(connection)
            producer = self._mine.producer = self._app.amqp.Producer(connection, auto_declare=False)
        return producer
