"""Many runs in one transaction, as long as all of them can be read: one that cannot fails no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from adk_worker.log import get_logger
from adk_worker.memory.data import RunKey
from stores.redis.data import RunData
from stores.redis.server import Process

A = TypeVar("A")
T = TypeVar("T")

_log = get_logger(__name__)


def together(
    process: Process,
    bucket: int,
    asked: Sequence[A],
    work: Callable[[RunData, Sequence[A]], T],
    *,
    unreadable: Callable[[A, ValueError], T],
) -> list[T]:
    """What ``work`` says of ``asked``, all of them at once, or each alone if any cannot be read.

    ``unreadable`` says it of that one. There is an answer for each transaction, in the order of ``asked``.
    """
    try:
        return [process.transact(bucket, lambda data: work(data, asked))]
    except ValueError as error:
        if len(asked) == 1:
            return [unreadable(asked[0], error)]
    # In a reply there is nothing that says which one it is: a text that is none fails it as a whole.
    return [said for one in asked for said in together(process, bucket, [one], work, unreadable=unreadable)]


def not_read(run: RunKey, error: ValueError) -> None:
    """Say so in the log: by its kind alone, for the text may quote the run."""
    tenant, run_id = run
    _log.error("run_not_read", tenant=tenant, run_id=run_id, error=type(error).__name__)
