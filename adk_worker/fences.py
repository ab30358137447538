"""Which fence the lone stores accept: those that keep checkpoints and transcripts, and no run's row (F1, F2)."""

from __future__ import annotations

from adk_worker.errors import StaleFenceError
from adk_worker.transitions.leases import LeaseState


def check_fence(lease: LeaseState | None, *, tenant: str, run_id: str, fence: int, seen: int) -> int:
    """Return the highest fence seen after a write under ``fence``, to be stored with it.

    The lease decides if this very store has one under the run's name. Where leases are kept elsewhere (``None``), all
    that can be known is the highest fence that came with a write before, ``seen`` (0 if none did): a lower one is
    refused, and the number outlives ``forget``.

    :raises StaleFenceError: ``fence`` may not write.
    """
    accepted = fence >= seen if lease is None else lease.held_under(fence)
    if not accepted:
        current = seen if lease is None else lease.fence
        raise StaleFenceError(tenant=tenant, run_id=run_id, presented=fence, current=current)
    return max(fence, seen)
