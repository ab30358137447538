"""What a migration does to a table that a fleet is writing to: for the scripts in ``alembic/versions``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op


def create_index(name: str, table: str, columns: Sequence[Any], **options: Any) -> None:
    """Create an index beside the writes to its table; ``options`` are those of alembic's ``op.create_index``.

    On PostgreSQL that is CREATE INDEX CONCURRENTLY, outside any transaction: what the migration has done before it is
    committed. So let it be the only thing that a migration does, besides the version. One that was interrupted leaves
    an index that is not valid; the next attempt removes it, and begins anew. It waits for all transactions that are
    older than it is, for as long as they take, and nobody waits behind it.
    """
    context = op.get_context()
    if context.dialect.name != "postgresql":
        op.create_index(name, table, columns, **options)
        return
    with context.autocommit_block():
        op.execute("SET lock_timeout = 0")
        op.drop_index(name, table, postgresql_concurrently=True, if_exists=True)
        op.create_index(name, table, columns, postgresql_concurrently=True, **options)
        op.execute("RESET lock_timeout")
