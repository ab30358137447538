"""One message of the queue, carried out: take, iterate, hand over, dispatch.

This is all that a Celery task of the fleet does; the task itself only finds its process's :class:`Stepper`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from adk_worker.interruption import Interruption
from adk_worker.lease import RunLease
from adk_worker.runs import Dispatch


class Dispatcher(Protocol):
    """Publishes messages. Called after the commit that made the ticket, never before."""

    async def dispatch(self, message: Dispatch) -> None:
        """Publish. An error is logged by the caller and mended by the reaper."""
        ...


class LeaseWatch(Protocol):
    """What a step needs of its process's keeper."""

    def enter(self, lease: RunLease, interruption: Interruption) -> None:
        """Renew ``lease`` from now on; tell the work to stop if it is lost, or its run cancelled, or on a drain."""
        ...

    def leave(self, lease: RunLease) -> None:
        """Renew it no more. Harmless for a lease that is not kept."""
        ...


class StepEnd(StrEnum):
    """What came of a message."""

    DUPLICATE = "duplicate"
    HANDED_OVER = "handed_over"
    COMPLETED = "completed"
    FAILED = "failed"
    PARKED = "parked"
    WAITING_APPROVAL = "waiting_approval"
    CANCELLED = "cancelled"
    GIVEN_BACK = "given_back"
    SUPERSEDED = "superseded"
    STORE_AWAY = "store_away"
    """The store did not answer for as long as the lease could be live; the reaper recovers the run."""
