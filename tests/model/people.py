"""What people do about a run: cancel it, queue it again, hold its lease, decide its calls, and approve them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adk_worker.transitions.runs import Phase, Verdict
from tests.model.bounds import Bounds, Fault
from tests.model.steps import Move, published, publishing, said
from tests.model.store import Store
from tests.model.world import HAPPENED, NOTHING, Trying, World

_TWO = ("ann", "bob")
"""Those who may answer. Any more would do the same."""


class People:
    """What people do about a run."""

    def __init__(self, store: Store, bounds: Bounds) -> None:
        self._store = store
        self._kinds = bounds.kinds
        self._insists = (False, True) if bounds.insists else (False,)

    def moves(self, world: World) -> Iterator[Move]:
        """What somebody may do next."""
        if world.terminal:
            after, _ = self._store.apply(world, ("release", world.terminal))
            yield Move("the terminal lets the lease go", after._replace(terminal=0))
        yield from self._answers(world)
        if not world.acts:
            return
        world = world._replace(acts=world.acts - 1)
        row = self._store.rows[world.row]
        after, verdict = self._store.apply(world, ("revoke",))
        if verdict is Verdict.DONE:
            yield Move("somebody revokes the grant", after)
        with Trying("a person cancels the run"):
            after, verdict = self._store.cancel(world)
        if verdict in {Verdict.DONE, Verdict.CANCELLED}:
            yield Move("a person cancels the run", after)
        rests = row.phase in {Phase.PARKED, Phase.FAILED, Phase.WAITING_APPROVAL}
        if rests:
            with Trying("a person queues the run again"):
                after, verdict = self._store.requeue(world)
            if verdict is Verdict.DONE:
                ticket = self._store.rows[after.row].lease.fence
                yield Move(f"a person queues the run again, ticket {ticket}", published(after, ticket))
            after, granted = self._store.acquire(world)
            if granted:
                fence = self._store.rows[after.row].lease.fence
                yield Move(f"somebody at a terminal takes the lease, fence {fence}", after._replace(terminal=fence))
        yield from self._decides(world)

    def _decides(self, world: World) -> Iterator[Move]:
        """A person looks at the far side, and says what they see, at whatever moment that is (I8)."""
        for number, call in enumerate(world.calls):
            if call is None or call.decided:
                continue
            outcome = HAPPENED if world.effects[number] else NOTHING
            what = "happened" if world.effects[number] else "never ran"
            for insists in self._insists if outcome == NOTHING else (False,):
                label = f"a person says that call {number} {what}{', and that nothing is under way' if insists else ''}"
                with Trying(label):
                    after, verdict = self._store.decide(
                        world, number, outcome, dead=call.owner in world.dead, insists=insists
                    )
                if verdict is Verdict.REFUSED and after == world:
                    continue
                row = self._store.rows[after.row]
                if verdict is Verdict.DONE and row.phase is Phase.LIVE:
                    after = published(after, row.lease.fence)
                yield Move(f"{label}{' → refused' if verdict is Verdict.REFUSED else ''}", after)

    def _answers(self, world: World) -> Iterator[Move]:
        """Two people answer what was asked, whenever they like, and as often; one whom no answer came to does so again.

        Nothing comes of it where it is refused. As long as neither has answered, either is as good as the other.
        """
        if world.unanswered is not None:
            label, after, _ = self._said(world, world.unanswered)
            yield Move(f"{label}, again", after._replace(unanswered=None))
        for number, request in enumerate(self._store.asked.kept[world.asked].requests, 1):
            for who in _TWO if world.unanswered is not None or not request.pending else _TWO[:1]:
                for approves in (True, False):
                    op = ("answer", who, number, approves)
                    if op == world.unanswered:
                        continue
                    label, after, verdict = self._said(world, op)
                    if verdict is not Verdict.DONE:
                        continue
                    yield Move(label, after)
                    if world.faults and Fault.NO_ANSWER in self._kinds and not (world.late or world.unanswered):
                        lost = world._replace(late=op, unanswered=op, faults=world.faults - 1)
                        yield Move(f"{said(op)}, and no answer comes", lost, Fault.NO_ANSWER)

    def _said(self, world: World, op: Any) -> tuple[str, World, Verdict]:
        with Trying(said(op)):
            after, (verdict, ticket) = self._store.apply(world, op)
        done = "" if verdict is Verdict.DONE else f" → {verdict.value}"
        return f"{said(op)}{done}{publishing(ticket)}", published(after, ticket), verdict
