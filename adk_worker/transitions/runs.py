"""The transition table of a run and its lease: pure functions, which alone decide how the two move.

A store reads :class:`State` under one lock, asks one function here, and writes what comes back in the same
transaction. Nothing here does I/O or knows a clock: the time is the store's (L1).

What happens to a lease alone is in :mod:`adk_worker.transitions.leases`. A live run's lease is never free.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from adk_worker.errors import ConfigurationError
from adk_worker.transitions.leases import Holding, LeaseState, StoreTime, next_fence, to_queue


class Phase(StrEnum):
    """What is stored of a run's status; a live run is queued or running by its lease."""

    LIVE = "live"
    WAITING_APPROVAL = "waiting_approval"
    PARKED = "parked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Attention(StrEnum):
    """Why a run needs somebody to look. On a queued run it says what keeps coming in the way."""

    APPROVAL = "approval"
    UNDECIDED_CALL = "undecided_call"
    KEY_REUSED = "key_reused"
    POISONED = "poisoned"
    FRONTIER_LOST = "frontier_lost"
    HISTORY_UNAVAILABLE = "history_unavailable"
    SEAL_KEY_MISSING = "seal_key_missing"
    OVER_BUDGET = "over_budget"
    AGENT_UNKNOWN = "agent_unknown"
    REVISION_MISMATCH = "revision_mismatch"
    FORMAT_TOO_NEW = "format_too_new"
    RESUME_CONFLICT = "resume_conflict"
    MODEL_UNAVAILABLE = "model_unavailable"
    EXCEPTION = "exception"


ENDED = frozenset({Phase.COMPLETED, Phase.FAILED, Phase.CANCELLED})


@dataclass(frozen=True, slots=True)
class FleetPolicy:
    """The fleet's times in seconds, and how many crashes without a boundary make a run poisoned."""

    lease_ttl: float = 60.0
    dispatch_grace: float = 30.0
    """How long a queued lease waits for its message before the message is published again."""
    dispatch_grace_max: float = 600.0
    retry_backoff: float = 1.0
    retry_backoff_max: float = 300.0
    max_crashes: int = 5

    def __post_init__(self) -> None:
        for name in (
            "lease_ttl",
            "dispatch_grace",
            "dispatch_grace_max",
            "retry_backoff",
            "retry_backoff_max",
        ):
            seconds = getattr(self, name)
            if not 0 < seconds < math.inf:  # nor is it so of NaN
                raise ConfigurationError(f"{name} is {seconds}; it has to be above 0 seconds, and finite.")
        for name in ("dispatch_grace", "retry_backoff"):
            first, most = getattr(self, name), getattr(self, f"{name}_max")
            if most < first:
                raise ConfigurationError(f"{name}_max is {most}; it has to be at least {name}, which is {first}.")
        if self.max_crashes < 1:
            raise ConfigurationError(f"max_crashes is {self.max_crashes}; it has to be at least 1.")


@dataclass(frozen=True, slots=True)
class State:
    """All that the rules look at: one run's row and its lease's, read under one lock."""

    lease: LeaseState
    phase: Phase = Phase.LIVE
    sequence: int = 0
    committed_by: int = 0
    """Fence of the acquisition that committed ``sequence`` (F5)."""
    crashes: int = 0
    """Deaths and exceptions since the last boundary."""
    tries: int = 0
    """Give-backs since the last boundary: what the backoff grows with."""
    cancel_requested: bool = False
    behind: bool = False
    """The mark: what ran is ahead of the stored frontier, which therefore must not be resumed from (C3)."""
    attention: Attention | None = None
    parked_on: tuple[str, ...] = ()
    """Keys of the undecided calls that the run is parked on."""

    def writable_by(self, fence: int) -> bool:
        """Whether the acquisition ``fence`` may write the run's state (F1).

        Whoever acquires the lease of a resting run may not write the run: that takes a ticket.
        """
        return self.phase is Phase.LIVE and self.lease.held_under(fence)


class Verdict(StrEnum):
    """What a transition came to, where it can come to several things."""

    DONE = "done"
    REFUSED = "refused"
    """Not the lease's holder, or not its ticket. Nothing changed."""
    CANCELLED = "cancelled"
    """A cancel was requested: the run ended instead (P2)."""
    REPEATED = "repeated"
    """This very commit is on record already; nothing changed (F5)."""
    PARKED = "parked"
    """The run was parked instead."""


@dataclass(frozen=True, slots=True)
class Moved:
    """The state after a transition, and what it came to."""

    state: State
    verdict: Verdict = Verdict.DONE


class Then(StrEnum):
    """What a boundary does with the lease."""

    KEEP = "keep"
    HAND_OVER = "hand_over"
    WAIT_APPROVAL = "wait_approval"
    PARK = "park"
    COMPLETE = "complete"
    FAIL = "fail"


_PHASE_AFTER = {
    Then.WAIT_APPROVAL: Phase.WAITING_APPROVAL,
    Then.PARK: Phase.PARKED,
    Then.COMPLETE: Phase.COMPLETED,
    Then.FAIL: Phase.FAILED,
}


class Reason(StrEnum):
    """Why a worker gives a lease back without a boundary."""

    EXCEPTION = "exception"
    """Counts towards ``poisoned`` and backs off."""
    CONFLICT = "conflict"
    """This worker cannot, another may, or this one later: backs off, counts no crash (C4, C7, I9)."""
    DRAIN = "drain"
    """The worker is leaving: no backoff, no count; the message is published at once."""


def submit(*, at: StoreTime, policy: FleetPolicy, fence: int = 0) -> State:
    """A new run, queued under its first ticket. ``fence`` is that of a lease which stood under its name before."""
    return State(lease=to_queue(fence, wait=policy.dispatch_grace, at=at))


def take(state: State, *, ticket: int, holder: str, at: StoreTime, ttl: float) -> Moved:
    """Grant the lease to the message that presents the ticket, lapsed or not; refuse every other as a duplicate."""
    lease = state.lease
    if state.phase is not Phase.LIVE or lease.holding is not Holding.QUEUE or lease.fence != ticket or state.behind:
        # A marked run whose worker let go of it is the reaper's to park: its stored frontier is not current (C3).
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    taken = LeaseState(next_fence(lease.fence, at.epoch), Holding.WORKER, holder, at.now + ttl)
    return Moved(replace(state, lease=taken))


def begin(state: State, *, fence: int, ahead: bool) -> Moved:
    """May calls be dispatched? ``ahead``: memory is ahead of the stored frontier; no mark, no dispatch (C3)."""
    if not state.writable_by(fence):
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    return Moved(replace(state, behind=state.behind or ahead))


def commit(
    state: State,
    *,
    fence: int,
    sequence: int,
    then: Then,
    stored: bool,
    at: StoreTime,
    policy: FleetPolicy,
    attention: Attention | None = None,
) -> Moved:
    """A boundary. ``stored`` is false for a tombstone, which stands for a frontier over the cap (C3).

    :raises ValueError: the commit does not follow the stored sequence, or gives a lease away without a frontier.
    """
    if state.committed_by == fence and state.sequence == sequence:
        return Moved(state, Verdict.REPEATED)
    if not state.writable_by(fence):
        return Moved(state, Verdict.REFUSED)
    if sequence != state.sequence + 1:
        raise ValueError(f"sequence {sequence} does not follow {state.sequence}")
    if not stored and then in {Then.HAND_OVER, Then.WAIT_APPROVAL}:
        raise ValueError(f"{then} needs a stored frontier")
    passed = replace(
        state,
        sequence=sequence,
        committed_by=fence,
        crashes=0,
        tries=0,
        behind=not stored,
        attention=None,
        parked_on=(),
    )
    if state.cancel_requested:
        return _cancelled(passed)
    if then is Then.KEEP:
        return Moved(passed)
    if then is Then.HAND_OVER:
        queued = to_queue(fence, wait=policy.dispatch_grace, at=at)
        return Moved(replace(passed, lease=queued))
    return Moved(replace(_freed(passed, _PHASE_AFTER[then]), attention=attention))


def park(state: State, *, fence: int, attention: Attention, parked_on: tuple[str, ...] = ()) -> Moved:
    """Park without a boundary: the stored frontier stays as it is."""
    if not state.writable_by(fence):
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    return Moved(_parked(state, attention, parked_on))


def fail(state: State, *, fence: int) -> Moved:
    """End as failed without a boundary: the stored frontier stays, to be carried on once the cause is gone (C5)."""
    if not state.writable_by(fence):
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    return Moved(_freed(state, Phase.FAILED))


def give_back(
    state: State,
    *,
    fence: int,
    reason: Reason,
    at: StoreTime,
    policy: FleetPolicy,
    attention: Attention | None = None,
    delay: float | None = None,
) -> Moved:
    """End a task without a boundary. ``delay`` overrides the backoff, in seconds."""
    if not state.writable_by(fence):
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    if state.behind:
        return Moved(_parked(state, Attention.FRONTIER_LOST), Verdict.PARKED)
    if reason is Reason.DRAIN:
        queued = to_queue(fence, wait=policy.dispatch_grace, at=at)
        return Moved(replace(state, lease=queued))
    crashes = state.crashes + (reason is Reason.EXCEPTION)
    if crashes >= policy.max_crashes:
        return Moved(_parked(replace(state, crashes=crashes), Attention.POISONED), Verdict.PARKED)
    wait = min(policy.retry_backoff_max, policy.retry_backoff * 2.0 ** min(state.tries, 32)) if delay is None else delay
    queued = to_queue(fence, wait=wait, at=at)
    return Moved(replace(state, lease=queued, crashes=crashes, tries=state.tries + 1, attention=attention))


def reap(
    state: State,
    *,
    at: StoreTime,
    policy: FleetPolicy,
    count_crashes: bool = True,
    known_dead: bool = False,
) -> Moved:
    """What the reaper does with a lease. ``known_dead`` lets it act on a holder before its lease has lapsed.

    After :data:`Verdict.DONE` the run's message has to be published, under the lease's fence as the ticket.
    """
    lease = state.lease
    worker = lease.holding is Holding.WORKER
    due = lease.holding is not Holding.FREE and (lease.lapsed(at.now) or (known_dead and worker))
    if state.phase is not Phase.LIVE or not due:
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    crashed = replace(state, crashes=state.crashes + (count_crashes and worker))
    if state.behind:  # in the queue's hands too, if its worker released the lease without giving the run back
        return Moved(_parked(crashed, Attention.FRONTIER_LOST), Verdict.PARKED)
    if lease.holding is Holding.QUEUE:
        wait = min(policy.dispatch_grace_max, max(policy.dispatch_grace, 2 * lease.wait))
        return Moved(replace(state, lease=replace(lease, wait=wait, expires_at=at.now + wait)))
    if crashed.crashes >= policy.max_crashes:
        return Moved(_parked(crashed, Attention.POISONED), Verdict.PARKED)
    queued = to_queue(lease.fence, wait=policy.dispatch_grace, at=at)
    return Moved(replace(crashed, lease=queued))


def requeue(state: State, *, at: StoreTime, policy: FleetPolicy) -> Moved:
    """Queue a parked or failed run again, or one that backs off in the queue, under a new ticket, without a backoff.

    Refused for any other, for one whose stored frontier is behind what ran (C3), and while somebody holds the lease of
    a resting one. Crashes are forgotten of a resting run alone: whoever takes it up says that their cause is gone.
    """
    live = state.phase is Phase.LIVE
    backs_off = live and state.lease.holding is Holding.QUEUE and state.attention is not None
    held = state.lease.holding is not Holding.FREE and not state.lease.lapsed(at.now)
    rests = state.phase in {Phase.PARKED, Phase.FAILED} and not held
    if state.behind or not (backs_off or rests):
        return Moved(state, Verdict.REFUSED)
    queued = to_queue(state.lease.fence, wait=policy.dispatch_grace, at=at)
    crashes = state.crashes if live else 0
    return Moved(replace(state, phase=Phase.LIVE, crashes=crashes, tries=0, attention=None, parked_on=(), lease=queued))


def answered(state: State, *, at: StoreTime, policy: FleetPolicy) -> Moved:
    """All that a run waited for has its answer: queue it under a new ticket. Refused for one that waits for none (P1).

    Whoever holds the lease of the waiting run loses it: nobody would bring the answer again once they have let go.
    """
    if state.phase is not Phase.WAITING_APPROVAL:
        return Moved(state, Verdict.REFUSED)
    if state.cancel_requested:
        return _cancelled(state)
    queued = to_queue(state.lease.fence, wait=policy.dispatch_grace, at=at)
    return Moved(replace(state, phase=Phase.LIVE, crashes=0, tries=0, attention=None, parked_on=(), lease=queued))


def heal(state: State, *, key: str, at: StoreTime, policy: FleetPolicy) -> Moved:
    """An outcome came in for ``key``: queue the run again if it was parked on that call (F4).

    The queued lease has lapsed at once: whoever brought the outcome may have no broker, so the reaper publishes.
    Whoever holds the lease of the resting run loses it: nobody would bring the outcome again once they have let go. A
    marked run cannot be queued: it stays parked, for its lost frontier now (C3).
    """
    if state.phase is not Phase.PARKED or key not in state.parked_on:
        return Moved(state, Verdict.REFUSED)
    if state.behind:
        return Moved(replace(state, attention=Attention.FRONTIER_LOST, parked_on=()), Verdict.PARKED)
    moved = requeue(_freed(state, state.phase), at=at, policy=policy)
    return replace(moved, state=replace(moved.state, lease=replace(moved.state.lease, expires_at=at.now, wait=0.0)))


def cancel(state: State) -> Moved:
    """Ask for the run's end. A resting or queued run ends at once, a held one at its next write or renewal (P2).

    Whoever holds the lease of a resting run loses it: no write of theirs would bring the end.
    """
    if state.phase is Phase.CANCELLED:
        return Moved(state, Verdict.REPEATED)
    if state.phase in ENDED:
        return Moved(state, Verdict.REFUSED)
    if state.phase is Phase.LIVE and state.lease.holding is Holding.WORKER:
        return Moved(replace(state, cancel_requested=True))
    return _cancelled(replace(state, cancel_requested=True))


def _freed(state: State, phase: Phase) -> State:
    return replace(state, phase=phase, lease=replace(state.lease, holding=Holding.FREE, holder=None))


def _parked(state: State, attention: Attention, parked_on: tuple[str, ...] = ()) -> State:
    return replace(_freed(state, Phase.PARKED), attention=attention, parked_on=parked_on)


def _cancelled(state: State) -> Moved:
    return Moved(replace(_freed(state, Phase.CANCELLED), attention=None, parked_on=()), Verdict.CANCELLED)
