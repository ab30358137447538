"""Celery's consumer, which outlives the loss of its broker whatever the transport makes of that."""

from __future__ import annotations

from typing import Any, Final

import structlog
from amqp.exceptions import AccessRefused
from celery.exceptions import WorkerShutdown
from celery.utils.threads import bound_open_broker_sockets
from celery.worker.consumer import Consumer
from celery.worker.state import reserved_requests
from kombu.transport.virtual import Transport

from adk_worker.pulse import Phase
from adk_worker.results import text_of
from tasks.refusals import EX_CONFIG, other_queue_type
from tasks.vitals import Vitals

_FAREWELL: Final = 2.0
"""How long a worker that leaves waits for each answer of its broker, in s."""

_DELAYED_DELIVERY: Final = "celery.worker.consumer.delayed_delivery:DelayedDelivery"

_log = structlog.get_logger(__name__)


class FleetConsumer(Consumer):
    """Connects anew after every loss.

    What is left of a lost connection is still used: Celery tidies it up twice, and messages that came by it are
    acknowledged by it when their tasks begin. With Redis both end in an ``AttributeError`` out of kombu, which nothing
    expects, if the server is away at a bad moment: the worker would end, and all the steps that it carries out.

    What the broker refuses for good comes as an error of the channel, as passing troubles do. A refusal that waiting
    cannot mend ends the worker, and the log says what to do.
    """

    class Blueprint(Consumer.Blueprint):
        """Without the 28 queues and exchanges that messages with an ETA would need on quorum queues: ours have none."""

        default_steps = tuple(step for step in Consumer.Blueprint.default_steps if step != _DELAYED_DELIVERY)

    @property
    def _vitals(self) -> Vitals:
        vitals: Vitals = self.controller.vitals
        return vitals

    def connect(self) -> Any:
        """Connect, however long it takes."""
        self._vitals.enter(Phase.CONNECTING)
        return super().connect()

    def connection_for_read(self, heartbeat: float | None = None) -> Any:
        """The connection by which messages come; whatever comes by it is a sign of the broker's life."""
        connection = super().connection_for_read(heartbeat=heartbeat)
        connection.transport.on_readable = self._vitals.hearing(connection.transport.on_readable)
        return connection

    def perform_pending_operations(self) -> None:
        """One turn of the loop that consumes where the transport has no event hub."""
        if not self.hub:
            self._vitals.enter(Phase.CONSUMING)
            self._vitals.beat()
        super().perform_pending_operations()

    def on_connection_error_before_connected(self, exc: Exception) -> None:
        """Try again, unless it is the login that is refused."""
        if isinstance(exc, AccessRefused):
            _give_up(
                f"the broker refuses this worker: {text_of(exc)}. Check user, password and host in ADK_BROKER_URL."
            )
        super().on_connection_error_before_connected(exc)

    def stop_taking(self) -> None:
        """Take no message from here on, and give back at once those that wait here for a slot.

        Celery would keep them until the last task has ended, and among them those of the runs that are being handed
        over: the broker gives a message to whoever has asked for one longest, and this worker had.
        """
        for connection in (self.connection, getattr(self.event_dispatcher, "connection", None)):
            if connection is not None:
                # A broker that answers does so at once. From one that has fallen silent the farewells, each of which
                # waits for an answer, would take longer together than a platform waits.
                bound_open_broker_sockets(connection, _FAREWELL)
        taking: Any = self.task_consumer
        if taking is None:
            return
        self.task_consumer: Any = None
        for request in tuple(reserved_requests):
            # It goes back with the channel, by which it can be acknowledged no more. If it is carried out here after
            # all, because a child has it already, the one that is given back is the copy that finds its ticket spent.
            request.acknowledged = True
        try:
            taking.cancel()
            taking.channel.close()
        except Exception as error:  # noqa: BLE001 - the broker is away, say; it gives them back by itself then
            _log.warning("messages_not_given_back", error=text_of(error))

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Give the lost connection up. Messages in hand are tickets in the store: the reaper publishes them again."""
        # What is left of it is used once more below, where each call may take a time-out.
        self._vitals.enter(Phase.CONNECTING)
        told = other_queue_type(exc)
        if told is not None:
            _give_up(told)
        lost: Any = self.connection
        transport = getattr(lost, "_transport", None)
        try:
            super().on_connection_error_after_connected(exc)
        except Exception as error:
            if self.connection is not None:
                raise
            _log.warning("lost_connection_not_tidied_up", error=text_of(error))
        if isinstance(transport, Transport) and transport.client is None:
            # Its channels ask it where the server is. An acknowledgement reaches that again, or fails as one expects.
            transport.client = lost


def _give_up(why: str) -> None:
    _log.critical("broker_refuses", why=why)
    raise WorkerShutdown(EX_CONFIG)
