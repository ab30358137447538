"""One run at a time: what fails for one of a batch is rolled back for that one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from adk_worker.log import get_logger
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
