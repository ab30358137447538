"""Renewal of many leases at once, a worker process's whole batch (L8)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Connection,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    cast,
    func,
    select,
    update,
)

from adk_worker.lease import RunLease
from adk_worker.runs import Renewal
from adk_worker.transitions import leases as lease_transitions
from stores.sql.locks import LEASE_COLUMNS, store_time, timed
from stores.sql.rows import lease_state, run_lease
from stores.sql.schema import leases, runs

_Name = tuple[str, str]

_CANCEL_REQUESTED: Final = (
    select(runs.c.cancel_requested)
    .where(runs.c.tenant == leases.c.tenant, runs.c.run_id == leases.c.run_id)
    .scalar_subquery()
)


@dataclass(frozen=True, slots=True)
class _Batch:
    """The statements of a batch. ``these`` says which leases are in it."""

    these: ColumnElement[bool]

    def lock(self) -> Select[Any]:
        """Lock and read them.

        What somebody has locked is left out: a transaction that is stuck with one run must not keep a whole process
        from its renewals. The cancel's flag is as it was when the statement began: one that comes later is found by
        the next renewal, and by every write.
        """
        found = select(leases.c.tenant, leases.c.run_id, *LEASE_COLUMNS, _CANCEL_REQUESTED.label("cancel_requested"))
        return timed(found.where(self.these).with_for_update(of=leases, skip_locked=True))

    def there(self) -> Select[Any]:
        """Which of them exist."""
        return select(leases.c.tenant, leases.c.run_id).where(self.these)

    def extend(self) -> Update:
        """Have them expire later."""
        return update(leases).where(self.these).values(expires_at=bindparam("until"))


# The names come as a table to be joined. As a list in the statement, PostgreSQL would plan a search for each of them,
# which takes it longer than the search itself; SQLite would read all leases.
def _these_on_postgresql() -> ColumnElement[bool]:
    columns = (cast(bindparam(name), ARRAY(Text)) for name in ("tenants", "run_ids"))
    named = func.unnest(*columns).table_valued("tenant", "run_id", name="named").render_derived()
    return and_(leases.c.tenant == named.c.tenant, leases.c.run_id == named.c.run_id)


def _these_on_sqlite() -> ColumnElement[bool]:
    named = func.json_each(bindparam("names")).table_valued("value", name="named")
    tenant, run_id = (func.json_extract(named.c.value, f"$[{number}]") for number in (0, 1))
    return and_(leases.c.tenant == tenant, leases.c.run_id == run_id)


_THESE: Final = {"postgresql": _Batch(_these_on_postgresql()), "sqlite": _Batch(_these_on_sqlite())}
_LOCK: Final = {dialect: batch.lock() for dialect, batch in _THESE.items()}
_THERE: Final = {dialect: batch.there() for dialect, batch in _THESE.items()}
_EXTEND: Final = {dialect: batch.extend() for dialect, batch in _THESE.items()}


def _names(tx: Connection, names: Sequence[_Name]) -> Mapping[str, Any]:
    if tx.dialect.name == "sqlite":
        return {"names": json.dumps(names)}
    return {"tenants": [tenant for tenant, _ in names], "run_ids": [run_id for _, run_id in names]}


def renew_many(tx: Connection, held: Sequence[RunLease], *, ttl: float) -> Sequence[Renewal]:
    """See :meth:`adk_worker.runs.RunStore.renew_many`."""
    dialect = tx.dialect.name
    names = sorted({(lease.tenant, lease.run_id) for lease in held})
    rows = tx.execute(_LOCK[dialect], _names(tx, names)).mappings().all()
    stored = {(row["tenant"], row["run_id"]): row for row in rows}
    left_out = [name for name in names if name not in stored]
    there = tx.execute(_THERE[dialect], _names(tx, left_out)) if left_out else ()
    busy = {(row.tenant, row.run_id) for row in there}
    if not rows:
        return [Renewal(None, busy=(lease.tenant, lease.run_id) in busy) for lease in held]
    # The time at which the last of them was locked.
    at = max((store_time(row) for row in rows), key=lambda time: time.now)
    answers = []
    for lease in held:
        name = lease.tenant, lease.run_id
        row = stored.get(name)
        renewed = None if row is None else lease_transitions.renew(lease_state(row), fence=lease.fence, at=at, ttl=ttl)
        if row is None or renewed is None:
            answers.append(Renewal(None, busy=name in busy))
        else:
            answers.append(Renewal(run_lease(*name, renewed), bool(row["cancel_requested"])))
    extended = sorted({(answer.lease.tenant, answer.lease.run_id) for answer in answers if answer.lease})
    if extended:
        tx.execute(_EXTEND[dialect], {**_names(tx, extended), "until": at.now + ttl})
    return answers
