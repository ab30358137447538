"""What happens around the workers: messages, time, the reaper, and the far side."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Verdict
from tests.model.bounds import Bounds, Fault
from tests.model.steps import Move, published, publishing, put, said
from tests.model.store import IN_FLIGHT_WAIT, Store
from tests.model.worker import taken
from tests.model.world import FAILED, HAPPENED, IDLE, At, Impossible, Place, Trying, Violation, Worker, World

OVER = "the time to answer is over"


class Broker:
    """Delivers each message once, twice, late, out of order, or never."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._asks = bounds.asks
        self._kinds = bounds.kinds

    def moves(self, world: World) -> Iterator[Move]:
        """Every message that may come, or be lost. The oldest comes first in order, and any other may."""
        worse = world._replace(faults=world.faults - 1)
        for ticket in dict.fromkeys(world.messages):
            left = list(world.messages)
            left.remove(ticket)
            if IDLE in world.workers:
                yield self.delivered(world._replace(messages=tuple(left)), ticket)
                if world.faults and Fault.COPY in self._kinds:
                    yield self.delivered(worse, ticket)._replace(fault=Fault.COPY)
            if world.faults and Fault.LOSS in self._kinds:
                yield Move(
                    f"the message with ticket {ticket} is lost", worse._replace(messages=tuple(left)), Fault.LOSS
                )

    def delivered(self, world: World, ticket: int) -> Move:
        """A message reaches an idle worker, which presents its ticket."""
        with Trying(f"ticket {ticket} is presented"):
            if ticket > world.ghost.top:
                raise Violation(f"a message carries ticket {ticket}, which the store has not given yet")
            after, verdict = self._store.take(world, ticket)
        if verdict is Verdict.DONE:
            after = put(after, IDLE, taken(after, self._store, asks=self._asks))
        return Move(f"ticket {ticket} is presented{'' if verdict is Verdict.DONE else f' → {verdict.value}'}", after)


class Time:
    """Lapses, the reaper, writes that are made late."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._bounds = bounds

    def moves(self, world: World) -> Iterator[Move]:
        """What may come with time."""
        yield from self.ages(world)
        if self._bounds.reaper:
            yield from self.lapses(world)
            yield from self.sweeps(world)
            yield from self.expiries(world)

    def ages(self, world: World) -> Iterator[Move]:
        """A late write is made, or never will be; the far side's promise comes true."""
        yield from self._late(world)
        yield from self._quiet(world)

    def lapses(self, world: World) -> Iterator[Move]:
        """The lease that stands lapses, or is renewed once it has."""
        row = self._store.rows[world.row]
        lease = row.lease
        if lease.holding is Holding.FREE:
            return
        alive = any(worker.fence == lease.fence and worker.at is not At.IDLE for worker in world.workers)
        if lease.expires_at > 0:
            if lease.wait == IN_FLIGHT_WAIT and not _all_quiet(world):
                return
            lapsed = self._store.number(replace(row, lease=replace(lease, expires_at=0.0)))
            if lease.holding is Holding.QUEUE or not alive:
                yield Move("the lease lapses", world._replace(row=lapsed))
            elif world.faults and Fault.LAPSE in self._bounds.kinds:
                worse = world._replace(row=lapsed, faults=world.faults - 1)
                yield Move(f"worker {lease.fence} is paused, and its lease lapses", worse, Fault.LAPSE)
        for worker in world.workers:
            if worker.at is not At.IDLE and worker.fence and (lease.expires_at == 0.0 or worker.fence != lease.fence):
                with Trying(f"worker {worker.fence} renews"):
                    after, renewed = self._store.renew(world, worker.fence)
                if renewed:
                    yield Move(f"worker {worker.fence} renews", after)

    def sweeps(self, world: World) -> Iterator[Move]:
        """The reaper acts on the lease, and publishes."""
        lease = self._store.rows[world.row].lease
        was, dead = lease.holding, lease.expires_at > 0 and lease.fence in world.dead
        with Trying("the reaper sweeps"):
            after, verdict = self._store.reap(world, known_dead=dead)
        if verdict is Verdict.REFUSED:
            return
        found = "a message that is late" if was is Holding.QUEUE else "a worker gone"
        label = f"the reaper finds {found}{'' if verdict is Verdict.DONE else f' → {verdict.value}'}"
        if verdict is Verdict.DONE:
            ticket = self._store.rows[after.row].lease.fence
            after, label = published(after, ticket), f"{label}, and publishes ticket {ticket}"
        yield Move(label, after)

    def expiries(self, world: World) -> Iterator[Move]:
        """The time to answer is over; the reaper denies what nobody has answered."""
        over = self._store.asked.over(world.asked)
        if over != world.asked:
            yield Move(OVER, world._replace(asked=over))
        with Trying("system:timeout denies"):
            after, ticket = self._store.expire(world)
        if after != world:
            yield Move(f"system:timeout denies{publishing(ticket)}", published(after, ticket))

    def _late(self, world: World) -> Iterator[Move]:
        if world.late is None:
            return
        gone = world._replace(late=None)
        step = f"late: {said(world.late)}"
        with Trying(step), suppress(Impossible):
            after, _ = self._store.apply(gone, world.late)
            yield Move(step, after)
        yield Move(f"never made: {said(world.late)}", gone)

    @staticmethod
    def _quiet(world: World) -> Iterator[Move]:
        """``max_in_flight`` passes: the far side's promise is that no request outlives its sender for longer."""
        for number, call in enumerate(world.calls):
            if call is None or call.decided or not call.dead_seen or call.quiet:
                continue
            if (number, call.owner) not in world.requests:
                calls = (*world.calls[:number], call._replace(quiet=True), *world.calls[number + 1 :])
                yield Move(f"max_in_flight of call {number} passes", world._replace(calls=calls))


class FarSide:
    """Where the calls go. It does not compare keys: a request that arrives has its effect."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._kinds = bounds.kinds
        self._known = At.NOTE if bounds.apart or bounds.beside else At.RESULT
        self._calls = bounds.calls

    def moves(self, world: World) -> Iterator[Move]:
        """Every request that may arrive, or be lost."""
        for request in dict.fromkeys(world.requests):
            arrived = self.arrives(world, request)
            yield arrived
            if request[1] not in world.dead and not self._waited_for(world, request):
                yield from self._late(arrived, request)
            if world.faults and Fault.UNSENT in self._kinds:
                lost = _without(world, request)._replace(faults=world.faults - 1)
                yield Move(f"the request of {request[1]} is lost", lost, Fault.UNSENT)

    def _late(self, arrived: Move, request: tuple[int, int]) -> Iterator[Move]:
        """The call outlived its time-out, in a process that lives: its outcome is recorded late (F4)."""
        number, fence = request
        call = arrived.world.calls[number]
        if call is not None and fence in (call.owner, *call.former):
            outcome = FAILED if fence < arrived.world.closed[number] else HAPPENED
            step = f"{arrived.label}, and is recorded late"
            with Trying(step):
                after, _ = self._store.apply(arrived.world, ("record", fence, number, outcome))
            yield Move(step, after)

    def _waits_beside(self, worker: Worker, request: tuple[int, int]) -> bool:
        number = self._calls + worker.stage // 2
        return worker.other.place is Place.WAIT and (number, worker.fence) == request

    def _waited_for(self, world: World, request: tuple[int, int]) -> bool:
        return any(_waits_for(worker, request) or self._waits_beside(worker, request) for worker in world.workers)

    def arrives(self, world: World, request: tuple[int, int]) -> Move:
        """A request arrives; whoever waits for its answer is given it."""
        number, fence = request
        after = _without(world, request)
        refused = fence < world.closed[number]
        if not refused and number >= self._calls:
            # It may be sent again: how often does not matter.
            after = after._replace(effects=(*world.effects[:number], 1, *world.effects[number + 1 :]))
        elif not refused:
            effects = world.effects[number] + 1
            if effects > 1 and not world.ghost.insisted:
                step = f"the request of {fence} arrives"
                raise Violation(f"call {number} has had its effect twice", steps=(step,))
            after = after._replace(effects=(*world.effects[:number], effects, *world.effects[number + 1 :]))
        for worker in world.workers:
            outcome = FAILED if refused else HAPPENED
            if self._waits_beside(worker, request):
                other = worker.other._replace(place=Place.NOTE, outcome=outcome)
                after = put(after, worker, worker._replace(other=other))
            if _waits_for(worker, request):
                done = worker._replace(at=self._known, outcome=outcome, unrecorded=True)
                if (call := world.calls[number]) is None or call.owner != fence:
                    done = done._replace(at=At.INTEND if call is None else self._known)
                after = put(after, worker, done)
        return Move(f"the request of {fence} arrives{', and is refused' if refused else ''}", after)


def _waits_for(worker: Worker, request: tuple[int, int]) -> bool:
    return worker.at is At.WAIT and (worker.stage // 2, worker.fence) == request


def _without(world: World, request: tuple[int, int]) -> World:
    left = list(world.requests)
    left.remove(request)
    return world._replace(requests=tuple(left))


def _all_quiet(world: World) -> bool:
    return all(call is None or call.decided or not call.dead_seen or call.quiet for call in world.calls)
