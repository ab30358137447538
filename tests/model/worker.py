"""What one worker does next: the way of a Celery task of the fleet, from the take to the message of the next one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adk_worker.transitions.runs import Phase, Reason, Then, Verdict
from tests.model.beside import Beside, to_approve
from tests.model.bounds import Bounds, Fault, Probe
from tests.model.steps import Move, published, put, said
from tests.model.store import Store
from tests.model.world import (
    DENIED,
    FAILED,
    HAPPENED,
    IDLE,
    NOTHING,
    At,
    Call,
    Op,
    Other,
    Place,
    Start,
    Told,
    Trying,
    Worker,
    World,
)

_BACK = {At.EXCEPTION: Reason.EXCEPTION, At.CONFLICT: Reason.CONFLICT, At.DRAIN: Reason.DRAIN}
_AFTER = frozenset({At.CALLS, At.RESULT, At.ASK})
"""Where all that was begun has ended."""
_SOFT = frozenset({At.THINK, At.ANSWERS, At.CALLS, At.INTEND, At.UNDECIDED})
"""Where a task may end by itself, without a boundary."""


def taken(world: World, store: Store, *, asks: int) -> Worker:
    """A worker that has just been given the lease, and has read what belongs to it."""
    row = store.rows[world.row]
    sequence, stage = world.stored
    call = world.calls[stage // 2] if stage % 2 else None
    return Worker(
        at=(At.ANSWERS if asks else At.CALLS) if stage % 2 else At.THINK,
        fence=row.lease.fence,
        sequence=sequence if stage else row.sequence,
        stage=stage,
        quiet=call is not None and call.quiet,
        request=world.kept[0],
        other=Other(request=world.kept[1]),
    )


class Workers:
    """Every worker's moves."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._rules = store.rules
        self._last = 2 * bounds.calls + 1
        self._asks_about = bounds.asks
        self._beside = Beside(store, bounds)
        self._probe = bounds.probe
        self._faults = bounds.kinds

    def moves(self, world: World, worker: Worker) -> Iterator[Move]:
        """What the worker may do, or suffer, next."""
        name = f"worker {worker.fence}"
        if worker.at is At.IDLE:
            return
        yield from self._beside.moves(world, worker, name)
        # All that was begun is awaited before anything else is planned or told.
        awaits = worker.at in _AFTER and self._beside.busy(worker)
        op = None if awaits else self._op(world, worker)
        if op is not None:
            yield self._write(world, worker, op)
        elif not awaits:
            yield from self._local(world, worker, name)
        if world.faults:
            yield from self._suffers(world, worker, name, op)

    # --- writes -----------------------------------------------------------------------------------------------

    def _op(self, world: World, worker: Worker) -> Op | None:  # noqa: C901, PLR0911 - a case for each place
        """The write that the worker is about to make."""
        fence, turn = worker.fence, self._beside.turn(worker)
        number = turn[0]
        match worker.at:
            case At.THINK:
                asks_first = self._rules.asks_first and self._rules.siblings_wait
                kept = self._store.asked.granted(world.asked, turn[: self._asks_about])
                then = Then.WAIT_APPROVAL if self._asks_about and asks_first and not any(kept) else Then.KEEP
                then = Then.COMPLETE if worker.stage + 1 == self._last else then
                told = Told(turn, asks=turn[: self._asks_about] if then is Then.WAIT_APPROVAL else (), kept=kept)
                return ("commit", fence, worker.sequence + 1, worker.stage + 1, then, True, told)
            case At.RESULT:
                if (not self._rules.commit_before_publish and not worker.ticket) or not self._beside.done(worker):
                    return None
                told = Told(turn, worker.outcome if worker.unrecorded else NOTHING, *_denied(worker, turn))
                return ("commit", fence, worker.sequence + 1, worker.stage + 1, Then.HAND_OVER, True, told)
            case At.INTEND if not self._barred(worker):
                return ("begin", fence, self._starts(worker), worker.ahead)
            case At.ASK | At.INTEND:
                kept = (min(worker.request, 0), min(worker.other.request, 0))
                told = Told(turn, asks=self._unpermitted(worker), kept=kept)
                return ("commit", fence, worker.sequence + 1, worker.stage, Then.WAIT_APPROVAL, True, told)
            case At.SETTLE:
                return ("settle", fence, number, worker.seen, worker.outcome)
            case At.PARK:
                return ("park", fence, number, worker.seen)
            case At.RECORD | At.NOTE:
                return ("record", fence, number, worker.outcome)
            case At.EXCEPTION | At.CONFLICT | At.DRAIN:
                return ("give_back", fence, _BACK[worker.at])
            case At.FAIL:
                return ("fail", fence)
            case At.LET_GO:
                return ("release", fence)
        return None

    def _starts(self, worker: Worker) -> tuple[Start, ...]:
        """The calls that are to be begun, all in one write."""
        first = Start(worker.stage // 2, worker.seen, worker.request)
        if not self._beside.there:
            return (first,)
        return (*((first,) if worker.outcome == NOTHING else ()), *self._beside.starts(worker))

    def _unpermitted(self, worker: Worker) -> tuple[int, ...]:
        """The calls that a person has to approve, and nothing lets pass."""
        requests = (worker.request, worker.other.request)
        asked = self._beside.turn(worker)[: self._asks_about]
        return tuple(call for call, request in zip(asked, requests, strict=False) if not request)

    def _barred(self, worker: Worker) -> bool:
        unpermitted = self._unpermitted(worker) if self._rules.begins_permitted else ()
        return any(start.number in unpermitted for start in self._starts(worker))

    def _write(self, world: World, worker: Worker, op: Op) -> Move:
        step = f"worker {worker.fence}: {said(op)}"
        with Trying(step):
            after, answer = self._store.apply(world, op)
        return Move(f"{step}{_answered(answer)}", put(after, worker, self._after(after, worker, op, answer)))

    def _after(self, world: World, worker: Worker, op: Op, answer: Any) -> Worker:  # noqa: PLR0911 - a case each
        """The worker, once its write was answered."""
        name = op[0]
        verdict, found = answer if isinstance(answer, tuple) else (answer, None)
        if verdict is Verdict.REFUSED:
            # Superseded. What it knows of its call is evidence, and asks for no lease (F4).
            return worker._replace(at=At.RECORD) if worker.unrecorded else IDLE
        if worker.at is At.NOTE:
            return worker._replace(at=At.RESULT, unrecorded=False)
        if verdict is Verdict.CANCELLED or name in {"record", "fail", "release"}:
            return IDLE
        match name:
            case "commit":
                return self._committed(world, worker, op)
            case "begin":
                return self._begun(worker, found)
            case "settle":
                outcome = worker.outcome if found.known == NOTHING else found.known
                return self._onward(worker._replace(outcome=outcome))
            case "note_dead":
                return worker._replace(dead_seen=True)
            case "park":
                # One of them was decided between the plan and the park: plan again.
                return worker._replace(at=At.CALLS) if verdict is None else IDLE
            case _:
                ticket = self._ticket(world) if op[2] is Reason.DRAIN else 0
                return Worker(at=At.PUBLISH, ticket=ticket) if ticket else IDLE

    def _committed(self, world: World, worker: Worker, op: Op) -> Worker:
        _, _, sequence, stage, then, stored, told = op
        if then is Then.HAND_OVER:
            ticket = self._ticket(world)
            published = not self._rules.commit_before_publish
            return Worker(at=At.PUBLISH, ticket=ticket) if ticket and not published else IDLE
        if then is not Then.KEEP:
            return IDLE
        after = Worker(At.THINK, worker.fence, sequence, stage, ahead=not stored)
        return self._fresh(after, told) if stage % 2 else after

    def _fresh(self, worker: Worker, told: Told) -> Worker:
        """A worker whose calls nobody can have begun before."""
        worker = worker._replace(request=told.kept[0], other=Other(request=told.kept[1]))
        if not self._rules.siblings_wait:
            return worker._replace(at=At.ASK, other=Other(Place.CALL))
        at = At.INTEND if self._rules.intent_before_effect else At.CALL
        return worker._replace(at=at, other=worker.other._replace(place=Place.START) if self._beside.there else Other())

    def _begun(self, worker: Worker, calls: tuple[Call, ...] | None) -> Worker:
        first = worker.stage // 2
        if calls is None:  # what was to let one of them does not
            refused = {start.number for start in self._starts(worker)}
            other = worker.other._replace(request=0) if self._beside.number(worker) in refused else worker.other
            return worker._replace(at=At.ASK, request=0 if first in refused else worker.request, other=other)
        after = worker._replace(at=At.RESULT)  # unless the first one is yet to be made
        for start, call in zip(self._starts(worker), calls, strict=True):
            mine = not call.decided and call.owner == worker.fence
            if start.number != first:
                after = after._replace(other=self._beside.begun(worker, call))
            elif worker.outcome == NOTHING:  # or else the effect came first
                after = after._replace(at=At.CALL if mine else At.CALLS)
        return after

    def _ticket(self, world: World) -> int:
        lease = self._store.rows[world.row].lease
        return lease.fence if self._store.rows[world.row].phase is Phase.LIVE and lease.holding == "queue" else 0

    # --- what is no write -------------------------------------------------------------------------------------

    def _local(self, world: World, worker: Worker, name: str) -> Iterator[Move]:
        number = worker.stage // 2
        match worker.at:
            case At.ANSWERS:
                heard = self._heard(world, worker)
                yield Move(f"{name}: reads what people said: {heard.at.name.lower()}", put(world, worker, heard))
            case At.CALLS:
                yield Move(f"{name}: plans", put(world, worker, self._planned(world, worker)))
            case At.CALL:
                requests = tuple(sorted((*world.requests, (number, worker.fence))))
                after = worker._replace(at=At.WAIT, tried=True)
                yield Move(
                    f"{name}: makes call {number}", put(self._dispatched(world, worker, requests), worker, after)
                )
            case At.WAIT if (number, worker.fence) not in world.requests:
                yield Move(f"{name}: call {number} times out", put(world, worker, self._timed_out(worker)))
            case At.UNDECIDED:
                yield from self._asks(world, worker, name)
            case At.DECIDE:
                call = world.calls[number]
                known = worker._replace(quiet=call is not None and call.quiet, dead_seen=True)
                yield Move(f"{name}: decides", put(world, worker, self._not_yet(known)))
            case At.RESULT if not self._beside.done(worker):
                yield Move(f"{name}: looks again", put(world, worker, worker._replace(at=At.CALLS)))
            case At.RESULT:
                ticket = worker.fence + 1
                sent = worker._replace(ticket=ticket)
                yield Move(f"{name}: publishes ticket {ticket}", put(published(world, ticket), worker, sent))
            case At.PUBLISH:
                after_it = published(world, worker.ticket)
                yield Move(f"a worker publishes ticket {worker.ticket}", put(after_it, worker, IDLE))

    def _heard(self, world: World, worker: Worker) -> Worker:
        numbers = self._beside.turn(worker)[: self._asks_about]
        first, *others = self._store.asked.stands(world.asked, numbers, (worker.request, worker.other.request))
        heard = worker._replace(request=first.request)
        if others:
            heard = heard._replace(other=worker.other._replace(request=others[0].request))
        if self._unpermitted(heard):
            return heard._replace(at=At.ASK)
        if others and not others[0].approved:
            heard = heard._replace(other=heard.other._replace(denied=True))
        if not (first.approved or self._rules.siblings_survive):
            heard = heard._replace(other=heard.other._replace(place=Place.DONE))
        if not self._rules.record_before_denial and heard.other.denied:
            heard = heard._replace(other=heard.other._replace(place=Place.DONE, outcome=DENIED))
        return heard._replace(at=At.CALLS, denied=not first.approved)

    def _dispatched(self, world: World, worker: Worker, requests: tuple[tuple[int, int], ...]) -> World:
        with Trying(f"worker {worker.fence}: makes call {worker.stage // 2}"):
            asked = to_approve(worker, self._beside.turn(worker)[: self._asks_about])
            self._store.check_approved(world, asked, worker.stage // 2)
        ghost = world.ghost._replace(ran=max(world.ghost.ran, worker.stage))
        return world._replace(requests=requests, ghost=ghost)

    def _planned(self, world: World, worker: Worker) -> Worker:
        worker = worker._replace(other=self._beside.planned(world, worker))
        call = world.calls[worker.stage // 2]
        if self._beside.there and worker.outcome != NOTHING:
            return self._onward(worker)
        if call is None or (worker.denied and not self._rules.record_before_denial):
            first = At.INTEND if self._rules.intent_before_effect else At.CALL
            return self._permitted(worker._replace(seen=0, dead_seen=False), first)
        if call.known != NOTHING:
            return self._onward(worker._replace(outcome=call.known, unrecorded=False))
        if call.never_ran:
            return self._permitted(worker._replace(seen=call.owner, dead_seen=call.dead_seen))
        if self._beside.starts(worker) and not self._rules.undecided_first:
            return worker._replace(at=At.RESULT, other=Other(Place.CALL))
        return worker._replace(at=At.UNDECIDED, seen=call.owner, dead_seen=call.dead_seen)

    def _permitted(self, worker: Worker, at: At = At.INTEND) -> Worker:
        """The first call may be made, as far as the far side is concerned: begin it, unless it was denied."""
        return self._onward(worker._replace(outcome=DENIED)) if worker.denied else worker._replace(at=at)

    def _onward(self, worker: Worker) -> Worker:
        """The first call has its outcome: on to what is left of the turn."""
        return worker._replace(at=At.INTEND if self._beside.starts(worker) else At.RESULT)

    def _timed_out(self, worker: Worker) -> Worker:
        if self._rules.timeout_is_unknown:
            return worker._replace(at=At.CALLS)
        return worker._replace(at=At.RESULT, outcome=FAILED, unrecorded=True)

    # --- probes -----------------------------------------------------------------------------------------------

    def _asks(self, world: World, worker: Worker, name: str) -> Iterator[Move]:
        """The death of the owner is noted before the probe is sent, if it is known; then the far side is asked."""
        number = worker.stage // 2
        superseded = worker.seen < worker.fence
        dead = self._rules.known_dead(dead=worker.seen in world.dead, superseded=superseded)
        if dead and not worker.dead_seen and self._probe is Probe.SEEN:
            yield self._write(world, worker, ("note_dead", worker.fence, number, worker.seen))
        after, asked = self._probed(world, worker, number)
        yield Move(f"{name}: asks about call {number}: {asked.at.name.lower()}", put(after, worker, asked))

    def _probed(self, world: World, worker: Worker, number: int) -> tuple[World, Worker]:
        if self._probe is Probe.NONE:
            return world, worker._replace(at=At.PARK)
        if world.effects[number]:
            return world, worker._replace(at=At.SETTLE, outcome=HAPPENED)
        if self._probe is Probe.SEEN:
            if not self._rules.death_before_probe:
                return world, worker._replace(at=At.DECIDE)
            return world, self._not_yet(worker)
        if self._rules.refuses_older_fences:
            below = max(world.closed[number], worker.seen + 1)
            world = world._replace(closed=(*world.closed[:number], below, *world.closed[number + 1 :]))
        if worker.tried:
            return world, worker._replace(at=At.SETTLE, outcome=FAILED)
        return world, self._permitted(worker)

    def _not_yet(self, worker: Worker) -> Worker:
        if self._rules.not_yet_permits(dead_seen=worker.dead_seen, quiet=worker.quiet):
            return self._permitted(worker)
        return worker._replace(at=At.CONFLICT if worker.dead_seen else At.PARK)

    # --- faults -----------------------------------------------------------------------------------------------

    def _suffers(self, world: World, worker: Worker, name: str, op: Op | None) -> Iterator[Move]:
        kinds, worse = self._faults, world._replace(faults=world.faults - 1)
        if Fault.CRASH in kinds:
            dead = tuple(sorted({*worse.dead, worker.fence})) if worker.fence else worse.dead
            yield Move(f"{name} dies", put(worse._replace(dead=dead), worker, IDLE), Fault.CRASH)
        if op is not None and world.late is None and Fault.NO_ANSWER in kinds and op[0] != "record":
            yield Move(f"{name}: {said(op)}, and no answer comes", worse._replace(late=op), Fault.NO_ANSWER)
        if worker.at is At.WAIT and (worker.stage // 2, worker.fence) in world.requests and Fault.TIMEOUT in kinds:
            timed_out = put(worse, worker, self._timed_out(worker))
            yield Move(f"{name}: call {worker.stage // 2} times out", timed_out, Fault.TIMEOUT)
        if worker.at in _SOFT:
            for fault, at in ((Fault.EXCEPTION, At.EXCEPTION), (Fault.DRAIN, At.DRAIN), (Fault.LET_GO, At.LET_GO)):
                if fault in kinds:
                    yield Move(f"{name}: {fault.value}", put(worse, worker, worker._replace(at=at)), fault)
        if worker.at is At.THINK and Fault.MODEL in kinds:
            yield Move(
                f"{name}: the model fails for good", put(worse, worker, worker._replace(at=At.FAIL)), Fault.MODEL
            )
        if op is not None and op[0] == "commit" and Fault.CHECKPOINT in kinds and op[4] is not Then.COMPLETE:
            yield from self._unstored(worse, worker, name, op)

    def _unstored(self, world: World, worker: Worker, name: str, op: Op) -> Iterator[Move]:
        """A frontier that could not be stored: a tombstone says so, or there was not even that (C3)."""
        _, fence, sequence, stage, then, _, told = op
        # A run without a stored frontier cannot wait: it is lost.
        instead = Then.PARK if then is Then.WAIT_APPROVAL else Then.KEEP
        tombstone = ("commit", fence, sequence, stage, instead, False, told)
        made = self._write(world, worker, tombstone)
        yield made._replace(fault=Fault.CHECKPOINT)
        if worker.at is At.THINK and then is not Then.WAIT_APPROVAL:
            ahead = self._fresh(Worker(At.THINK, fence, worker.sequence, stage, ahead=True), told)
            label = f"{name}: cannot store stage {stage}, and goes on from memory"
            yield Move(label, put(world, worker, ahead), Fault.CHECKPOINT)


def _denied(worker: Worker, turn: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Nobody is asked; the requests that were denied; the calls of which the model is told that they were not made."""
    calls = ((worker.denied, worker.request), (worker.other.denied, worker.other.request))
    outcomes = zip(turn, (worker.outcome, worker.other.outcome), strict=False)
    requests = tuple(request for denied, request in calls if denied)
    return (), requests, tuple(number for number, outcome in outcomes if outcome == DENIED)


def _answered(answer: Any) -> str:
    verdict = answer[0] if isinstance(answer, tuple) else answer
    if verdict is None:
        return " → refused, look again"
    return "" if verdict is Verdict.DONE else f" → {verdict.value}"
