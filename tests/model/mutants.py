"""The protocol with one rule taken out, each with the bounds within which the search finds what comes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from adk_worker.errors import ClaimOwnerError
from adk_worker.idempotency import Claim, ClaimState, Intent
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import leases as lease_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions import settling as settle_transitions
from adk_worker.transitions.leases import Holding, LeaseState, StoreTime
from adk_worker.transitions.runs import FleetPolicy, Moved, Phase, State, Verdict
from adk_worker.transitions.settling import Decided
from tests.model.bounds import Bounds, Fault, Probe
from tests.model.rules import Rule, Rules


@dataclass(frozen=True)
class Mutant:
    """``rule`` is what was taken out; ``finds`` is part of what the search must say then."""

    rule: str
    rules: Rules
    bounds: Bounds
    finds: str


# --- F1: who may write ----------------------------------------------------------------------------------------------


class EqualIsEnough(State):
    """A state whose lease may be written under an equal fence, though it was given up."""

    __slots__ = ()

    def writable_by(self, fence: int) -> bool:
        return self.lease.fence == fence


class HeldIsEnough(State):
    """A state that may be written by whoever was given its lease once."""

    __slots__ = ()

    def writable_by(self, fence: int) -> bool:
        return self.phase is Phase.LIVE and self.lease.holding is Holding.WORKER and fence > 0


def submits(kind: type[State]) -> Rule:
    def submit(**fields: Any) -> State:
        state = run_transitions.submit(**fields)
        return kind(lease=state.lease)

    return submit


def _renew_any(lease: LeaseState, *, fence: int, at: StoreTime, ttl: float) -> LeaseState | None:
    del fence
    return replace(lease, expires_at=at.now + ttl) if lease.holding is Holding.WORKER else None


def _release_any(lease: LeaseState, *, fence: int, live: bool, at: StoreTime) -> LeaseState:
    del fence
    return lease_transitions.release(lease, fence=lease.fence, live=live, at=at)


def _release_frees(lease: LeaseState, *, fence: int, live: bool, at: StoreTime) -> LeaseState:
    del live
    return lease_transitions.release(lease, fence=fence, live=False, at=at)


# --- L2: the fence ----------------------------------------------------------------------------------------------------


def keeps_the_fence(rule: Rule) -> Rule:
    """The rule, but whoever has the lease next has it under the same fence."""

    def moved(state: State, **fields: Any) -> Moved:
        after: Moved = rule(state, **fields)
        if after.state.lease.fence == state.lease.fence:
            return after
        return replace(after, state=replace(after.state, lease=replace(after.state.lease, fence=state.lease.fence)))

    return moved


def _forgets_the_fence(state: State, **fields: Any) -> Moved:
    after = run_transitions.park(state, **fields)
    if after.verdict is not Verdict.DONE:
        return after
    return replace(after, state=replace(after.state, lease=LeaseState()))


def _republishes_under_another_ticket(state: State, *, at: StoreTime, policy: FleetPolicy, **fields: Any) -> Moved:
    after = run_transitions.reap(state, at=at, policy=policy, **fields)
    if after.verdict is not Verdict.DONE or state.lease.holding is not Holding.QUEUE:
        return after
    return replace(after, state=replace(after.state, lease=replace(after.state.lease, fence=state.lease.fence + 1)))


def _takes_with_any_ticket(state: State, *, ticket: int, **fields: Any) -> Moved:
    del ticket
    return run_transitions.take(state, ticket=state.lease.fence, **fields)


def _requeues_and_keeps_the_lapse(state: State, *, at: StoreTime, policy: FleetPolicy) -> Moved:
    after = run_transitions.requeue(state, at=at, policy=policy)
    if after.verdict is not Verdict.DONE:
        return after
    return replace(after, state=replace(after.state, lease=replace(after.state.lease, holding=Holding.FREE)))


# --- C3: the mark -----------------------------------------------------------------------------------------------------


def _without_the_mark(rule: Rule) -> Rule:
    """The rule, as if no run were ever marked; a mark that is there stays."""

    def moved(state: State, **fields: Any) -> Moved:
        after: Moved = rule(replace(state, behind=False), **fields)
        return replace(after, state=replace(after.state, behind=state.behind))

    return moved


_TAKES_MARKED = _without_the_mark(run_transitions.take)


def _begins_without_a_mark(state: State, *, fence: int, ahead: bool) -> Moved:
    del ahead
    return run_transitions.begin(state, fence=fence, ahead=False)


def _tombstones_without_a_mark(state: State, **fields: Any) -> Moved:
    after = run_transitions.commit(state, **fields)
    return replace(after, state=replace(after.state, behind=state.behind)) if after.verdict is Verdict.DONE else after


def _parks_without_looking_at_the_claims(stored: Claim | None, *, seen: Claim) -> bool:
    del stored, seen
    return True


def _heals_nothing(state: State, **fields: Any) -> Moved:
    del fields
    return Moved(state, Verdict.REFUSED)


def _heals_no_marked_run(state: State, **fields: Any) -> Moved:
    return Moved(state, Verdict.REFUSED) if state.behind else run_transitions.heal(state, **fields)


def _heals_what_nobody_holds(state: State, **fields: Any) -> Moved:
    held = state.lease.holding is not Holding.FREE
    return Moved(state, Verdict.REFUSED) if held else run_transitions.heal(state, **fields)


# --- P2: cancel -------------------------------------------------------------------------------------------------------


def deaf(rule: Rule) -> Rule:
    """The rule, but it does not look at the cancel's flag."""

    def moved(state: State, **fields: Any) -> Moved:
        after: Moved = rule(replace(state, cancel_requested=False), **fields)
        return replace(after, state=replace(after.state, cancel_requested=state.cancel_requested))

    return moved


def _deaf_to_the_queue(state: State, **fields: Any) -> Moved:
    rule = deaf(run_transitions.reap) if state.lease.holding is Holding.QUEUE else run_transitions.reap
    moved: Moved = rule(state, **fields)
    return moved


def _cancels_at_the_next_write(state: State) -> Moved:
    if state.phase in run_transitions.ENDED:
        return run_transitions.cancel(state)
    return Moved(replace(state, cancel_requested=True))


# --- F5, and deaths ---------------------------------------------------------------------------------------------------


def _commits_again(state: State, **fields: Any) -> Moved:
    return run_transitions.commit(replace(state, committed_by=-1), **fields)


def _knows_commits_by_sequence(state: State, *, fence: int, sequence: int, **fields: Any) -> Moved:
    if state.sequence == sequence:
        return Moved(state, Verdict.REPEATED)
    return run_transitions.commit(state, fence=fence, sequence=sequence, **fields)


def _commits_anything(state: State, *, sequence: int, **fields: Any) -> Moved:
    return run_transitions.commit(replace(state, sequence=sequence - 1, committed_by=-1), sequence=sequence, **fields)


def _counts_no_crash(state: State, *, at: StoreTime, policy: FleetPolicy, known_dead: bool = False) -> Moved:
    return run_transitions.reap(state, at=at, policy=policy, count_crashes=False, known_dead=known_dead)


def _leaves_the_queue_alone(state: State, *, at: StoreTime, policy: FleetPolicy, known_dead: bool = False) -> Moved:
    if state.lease.holding is Holding.QUEUE:
        return Moved(state, Verdict.REFUSED)
    return run_transitions.reap(state, at=at, policy=policy, known_dead=known_dead)


def _leaves_the_dead_alone(state: State, *, at: StoreTime, policy: FleetPolicy, known_dead: bool = False) -> Moved:
    if state.lease.holding is Holding.WORKER:
        return Moved(state, Verdict.REFUSED)
    return run_transitions.reap(state, at=at, policy=policy, known_dead=known_dead)


# --- claims -----------------------------------------------------------------------------------------------------------


def _begins_what_is_settled(stored: Claim | None, intent: Any, **fields: Any) -> Claim:
    if stored is not None and stored.state is ClaimState.SETTLED:
        stored = None
    return claim_transitions.begin(stored, intent, **fields)


def _former_owners_settle(stored: Claim | None, *, key: str, owner: str, outcome: Any) -> Claim:
    if stored is not None and owner in stored.former and stored.state is ClaimState.IN_FLIGHT:
        return replace(stored, state=ClaimState.SETTLED, outcome=outcome, settled_by="owner")
    return claim_transitions.record(stored, key=key, owner=owner, outcome=outcome)


def _overwrites(stored: Claim | None, *, key: str, owner: str, outcome: Any) -> Claim:
    if stored is None or owner not in (stored.owner, *stored.former):
        raise ClaimOwnerError(key=key)
    return replace(stored, state=ClaimState.SETTLED, outcome=outcome, settled_by="owner")


def _only_the_owner_records(stored: Claim | None, *, key: str, owner: str, outcome: Any) -> Claim:
    if stored is None or owner != stored.owner:
        raise ClaimOwnerError(key=key)
    return claim_transitions.record(stored, key=key, owner=owner, outcome=outcome)


def _whoever(**_: bool) -> bool:
    return True


def _takes_anybodys_word(stored: Claim | None, *, asked: Settlement, **fields: Any) -> Decided:
    return settle_transitions.decide(stored, asked=replace(asked, owner_may_live=True), **fields)


def _waits_for_no_request(stored: Claim | None, *, asked: Settlement, **fields: Any) -> Decided:
    return settle_transitions.decide(stored, asked=replace(asked, max_in_flight=0.0), **fields)


def _begins_what_ran_after_all(stored: Claim | None, intent: Intent, **fields: Any) -> Claim:
    overlooked = replace(stored, late=()) if stored and stored.state is ClaimState.NEVER_RAN else stored
    return claim_transitions.begin(overlooked, intent, **fields)


# --- all of them ------------------------------------------------------------------------------------------------------


def within(*kinds: Fault, **bounds: Any) -> Bounds:
    return Bounds(kinds=frozenset(kinds), **{"faults": 1, **bounds})


RIGHT = "which had lost its lease or given it up"
TWICE = "has had its effect twice"
CANCEL = "a cancel was overlooked"
_OLDER = "carried on from stage"
AGAIN = "given twice"

MUTANTS = (
    Mutant(
        "F1: still held",
        Rules(submit=submits(EqualIsEnough)),
        within(Fault.NO_ANSWER, Fault.TIMEOUT, faults=2),
        RIGHT,
    ),
    Mutant("F1: an equal fence", Rules(submit=submits(HeldIsEnough)), within(Fault.LAPSE), RIGHT),
    Mutant("L3: only the holder renews", Rules(renew=_renew_any), within(Fault.LAPSE), "renewed a lease"),
    Mutant(
        "L10: a release frees one's own",
        Rules(release=_release_any),
        within(Fault.LAPSE, Fault.LET_GO, faults=2),
        "gave up a lease",
    ),
    Mutant("L2: a live run is never free", Rules(release=_release_frees), within(Fault.LET_GO), "live run is free"),
    Mutant("L2: a take raises the fence", Rules(take=keeps_the_fence(run_transitions.take)), within(faults=0), AGAIN),
    Mutant("L2: a hand-over raises it", Rules(commit=keeps_the_fence(run_transitions.commit)), within(faults=0), AGAIN),
    Mutant(
        "L2: giving back raises it",
        Rules(give_back=keeps_the_fence(run_transitions.give_back)),
        within(Fault.DRAIN),
        AGAIN,
    ),
    Mutant("L2: the reaper raises it", Rules(reap=keeps_the_fence(run_transitions.reap)), within(Fault.LAPSE), AGAIN),
    Mutant(
        "L2: queueing again raises it",
        Rules(requeue=keeps_the_fence(run_transitions.requeue)),
        within(Fault.MODEL, acts=1),
        AGAIN,
    ),
    Mutant(
        "L2: healing raises it",
        Rules(heal=keeps_the_fence(run_transitions.heal)),
        within(Fault.TIMEOUT, acts=1),
        AGAIN,
    ),
    Mutant("L2: parking keeps the fence", Rules(park=_forgets_the_fence), within(Fault.TIMEOUT), "fence fell"),
    Mutant(
        "2: the same ticket on republishing",
        Rules(reap=_republishes_under_another_ticket),
        within(faults=0),
        "stranded: if no message comes before",
    ),
    Mutant("2: the ticket alone takes", Rules(take=_takes_with_any_ticket), within(Fault.COPY), "which is not the one"),
    Mutant(
        "2: queued is in the queue's hands",
        Rules(requeue=_requeues_and_keeps_the_lapse),
        within(Fault.MODEL, acts=1),
        "live run is free",
    ),
    Mutant(
        "2: the reaper publishes what was lost", Rules(reap=_leaves_the_queue_alone), within(Fault.LOSS), "stranded"
    ),
    Mutant("2: the reaper finds the dead", Rules(reap=_leaves_the_dead_alone), within(Fault.CRASH), "stranded"),
    Mutant(
        "2: deaths are counted", Rules(reap=_counts_no_crash), within(faults=0), "stranded: if whoever takes the run"
    ),
    Mutant("2: publish after the commit", Rules(commit_before_publish=False), within(faults=0), "has not given yet"),
    Mutant(
        "C3: the mark in begin",
        Rules(begin=_begins_without_a_mark),
        within(Fault.CHECKPOINT, Fault.CRASH, faults=2),
        _OLDER,
    ),
    Mutant(
        "C3: a tombstone marks",
        Rules(commit=_tombstones_without_a_mark),
        within(Fault.CHECKPOINT, Fault.CRASH, faults=2),
        _OLDER,
    ),
    Mutant(
        "C3: the reaper parks a marked run",
        Rules(reap=_without_the_mark(run_transitions.reap)),
        within(Fault.CHECKPOINT, Fault.CRASH, faults=2),
        "stranded",
    ),
    Mutant(
        "C3: nor is it taken",
        Rules(reap=_without_the_mark(run_transitions.reap), take=_TAKES_MARKED),
        within(Fault.CHECKPOINT, Fault.CRASH, faults=2),
        _OLDER,
    ),
    Mutant(
        "C3: nor given back and taken",
        Rules(give_back=_without_the_mark(run_transitions.give_back), take=_TAKES_MARKED),
        within(Fault.CHECKPOINT, Fault.DRAIN, faults=2),
        _OLDER,
    ),
    Mutant(
        "C3: nor queued again and taken",
        Rules(requeue=_without_the_mark(run_transitions.requeue), take=_TAKES_MARKED),
        within(Fault.CHECKPOINT, Fault.DRAIN, faults=2, acts=1),
        _OLDER,
    ),
    Mutant(
        "C3: nor left with a decided call",
        Rules(heal=_heals_no_marked_run),
        within(Fault.CHECKPOINT, Fault.TIMEOUT, faults=2, acts=1),
        "which is decided",
    ),
    Mutant(
        "F4, I5: a park looks at the claims again",
        Rules(still_undecided=_parks_without_looking_at_the_claims),
        within(Fault.TIMEOUT, Fault.LAPSE),
        "which is decided",
    ),
    Mutant("F4: a late outcome heals", Rules(heal=_heals_nothing), within(Fault.LAPSE), "which is decided"),
    Mutant(
        "F4: whoever holds the run",
        Rules(heal=_heals_what_nobody_holds),
        within(Fault.LAPSE, acts=1),
        "which is decided",
    ),
    Mutant(
        "F4: evidence asks for no lease", Rules(record_without_lease=False), within(Fault.LAPSE), "is not on record"
    ),
    Mutant(
        "F4: a former owner's too",
        Rules(record=_only_the_owner_records),
        within(Fault.LAPSE, Fault.CRASH, probe=Probe.FENCING),
        "was refused to",
    ),
    Mutant(
        "F4: and settles nothing",
        Rules(record=_former_owners_settle),
        within(Fault.LAPSE, probe=Probe.FENCING),
        "on record",
    ),
    Mutant(
        "F4: and overwrites nothing", Rules(record=_overwrites), within(Fault.LAPSE, probe=Probe.FENCING), "on record"
    ),
    Mutant(
        "P2: take looks at the flag",
        Rules(take=deaf(run_transitions.take), reap=_deaf_to_the_queue),
        within(Fault.LET_GO, acts=1),
        CANCEL,
    ),
    Mutant("P2: begin looks at the flag", Rules(begin=deaf(run_transitions.begin)), within(faults=0, acts=1), CANCEL),
    Mutant(
        "P2: a boundary looks at the flag",
        Rules(commit=deaf(run_transitions.commit)),
        within(faults=0, acts=1),
        CANCEL,
    ),
    Mutant(
        "P2: a park looks at the flag", Rules(park=deaf(run_transitions.park)), within(Fault.TIMEOUT, acts=1), CANCEL
    ),
    Mutant(
        "P2: a failure looks at the flag",
        Rules(fail=deaf(run_transitions.fail)),
        within(Fault.MODEL, acts=1),
        CANCEL,
    ),
    Mutant(
        "P2: giving back looks at the flag",
        Rules(give_back=deaf(run_transitions.give_back)),
        within(Fault.DRAIN, acts=1),
        CANCEL,
    ),
    Mutant("P2: a reap looks at the flag", Rules(reap=deaf(run_transitions.reap)), within(Fault.CRASH, acts=1), CANCEL),
    Mutant(
        "P2: a resting run ends at once",
        Rules(cancel=_cancels_at_the_next_write),
        within(Fault.TIMEOUT, acts=1),
        "a cancel was lost",
    ),
    Mutant("F5: a commit is repeated once", Rules(commit=_commits_again), within(Fault.NO_ANSWER), "that cannot be"),
    Mutant("F5: by its fence too", Rules(commit=_knows_commits_by_sequence), within(Fault.LAPSE), "and it has not"),
    Mutant(
        "C5: one commit per sequence", Rules(commit=_commits_anything), within(Fault.NO_ANSWER), "was committed behind"
    ),
    Mutant("I2: the intent before the effect", Rules(intent_before_effect=False), within(Fault.CRASH), TWICE),
    Mutant(
        "I5: nothing of a turn is made while a call of it is undecided",
        Rules(undecided_first=False),
        within(Fault.CRASH, beside=True),
        "while another of its turn is undecided",
    ),
    Mutant(
        "I2: an outcome is never begun again",
        Rules(begin_claim=_begins_what_is_settled),
        within(Fault.LAPSE, probe=Probe.FENCING),
        "begun again",
    ),
    Mutant(
        "I7: known dead",
        Rules(not_yet_permits=_whoever),
        within(Fault.LAPSE, probe=Probe.SEEN),
        TWICE,
    ),
    Mutant(
        "I7: max_in_flight has passed",
        Rules(not_yet_permits=lambda *, dead_seen, **_: dead_seen),
        within(Fault.CRASH, probe=Probe.SEEN),
        TWICE,
    ),
    Mutant(
        "I7: dead before the probe was sent",
        Rules(death_before_probe=False),
        within(Fault.CRASH, probe=Probe.SEEN),
        TWICE,
    ),
    Mutant(
        "I11: superseded is no death",
        Rules(known_dead=lambda *, dead, superseded: dead or superseded),
        within(Fault.LAPSE, probe=Probe.SEEN),
        TWICE,
    ),
    Mutant(
        "I8: never ran waits for the owner's death",
        Rules(decide=_takes_anybodys_word),
        within(Fault.TIMEOUT, acts=1),
        TWICE,
    ),
    Mutant(
        "I8: and for its request",
        Rules(decide=_waits_for_no_request),
        within(Fault.CRASH, acts=1),
        TWICE,
    ),
    Mutant(
        "I8: a run that was parked on a call goes on once that is decided",
        Rules(settled=lambda state, **_: Moved(state)),
        within(Fault.TIMEOUT, acts=1),
        "which is decided",
    ),
    Mutant(
        "F4: a call that ran after all is not made again, whatever somebody has said",
        Rules(begin_claim=_begins_what_ran_after_all),
        within(Fault.TIMEOUT, acts=1, insists=True),
        "begun again",
    ),
    Mutant(
        "I10: a call that timed out is unknown",
        Rules(timeout_is_unknown=False),
        within(Fault.TIMEOUT),
        "did not happen, and it did",
    ),
    Mutant(
        "I7: never will is a promise",
        Rules(refuses_older_fences=False),
        within(Fault.LAPSE, probe=Probe.FENCING),
        TWICE,
    ),
)
