"""The reaper's part: what has lapsed, bucket by bucket, and what is done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from adk_worker.approvals.store import Expired
from adk_worker.errors import StoreUnavailableError
from adk_worker.lease import RunLease
from adk_worker.log import get_logger
from adk_worker.memory import approving, sweeping
from adk_worker.memory.data import RunKey
from adk_worker.runs import Reaped, Sweep
from adk_worker.transitions.runs import FleetPolicy
from stores.redis.apart import not_read, together
from stores.redis.data import RunData
from stores.redis.keys import BUCKETS, SWEPT, Keys, bucket_of_run, run_of
from stores.redis.server import Process
from stores.redis.transaction import server_time

T = TypeVar("T")

_ALL: Final = -1

_log = get_logger(__name__)


def claim_lapsed(process: Process, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
    """See :meth:`adk_worker.runs.RunStore.claim_lapsed`.

    Each lease is acted on in a transaction of its own, in which its row is looked at again. Should the store go away
    in between, what was done so far is returned, since its messages have to be published; the next sweep does the rest.
    """
    reap = partial(sweeping.reap, policy=policy, count_crashes=count_crashes)
    return _acted(process, limit, lambda keys: keys.lapses, reap)


def expire(process: Process, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
    """See :meth:`adk_worker.approvals.store.ApprovalOperations.expire`.

    Each run is done in a transaction of its own, as above.
    """
    return _acted(process, limit, lambda keys: keys.expiries, partial(approving.expire, policy=policy))


def held_on(process: Process, host: str, *, within: float) -> Sequence[RunLease]:
    """See :meth:`adk_worker.runs.RunStore.held_on`. Only those rows are read that are due by then."""
    found: list[RunLease] = []
    for bucket in range(BUCKETS):
        runs = [run for _, run in _lapsed(process, bucket, _ALL, within=within)[1]]
        if runs:
            answers = together(process, bucket, runs, partial(_held, host=host), unreadable=_unreadable)
            found += [lease for leases in answers for lease in leases]
    return sorted(found, key=lambda lease: lease.expires_at)


def sweep(process: Process) -> Sweep:
    """See :meth:`adk_worker.runs.RunStore.sweep`."""
    process.epoch(0)
    seconds, microseconds, last = process.call("sweep", [SWEPT])
    return Sweep(server_time(seconds, microseconds), None if last is None else float(last))


def swept(process: Process) -> Sweep:
    """See :class:`adk_worker.lifecycle.TellsSweeps`."""
    # The script that looks for lapsed leases tells the clock too; the first bucket is where it is kept.
    now, _ = _lapsed(process, 0, 0)
    last = process.ask(lambda client: client.get(SWEPT), reading=True)
    return Sweep(now, None if last is None else float(last))


def oldest_lapsed(process: Process) -> float | None:
    """See :meth:`adk_worker.runs.RunStore.oldest_lapsed`."""
    found = [_lapsed(process, bucket, 1) for bucket in range(BUCKETS)]
    return max((now - lapses[0][0] for now, lapses in found if lapses), default=None)


def _acted(
    process: Process, limit: int, index: Callable[[Keys], str], act: Callable[[RunData, RunKey], T | None]
) -> Sequence[T]:
    """What ``act`` does about what is due, up to ``limit`` of them, the longest ago first.

    Those that cannot be read stay due, and stand before the others: none of the others is left for them.
    """
    acted: list[T] = []
    unreadable: set[RunKey] = set()
    more = True
    while more and len(acted) < limit:
        at_most = limit - len(acted) + len(unreadable)
        more = False
        try:
            due = sorted(_due(process, at_most, index))[:at_most]
            for run in [run for _, run in due if run not in unreadable]:
                try:
                    done = process.transact(bucket_of_run(run), partial(_act, run=run, act=act))
                except ValueError as error:
                    # Its kind alone: the text may quote the run.
                    tenant, run_id = run
                    _log.error("run_not_reaped", tenant=tenant, run_id=run_id, error=type(error).__name__)
                    unreadable.add(run)
                    more = True
                    continue
                if done is not None:
                    acted.append(done)
        except StoreUnavailableError:
            if not acted:
                raise
    return acted


def _act(data: RunData, run: RunKey, act: Callable[[RunData, RunKey], T | None]) -> T | None:
    return act(data, run)


def _due(process: Process, limit: int, index: Callable[[Keys], str]) -> Sequence[tuple[float, RunKey]]:
    return list(in_each(process, lambda bucket: _past(process, index(Keys(bucket)), limit)[1]))


def in_each(process: Process, ask: Callable[[int], Iterable[T]], *, first: int = 0) -> Iterator[T]:
    """What ``ask`` finds in each bucket, from the ``first`` on.

    A node that is away is asked once, and holds up no other's runs.

    :raises StoreUnavailableError: all are away.
    """
    away: dict[str, StoreUnavailableError] = {}
    asked = {process.place(bucket) for bucket in range(first, BUCKETS)}
    for bucket in range(first, BUCKETS):
        place = process.place(bucket)
        if place in away:
            continue
        try:
            found = ask(bucket)
        except StoreUnavailableError as error:
            away[place] = error
            _log.warning("not_swept", place=place, error=str(error))
        else:
            yield from found
    if len(away) == len(asked):
        raise next(iter(away.values()))


def _unreadable(run: RunKey, error: ValueError) -> Sequence[RunLease]:
    not_read(run, error)
    return ()


def _held(data: RunData, runs: Sequence[RunKey], host: str) -> Sequence[RunLease]:
    data.look(runs=runs)
    return [lease for run in runs if (lease := sweeping.held(data, run, host)) is not None]


def _lapsed(
    process: Process, bucket: int, limit: int, *, within: float = 0.0
) -> tuple[float, Sequence[tuple[float, RunKey]]]:
    return _past(process, Keys(bucket).lapses, limit, within=within)


def _past(
    process: Process, index: str, limit: int, *, within: float = 0.0
) -> tuple[float, Sequence[tuple[float, RunKey]]]:
    seconds, microseconds, found = process.call("lapsed", [index], [limit, repr(float(within))])
    names = zip(found[::2], found[1::2], strict=True)
    return server_time(seconds, microseconds), [(float(lapsed), run_of(name)) for name, lapsed in names]
