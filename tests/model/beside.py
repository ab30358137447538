"""The second call of a turn: one that may be sent again under its key, made beside the first, and awaited with it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.bounds import Bounds, Fault
from tests.model.steps import Move, put, said
from tests.model.store import Store
from tests.model.world import DENIED, FAILED, NOTHING, At, Call, Other, Place, Start, Trying, Violation, Worker, World

_BUSY = frozenset({Place.CALL, Place.WAIT, Place.NOTE})
_AT_WORK = frozenset({At.CALL, At.WAIT, At.NOTE, At.CALLS, At.RESULT, At.ASK})
"""Where a worker has its calls under way."""


class Beside:
    """What a worker does about it. Without such calls, nothing."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._calls = bounds.calls
        self._asks = bounds.asks
        self._kinds = bounds.kinds
        self.there = bounds.beside

    def number(self, worker: Worker) -> int:
        """The number of the call in the turn at hand: those come after all that are the first of theirs."""
        return self._calls + worker.stage // 2

    def busy(self, worker: Worker) -> bool:
        """Whether it is under way."""
        return worker.other.place in _BUSY

    def done(self, worker: Worker) -> bool:
        """Whether it has its outcome, if it is there."""
        return not self.there or worker.other.place is Place.DONE

    def starts(self, worker: Worker) -> tuple[Start, ...]:
        """The call, if it is to be begun."""
        other = worker.other
        return (Start(self.number(worker), other.seen, other.request),) if other.place is Place.START else ()

    def planned(self, world: World, worker: Worker) -> Other:
        """What is on record is taken over; what may have happened is made again."""
        other = worker.other
        if not self.there or other.place is Place.DONE:
            return other
        call = world.calls[self.number(worker)]
        if other.denied and (call is None or call.known == NOTHING):
            # Nobody knows of one that was begun under a grant, and it is not made again.
            return other._replace(place=Place.DONE, outcome=DENIED if call is None or call.never_ran else FAILED)
        if call is not None and call.known != NOTHING:
            return other._replace(place=Place.DONE, outcome=call.known)
        return other._replace(place=Place.START, seen=0 if call is None else call.owner)

    def begun(self, worker: Worker, call: Call) -> Other:
        """After its intent was recorded; what became somebody else's is planned again."""
        mine = not call.decided and call.owner == worker.fence
        return worker.other._replace(place=Place.CALL if mine else Place.NONE)

    def moves(self, world: World, worker: Worker, name: str) -> Iterator[Move]:
        """What may come of it next."""
        if worker.at not in _AT_WORK or worker.other.place not in _BUSY:
            return
        number, other = self.number(worker), worker.other
        request = (number, worker.fence)
        failed = worker._replace(other=other._replace(place=Place.NOTE, outcome=FAILED))
        match other.place:
            case Place.CALL:
                step = f"{name}: makes call {number}"
                with Trying(step):
                    self._check(world, worker)
                    self._store.check_approved(world, to_approve(worker, self.turn(worker)[: self._asks]), number)
                under_way = world._replace(requests=tuple(sorted((*world.requests, request))))
                yield Move(step, put(under_way, worker, worker._replace(other=other._replace(place=Place.WAIT))))
            case Place.WAIT if request not in world.requests:
                yield Move(f"{name}: call {number} times out", put(world, worker, failed))
            case Place.WAIT if world.faults and Fault.TIMEOUT in self._kinds:
                worse = world._replace(faults=world.faults - 1)
                yield Move(f"{name}: call {number} times out", put(worse, worker, failed), Fault.TIMEOUT)
            case Place.NOTE:
                op = ("record", worker.fence, number, other.outcome)
                step = f"{name}: {said(op)}"
                with Trying(step):
                    after, _ = self._store.apply(world, op)
                noted = worker._replace(other=other._replace(place=Place.DONE))
                yield Move(step, put(after, worker, noted))

    def turn(self, worker: Worker) -> tuple[int, ...]:
        """The calls of the turn at hand."""
        return (worker.stage // 2, self.number(worker)) if self.there else (worker.stage // 2,)

    @staticmethod
    def _check(world: World, worker: Worker) -> None:
        first = world.calls[worker.stage // 2]
        if first is not None and not first.decided and first.owner < worker.fence:
            raise Violation("a call is made while another of its turn is undecided")


def to_approve(worker: Worker, turn: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the calls that a person has to approve, and no grant lets pass."""
    permits = (worker.request, worker.other.request)
    return tuple(number for number, permit in zip(turn, permits, strict=False) if permit >= 0)
