"""The first state, and all that may come after a state."""

from __future__ import annotations

from collections.abc import Iterator

from adk_worker.transitions.runs import Phase
from tests.model.around import Broker, FarSide, Time
from tests.model.asked import GRANTED
from tests.model.bounds import Bounds
from tests.model.claims import key_of
from tests.model.people import People
from tests.model.rules import Rules
from tests.model.steps import Move
from tests.model.store import ALL_IN, NOW, Store
from tests.model.worker import Workers
from tests.model.world import FAILED, HAPPENED, IDLE, Ghost, Violation, World


class Protocol:
    """The whole: a store, its workers, and what is around them, within bounds."""

    def __init__(self, rules: Rules, bounds: Bounds, *, store: Store | None = None) -> None:
        self.store = store or Store(rules, max_crashes=bounds.max_crashes)
        self.bounds = bounds
        self.workers = Workers(self.store, bounds)
        self.broker = Broker(self.store, bounds)
        self.time = Time(self.store, bounds)
        self.far_side = FarSide(self.store, bounds)
        self.people = People(self.store, bounds)

    def first(self) -> World:
        """A run that was just submitted, its message published."""
        bounds = self.bounds
        state = self.store.rules.submit(at=NOW, policy=self.store.policy)
        fence = state.lease.fence
        calls = bounds.calls * (2 if bounds.beside else 1)
        return World(
            row=self.store.number(state),
            workers=(IDLE,) * bounds.workers,
            calls=(None,) * calls,
            effects=(0,) * calls,
            closed=(0,) * calls,
            asked=self.store.asked.number(GRANTED) if bounds.granted else 0,
            messages=(fence,),
            faults=bounds.faults,
            acts=bounds.acts,
            ghost=Ghost(top=fence, said=(None,) * calls),
        )

    def after(self, world: World) -> Iterator[Move]:
        """All that may happen next.

        :raises Violation: one of them does what must not be.
        """
        previous = None
        for worker in world.workers:
            if worker != previous:  # equal workers do the same
                yield from self.workers.moves(world, worker)
            previous = worker
        yield from self.broker.moves(world)
        yield from self.far_side.moves(world)
        yield from self.time.moves(world)
        yield from self.people.moves(world)

    def at_rest(self, world: World) -> bool:
        """Whether nothing has to advance the run any more: it has ended, or waits for somebody.

        One that waits for an approval goes on without it, once the time to answer is over.
        """
        return self.store.rows[world.row].phase not in {Phase.LIVE, Phase.WAITING_APPROVAL}

    def check_end(self, world: World, moves: int) -> None:
        """Where nothing can happen any more, the run has to be at rest.

        :raises Violation: it is not.
        """
        if not moves and not self.at_rest(world):
            raise Violation("nothing can happen any more, and the run is not at rest")

    def check(self, world: World) -> None:
        """What must be true of a state by itself.

        :raises Violation: it is not.
        """
        row = self.store.rows[world.row]
        if row.lease.fence < world.ghost.top:
            raise Violation(f"the fence fell from {world.ghost.top} to {row.lease.fence}")
        waits, pending = row.phase is Phase.WAITING_APPROVAL, self.store.asked.kept[world.asked].pending
        if waits and not pending:
            raise Violation(ALL_IN)
        if pending and not waits:
            raise Violation("somebody is asked, and nothing waits for what they say")
        for number, call in enumerate(world.calls):
            if call is None or not call.decided:
                continue
            again = number >= self.bounds.calls
            if call.outcome == FAILED and world.effects[number] and not (again or world.ghost.insisted):
                raise Violation(f"call {number} is on record as one that did not happen, and it did")
            if call.outcome == HAPPENED and not world.effects[number]:
                raise Violation(f"call {number} is on record as one that happened, and it did not")
            if row.phase is Phase.PARKED and key_of(number) in row.parked_on:
                raise Violation(f"the run is parked on call {number}, which is decided")
