"""A run's life under any sequence of events, in any order: what must hold after each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from adk_worker.transitions.leases import Holding, LeaseState, StoreTime, acquire, release, renew
from adk_worker.transitions.runs import (
    ENDED,
    Attention,
    FleetPolicy,
    Moved,
    Phase,
    Reason,
    State,
    Then,
    Verdict,
    begin,
    cancel,
    commit,
    fail,
    give_back,
    heal,
    park,
    reap,
    requeue,
    submit,
    take,
)

POLICY = FleetPolicy(lease_ttl=10, dispatch_grace=5, dispatch_grace_max=20, retry_backoff=2, max_crashes=3)
FENCED = {"begin", "commit", "park", "fail", "give_back"}
LOOKS_AT_THE_CANCEL = {"take", "reap", *FENCED}
KEYS = ("k-1", "k-2")


@dataclass(frozen=True)
class Event:
    """Something that happens, with a fence that is the current one plus ``off``."""

    kind: str
    off: int
    seconds: float
    then: Then
    stored: bool
    reason: Reason
    flag: bool
    key: str
    epoch: int


def _of(kinds, off, seconds):
    return st.builds(
        Event,
        kind=st.sampled_from(kinds),
        off=off,
        seconds=seconds,
        then=st.sampled_from(Then),
        stored=st.booleans(),
        reason=st.sampled_from(Reason),
        flag=st.booleans(),
        key=st.sampled_from(KEYS),
        epoch=st.integers(0, 2),
    )


KINDS = ("take", *sorted(FENCED), "reap", "requeue", "heal", "cancel", "acquire", "renew", "release")
EVENTS = st.lists(
    # Mostly what a worker does that holds the lease; and whatever anybody may do at any time.
    st.one_of(
        _of(["take", "begin", "commit", "commit", "give_back", "reap"], st.just(0), st.sampled_from([0.0, 1.0])),
        _of(KINDS, st.integers(-2, 2), st.sampled_from([0.0, 4.0, 5.0, 10.0, 30.0])),
    ),
    max_size=40,
)


def _leased(state: State, changed: LeaseState | None) -> Moved:
    """The run after something happened to its lease alone."""
    if changed is None or changed == state.lease:
        return Moved(state, Verdict.REFUSED)
    return Moved(replace(state, lease=changed))


@dataclass(frozen=True)
class Case:
    """An event, where and when it happens, and the fence that it presents."""

    state: State
    fence: int
    event: Event
    at: StoreTime


HAPPENS = {
    "take": lambda c: take(c.state, ticket=c.fence, holder="w", at=c.at, ttl=10),
    "begin": lambda c: begin(c.state, fence=c.fence, ahead=c.event.flag),
    "commit": lambda c: commit(
        c.state,
        fence=c.fence,
        sequence=c.state.sequence + 1,
        then=c.event.then,
        stored=c.event.stored,
        at=c.at,
        policy=POLICY,
    ),
    "park": lambda c: park(c.state, fence=c.fence, attention=Attention.UNDECIDED_CALL, parked_on=(c.event.key,)),
    "fail": lambda c: fail(c.state, fence=c.fence),
    "give_back": lambda c: give_back(c.state, fence=c.fence, reason=c.event.reason, at=c.at, policy=POLICY),
    "reap": lambda c: reap(c.state, at=c.at, policy=POLICY, count_crashes=c.event.flag, known_dead=c.event.off == 2),
    "requeue": lambda c: requeue(c.state, at=c.at, policy=POLICY),
    "heal": lambda c: heal(c.state, key=c.event.key, at=c.at, policy=POLICY),
    "cancel": lambda c: cancel(c.state),
    "acquire": lambda c: _leased(c.state, acquire(c.state.lease, holder="cli", at=c.at, ttl=10)),
    "renew": lambda c: _leased(c.state, renew(c.state.lease, fence=c.fence, at=c.at, ttl=10)),
    "release": lambda c: _leased(
        c.state, release(c.state.lease, fence=c.fence, live=c.state.phase is Phase.LIVE, at=c.at)
    ),
}


def happen(state: State, event: Event, at: StoreTime) -> Moved | None:
    """The state after the event; ``None`` where it is a mistake of the caller's."""
    try:
        return HAPPENS[event.kind](Case(state, state.lease.fence + event.off, event, at))
    except ValueError:
        return None


@settings(max_examples=400)
@given(EVENTS)
def test_whatever_happens_the_rules_hold(events):
    """L2, L6, F1, F5, C3, P2: after every event of every life."""
    clock, epoch = 1000.0, 0
    before = submit(at=StoreTime(clock), policy=POLICY)
    for event in events:
        clock += event.seconds
        epoch = max(epoch, event.epoch)
        moved = happen(before, event, StoreTime(clock, epoch))
        if moved is None:
            continue
        after = moved.state

        changed = moved.verdict not in {Verdict.REFUSED, Verdict.REPEATED}
        assert changed or after == before, "what is refused, or repeated, changes nothing"

        assert after.lease.fence >= before.lease.fence, "the fence never falls (L2)"
        if (after.lease.holding, after.lease.holder) != (before.lease.holding, before.lease.holder):
            given_away = after.lease.holding is not Holding.FREE
            assert (after.lease.fence > before.lease.fence) is given_away, "whoever is given the lease has a new fence"
        assert after.lease.fence < 2**53

        live = after.phase is Phase.LIVE
        assert not live or after.lease.holding is not Holding.FREE, "a live run's lease is never free (L2)"
        assert live or after.lease.holding is not Holding.QUEUE, "the queue has no lease of a resting run (L2)"

        if event.kind in FENCED and event.off != 0 and moved.verdict is not Verdict.REPEATED:
            assert moved.verdict is Verdict.REFUSED, "a stale fence writes nothing (F1)"
        if event.kind in FENCED and before.lease.holding is not Holding.WORKER:
            assert not changed, "nor does a lease that was given up (F1)"
        if event.kind in {"acquire", "renew", "release"}:
            assert replace(after, lease=before.lease) == before, "a lease is no leave to change a run"

        if before.cancel_requested and changed and event.kind in LOOKS_AT_THE_CANCEL:
            assert after.phase is Phase.CANCELLED, "a cancel is never lost (P2)"
        assert before.phase not in ENDED - {Phase.FAILED} or after.phase is before.phase, "the end is the end"

        if before.behind and not after.behind:
            assert (event.kind, event.stored) == ("commit", True), "only a stored frontier takes the mark away (C3)"
        if before.behind and live and event.kind in {"reap", "give_back", "requeue", "heal"}:
            assert not changed, "a marked run is not queued again (C3)"

        assert after.sequence == before.sequence + (event.kind == "commit" and changed)
        assert after.crashes <= POLICY.max_crashes
        assert after.crashes < POLICY.max_crashes or not live, "a poisoned run is parked"
        assert not after.parked_on or after.phase is Phase.PARKED
        before = after
