"""What a run store does about approvals: :class:`ApprovalOperations` (P1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Approvals, Grant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adk_worker.actors import Actor
    from adk_worker.runs import Dispatch
    from adk_worker.transitions.runs import FleetPolicy


@dataclass(frozen=True, slots=True)
class Expired:
    """Requests of one run that nobody answered in time. ``dispatch`` is ``None`` while others of the turn wait."""

    tenant: str
    run_id: str
    requests: tuple[str, ...]
    dispatch: Dispatch | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a run's people were asked, as it stood at ``now`` by the store's clock."""

    now: float
    approvals: Approvals


class ApprovalOperations(Protocol):
    """The part of a :class:`~adk_worker.runs.RunStore` that is about approvals; as atomic as the rest of it (P1)."""

    async def approvals(self, run_id: str, *, tenant: str) -> Asked:
        """Every request and grant of the run; none for a run that there is not. Only reads."""
        ...

    async def answer(self, run_id: str, given: Answer, *, tenant: str, by: Actor, policy: FleetPolicy) -> Answered:
        """Answer one request; the last one that was pending queues the run under a new ticket, in the same write.

        :raises RunNotFoundError: there is no such run.
        :raises ApprovalRefusedError: there is no such request, it takes no answer any more, or other arguments were
            seen. Nothing was written.
        :raises NotAllowedError: it is not theirs to answer.
        """
        ...

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: Actor) -> Grant:
        """Revoke a grant and return it. No call is begun under it any more; revoking it again changes nothing.

        :raises RunNotFoundError: there is no such run.
        :raises ApprovalRefusedError: there is no such grant.
        """
        ...

    async def expire(self, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
        """Deny what is pending past its time, of up to ``limit`` runs, each run in one write; as :meth:`answer` does.

        Any number of reapers may call it.
        """
        ...
