"""The rows of what a run's people are asked and grant, and what a worker's writes have to do with them (P1)."""

from __future__ import annotations

from collections.abc import Iterable

from adk_worker.adapters import adapter
from adk_worker.approvals.requests import Approvals
from adk_worker.idempotency import Intent
from adk_worker.memory.data import MemoryData, RunKey, StoredApprovals
from adk_worker.messages import canonical_json
from adk_worker.runs import Boundary
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions.approvals import Bound
from adk_worker.transitions.leases import StoreTime


def load(data: MemoryData, key: RunKey) -> Approvals:
    """What the run's people were asked, made anew from its JSON."""
    row = data.approvals.get(key)
    return Approvals() if row is None else adapter(Approvals).validate_json(row.text)


def save(data: MemoryData, key: RunKey, approvals: Approvals) -> None:
    """Write the run's row."""
    text = canonical_json(adapter(Approvals).dump_python(approvals, mode="json"))
    data.approvals[key] = StoredApprovals(text, approvals.next_expiry)


def permit(data: MemoryData, key: RunKey, intents: Iterable[Intent], *, at: StoreTime) -> None:
    """Spend what lets these calls be begun.

    :raises NotApprovedError: nothing lets one of them; nothing was written.
    """
    asking = [intent for intent in intents if intent.permit is not None]
    if asking:
        stood = load(data, key)
        permitted = approval_transitions.permit(stood, asking, now=at.now)
        if permitted != stood:
            save(data, key, permitted)


def bound(data: MemoryData, key: RunKey, boundary: Boundary, *, done: bool, at: StoreTime) -> Bound | None:
    """What a boundary makes of the approvals; ``None`` if it is about none. See :func:`approval_transitions.bound`."""
    if not boundary.requests and not boundary.denials:
        return None
    return approval_transitions.bound(load(data, key), boundary, now=at.now, done=done)


def withdraw(data: MemoryData, key: RunKey, *, at: StoreTime) -> None:
    """Have nothing wait for an answer any more: the run is cancelled."""
    stood = load(data, key)
    if stood.pending:
        save(data, key, approval_transitions.withdraw(stood, now=at.now))
