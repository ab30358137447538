"""Which leases a process keeps, and what is due with each: decisions, with the local time passed in.

The local clock only ever stops work *earlier* than the store would (L9): it decides no expiry. All times are in seconds
of one monotonic clock. :class:`~adk_worker.keeping.keeper.LeaseKeeper` is the thread that asks.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from adk_worker.interruption import Cause, Interruption
from adk_worker.lease import LeasePolicy, RunLease
from adk_worker.log import get_logger
from adk_worker.runs import Renewal

SUPERSEDED: Final = "the store refused to renew it: it was taken or given up"
NOT_RENEWED: Final = "it could not be renewed in time"
NOT_LEFT: Final = "its iteration did not stop when it was told to"

LAST_WORDS: Final = 5.0
"""How long calls that were cancelled at the end of a drain have to be written down before the process goes, in s."""

_log = get_logger(__name__)

_Key: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class _Kept:
    """One lease. ``lost`` says why it is not renewed any more."""

    lease: RunLease
    interruption: Interruption
    entered_at: float
    good_until: float
    renew_by: float
    cancelled: bool = False
    timed_out_at: float | None = None
    lost: str | None = None


@dataclass(slots=True)
class _Loop:
    """The heartbeat of the loop in which the work runs: when the oldest beat was sent that it has not answered."""

    unanswered_since: float | None = None

    def silent_for(self, now: float) -> float:
        return 0.0 if self.unanswered_since is None else now - self.unanswered_since


class Roster:
    """The leases that a process keeps. Usable from any thread.

    :param iteration_timeout: how long an iteration may take, and the loop stay silent; ``None`` is for ever (L8).
    :param drain_timeout: how long calls in flight are waited for once the process is leaving.
    """

    def __init__(
        self,
        policy: LeasePolicy,
        *,
        iteration_timeout: float | None = None,
        drain_timeout: float = math.inf,
    ) -> None:
        self._policy = policy
        self._iteration_timeout = math.inf if iteration_timeout is None else iteration_timeout
        self._drain_timeout = drain_timeout
        self._kept: dict[_Key, _Kept] = {}
        self._loop = _Loop()
        self._drained_at: float | None = None
        self._condemned: str | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._kept)

    @property
    def draining(self) -> bool:
        """Whether the process is leaving."""
        return self._drained_at is not None

    # --- what the work says -------------------------------------------------------------------------------------

    def enter(self, lease: RunLease, interruption: Interruption, *, now: float, since: float | None = None) -> None:
        """Keep ``lease``. ``since`` is when it was asked for, the earliest moment at which it can have been granted."""
        with self._lock:
            kept = _Kept(
                lease=lease,
                interruption=interruption,
                entered_at=now,
                good_until=self._good_until(now if since is None else since),
                renew_by=now + self._policy.renew_within,
            )
            self._kept[_key(lease)] = kept
            if self._drained_at is not None:
                interruption.set(Cause.DRAIN)

    def leave(self, lease: RunLease) -> None:
        """Keep it no more. Harmless for a lease that is not kept."""
        with self._lock:
            self._kept.pop(_key(lease), None)

    def lost(self, lease: RunLease, *, now: float) -> str | None:
        """Why a kept lease must not be relied on any more, ``None`` while it may be."""
        with self._lock:
            kept = self._kept.get(_key(lease))
            if kept is None:
                return None
            self._check_good(kept, now)
            return kept.lost

    def drain(self, *, now: float) -> None:
        """The process is leaving: tell all work, also what enters later."""
        with self._lock:
            self._drain(now)

    # --- renewal ------------------------------------------------------------------------------------------------

    def due(self, by: float) -> tuple[RunLease, ...]:
        """The leases to be renewed in one batch; none as long as none is due ``by`` then.

        Those that would be due soon are in it too, which makes batches fewer. A lease that is only asked for again,
        after a failure, does not have all the others renewed with it.
        """
        with self._lock:
            kept = [one for one in self._kept.values() if one.lost is None]
            if not any(one.renew_by <= by for one in kept):
                return ()
            soon = by + self._policy.renew_within / 2
            return tuple(one.lease for one in kept if one.renew_by <= soon)

    def renewed(self, leases: Sequence[RunLease], renewals: Iterable[Renewal], *, sent_at: float) -> None:
        """The store answered; ``sent_at`` is when it was asked.

        :raises ValueError: not one answer for each lease.
        """
        answers = list(zip(leases, renewals, strict=True))
        with self._lock:
            for lease, renewal in answers:
                kept = self._kept.get(_key(lease))
                if kept is None or kept.lost is not None:
                    continue
                if renewal.busy:
                    self._again_soon(kept, sent_at)
                    continue
                if renewal.lease is None:
                    _lose(kept, SUPERSEDED)
                    continue
                kept.lease = renewal.lease
                # Counted from the moment of asking: the store can have granted it no earlier.
                kept.good_until = self._good_until(sent_at)
                kept.renew_by = sent_at + self._policy.renew_within
                if renewal.cancel_requested and not kept.cancelled:
                    kept.cancelled = True
                    kept.interruption.set(Cause.CANCEL)

    def failed(self, leases: Sequence[RunLease], *, now: float) -> None:
        """The store did not answer for these: ask again soon."""
        with self._lock:
            for lease in leases:
                kept = self._kept.get(_key(lease))
                if kept is not None:
                    self._again_soon(kept, now)

    # --- time ---------------------------------------------------------------------------------------------------

    def beat_sent(self, *, now: float) -> None:
        """A heartbeat was sent to the loop."""
        with self._lock:
            if self._loop.unanswered_since is None:
                self._loop.unanswered_since = now

    def beat_heard(self) -> None:
        """The loop ran it. Called in the loop."""
        with self._lock:
            self._loop.unanswered_since = None

    def look(self, *, now: float) -> str | None:
        """Tell whoever has to stop by now; return why the process must end, ``None`` while it need not (L8, L9)."""
        with self._lock:
            silent = self._loop.silent_for(now)
            for kept in self._kept.values():
                self._check_good(kept, now)
                if silent > self._iteration_timeout or now - kept.entered_at > self._iteration_timeout:
                    _time_out(kept, now)
                if kept.timed_out_at is not None and now - kept.timed_out_at > self._policy.ttl_seconds:
                    if kept.lost is None:
                        _lose(kept, NOT_LEFT)
                    self._condemn(f"{_named(kept.lease)}: {NOT_LEFT}", now)
            if silent > self._iteration_timeout + self._policy.ttl_seconds:
                return f"the event loop has not answered for {silent:.0f} s"
            return self._leaving(now)

    def _leaving(self, now: float) -> str | None:
        """Why to end a process that is leaving: nobody is left to wait for, or nobody is waited for any longer."""
        if self._drained_at is None:
            return None
        left = now - self._drained_at
        if left >= self._drain_timeout:
            for kept in self._kept.values():
                _time_out(kept, now)
        worthy = [kept for kept in self._kept.values() if kept.lost is None]
        if self._condemned is not None and (not worthy or left >= self._drain_timeout + LAST_WORDS):
            return self._condemned
        if self._kept and left >= self._drain_timeout + LAST_WORDS:
            named = ", ".join(_named(kept.lease) for kept in self._kept.values())
            return f"the process was told to leave {left:.0f} s ago, and these runs have not stopped: {named}"
        return None

    def _condemn(self, why: str, now: float) -> None:
        """This process has to end, but others of its runs may still hand over."""
        if self._condemned is None:
            self._condemned = why
            self._drain(now)

    def _drain(self, now: float) -> None:
        if self._drained_at is None:
            self._drained_at = now
            for kept in self._kept.values():
                kept.interruption.set(Cause.DRAIN)

    def _good_until(self, asked_at: float) -> float:
        return asked_at + self._policy.ttl_seconds - self._policy.margin

    def _again_soon(self, kept: _Kept, now: float) -> None:
        kept.renew_by = now + self._policy.renew_within / 4

    def _check_good(self, kept: _Kept, now: float) -> None:
        if kept.lost is None and now >= kept.good_until:
            _lose(kept, NOT_RENEWED)


def _lose(kept: _Kept, why: str) -> None:
    lease = kept.lease
    _log.warning("lease_lost", tenant=lease.tenant, run_id=lease.run_id, fence=lease.fence, why=why)
    kept.lost = why
    kept.interruption.set(Cause.SUPERSEDED)


def _time_out(kept: _Kept, now: float) -> None:
    if kept.timed_out_at is None:
        lease = kept.lease
        _log.warning("iteration_timed_out", tenant=lease.tenant, run_id=lease.run_id, fence=lease.fence)
        kept.timed_out_at = now
        kept.interruption.set(Cause.TIMEOUT)


def _key(lease: RunLease) -> _Key:
    return lease.tenant, lease.run_id, lease.fence


def _named(lease: RunLease) -> str:
    return f"run {lease.run_id!r} of tenant {lease.tenant!r}"
