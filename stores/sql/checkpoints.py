"""Checkpoints (C2, C4, C5), and the fences that lone writes of checkpoints and transcripts present (F1, F2)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, select, update

from adk_worker.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from adk_worker.errors import FrontierLostError
from adk_worker.fences import check_fence
from adk_worker.names import check_run
from stores.sql.database import Database
from stores.sql.dialects import PerDialect
from stores.sql.locks import lock_lease
from stores.sql.schema import checkpoints, fences, runs

_THIS = (checkpoints.c.tenant == bindparam("for_tenant")) & (checkpoints.c.run_id == bindparam("for_run"))
_THIS_RUN = (runs.c.tenant == bindparam("for_tenant")) & (runs.c.run_id == bindparam("for_run"))

PAYLOAD: Final = select(checkpoints.c.payload).where(_THIS)
"""The frontier of the run ``for_run`` of ``for_tenant``, not decoded."""
# The run's mark along with it, in one statement, also where there is only one of the two.
_LATEST: Final = select(
    PAYLOAD.scalar_subquery().label("payload"),
    select(checkpoints.c.sequence).where(_THIS).scalar_subquery().label("sequence"),
    select(runs.c.behind).where(_THIS_RUN).scalar_subquery().label("behind"),
)
_FORGET: Final = delete(checkpoints).where(_THIS)
_PUT: Final = PerDialect(
    lambda insert: (put := insert(checkpoints)).on_conflict_do_update(
        index_elements=[checkpoints.c.tenant, checkpoints.c.run_id],
        set_={name: put.excluded[name] for name in ("agent", "sequence", "payload")},
    )
)

_THIS_FENCE = (fences.c.tenant == bindparam("for_tenant")) & (fences.c.run_id == bindparam("for_run"))
_FIRST_FENCE: Final = PerDialect(lambda insert: insert(fences).on_conflict_do_nothing())
_LOCK_FENCE: Final = select(fences.c.fence).where(_THIS_FENCE).with_for_update()
_WRITE_FENCE: Final = update(fences).where(_THIS_FENCE).values(fence=bindparam("highest"))


class SqlCheckpointStore:
    """A :class:`~adk_worker.checkpoint.CheckpointStore` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, checkpoint: Checkpoint, *, fence: int | None = None) -> None:
        tenant, run_id = check_run(checkpoint.tenant, checkpoint.run_id)
        payload = encode_checkpoint(checkpoint)

        def write(tx: Connection) -> None:
            accept_fence(tx, tenant, run_id, fence)
            put(tx, checkpoint, payload)

        await self._database.write(write)

    async def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        check_run(tenant, run_id)
        this = {"for_tenant": tenant, "for_run": run_id}
        row = await self._database.read(lambda tx: tx.execute(_LATEST, this).one())
        if row.behind:
            raise FrontierLostError(tenant=tenant, run_id=run_id, sequence=row.sequence or 0)
        return None if row.payload is None else decode_checkpoint(row.payload)

    async def forget(self, run_id: str, *, tenant: str, fence: int | None = None) -> None:
        check_run(tenant, run_id)

        def write(tx: Connection) -> None:
            accept_fence(tx, tenant, run_id, fence)
            forget(tx, tenant, run_id)

        await self._database.write(write)


def put(tx: Connection, checkpoint: Checkpoint, payload: str) -> None:
    """Write a frontier's row."""
    tx.execute(
        _PUT.on(tx),
        {
            "tenant": checkpoint.tenant,
            "run_id": checkpoint.run_id,
            "agent": checkpoint.agent,
            "sequence": checkpoint.sequence,
            "payload": payload,
        },
    )


def payload_of(tx: Connection, tenant: str, run_id: str) -> str | None:
    """The stored frontier, not decoded."""
    payload: str | None = tx.execute(PAYLOAD, {"for_tenant": tenant, "for_run": run_id}).scalar_one_or_none()
    return payload


def forget(tx: Connection, tenant: str, run_id: str) -> None:
    """Remove a frontier's row, if there is one."""
    tx.execute(_FORGET, {"for_tenant": tenant, "for_run": run_id})


def accept_fence(tx: Connection, tenant: str, run_id: str, fence: int | None) -> None:
    """Let a write of a checkpoint or a transcript pass, or refuse it; without a fence it passes.

    :raises StaleFenceError: ``fence`` may not write.
    """
    if fence is None:
        return
    locked = lock_lease(tx, tenant, run_id)
    if locked is not None:
        # The row stays for as long as the run does, so no other number has to be kept.
        check_fence(locked.lease, tenant=tenant, run_id=run_id, fence=fence, seen=0)
        return
    this = {"for_tenant": tenant, "for_run": run_id}
    tx.execute(_FIRST_FENCE.on(tx), {"tenant": tenant, "run_id": run_id, "fence": 0})
    seen = tx.execute(_LOCK_FENCE, this).scalar_one()
    highest = check_fence(None, tenant=tenant, run_id=run_id, fence=fence, seen=seen)
    if highest != seen:
        tx.execute(_WRITE_FENCE, {**this, "highest": highest})
