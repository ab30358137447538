"""Transcripts (H1-H3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from adk_worker.errors import HistoryUnavailableError
from adk_worker.history import Handle, Segment, StoredSegment, assemble
from adk_worker.messages import Message
from adk_worker.names import check_name, check_run
from stores.sql.checkpoints import accept_fence
from stores.sql.database import Database
from stores.sql.dialects import PerDialect
from stores.sql.rows import HIGHEST, is_name
from stores.sql.schema import messages as rows

_OF_RUN = (rows.c.tenant == bindparam("for_tenant")) & (rows.c.run_id == bindparam("for_run"))
_ENDS_AT = _OF_RUN & (rows.c.end_count == bindparam("for_count"))

_READ: Final = select(
    rows.c.end_count, rows.c.end_digest, rows.c.start_count, rows.c.start_digest, rows.c.payload
).where(_OF_RUN)
_PAYLOADS: Final = select(rows.c.payload).where(_OF_RUN)
# What ends there: one digest, or a few where a superseded worker has left some. The newest one comes last.
_ENDS: Final = select(rows.c.end_digest).where(_ENDS_AT).order_by(rows.c.number, rows.c.end_digest)
_APPEND: Final = PerDialect(
    lambda insert: (
        insert(rows)
        .values(
            {
                **{column.name: bindparam(column.name) for column in rows.c if column.name != "number"},
                # Among those that end at the same message, which are few: a step costs the same in a long run.
                "number": select(func.coalesce(func.max(rows.c.number), 0) + 1).where(_ENDS_AT).scalar_subquery(),
            }
        )
        .on_conflict_do_nothing()
    )
)


class SqlHistoryStore:
    """A :class:`~adk_worker.history.HistoryStore` in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(
        self,
        run_id: str,
        *,
        tenant: str,
        start: int,
        messages: Sequence[Message],
        fence: int | None = None,
        after: str | None = None,
    ) -> str:
        check_run(tenant, run_id)

        def write(tx: Connection) -> str:
            accept_fence(tx, tenant, run_id, fence)
            segment = Segment.extend(_locate(tx, tenant, run_id, start=start, after=after), messages)
            store(tx, tenant, segment)
            return str(segment.handle)

        return await self._database.write(write)

    async def fetch(self, handle: str, *, tenant: str) -> tuple[Message, ...] | None:
        check_name(tenant, what="tenant")
        wanted = Handle.parse(handle)
        if wanted.count > 0 and not is_name(wanted.run_id):
            return None
        # All of it in the store's thread: a long transcript takes tens of milliseconds to check and to validate, in
        # which the event loop has the steps of other runs to attend to.
        return await self._database.read(lambda tx: fetch(tx, tenant, wanted))

    async def segments(self, run_id: str, *, tenant: str) -> Sequence[str]:
        check_run(tenant, run_id)
        this = {"for_tenant": tenant, "for_run": run_id}
        return await self._database.read(lambda tx: tx.execute(_PAYLOADS, this).scalars().all())


def fetch(tx: Connection, tenant: str, wanted: Handle) -> tuple[Message, ...] | None:
    """See :meth:`adk_worker.history.HistoryStore.fetch`."""
    found = tx.execute(_READ, {"for_tenant": tenant, "for_run": wanted.run_id}).all()
    if wanted.count > 0 and not found:
        return None
    segments = {
        (row.end_count, row.end_digest): StoredSegment(row.start_count, row.start_digest, row.payload) for row in found
    }
    return assemble(wanted, segments)


def store(tx: Connection, tenant: str, segment: Segment) -> None:
    """Keep a segment; one that is there already stays the one that was first."""
    run_id = segment.handle.run_id
    tx.execute(
        _APPEND.on(tx),
        {
            "tenant": tenant,
            "run_id": run_id,
            "end_count": segment.handle.count,
            "end_digest": segment.handle.digest,
            "start_count": segment.after.count,
            "start_digest": segment.after.digest,
            "payload": segment.payload,
            "for_tenant": tenant,
            "for_run": run_id,
            "for_count": segment.handle.count,
        },
    )


def _locate(tx: Connection, tenant: str, run_id: str, *, start: int, after: str | None) -> Handle:
    """The handle behind which messages go.

    :raises HistoryUnavailableError: nothing that is stored ends there.
    """
    this = {"for_tenant": tenant, "for_run": run_id, "for_count": min(start, HIGHEST)}
    if after is not None:
        named = Handle.parse(after)
        if named.run_id != run_id or named.count != start:
            raise HistoryUnavailableError(handle=after, reason=f"it does not end at message {start} of this run")
        if named != Handle.empty(run_id) and named.digest not in tx.execute(_ENDS, this).scalars().all():
            raise HistoryUnavailableError(handle=after, reason=f"the segment that ends at message {start} is gone")
        return named
    if start == 0:
        return Handle.empty(run_id)
    ends = tx.execute(_ENDS, this).scalars().all()
    if not ends:
        raise HistoryUnavailableError(handle=f"{run_id!r}, message {start}", reason="nothing is stored up to there")
    return Handle(run_id, start, ends[-1])
