"""Bundles whose run store lies."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

from adk_worker.actors import Actor
from adk_worker.conformance import RunStoreConformance
from adk_worker.errors import RunLeaseError
from adk_worker.filters import RunFilter
from adk_worker.idempotency import Claim, ClaimState, Intent
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
    claims,
)
from adk_worker.memory.data import StoredCheckpoint, as_run_lease
from adk_worker.messages import load_messages
from adk_worker.runs import Renewal, RunStatus
from adk_worker.sealing.resealing import Reseal
from adk_worker.transitions import settling as settle_transitions
from adk_worker.transitions.leases import Holding, LeaseState
from adk_worker.transitions.runs import Phase, State, Then, Verdict
from tests.conformance.liars.lie import Lie, bundle, row, standing


def _key(lease):
    return lease.tenant, lease.run_id


# --- who may write ----------------------------------------------------------------------------------------------------


class _Equal(State):
    """Takes an equal fence for enough."""

    __slots__ = ()

    def writable_by(self, fence):
        return self.lease.fence == fence


class _AnyFence(State):
    """Takes a lease that somebody holds for enough."""

    __slots__ = ()

    def writable_by(self, fence):
        return self.phase is Phase.LIVE and self.lease.holding is Holding.WORKER and fence > 0


def _over(kind):
    """A run store whose rows are of a kind of their own."""

    class Lax(MemoryRunStore):
        async def submit(self, new, *, policy, connection=None):
            submitted = await super().submit(new, policy=policy, connection=connection)
            stored = self._data.runs[new.tenant, new.run_id]
            state = stored.state
            lax = kind(**{name: getattr(state, name) for name in State.__dataclass_fields__})
            self._data.runs[new.tenant, new.run_id] = replace(stored, state=lax)
            return submitted

    return Lax


class GivenUp(_over(_Equal)):
    """Compares fences alone, and not whether the lease is still held (F1)."""


class Unfenced(_over(_AnyFence)):
    """Lets any fence write while somebody holds the lease (F1)."""


class AnyTicket(MemoryRunStore):
    """Lets any message take what the queue holds (L2)."""

    async def take(self, run_id, *, tenant, ticket, holder, ttl_seconds):
        stands = self._data.lease((tenant, run_id)).fence
        return await super().take(run_id, tenant=tenant, ticket=stands, holder=holder, ttl_seconds=ttl_seconds)


class Lapsing(MemoryRunStore):
    """Lets only a message that comes in time take the run, so that a backlog starves (L2)."""

    async def take(self, run_id, *, tenant, ticket, holder, ttl_seconds):
        if self._data.lease((tenant, run_id)).lapsed(self._data.clock()):
            return None
        return await super().take(run_id, tenant=tenant, ticket=ticket, holder=holder, ttl_seconds=ttl_seconds)


class Level(MemoryRunStore):
    """Hands over under the worker's own fence (L2)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if committed.ticket is None or committed.verdict is not Verdict.DONE:
            return committed
        stands = self._data.lease(_key(lease))
        self._data.leases[_key(lease)] = replace(stands, fence=lease.fence)
        return replace(committed, ticket=lease.fence)


class Dropping(MemoryRunStore):
    """Deletes the lease's row of a run that rests, and its fence with it (L2)."""

    async def park(self, lease, *, attention, detail, undecided=(), events=()):
        parked = await super().park(lease, attention=attention, detail=detail, undecided=undecided, events=events)
        if parked.verdict is Verdict.DONE:
            self._data.leases[_key(lease)] = LeaseState()
        return parked


class Racing(MemoryRunStore):
    """Looks whether the ticket is right, and takes the run a moment later (L7)."""

    async def take(self, run_id, *, tenant, ticket, holder, ttl_seconds):
        before = self._data.lease((tenant, run_id))
        time.sleep(0.002)  # noqa: ASYNC251, TID251 - the moment in which another one looks too
        with self._data.lock:
            self._data.leases[tenant, run_id] = before
            return await super().take(run_id, tenant=tenant, ticket=ticket, holder=holder, ttl_seconds=ttl_seconds)


class Renewing(MemoryRunStore):
    """Renews whatever leases the process believes to have (L3)."""

    async def renew_many(self, leases, *, ttl_seconds):
        await super().renew_many(leases, ttl_seconds=ttl_seconds)
        return [Renewal(lease) for lease in leases]


class Freeing(MemoryLeaseStore):
    """Frees the lease of a live run on release, so that nobody carries it on (L2, L10)."""

    async def release(self, lease):
        stands = self._data.lease(_key(lease))
        if stands.held_under(lease.fence):
            self._data.leases[_key(lease)] = LeaseState(stands.fence)


class Adopting(MemoryRunStore):
    """Takes any lease's name for the one that is asked for (F5)."""

    async def held_by(self, run_id, *, tenant, holder):
        held = self._data.lease((tenant, run_id))
        return await super().held_by(run_id, tenant=tenant, holder=held.holder or holder)


# --- what a boundary writes -------------------------------------------------------------------------------------------


class Partial(MemoryRunStore):
    """Writes the transcript before it asks whether it may (F1)."""

    async def commit(self, lease, boundary, *, policy):
        if boundary.segment is not None:
            await MemoryHistoryStore(self._data).append(
                lease.run_id,
                tenant=lease.tenant,
                start=boundary.segment.after.count,
                messages=load_messages(boundary.segment.payload),
            )
        return await super().commit(lease, boundary, policy=policy)


class Early(MemoryRunStore):
    """Records outcomes in a write of its own, before the boundary's (F1, I3)."""

    async def commit(self, lease, boundary, *, policy):
        for claim, outcome in boundary.settled:
            await MemoryIdempotencyStore(self._data).record(claim, outcome)
        return await super().commit(lease, replace(boundary, settled=()), policy=policy)


class Twice(MemoryRunStore):
    """Writes a commit again whose answer was lost (F5)."""

    async def commit(self, lease, boundary, *, policy):
        with row(self._data, _key(lease), committed_by=-1):
            return await super().commit(lease, boundary, policy=policy)


class Skipping(MemoryRunStore):
    """Commits whatever sequence comes (C5)."""

    async def commit(self, lease, boundary, *, policy):
        stands = self._data.runs[_key(lease)].state
        follows = boundary.checkpoint.sequence - 1
        if stands.committed_by == lease.fence and stands.sequence == boundary.checkpoint.sequence:
            return await super().commit(lease, boundary, policy=policy)
        with row(self._data, _key(lease), sequence=follows):
            return await super().commit(lease, boundary, policy=policy)


class Tidy(MemoryRunStore):
    """Forgets the frontier with any ending, and the evidence with it (C5)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if boundary.then in {Then.FAIL, Then.PARK}:
            self._data.checkpoints.pop(_key(lease), None)
        return committed


class Markless(MemoryRunStore):
    """Begins without the mark (C3)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        return await super().begin(lease, intents, owner=owner, ahead=False)


class Resumable(MemoryCheckpointStore):
    """Gives the older frontier as if it were current (C3)."""

    async def latest(self, run_id, *, tenant):
        with row(self._data, (tenant, run_id), behind=False):
            return await super().latest(run_id, tenant=tenant)


class Tombstoned(MemoryRunStore):
    """Writes a tombstone over the frontier (C3)."""

    async def commit(self, lease, boundary, *, policy):
        committed = await super().commit(lease, boundary, policy=policy)
        if boundary.payload is None and committed.verdict is Verdict.DONE:
            self._data.checkpoints[_key(lease)] = StoredCheckpoint("{}", 0, "")
        return committed


# --- calls ------------------------------------------------------------------------------------------------------------


class Racy(MemoryRunStore):
    """Tells every worker that the call is its own to make (I3)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        committed, claims = await super().begin(lease, intents, owner=owner, ahead=ahead)
        return committed, [Claim(c.tenant, c.key, owner, c.digest, ClaimState.IN_FLIGHT, tool=c.tool) for c in claims]


class Reusing(MemoryRunStore):
    """Does not look at the digest (I1)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        seen = [replace(intent, digest=await self._digest(lease, intent)) for intent in intents]
        return await super().begin(lease, seen, owner=owner, ahead=ahead)

    async def _digest(self, lease, intent):
        found = await MemoryIdempotencyStore(self._data).peek([intent.key], tenant=lease.tenant)
        stands = found[intent.key]
        return stands.digest if stands else intent.digest


class OneByOne(MemoryRunStore):
    """Begins the calls of a turn one after the other (I1, I2)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        claims = []
        committed, _ = await super().begin(lease, [], owner=owner, ahead=ahead)
        for intent in intents:
            committed, begun = await super().begin(lease, [intent], owner=owner, ahead=ahead)
            claims.extend(begun)
        return committed, claims


class Seizing(MemoryRunStore):
    """Takes a claim over from whoever has it (I7)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        found = await MemoryIdempotencyStore(self._data).peek([i.key for i in intents], tenant=lease.tenant)
        named = [
            replace(i, take_over=found[i.key].owner) if i.take_over is not None and found[i.key] else i for i in intents
        ]
        return await super().begin(lease, named, owner=owner, ahead=ahead)


class Ageing(MemoryRunStore):
    """Lets the claim of a dead worker lapse with its lease (I4)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        for stands in await self.claims(lease.run_id, tenant=lease.tenant):
            if stands.state is ClaimState.IN_FLIGHT and stands.owner != owner:
                self._data.claims.pop((stands.tenant, stands.key))
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Settling(MemoryRunStore):
    """Settles a call that was settled meanwhile (I7)."""

    async def settle(self, lease, claim, outcome, *, by):
        stands = await standing(self._data, claim)
        if stands is not None and stands.state is ClaimState.SETTLED:
            self._data.claims.pop((claim.tenant, claim.key))
            await super().begin(lease, [Intent(claim.key, claim.digest, claim.tool)], owner=claim.owner)
        return await super().settle(lease, claim, outcome, by=by)


class Blind(MemoryRunStore):
    """Parks without looking at the claims again (I5, F4)."""

    async def park(self, lease, *, attention, detail, undecided=(), events=()):
        parked = await super().park(lease, attention=attention, detail=detail, events=events)
        if parked.verdict is Verdict.DONE:
            stored = self._data.runs[_key(lease)]
            on = tuple(claim.key for claim in undecided)
            self._data.runs[_key(lease)] = replace(stored, state=replace(stored.state, parked_on=on))
        return parked


class Unhealing(MemoryIdempotencyStore):
    """Records a late outcome, and leaves the run parked (F4)."""

    async def record(self, claim, outcome):
        parked = [key for key, run in self._data.runs.items() if run.state.phase is Phase.PARKED]
        before = {key: (self._data.runs[key], self._data.leases[key]) for key in parked}
        await super().record(claim, outcome)
        for key, (run, lease) in before.items():
            self._data.runs[key], self._data.leases[key] = run, lease


class LeaseAsking(MemoryIdempotencyStore):
    """Refuses the outcome of whoever has lost its lease (F4)."""

    async def record(self, claim, outcome):
        holders = {lease.holder for lease in self._data.leases.values()}
        if claim.owner in holders:
            await super().record(claim, outcome)


# --- the reaper -------------------------------------------------------------------------------------------------------


class Multiplying(MemoryRunStore):
    """Publishes a lost message under a ticket of its own, so that a backlog multiplies (L2)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        acted = await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)
        for reaped in acted:
            if reaped.verdict is Verdict.DONE:
                lease = self._data.lease((reaped.tenant, reaped.run_id))
                self._data.leases[reaped.tenant, reaped.run_id] = replace(lease, fence=lease.fence + 1)
        dispatched = [one.dispatch and replace(one.dispatch, ticket=one.dispatch.ticket + 1) for one in acted]
        return [replace(one, dispatch=dispatch) for one, dispatch in zip(acted, dispatched, strict=True)]


class Unchecking(MemoryRunStore):
    """Acts on the leases that it has found, without looking at them again (L7)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        found = dict(self._data.leases)
        time.sleep(0.002)  # noqa: ASYNC251, TID251 - the moment in which another reaper, or a renewal, comes
        with self._data.lock:
            now = self._data.clock()
            self._data.leases.update({key: lease for key, lease in found.items() if lease.lapsed(now)})
            return await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)


class Counting(MemoryRunStore):
    """Counts a crash after a gap too (L9)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        return await super().claim_lapsed(policy=policy, limit=limit, count_crashes=True)


class Tireless(MemoryRunStore):
    """Never counts a crash, so that a run kills its workers for ever (C3)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        return await super().claim_lapsed(policy=policy, limit=limit, count_crashes=False)


class Null(MemoryRunStore):
    """Does not find what a worker let go of, for its expiry is no time (L2)."""

    async def claim_lapsed(self, *, policy, limit, count_crashes):
        queued = {key: lease for key, lease in self._data.leases.items() if lease.holding is Holding.QUEUE}
        for key, lease in queued.items():
            self._data.leases[key] = replace(lease, expires_at=float("inf"))
        acted = await super().claim_lapsed(policy=policy, limit=limit, count_crashes=count_crashes)
        self._data.leases.update(queued)
        return acted


class Nearby(MemoryRunStore):
    """Takes a host's name for the beginning of one."""

    async def held_on(self, host, *, within):
        found = [(key, lease) for key, lease in self._data.leases.items() if str(lease.holder).startswith(host)]
        return [as_run_lease(key, lease) for key, lease in found if lease.lapsed(self._data.clock() + within)]


class Burying(MemoryRunStore):
    """Acts on a run whose holder is dead, though another has it by now (I11)."""

    async def claim_dead(self, run_id, *, tenant, holder, policy):
        stands = self._data.lease((tenant, run_id)).holder
        return await super().claim_dead(run_id, tenant=tenant, holder=stands or holder, policy=policy)


class CallersTime(MemoryRunStore):
    """Asks whoever calls what time it is (L1)."""

    def __init__(self, data):
        super().__init__(data)
        data.clock = lambda: time.time()  # noqa: PLW0108 - looked up in each call: that is the lie


# --- cancel -----------------------------------------------------------------------------------------------------------


def _deaf(method):
    """A run store one of whose writes does not look at the cancel's flag (P2)."""

    class Deaf(MemoryRunStore):
        pass

    async def deaf(self, *args, **fields):
        with ExitStack() as hidden:
            for key in self._data.runs:
                hidden.enter_context(row(self._data, key, cancel_requested=False))
            return await getattr(MemoryRunStore, method)(self, *args, **fields)

    deaf.__name__ = method
    setattr(Deaf, method, deaf)
    Deaf.__name__ = Deaf.__qualname__ = f"DeafIn{method.title().replace('_', '')}"
    return Deaf


class Losing(MemoryRunStore):
    """Notes a cancel, and leaves it to the next message, which a resting run never gets (P2)."""

    async def cancel(self, run_id, *, tenant, by, seen=None):
        stored = self._data.runs[tenant, run_id]
        if stored.state.phase in {Phase.PARKED, Phase.WAITING_APPROVAL}:
            self._data.runs[tenant, run_id] = replace(stored, state=replace(stored.state, cancel_requested=True))
            return await self.get(run_id, tenant=tenant)
        return await super().cancel(run_id, tenant=tenant, by=by, seen=seen)


# --- names, submits, and reading --------------------------------------------------------------------------------------


class Joining(MemoryRunStore):
    """Joins tenant and run with a colon (T1)."""

    async def submit(self, new, *, policy, connection=None):
        for tenant, run_id in self._data.runs:
            if f"{tenant}:{run_id}" == f"{new.tenant}:{new.run_id}":
                new = replace(new, tenant=tenant, run_id=run_id)
        return await super().submit(new, policy=policy, connection=connection)


class Undispatched(MemoryRunStore):
    """Settles a call, and leaves the run that waits for it to whoever comes by (I8)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        before, lease = self._data.runs.get((tenant, run_id)), self._data.lease((tenant, run_id))
        settled = await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)
        self._data.runs[tenant, run_id], self._data.leases[tenant, run_id] = before, lease
        return settled


class Rushing(MemoryRunStore):
    """Queues a run again with its first call that is decided (I8)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        with row(self._data, (tenant, run_id), parked_on=(claim.key,)):
            return await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)


class Meddling(MemoryRunStore):
    """Lets a person decide what a worker is about to find out (I7)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        with row(self._data, (tenant, run_id), phase=Phase.FAILED):
            return await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)


class Anonymous(MemoryRunStore):
    """Keeps what was decided, and not by whom (P5)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        asked = replace(asked, by=Actor("somebody"))
        return await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)


class Retelling(MemoryRunStore):
    """Takes the same decision for another one when it comes again (F5)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        with self._data.lock:
            stored = await standing(self._data, claim)
            if stored is not None and stored.decisions:
                raise settle_transitions.decided(stored)
            return await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)


class Clinging(MemoryRunStore):
    """Keeps the frontier of a cancelled run for ever (P2)."""

    async def decide(self, run_id, *, tenant, claim, asked, policy):
        frontier = self._data.checkpoints.get((tenant, run_id))
        settled = await super().decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy)
        if frontier is not None:
            self._data.checkpoints[tenant, run_id] = frontier
        return settled


class Obeying(MemoryRunStore):
    """Has a call made that is known to have happened, since somebody said that it never ran (F4)."""

    async def begin(self, lease, intents, *, owner, ahead=False):
        with self._data.lock:
            for intent in intents:
                stored = claims.load(self._data, (lease.tenant, intent.key))
                if stored is not None and stored.state is ClaimState.NEVER_RAN:
                    claims.save(self._data, replace(stored, late=()))
        return await super().begin(lease, intents, owner=owner, ahead=ahead)


class Requeueing(MemoryRunStore):
    """Queues a run again though somebody holds its lease (L5)."""

    async def requeue(self, run_id, *, tenant, by, policy, seen=None):
        lease = self._data.lease((tenant, run_id))
        if self._data.runs[tenant, run_id].state.phase is Phase.PARKED:
            self._data.leases[tenant, run_id] = replace(lease, holding=Holding.FREE, holder=None)
        return await super().requeue(run_id, tenant=tenant, by=by, policy=policy, seen=seen)


class Unseeing(MemoryRunStore):
    """Acts on whatever stands now, and not on what somebody has seen (P2)."""

    async def requeue(self, run_id, *, tenant, by, policy, seen=None):
        return await super().requeue(run_id, tenant=tenant, by=by, policy=policy)

    async def cancel(self, run_id, *, tenant, by, seen=None):
        return await super().cancel(run_id, tenant=tenant, by=by)


class Standing(MemoryRunStore):
    """Leaves the number of a run's execution as it was (K1)."""

    async def commit(self, lease, boundary, *, policy):
        before = self._data.runs.get(_key(lease))
        committed = await super().commit(lease, boundary, policy=policy)
        if before is not None:
            self._data.runs[_key(lease)] = replace(self._data.runs[_key(lease)], execution=before.execution)
        return committed


class Shedding(MemoryRunStore):
    """Drops the claims of an execution as the run crosses into the next one (K1, I2)."""

    async def commit(self, lease, boundary, *, policy):
        before = self._data.runs[_key(lease)].execution
        committed = await super().commit(lease, boundary, policy=policy)
        if boundary.checkpoint.execution > before:
            for name in [name for name, row in self._data.claims.items() if row.run == _key(lease)]:
                del self._data.claims[name]
        return committed


class Leaking(MemoryRunStore):
    """Lists every tenant's runs (T1)."""

    async def list(self, where, *, limit, after=None):
        return await super().list(replace(where, tenant=None), limit=limit, after=after)


class Unsorting(MemoryRunStore):
    """Lists every agent's runs, and those with any attention, at any time (P2)."""

    async def list(self, where, *, limit, after=None):
        coarse = RunFilter(where.tenant, where.status, where.needs_attention, where.run_id)
        return await super().list(coarse, limit=limit, after=after)


class Finding(MemoryRunStore):
    """Finds runs whose ids begin with the one that is asked for (T1)."""

    async def list(self, where, *, limit, after=None):
        if where.run_id is None:
            return await super().list(where, limit=limit, after=after)
        page, cursor = await super().list(replace(where, run_id=None), limit=limit, after=after)
        return [run for run in page if run.run_id.startswith(where.run_id)], cursor


class Unheeding(MemoryRunStore):
    """Lists as running what was taken, whoever has its lease since (L2)."""

    async def take(self, run_id, *, tenant, ticket, holder, ttl_seconds):
        taken = await super().take(run_id, tenant=tenant, ticket=ticket, holder=holder, ttl_seconds=ttl_seconds)
        if taken is not None:
            self._taken = {*getattr(self, "_taken", ()), taken.run.run_id}
        return taken

    async def list(self, where, *, limit, after=None):
        if where.status not in {RunStatus.QUEUED, RunStatus.RUNNING}:
            return await super().list(where, limit=limit, after=after)
        found, _ = await super().list(replace(where, status=None), limit=limit, after=after)
        live = [run for run in found if run.status in {RunStatus.QUEUED, RunStatus.RUNNING}]
        running = where.status is RunStatus.RUNNING
        return [run for run in live if (run.run_id in getattr(self, "_taken", ())) is running], None


class Recalling(MemoryRunStore):
    """Gives a run the number of the one that was pruned under its name."""

    async def prune(self, which, *, limit, after=None):
        self._numbers = {key: run.number for key, run in self._data.runs.items()}
        return await super().prune(which, limit=limit, after=after)

    async def submit(self, new, *, policy, connection=None):
        submitted = await super().submit(new, policy=policy, connection=connection)
        key = new.tenant, new.run_id
        number = getattr(self, "_numbers", {}).get(key)
        if number is not None:
            self._data.runs[key] = replace(self._data.runs[key], number=number)
        return submitted


class Grabbing(MemoryRunStore):
    """Takes the lease to look at a run (L2)."""

    async def list(self, where, *, limit, after=None):
        for tenant, run_id in self._data.runs:
            try:
                lease = await MemoryLeaseStore(self._data).acquire(
                    run_id, tenant=tenant, holder="looking", ttl_seconds=60
                )
            except RunLeaseError:
                continue
            await MemoryLeaseStore(self._data).release(lease)
        return await super().list(where, limit=limit, after=after)


class Orphaning(MemoryRunStore):
    """Submits again whatever is there already (F5)."""

    async def submit(self, new, *, policy, connection=None):
        self._data.runs.pop((new.tenant, new.run_id), None)
        return await super().submit(new, policy=policy, connection=connection)


class Resetting(MemoryRunStore):
    """Removes the lease with the run, so that its fences begin anew (L2)."""

    async def prune(self, which, *, limit, after=None):
        pruned = await super().prune(which, limit=limit, after=after)
        for key in [key for key in self._data.leases if key not in self._data.runs]:
            del self._data.leases[key]
        return pruned


class Sweeping(MemoryRunStore):
    """Removes every old run, its undecided calls too (P2)."""

    async def prune(self, which, *, limit, after=None):
        claims = dict(self._data.claims)
        self._data.claims.clear()
        pruned = await super().prune(which, limit=limit, after=after)
        self._data.claims.update({key: row for key, row in claims.items() if row.run in self._data.runs})
        return pruned


class Littering(MemoryRunStore):
    """Removes the run's row and leaves what belonged to it."""

    async def prune(self, which, *, limit, after=None):
        kept = {name: dict(getattr(self._data, name)) for name in ("claims", "segments", "events")}
        pruned = await super().prune(which, limit=limit, after=after)
        for name, rows in kept.items():
            getattr(self._data, name).update(rows)
        return pruned


class Grasping(MemoryRunStore):
    """Replaces the seals of a run that a worker holds, who will put the old ones back (R2)."""

    async def reseal(self, run_id, *, tenant, change):
        held = self._data.lease((tenant, run_id))
        self._data.leases[tenant, run_id] = replace(held, holding=Holding.QUEUE)
        try:
            return await super().reseal(run_id, tenant=tenant, change=change)
        finally:
            self._data.leases[tenant, run_id] = held


class Sightless(MemoryRunStore):
    """Replaces seals without looking whether they still are those that were seen (R2)."""

    async def reseal(self, run_id, *, tenant, change):
        run = await self.get(run_id, tenant=tenant)
        if run is None:
            return False
        payload = await self.payload(run_id, tenant=tenant)
        claims = {claim.key: claim.outcome for claim in await self.claims(run_id, tenant=tenant)}
        outcomes = {key: (claims[key], after) for key, (_, after) in change.outcomes.items()}
        now = Reseal(change.fence, (run.masks, change.masks[1]), (payload, change.payload[1]), outcomes)
        return await super().reseal(run_id, tenant=tenant, change=now)


class Undated(MemoryRunStore):
    """Replaces the seals of a run that has moved since they were seen (R2, F1)."""

    async def reseal(self, run_id, *, tenant, change):
        fence = self._data.lease((tenant, run_id)).fence
        return await super().reseal(run_id, tenant=tenant, change=replace(change, fence=fence))


class Halfway(MemoryRunStore):
    """Replaces the seals of the run's row, and forgets those of its frontier and its calls (R2)."""

    async def reseal(self, run_id, *, tenant, change):
        part = replace(change, payload=(change.payload[0], change.payload[0]), outcomes={})
        return await super().reseal(run_id, tenant=tenant, change=part)


def _lie(seen_by, **parts):
    return Lie(RunStoreConformance, bundle(**parts), seen_by)


_NEXT_WRITE = "test_the_next_write_ends_the_run"

LIES = (
    _lie("test_whoever_lost_the_lease_writes_nothing", runs=GivenUp),
    _lie("test_whoever_lost_the_lease_writes_nothing", runs=Unfenced),
    _lie("test_no_other_number_takes_the_run", runs=AnyTicket),
    _lie("test_a_message_that_comes_again_is_a_duplicate", runs=AnyTicket),
    _lie("test_a_late_message_takes_what_the_queue_still_holds", runs=Lapsing),
    _lie("test_a_boundary_hands_over", runs=Level),
    _lie("test_a_run_is_parked_on_calls_that_nobody_can_decide", runs=Dropping),
    _lie("test_of_many_copies_of_a_message_in_threads_one_takes", runs=Racing),
    _lie("test_leases_are_renewed_in_one_batch", runs=Renewing),
    _lie("test_a_live_run_that_is_released_is_the_queues", leases=Freeing),
    _lie("test_a_take_whose_answer_was_lost_is_found", runs=Adopting),
    _lie("test_a_boundary_follows_the_one_before", runs=Partial),
    _lie("test_a_boundary_with_a_strangers_outcome_writes_nothing", runs=Early),
    _lie("test_a_commit_whose_answer_was_lost_is_found_done", runs=Twice),
    _lie("test_a_boundary_follows_the_one_before", runs=Skipping),
    _lie("test_a_completed_run_alone_forgets_its_frontier", runs=Tidy),
    _lie("test_a_worker_that_is_ahead_marks_the_run_as_it_begins", runs=Markless),
    _lie("test_a_tombstone_marks_the_run", checkpoints=Resumable),
    _lie("test_a_tombstone_marks_the_run", runs=Tombstoned),
    _lie("test_a_dead_workers_claim_is_not_its_successors", runs=Racy),
    _lie("test_one_reused_key_refuses_all_intents", runs=Reusing),
    _lie("test_one_reused_key_refuses_all_intents", runs=OneByOne),
    _lie("test_an_intent_takes_over_from_the_owner_that_the_plan_has_seen", runs=Seizing),
    _lie("test_a_dead_workers_claim_is_not_its_successors", runs=Ageing),
    _lie("test_a_claim_that_moved_on_is_not_settled", runs=Settling),
    _lie("test_a_run_is_not_parked_on_a_call_that_was_decided", runs=Blind),
    _lie("test_a_late_outcome_heals_the_run_that_waits_for_it", idempotency=Unhealing),
    _lie("test_a_superseded_workers_outcome_is_recorded", idempotency=LeaseAsking),
    _lie("test_a_lost_message_is_published_again_under_the_same_ticket", runs=Multiplying),
    _lie("test_of_many_reapers_one_acts_on_each_lease", runs=Unchecking),
    _lie("test_after_a_gap_no_crash_is_counted", runs=Counting),
    _lie("test_a_run_that_keeps_killing_its_workers_is_parked", runs=Tireless),
    _lie("test_a_live_run_that_is_released_is_the_queues", runs=Null),
    _lie("test_a_holder_that_has_the_lease_no_more_is_not_acted_on", runs=Burying),
    _lie("test_what_a_host_holds_is_found_by_its_holders_names", runs=Nearby),
    _lie("test_the_callers_clock_lapses_nothing", runs=CallersTime),
    _lie("test_a_run_that_was_let_go_ends_at_the_next_take_or_sweep", runs=_deaf("take")),
    _lie(_NEXT_WRITE, runs=_deaf("begin")),
    _lie(_NEXT_WRITE, runs=_deaf("commit")),
    _lie(_NEXT_WRITE, runs=_deaf("park")),
    _lie(_NEXT_WRITE, runs=_deaf("fail")),
    _lie(_NEXT_WRITE, runs=_deaf("give_back")),
    _lie("test_a_dead_workers_run_ends_in_the_sweep", runs=_deaf("claim_lapsed")),
    _lie("test_a_held_run_is_asked_to_end", runs=_deaf("renew_many")),
    _lie("test_a_resting_run_ends_at_once", runs=Losing),
    _lie("test_no_name_reaches_anothers_run", runs=Joining),
    _lie("test_a_resting_run_that_somebody_holds_is_not_queued_again", runs=Requeueing),
    _lie("test_a_person_says_what_a_call_returned", runs=Undispatched),
    _lie("test_the_last_of_several_calls_queues_the_run", runs=Rushing),
    _lie("test_a_run_that_is_carried_on_is_not_a_persons_to_decide", runs=Meddling),
    _lie("test_what_a_person_did_is_told", runs=Anonymous),
    _lie("test_the_same_decision_again_finds_it_done", runs=Retelling),
    _lie("test_the_last_decision_lets_a_cancelled_runs_frontier_go", runs=Clinging),
    _lie("test_a_call_that_ran_after_all_is_not_made_again", runs=Obeying),
    _lie("test_runs_are_listed_by_tenant_and_by_attention", runs=Leaking),
    _lie("test_a_run_crosses_in_the_write_of_its_boundary", runs=Standing),
    _lie("test_what_is_left_behind_stays", runs=Shedding),
    _lie("test_a_run_that_has_moved_since_it_was_seen_is_left_alone", runs=Unseeing),
    _lie("test_runs_are_listed_by_agent_and_by_one_attention", runs=Unsorting),
    _lie("test_runs_are_listed_by_when_they_were_submitted_and_written", runs=Unsorting),
    _lie("test_a_run_is_found_without_its_tenant", runs=Finding),
    _lie("test_a_list_by_status_follows_the_lease", runs=Unheeding),
    _lie("test_a_name_that_is_submitted_again_is_listed_as_new", runs=Recalling),
    _lie("test_looking_changes_nothing", runs=Grabbing),
    _lie("test_the_same_request_finds_the_run", runs=Orphaning),
    _lie("test_its_fences_are_never_given_again", runs=Resetting),
    _lie("test_a_run_with_an_undecided_call_is_kept_until_that_is_decided", runs=Sweeping),
    _lie("test_a_run_that_is_over_goes_whole", runs=Littering),
    _lie("test_a_run_that_a_worker_holds_is_left_alone", runs=Grasping),
    _lie("test_what_is_not_as_it_was_seen_is_not_replaced", runs=Sightless),
    _lie("test_seals_of_a_run_that_has_moved_since_are_left_alone", runs=Undated),
    _lie("test_seals_are_replaced_wherever_they_stand", runs=Halfway),
)
