"""The writes of a run store, composed of the tables as every store composes them, and what must be true of each.

Rows and claims are small numbers in a :class:`~tests.model.world.World`; here they are turned into what the tables
take, and what comes back is kept, so that no function of a table is asked the same thing twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adk_worker.actors import Actor
from adk_worker.errors import CallError, ClaimOwnerError
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import Attention, FleetPolicy, Phase, Reason, State, Then, Verdict
from tests.model.asked import ATTENTION, Asked, boundary_of, number_of
from tests.model.claims import call_of, claim_of, intent_of, key_of, outcome_of
from tests.model.rules import Rules
from tests.model.world import (
    FAILED,
    HAPPENED,
    NOTHING,
    Call,
    Ghost,
    Impossible,
    Op,
    Said,
    Start,
    Told,
    Violation,
    World,
)

NOW = StoreTime(0.0)
WAIT = 1.0
"""Every wait of the policy, in seconds: what lapses does so at any moment."""
IN_FLIGHT_WAIT = 2.0
"""The wait of a run that is given back until requests of a dead owner are no longer under way."""

ALL_IN = "the run waits for an answer, and all are in"

_ACCEPTED = frozenset({Verdict.DONE, Verdict.CANCELLED, Verdict.PARKED})
_RESTING = frozenset(Phase) - {Phase.LIVE}


class Store:
    """Makes the writes. It holds no state of a run, only what it has learnt of the tables."""

    def __init__(self, rules: Rules, *, max_crashes: int) -> None:
        self.rules = rules
        self.policy = FleetPolicy(
            lease_ttl=WAIT,
            dispatch_grace=WAIT,
            dispatch_grace_max=WAIT,
            retry_backoff=WAIT,
            retry_backoff_max=WAIT,
            max_crashes=max_crashes,
        )
        self.asked = Asked(rules)
        self.rows: list[State] = []
        self._numbers: dict[State, int] = {}
        self._asked: dict[tuple[Any, ...], Any] = {}

    # --- rows -------------------------------------------------------------------------------------------------

    def number(self, row: State) -> int:
        """The number of a row."""
        known = self._numbers.get(row)
        if known is None:
            known = self._numbers[row] = len(self.rows)
            self.rows.append(row)
            _check_row(row)
        return known

    def _moved(self, name: str, row: int, *args: Any, **fields: Any) -> tuple[int, Verdict]:
        asked = (name, row, *args, *fields.values())
        if asked not in self._asked:
            moved = getattr(self.rules, name)(self.rows[row], *args, **fields)
            self._asked[asked] = (self.number(moved.state), moved.verdict)
        answer: tuple[int, Verdict] = self._asked[asked]
        return answer

    def _lease(self, name: str, row: int, **fields: Any) -> tuple[int, bool]:
        """A write of the lease alone: the row, and whether it was granted."""
        asked = (name, row, *fields.values())
        if asked not in self._asked:
            state = self.rows[row]
            lease = getattr(self.rules, name)(state.lease, **fields)
            after = row if lease is None else self.number(replace(state, lease=lease))
            self._asked[asked] = (after, lease is not None)
        answer: tuple[int, bool] = self._asked[asked]
        return answer

    # --- a worker's writes ------------------------------------------------------------------------------------

    def apply(self, world: World, op: Op) -> tuple[World, Any]:
        """Make a write, as it was asked for; the answer is its verdict, for ``begin`` and ``settle`` the claim too.

        :raises Violation: something is not as it must be.
        """
        made: tuple[World, Any] = getattr(self, f"_{op[0]}")(world, *op[1:])
        return made

    def take(self, world: World, ticket: int) -> tuple[World, Verdict]:
        """A message presents its ticket."""
        before = self.rows[world.row]
        holder = str(before.lease.fence + 1)
        row, verdict = self._moved("take", world.row, ticket=ticket, holder=holder, at=NOW, ttl=WAIT)
        if verdict is not Verdict.DONE:
            return self._ended(world._replace(row=row), verdict), verdict
        if before.lease.holding is not Holding.QUEUE or before.lease.fence != ticket:
            raise Violation(
                f"the run was taken with ticket {ticket}, which is not the one that the queue holds it under"
            )
        if ticket <= world.ghost.rested:
            raise Violation(f"ticket {ticket} is from before the run was parked, and carried it on")
        if world.ghost.cancelled:
            raise Violation("a cancel was overlooked: the run was taken")
        if world.stored[1] < world.ghost.ran:
            raise Violation(
                f"the run is carried on from stage {world.stored[1]}, though it has been at stage {world.ghost.ran}"
            )
        fence = self.rows[row].lease.fence
        taken = self._given(world._replace(row=row))
        return taken._replace(ghost=taken.ghost._replace(right=fence)), verdict

    def _begin(self, world: World, fence: int, starts: tuple[Start, ...], ahead: bool) -> tuple[World, Any]:
        row, verdict = self._moved("begin", world.row, fence=fence, ahead=ahead)
        self._check_right(world, row, fence, verdict)
        if verdict is not Verdict.DONE:
            return self._ended(world._replace(row=row), verdict), (verdict, None)
        begun = tuple(self._claimed(world, start, fence) for start in starts)
        new = [intent_of(start) for start, call in zip(starts, begun, strict=True) if call != world.calls[start.number]]
        permitted = self.asked.permit(world.asked, [intent for intent in new if intent.permit is not None])
        if permitted is None:
            return world, (None, None)
        grants = self.asked.kept[permitted].grants
        if any(grant.revoked_at is not None and intent.permit == grant.grant_id for grant in grants for intent in new):
            raise Violation("a call is begun under a grant that was revoked")
        world = self.asked.noted(world, permitted)._replace(row=row)
        for start, call in zip(starts, begun, strict=True):
            world = world._replace(calls=_put(world.calls, start.number, call))
        return world, (verdict, begun)

    def _claimed(self, world: World, start: Start, fence: int) -> Call:
        stored = world.calls[start.number]
        asked = ("begin_claim", start, stored, fence)
        if asked not in self._asked:
            claim = self.rules.begin_claim(
                None if stored is None else claim_of(start.number, stored),
                intent_of(start),
                tenant="acme",
                owner=str(fence),
                now=0.0,
                fence=fence,
            )
            self._asked[asked] = call_of(claim, stored)
        call: Call = self._asked[asked]
        if stored is not None and stored.known != NOTHING and not call.decided:
            raise Violation(f"the outcome of call {start.number} was on record, and the call was begun again")
        return call

    def _commit(  # noqa: C901 - one check for each thing that can be wrong with a commit
        self,
        world: World,
        fence: int,
        sequence: int,
        stage: int,
        then: Then,
        stored: bool,
        told: Told,
    ) -> tuple[World, Any]:
        try:
            row, verdict = self._moved(
                "commit",
                world.row,
                fence=fence,
                sequence=sequence,
                then=then,
                stored=stored,
                at=NOW,
                policy=self.policy,
                attention=ATTENTION.get(then),
            )
        except ValueError as error:
            raise Impossible(f"a commit was asked for that cannot be: {error}") from error
        ghost = world.ghost
        if verdict is Verdict.REPEATED:
            if (ghost.sequence, ghost.by) != (sequence, fence):
                raise Violation(f"fence {fence} was told that it has committed {sequence}, and it has not")
            return world, verdict
        self._check_right(world, row, fence, verdict)
        if verdict is Verdict.REFUSED:
            return world, verdict
        if sequence != ghost.sequence + 1:
            raise Violation(f"sequence {sequence} was committed behind {ghost.sequence}")
        ghost = ghost._replace(sequence=sequence, by=fence, ran=max(ghost.ran, stage))
        world = world._replace(row=row, ghost=ghost)
        if stored:
            world = world._replace(stored=(sequence, stage), kept=told.kept)
        if told.outcome in {FAILED, HAPPENED}:
            world = self._recorded(world, told.turn[0], fence, told.outcome)
        if told.asks or told.denied:
            boundary = boundary_of(sequence, stage, then, told)
            world = self.asked.noted(world, self.asked.bound(world.asked, boundary, done=verdict is Verdict.DONE))
        if verdict is Verdict.CANCELLED:
            return self._ended(world, verdict), verdict
        if then is Then.HAND_OVER:
            self._check_results(world, told)
            world = self._given(world)
        if then is not Then.KEEP:
            world = self._gave_up(world)
        return world, verdict

    def _park(self, world: World, fence: int, number: int, seen: int) -> tuple[World, Any]:
        row, verdict = self._moved(
            "park", world.row, fence=fence, attention=Attention.UNDECIDED_CALL, parked_on=(key_of(number),)
        )
        self._check_right(world, row, fence, verdict)
        if verdict is Verdict.DONE:
            stored = world.calls[number]
            shown = claim_of(number, Call(seen))
            if not self.rules.still_undecided(None if stored is None else claim_of(number, stored), seen=shown):
                return world, None
            return self._gave_up(world._replace(row=row)), verdict
        return self._ended(world._replace(row=row), verdict), verdict

    def _fail(self, world: World, fence: int) -> tuple[World, Any]:
        row, verdict = self._moved("fail", world.row, fence=fence)
        return self._left(world, row, fence, verdict), verdict

    def _give_back(self, world: World, fence: int, reason: Reason) -> tuple[World, Any]:
        delay = IN_FLIGHT_WAIT if reason is Reason.CONFLICT else None
        row, verdict = self._moved(
            "give_back",
            world.row,
            fence=fence,
            reason=reason,
            at=NOW,
            policy=self.policy,
            attention=Attention.EXCEPTION,
            delay=delay,
        )
        # tries grows for ever while a run waits, and here the backoff is the same however often.
        state = self.rows[row]
        if state.tries > 1:
            row = self.number(replace(state, tries=1))
        after = self._left(world, row, fence, verdict)
        return (self._given(after) if verdict is Verdict.DONE else after), verdict

    def _settle(self, world: World, fence: int, number: int, seen: int, outcome: int) -> tuple[World, Any]:
        if not self.rows[world.row].writable_by(fence):
            return world, (Verdict.REFUSED, None)
        self._check_right(world, world.row, fence, Verdict.DONE, ends=False)
        stored = world.calls[number]
        after = self._settled(number, stored, seen, outcome)
        return self._decided(world, number, after), (Verdict.DONE, after)

    def _note_dead(self, world: World, fence: int, number: int, seen: int) -> tuple[World, Any]:
        if not self.rows[world.row].writable_by(fence):
            return world, Verdict.REFUSED
        self._check_right(world, world.row, fence, Verdict.DONE, ends=False)
        stored = world.calls[number]
        if stored is None:
            return world, Verdict.DONE
        claim = self.rules.note_dead(claim_of(number, stored), seen=claim_of(number, Call(seen)), now=0.0)
        return world._replace(calls=_put(world.calls, number, call_of(claim, stored))), Verdict.DONE

    def _record(self, world: World, fence: int, number: int, outcome: int) -> tuple[World, Any]:
        if self.rules.record_without_lease or self.rows[world.row].writable_by(fence):
            world = self._recorded(world, number, fence, outcome)
        call = world.calls[number]
        if call is None or outcome not in (call.outcome, *call.late):
            raise Violation(f"what became of call {number} is known to fence {fence}, and is not on record")
        return world, Verdict.DONE

    def _release(self, world: World, fence: int) -> tuple[World, Any]:
        state = self.rows[world.row]
        live = state.phase is Phase.LIVE
        row, _ = self._lease("release", world.row, fence=fence, live=live, at=NOW)
        if row != world.row:
            if live and world.ghost.right != fence:
                raise Violation(f"fence {fence} gave up a lease that is not its own")
            world = world._replace(row=row)
            if live:
                world = self._gave_up(self._given(world))
        return world, Verdict.DONE

    def renew(self, world: World, fence: int) -> tuple[World, bool]:
        """A keeper renews."""
        row, renewed = self._lease("renew", world.row, fence=fence, at=NOW, ttl=WAIT)
        if renewed and world.ghost.right != fence:
            raise Violation(f"fence {fence} renewed a lease that is not its own")
        return world._replace(row=row), renewed

    # --- the reaper's, and people's ---------------------------------------------------------------------------

    def reap(self, world: World, *, known_dead: bool = False) -> tuple[World, Verdict]:
        """Act on the lease if it has lapsed, or if its holder is known to be dead (I11)."""
        was = self.rows[world.row].lease.holding
        fields = {"known_dead": True} if known_dead else {}
        row, verdict = self._moved("reap", world.row, at=NOW, policy=self.policy, **fields)
        if verdict is Verdict.REFUSED:
            return world, verdict
        if world.ghost.cancelled and verdict is not Verdict.CANCELLED:
            raise Violation("a cancel was overlooked: the run was reaped and goes on")
        world = world._replace(row=row)
        if was is Holding.WORKER:
            world = self._gave_up(world)
        if verdict is Verdict.DONE and was is Holding.WORKER:
            world = self._given(world)
        if verdict is Verdict.DONE and was is Holding.QUEUE:
            # Whoever raises the fence here has given another ticket: whether that does harm is for the search to find.
            top = max(world.ghost.top, self.rows[row].lease.fence)
            world = world._replace(ghost=world.ghost._replace(top=top))
        return self._ended(world, verdict), verdict

    def requeue(self, world: World) -> tuple[World, Verdict]:
        """A person has the run go on."""
        row, verdict = self._moved("requeue", world.row, at=NOW, policy=self.policy)
        world = world._replace(row=row)
        return (self._given(world) if verdict is Verdict.DONE else world), verdict

    def cancel(self, world: World) -> tuple[World, Verdict]:
        """A person asks for the run's end."""
        row, verdict = self._moved("cancel", world.row)
        if verdict is Verdict.REFUSED:
            return world, verdict
        waited = self._waits(world)
        world = world._replace(row=row, ghost=world.ghost._replace(cancelled=True))
        if verdict is Verdict.CANCELLED and waited:
            world = self._withdrawn(world)
        return self._ended(world, verdict), verdict

    def decide(self, world: World, number: int, outcome: int, *, dead: bool, insists: bool) -> tuple[World, Verdict]:
        """A person says what became of a call; ``NOTHING`` is that it never ran, so that it may be made.

        ``dead``: its owner is known dead from where they are. ``insists``: they say that nothing is under way.
        """
        stored = world.calls[number]
        assert stored is not None
        claim = claim_of(number, stored)
        asked = Settlement(
            Actor("ann"),
            "they have looked",
            None if outcome == NOTHING else outcome_of(outcome),
            owner_may_live=insists,
            owner_dead=dead,
            # How much of it has passed since the owner was seen dead, by a clock that stands still.
            max_in_flight=0.0 if stored.quiet else WAIT,
        )
        try:
            decided = self.rules.decide(claim, seen=claim, asked=asked, now=0.0)
        except CallError:
            return world, Verdict.REFUSED
        undecided = tuple(key_of(index) for index, call in enumerate(world.calls) if call and not call.decided)
        row, verdict = self._moved(
            "settled", world.row, key=key_of(number), undecided=undecided, at=NOW, policy=self.policy
        )
        if verdict is Verdict.REFUSED:
            return world, verdict
        after = world._replace(calls=_put(world.calls, number, call_of(decided.claim, stored)))
        if decided.verdict is Verdict.REFUSED:
            return after, decided.verdict
        if insists:
            after = after._replace(ghost=after.ghost._replace(insisted=True))
        queued = row != world.row and self.rows[row].phase is Phase.LIVE
        after = after._replace(row=row)
        return self._given(after) if queued else self._ended(after, verdict), verdict

    def _answer(self, world: World, who: str, request: int, approved: bool) -> tuple[World, Any]:
        """A person answers a request; the ticket to publish is answered too, 0 for none."""
        number = number_of(self.asked.kept[world.asked].requests[request - 1].key)
        stands = world.ghost.said[number] == Said(approved, who)
        asked, verdict = self.asked.answer(world.asked, who, request, approved=approved)
        if verdict is Verdict.DONE and not self._waits(world):
            verdict = Verdict.REFUSED
        if verdict is Verdict.REFUSED and stands:
            raise Violation(f"{who} is told that their answer was refused, and it stands")
        if verdict is Verdict.REPEATED and not stands:
            raise Violation(f"{who} is told that their answer stands, and it does not")
        if verdict is Verdict.DONE:
            world = self._follow(world, asked)
        return world, (verdict, self._ticket(world) if verdict is not Verdict.REFUSED else 0)

    def _revoke(self, world: World) -> tuple[World, Any]:
        """Somebody revokes the grant, if there is one."""
        if not self.asked.kept[world.asked].grants:
            return world, Verdict.REFUSED
        asked = self.asked.revoke(world.asked)
        return world._replace(asked=asked), Verdict.DONE if asked != world.asked else Verdict.REPEATED

    def expire(self, world: World) -> tuple[World, int]:
        """The reaper denies what nobody has answered in time; the ticket to publish, 0 for none."""
        asked = self.asked.expire(world.asked)
        if asked == world.asked:
            return world, 0
        after = self._follow(world, asked)
        return after, self._ticket(after)

    def _follow(self, world: World, asked: int) -> World:
        """Write answers, and what follows from them: once the last is in, the run is queued, all in one (P1)."""
        world = self.asked.noted(world, asked)
        if self.asked.kept[asked].pending and self.rules.last_answer:
            return world
        row, verdict = self._moved("answered", world.row, at=NOW, policy=self.policy)
        if verdict is Verdict.REFUSED:
            if self._waits(world):
                raise Violation(ALL_IN)
            return world
        world = world._replace(row=row)
        if verdict is Verdict.CANCELLED:
            return self._ended(self._withdrawn(world), verdict)
        if world.ghost.cancelled:
            raise Violation("a cancel was overlooked: an answer carried the run on")
        return self._given(world)

    def _withdrawn(self, world: World) -> World:
        return self.asked.noted(world, self.asked.withdraw(world.asked))

    def _ticket(self, world: World) -> int:
        lease = self.rows[world.row].lease
        return lease.fence if lease.holding is Holding.QUEUE and not self.asked.kept[world.asked].pending else 0

    def _waits(self, world: World) -> bool:
        return self.rows[world.row].phase is Phase.WAITING_APPROVAL

    def acquire(self, world: World) -> tuple[World, bool]:
        """Somebody at a terminal takes the lease of a resting run."""
        holder = str(self.rows[world.row].lease.fence + 1)
        row, granted = self._lease("acquire", world.row, holder=holder, at=NOW, ttl=WAIT)
        if granted:
            world = self._given(world._replace(row=row))
        return world, granted

    # --- claims -----------------------------------------------------------------------------------------------

    def _settled(self, number: int, stored: Call | None, seen: int, outcome: int) -> Call:
        asked = ("settle", number, stored, seen, outcome)
        if asked not in self._asked:
            claim = None if stored is None else claim_of(number, stored)
            shown = claim_of(number, Call(seen))
            after = self.rules.settle(claim, seen=shown, outcome=outcome_of(outcome), by="somebody")
            self._asked[asked] = call_of(after, stored)
        call: Call = self._asked[asked]
        return call

    def _recorded(self, world: World, number: int, owner: int, outcome: int) -> World:
        stored = world.calls[number]
        asked = ("record", number, stored, owner, outcome)
        if asked not in self._asked:
            claim = None if stored is None else claim_of(number, stored)
            try:
                after = self.rules.record(claim, key=key_of(number), owner=str(owner), outcome=outcome_of(outcome))
            except ClaimOwnerError as error:
                raise Violation(f"the outcome of call {number} was refused to {owner}, who made it") from error
            self._asked[asked] = call_of(after, stored)
        return self._decided(world, number, self._asked[asked])

    def _decided(self, world: World, number: int, after: Call) -> World:
        """Write a claim on which an outcome came in, and what follows for the run, all in one (F4)."""
        before = world.calls[number]
        if before == after:
            return world
        if before is not None and before.outcome not in {NOTHING, after.outcome}:
            raise Violation(f"the outcome of call {number} was on record, and was written over")
        world = world._replace(calls=_put(world.calls, number, after))
        settled_now = after.outcome != NOTHING and (before is None or before.outcome == NOTHING)
        return self._healed(world, number) if settled_now else world

    def _healed(self, world: World, number: int) -> World:
        row, verdict = self._moved("heal", world.row, key=key_of(number), at=NOW, policy=self.policy)
        if verdict is Verdict.REFUSED:
            return world
        world = world._replace(row=row)
        return self._given(world) if verdict is Verdict.DONE else world

    # --- what an outsider notes -------------------------------------------------------------------------------

    def check_approved(self, world: World, asked: tuple[int, ...], number: int) -> None:
        """Before a call is made: all of its turn that people are ``asked`` about are decided, and it is not denied.

        :raises Violation: it must not be made.
        """
        for call in asked:
            said = world.ghost.said[call]
            if said is None:
                of = "it" if call == number else f"call {call} of its turn"
                raise Violation(f"call {number} is made, and nobody has decided about {of}")
            if call == number and not said.approved:
                raise Violation(f"call {number} is made, and {said.by} has denied it")

    def _check_results(self, world: World, told: Told) -> None:
        """At the boundary after a turn: each of its calls has its result."""
        for number in told.turn:
            call, said = world.calls[number], world.ghost.said[number]
            if (call is None or call.known == NOTHING) and (said is None or said.approved):
                raise Violation(f"call {number} has no result, and the run went on without it")
            if number in told.not_made and world.effects[number] and not world.ghost.insisted:
                raise Violation(f"the model is told that call {number} was not made, and it was")

    def _left(self, world: World, row: int, fence: int, verdict: Verdict) -> World:
        """After a write that ends a task without a boundary."""
        self._check_right(world, row, fence, verdict)
        if verdict is Verdict.REFUSED:
            return world
        world = world._replace(row=row)
        return self._ended(world, verdict) if verdict is Verdict.CANCELLED else self._gave_up(world)

    def _check_right(self, world: World, row: int, fence: int, verdict: Verdict, *, ends: bool = True) -> None:
        if verdict not in _ACCEPTED:
            return
        if world.ghost.right != fence:
            raise Violation(f"a write of fence {fence} was accepted, which had lost its lease or given it up")
        if ends and world.ghost.cancelled and self.rows[row].phase is not Phase.CANCELLED:
            raise Violation("a cancel was overlooked: a write was accepted and did not end the run")

    def _given(self, world: World) -> World:
        """The lease has new hands: under a fence that was never given before (L2)."""
        fence = self.rows[world.row].lease.fence
        if fence <= world.ghost.top:
            raise Violation(f"fence {fence} was given twice")
        return world._replace(ghost=world.ghost._replace(top=fence))

    def _gave_up(self, world: World) -> World:
        ghost: Ghost = world.ghost._replace(right=0)
        state = self.rows[world.row]
        if state.phase in _RESTING:
            ghost = ghost._replace(rested=ghost.top)
        return world._replace(ghost=ghost)

    def _ended(self, world: World, verdict: Verdict) -> World:
        return self._gave_up(world) if verdict in {Verdict.CANCELLED, Verdict.PARKED} else world


def _put(calls: tuple[Call | None, ...], number: int, call: Call | None) -> tuple[Call | None, ...]:
    return (*calls[:number], call, *calls[number + 1 :])


def _check_row(row: State) -> None:
    if row.phase is Phase.LIVE and row.lease.holding is Holding.FREE:
        raise Violation("the lease of a live run is free: nobody will carry it on")
    if row.phase is Phase.PARKED and row.attention is None:
        raise Violation("the run is parked and nothing says why")
