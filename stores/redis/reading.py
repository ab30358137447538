"""Reads runs and their events. No lease is taken, and nothing is found by going through the keyspace."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.memory.data import RunKey
from adk_worker.memory.reading import run_of
from adk_worker.runs import Run, RunStatus
from stores.redis import rows
from stores.redis.apart import not_read, together
from stores.redis.data import RunData
from stores.redis.keys import BUCKETS, Keys, bucket_of_run
from stores.redis.keys import run_of as run_named
from stores.redis.server import Process

_SHARE: Final = 16
"""A page's runs are spread over the buckets: of each, so small a part of a page is read at first (a sixteenth)."""
_HIGHEST: Final = 2**53
"""Above the number of every run and of every event, and small enough for Redis to read."""
_MANY: Final = frozenset({RunStatus.COMPLETED, RunStatus.CANCELLED})
"""The statuses that most runs end in."""


def events_of(process: Process, run: RunKey, *, after: int, limit: int) -> Sequence[Event]:
    """See :meth:`adk_worker.runs.RunStore.events`."""
    bucket = bucket_of_run(run)
    process.epoch(bucket)
    first, limit = min(max(after, 0), _HIGHEST), min(limit, _HIGHEST)
    key = Keys(bucket).events(run)
    texts = process.ask(lambda client: client.lrange(key, first, first + limit - 1), reading=True) if limit > 0 else []
    return [rows.event_of(text, number=number) for number, text in enumerate(texts, first + 1)]


def page(process: Process, where: RunFilter, *, limit: int, before: int | None) -> tuple[Sequence[Run], str | None]:
    """See :meth:`adk_worker.runs.RunStore.list`; ``before`` is what its cursor says.

    The buckets' indexes, each of which is in order, are merged; what they name is read, and looked at again. A run that
    cannot be read is left out, and named in the log.
    """
    step = limit // _SHARE + 4
    numbered = heapq.merge(
        *(_named(process, _index(Keys(bucket), where), before, step) for bucket in range(BUCKETS)),
        key=lambda named: -named[0],
    )
    found: list[tuple[int, Run]] = []
    # One more than asked for tells whether there is a next page.
    while len(found) <= limit and (some := list(itertools.islice(numbered, limit + 1 - len(found)))):
        read = _read(process, [run for _, run in some])
        found += [(number, read[run]) for number, run in some if run in read and where.covers(read[run])]
    shown = found[:limit]
    return [run for _, run in shown], str(shown[-1][0]) if shown and len(found) > limit else None


def _index(keys: Keys, where: RunFilter) -> str:
    """The index that has the fewest runs beside those that are asked for."""
    if where.run_id is not None:
        return keys.named(where.run_id)
    if where.attention:
        return keys.attention
    if where.status is not None and (where.tenant is None or where.status not in _MANY):
        return keys.status(where.status)
    return keys.runs if where.tenant is None else keys.tenant(where.tenant)


def _named(process: Process, key: str, before: int | None, step: int) -> Iterator[tuple[int, RunKey]]:
    """The runs in one bucket's index with a number below ``before``, the newest first."""
    while True:
        chunk = _chunk(process, key, "+inf" if before is None else f"({min(before, _HIGHEST)}", step)
        for name, number in chunk:
            before = int(number)
            yield before, run_named(name)
        if len(chunk) < step:
            return


def _chunk(process: Process, key: str, below: str, step: int) -> Sequence[tuple[str, float]]:
    return process.ask(
        lambda client: client.zrevrangebyscore(key, below, "-inf", start=0, num=step, withscores=True), reading=True
    )


def _read(process: Process, runs: Sequence[RunKey]) -> dict[RunKey, Run]:
    parted: dict[int, list[RunKey]] = defaultdict(list)
    for run in runs:
        parted[bucket_of_run(run)].append(run)
    read: dict[RunKey, Run] = {}
    for bucket, here in parted.items():
        for found in together(process, bucket, here, _runs, unreadable=_unreadable):
            read |= found
    return read


def _unreadable(run: RunKey, error: ValueError) -> dict[RunKey, Run]:
    not_read(run, error)
    return {}


def _runs(data: RunData, runs: Sequence[RunKey]) -> dict[RunKey, Run]:
    data.look(submitted=runs)
    return {run: run_of(data, run) for run in runs if run in data.runs}
