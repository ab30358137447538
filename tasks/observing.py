"""The events that Flower needs, sent so that they never hold up the worker that sends them."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final

from celery.app.events import Events
from celery.events.dispatcher import EventDispatcher

_KEPT: Final = 1000
"""How many events are kept for a broker that is away; of more, the oldest are dropped."""


class FleetEvents(Events):
    """Celery's, with our dispatcher."""

    dispatcher_cls = "tasks.observing:FleetEventDispatcher"


class FleetEventDispatcher(EventDispatcher):
    """Tries each event once, and none for a while after one that did not get through.

    A worker sends events in the loop in which it consumes. Celery has the regular sign of life tried until it gets
    through: with a broker that swallows everything the loop then stands still for as long as that lasts, and the worker
    neither notices the loss of its consumer's connection, nor the death of a child, nor that it is told to end.
    """

    _quiet_until = 0.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._outbound_buffer: deque[tuple[Any, str]] = deque(maxlen=_KEPT)

    def _publish(self, event: Any, producer: Any, routing_key: str, **how: Any) -> None:
        began = time.monotonic()
        if began < self._quiet_until:
            self._outbound_buffer.append((event, routing_key))
            return
        waiting = len(self._outbound_buffer)
        super()._publish(event, producer, routing_key, **{**how, "retry": False})
        if len(self._outbound_buffer) > waiting:
            now = time.monotonic()
            # At most a third of the loop's time goes into it.
            self._quiet_until = now + 2 * (now - began)
