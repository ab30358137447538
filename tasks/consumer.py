"""Celery's consumer, which outlives the loss of its broker whatever the transport makes of that."""

from __future__ import annotations

from typing import Any

import structlog
from celery.worker.consumer import Consumer
from kombu.transport.virtual import Transport

from adk_worker.results import text_of

_log = structlog.get_logger(__name__)


class FleetConsumer(Consumer):
    """Connects anew after every loss.

    What is left of a lost connection is still used: Celery tidies it up twice, and messages that came by it are
    acknowledged by it when their tasks begin. With Redis both end in an ``AttributeError`` out of kombu, which nothing
    expects, if the server is away at a bad moment: the worker would end, and all the steps that it carries out.
    """

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Give the lost connection up. Messages in hand are in the store: the reaper publishes them again."""
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
