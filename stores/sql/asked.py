"""The rows of what a run's people are asked and grant, read and written under the run's lock (P1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, bindparam, select

from adk_worker.adapters import adapter
from adk_worker.approvals.requests import ApprovalRequest, Approvals, Grant
from adk_worker.idempotency import Intent
from adk_worker.runs import Boundary
from adk_worker.transitions import approvals as approval_transitions
from adk_worker.transitions.approvals import Bound
from stores.sql.dialects import Insert, PerDialect
from stores.sql.locks import LockedRun
from stores.sql.schema import approvals, grants

T = TypeVar("T")


def _of_run(table: Table) -> Any:
    return (table.c.tenant == bindparam("for_tenant")) & (table.c.run_id == bindparam("for_run"))


def _upsert(table: Table) -> PerDialect[Any]:
    keys = list(table.primary_key)

    def made(insert: Callable[[Table], Insert]) -> Any:
        new = insert(table)
        return new.on_conflict_do_update(
            index_elements=keys, set_={one.name: new.excluded[one.name] for one in table.c if one not in keys}
        )

    return PerDialect(made)


_READ_REQUESTS: Final = select(approvals.c.request).where(_of_run(approvals)).order_by(approvals.c.number)
_READ_GRANTS: Final = select(grants.c.given).where(_of_run(grants)).order_by(grants.c.number)
_SAVE_REQUESTS: Final = _upsert(approvals)
_SAVE_GRANTS: Final = _upsert(grants)


def read(tx: Connection, tenant: str, run_id: str) -> Approvals:
    """What the run's people were asked, and grant. To change it, lock the run first."""
    this = {"for_tenant": tenant, "for_run": run_id}
    requests, given = (tx.execute(query, this).scalars().all() for query in (_READ_REQUESTS, _READ_GRANTS))
    return Approvals(
        tuple(adapter(ApprovalRequest).validate_python(one) for one in requests),
        tuple(adapter(Grant).validate_python(one) for one in given),
    )


def save(tx: Connection, run: LockedRun, before: Approvals, after: Approvals) -> None:
    """Write what differs. Requests and grants come to be, and change; none is taken away."""
    this = {"tenant": run.tenant, "run_id": run.run_id}
    requests = [
        {
            **this,
            "number": number,
            "state": request.state.value,
            "expires_at": request.expires_at,
            "request": adapter(ApprovalRequest).dump_python(request, mode="json"),
        }
        for number, request in _changed(before.requests, after.requests)
    ]
    given = [
        {**this, "number": number, "given": adapter(Grant).dump_python(grant, mode="json")}
        for number, grant in _changed(before.grants, after.grants)
    ]
    for statement, rows in ((_SAVE_REQUESTS, requests), (_SAVE_GRANTS, given)):
        if rows:
            tx.execute(statement.on(tx), rows)


def permit(tx: Connection, run: LockedRun, intents: Iterable[Intent]) -> None:
    """Spend what lets these calls be begun.

    :raises NotApprovedError: nothing lets one of them: roll back.
    """
    asking = [intent for intent in intents if intent.permit is not None]
    if asking:
        stood = read(tx, run.tenant, run.run_id)
        save(tx, run, stood, approval_transitions.permit(stood, asking, now=run.at.now))


def bound(tx: Connection, run: LockedRun, boundary: Boundary, *, done: bool) -> Bound | None:
    """Write what a boundary makes of the approvals; ``None`` if it is about none.

    :raises ValueError: it cannot be: roll back.
    """
    if not boundary.requests and not boundary.denials:
        return None
    stood = read(tx, run.tenant, run.run_id)
    came_to = approval_transitions.bound(stood, boundary, now=run.at.now, done=done)
    save(tx, run, stood, came_to.approvals)
    return came_to


def withdraw(tx: Connection, run: LockedRun) -> None:
    """Have nothing wait for an answer any more: the run is cancelled."""
    stood = read(tx, run.tenant, run.run_id)
    save(tx, run, stood, approval_transitions.withdraw(stood, now=run.at.now))


def _changed(before: Sequence[T], after: Sequence[T]) -> list[tuple[int, T]]:
    """Those that are new or different, with their numbers, from 1."""
    numbered = enumerate(after, 1)
    return [(number, one) for number, one in numbered if number > len(before) or before[number - 1] != one]
