"""One run at a time: what fails for one of a batch is rolled back for that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, Select
from sqlalchemy.exc import DBAPIError

from adk_worker.log import get_logger
from stores.sql import accounts
from stores.sql.failures import rolled_back, translated
from stores.sql.rows import Columns

T = TypeVar("T")

_log = get_logger(__name__)


def apart(tx: Connection, row: Columns, act: Callable[[Columns], T | None]) -> T | None:
    """What ``act`` does about a run, at two round trips more; ``None`` if its row cannot be read or written."""
    try:
        with tx.begin_nested():
            return act(row)
    except (DBAPIError, ValueError) as error:
        if isinstance(error, DBAPIError) and (rolled_back(error) or translated(error, store="") is not None):
            raise  # the store's failure, and not the run's
        # Its kind alone: the text may quote the run.
        _log.error("run_not_reaped", tenant=row["tenant"], run_id=row["run_id"], error=type(error).__name__)
        return None


def each_apart(
    tx: Connection, search: Select[Any], act: Callable[[Columns], T | None], *, limit: int, on_accounts: bool = False
) -> list[T]:
    """What ``act`` does about the runs that ``search`` names, apart, until that is something for ``limit`` of them.

    A run with which nothing can be done is found again, before all others that are due: so the search is for that many
    more, and none of the others is left for it. ``on_accounts`` locks their tenants' accounts before any is written.
    """
    done: list[T] = []
    passed: set[tuple[str, str]] = set()
    again = 0
    while (at_most := limit - len(done) + again) > again:
        found = tx.execute(search, {"at_most": at_most}).mappings().all()
        fresh = {_name(row): row for row in found if _name(row) not in passed}
        if on_accounts:
            accounts.lock_all(tx, (tenant for tenant, _ in fresh))
        for name, row in fresh.items():
            came = apart(tx, row, act)
            if came is None:
                passed.add(name)
            else:
                done.append(came)
        if len(found) < at_most:
            break
        again = sum(_name(row) in passed for row in found)
    return done


def _name(row: Columns) -> tuple[str, str]:
    return row["tenant"], row["run_id"]
