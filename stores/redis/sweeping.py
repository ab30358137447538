"""The reaper's part: what has lapsed, bucket by bucket, and what is done about it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from adk_worker.errors import StoreUnavailableError
from adk_worker.memory import sweeping
from adk_worker.memory.data import RunKey
from adk_worker.runs import Reaped, Sweep
from adk_worker.transitions import FleetPolicy
from stores.redis.keys import BUCKETS, SWEPT, Keys, bucket_of_run, run_of
from stores.redis.server import Process
from stores.redis.transaction import server_time


def claim_lapsed(process: Process, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
    """See :meth:`adk_worker.runs.RunStore.claim_lapsed`.

    Each lease is acted on in a transaction of its own, in which its row is looked at again. Should the store go away
    in between, what was done so far is returned, since its messages have to be published; the next sweep does the rest.
    """
    due = sorted(lapse for bucket in range(BUCKETS) for lapse in _lapsed(process, bucket, limit)[1])
    acted: list[Reaped] = []
    for _, run in due[:limit]:
        try:
            reap = partial(sweeping.reap, key=run, policy=policy, count_crashes=count_crashes)
            reaped = process.transact(bucket_of_run(run), reap)
        except StoreUnavailableError:
            if not acted:
                raise
            break
        if reaped is not None:
            acted.append(reaped)
    return acted


def sweep(process: Process) -> Sweep:
    """See :meth:`adk_worker.runs.RunStore.sweep`."""
    process.epoch(0)
    seconds, microseconds, last = process.call("sweep", [SWEPT])
    return Sweep(server_time(seconds, microseconds), None if last is None else float(last))


def oldest_lapsed(process: Process) -> float | None:
    """See :meth:`adk_worker.runs.RunStore.oldest_lapsed`."""
    found = [_lapsed(process, bucket, 1) for bucket in range(BUCKETS)]
    return max((now - lapses[0][0] for now, lapses in found if lapses), default=None)


def _lapsed(process: Process, bucket: int, limit: int) -> tuple[float, Sequence[tuple[float, RunKey]]]:
    seconds, microseconds, found = process.call("lapsed", [Keys(bucket).lapses], [limit])
    names = zip(found[::2], found[1::2], strict=True)
    return server_time(seconds, microseconds), [(float(lapsed), run_of(name)) for name, lapsed in names]
