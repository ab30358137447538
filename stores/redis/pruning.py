"""Removes runs that are over, each in a transaction of its own."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final

from adk_worker.memory import claims
from adk_worker.memory.data import RunKey
from adk_worker.pruning import Prune, Pruned
from adk_worker.transitions import claims as claim_transitions
from stores.redis.data import RunData
from stores.redis.keys import BUCKETS, Keys, bucket_of_run, run_of
from stores.redis.server import Process

_SHARE: Final = 16
"""A batch is spread over the buckets: of each, so small a part of a batch is read at first (a sixteenth)."""


class _Is(Enum):
    REMOVED = auto()
    UNDECIDED = auto()
    KEPT = auto()
    TOO_YOUNG = auto()
    """It was submitted too recently to be removed, and so were all behind it."""


def prune(process: Process, which: Prune, *, limit: int, behind: int) -> Pruned:
    """See :meth:`adk_worker.runs.RunStore.prune`; ``behind`` is the number that its cursor says."""
    step = limit // _SHARE + 4
    numbered = heapq.merge(*(_numbered(process, Keys(bucket).runs, behind, step) for bucket in range(BUCKETS)))
    # One more than asked for tells whether there is a next batch.
    seen = list(itertools.islice(numbered, limit + 1))
    found = [process.transact(bucket_of_run(run), partial(_remove, run=run, which=which)) for _, run in seen[:limit]]
    more = len(seen) > limit and found[-1] is not _Is.TOO_YOUNG
    return Pruned(found.count(_Is.REMOVED), found.count(_Is.UNDECIDED), str(seen[limit - 1][0]) if more else None)


def _numbered(process: Process, key: str, behind: int, step: int) -> Iterator[tuple[int, RunKey]]:
    """The runs in one bucket with a number above ``behind``, the oldest first."""
    while True:
        chunk = _chunk(process, key, f"({behind}", step)
        for name, number in chunk:
            behind = int(number)
            yield behind, run_of(name)
        if len(chunk) < step:
            return


def _chunk(process: Process, key: str, above: str, step: int) -> Sequence[tuple[str, float]]:
    return process.ask(
        lambda client: client.zrangebyscore(key, above, "+inf", start=0, num=step, withscores=True), reading=True
    )


def _remove(data: RunData, run: RunKey, which: Prune) -> _Is:
    data.look(runs=[run])
    row, now = data.runs.get(run), data.clock()
    if row is None or not which.due(row.state.phase, updated_at=row.updated_at, now=now):
        return _Is.TOO_YOUNG if row is not None and row.created_at > now - which.older_than else _Is.KEPT
    if claim_transitions.any_in_flight(claims.of_run(data, run)):
        return _Is.UNDECIDED
    data.forget(run)
    return _Is.REMOVED
