"""The store in memory, made to do what the model's store does: what is shown of the one is so of the other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from adk_worker.actors import Actor
from adk_worker.errors import AdkError
from adk_worker.lease import RunLease
from adk_worker.memory import MemoryData, asked, claims, journal, memory_stores
from adk_worker.runs import NewRun
from adk_worker.settling.settlement import Settlement
from adk_worker.transitions.runs import Attention, Reason
from tests.model.asked import GRANTED, answer_of, boundary_of
from tests.model.claims import call_of, claim_of, intent_of, key_of, outcome_of
from tests.model.store import IN_FLIGHT_WAIT, WAIT, Store
from tests.model.world import FAILED, HAPPENED, NOTHING, Call, World

RUN = ("acme", "run")


class Recorder(Store):
    """The model's store, which writes down what it is asked to do."""

    def __init__(self, rules, *, max_crashes):
        super().__init__(rules, max_crashes=max_crashes)
        self.orders: list[tuple] = []

    def apply(self, world, op):
        self.orders.append(op)
        return super().apply(world, op)

    def take(self, world, ticket):
        self.orders.append(("take", ticket, self.rows[world.row].lease.fence + 1))
        return super().take(world, ticket)

    def renew(self, world, fence):
        self.orders.append(("renew", fence))
        return super().renew(world, fence)

    def reap(self, world, *, known_dead=False):
        holder = str(self.rows[world.row].lease.fence)
        self.orders.append(("bury", holder) if known_dead else ("reap",))
        return super().reap(world, known_dead=known_dead)

    def requeue(self, world):
        self.orders.append(("requeue",))
        return super().requeue(world)

    def cancel(self, world):
        self.orders.append(("cancel",))
        return super().cancel(world)

    def expire(self, world):
        self.orders.append(("expire",))
        return super().expire(world)

    def acquire(self, world):
        self.orders.append(("acquire", self.rows[world.row].lease.fence + 1))
        return super().acquire(world)

    def decide(self, world, number, outcome, *, dead, insists):
        self.orders.append(("decide", world.calls[number], number, outcome, dead, insists))
        return super().decide(world, number, outcome, dead=dead, insists=insists)


class Memory:
    """One run in the store in memory. Its clock stands still: what lapses does so when the model says so."""

    def __init__(self, policy, *, granted):
        self._data = MemoryData(lambda: 0.0)
        self._stores = memory_stores(self._data)
        self._policy = policy
        self._loop = asyncio.Runner()
        new = NewRun(*RUN, agent="booking", input="book the flight")
        self._loop.run(self._stores.runs.submit(new, policy=policy))
        if granted:
            asked.save(self._data, RUN, GRANTED)

    def close(self):
        self._loop.close()

    def do(self, op):
        """Do what the model's store was asked to do. A refusal is an answer: it writes nothing."""
        with suppress(AdkError, ValueError):
            self._loop.run(getattr(self, f"_{op[0]}")(*op[1:]))

    def lapse(self):
        """The lease that stands lapses."""
        lease = self._data.lease(RUN)
        self._data.leases[RUN] = replace(lease, expires_at=0.0)

    def over(self):
        """The time to answer what was asked is over."""
        stood = asked.load(self._data, RUN)
        late = tuple(replace(one, expires_at=0.0) if one.pending else one for one in stood.requests)
        asked.save(self._data, RUN, replace(stood, requests=late))

    def approvals(self):
        """What people were asked, and what they said."""
        return asked.load(self._data, RUN)

    def state(self):
        """The run's row, in which the backoff's count is what the model keeps of it."""
        state = journal.state_of(self._data, RUN)
        return replace(state, tries=min(state.tries, 1))

    def calls(self, world: World):
        """The claims, as the model keeps them."""
        found = [claims.load(self._data, ("acme", key_of(number))) for number in range(len(world.calls))]
        return [None if claim is None else call_of(claim, None) for claim in found]

    def stored(self):
        """The sequence of the stored frontier; 0 for none."""
        stored = self._data.checkpoints.get(RUN)
        return stored.sequence if stored else 0

    @staticmethod
    def _under(fence):
        return RunLease(*RUN, str(fence), fence, 0.0)

    async def _take(self, ticket, holder):
        await self._stores.runs.take("run", tenant="acme", ticket=ticket, holder=str(holder), ttl_seconds=WAIT)

    async def _renew(self, fence):
        await self._stores.leases.renew(self._under(fence), ttl_seconds=WAIT)

    async def _release(self, fence):
        await self._stores.leases.release(self._under(fence))

    async def _acquire(self, holder):
        await self._stores.leases.acquire("run", tenant="acme", holder=str(holder), ttl_seconds=WAIT)

    async def _begin(self, fence, starts, ahead):
        intents = [intent_of(start) for start in starts]
        await self._stores.runs.begin(self._under(fence), intents, owner=str(fence), ahead=ahead)

    async def _commit(self, fence, sequence, stage, then, stored, told):
        boundary = boundary_of(sequence, stage, then, told, stored=stored)
        if told.outcome in {FAILED, HAPPENED}:
            owned = claim_of(told.turn[0], Call(fence))
            boundary = replace(boundary, settled=[(owned, outcome_of(told.outcome))])
        await self._stores.runs.commit(self._under(fence), boundary, policy=self._policy)

    async def _park(self, fence, number, seen):
        await self._stores.runs.park(
            self._under(fence),
            attention=Attention.UNDECIDED_CALL,
            detail="nobody knows",
            undecided=[claim_of(number, Call(seen))],
        )

    async def _fail(self, fence):
        await self._stores.runs.fail(self._under(fence), detail="the model failed")

    async def _give_back(self, fence, reason):
        await self._stores.runs.give_back(
            self._under(fence),
            reason=reason,
            detail="it went wrong",
            policy=self._policy,
            attention=Attention.EXCEPTION,
            delay=IN_FLIGHT_WAIT if reason is Reason.CONFLICT else None,
        )

    async def _settle(self, fence, number, seen, outcome):
        shown = claim_of(number, Call(seen))
        await self._stores.runs.settle(self._under(fence), shown, outcome_of(outcome), by="somebody")

    async def _note_dead(self, fence, number, seen):
        await self._stores.runs.note_dead(self._under(fence), [claim_of(number, Call(seen))])

    async def _record(self, fence, number, outcome):
        await self._stores.idempotency.record(claim_of(number, Call(fence)), outcome_of(outcome))

    async def _answer(self, who, request, approves):
        given = answer_of(who, request, approved=approves)
        await self._stores.runs.answer("run", given, tenant="acme", by=Actor(who), policy=self._policy)

    async def _revoke(self):
        await self._stores.runs.revoke("run", "grant-1", tenant="acme", by=Actor("bob"))

    async def _expire(self):
        await self._stores.runs.expire(policy=self._policy, limit=10)

    async def _reap(self):
        await self._stores.runs.claim_lapsed(policy=self._policy, limit=10, count_crashes=True)

    async def _bury(self, holder):
        await self._stores.runs.claim_dead("run", tenant="acme", holder=holder, policy=self._policy)

    async def _requeue(self):
        await self._stores.runs.requeue("run", tenant="acme", by=Actor("ann"), policy=self._policy)

    async def _cancel(self):
        await self._stores.runs.cancel("run", tenant="acme", by=Actor("ann"))

    async def _decide(self, call, number, outcome, dead, insists):
        asked = Settlement(
            Actor("ann"),
            "they have looked",
            None if outcome == NOTHING else outcome_of(outcome),
            owner_may_live=insists,
            owner_dead=dead,
            max_in_flight=0.0 if call.quiet else WAIT,
        )
        seen = claim_of(number, call)
        await self._stores.runs.decide("run", tenant="acme", claim=seen, asked=asked, policy=self._policy)
