"""The fleet's store in memory: every rule of :mod:`adk_worker.transitions`, with a lock for a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from adk_worker import events, submission
from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Grant
from adk_worker.approvals.store import Asked, Expired
from adk_worker.errors import ClaimOwnerError, ConfigurationError, RunExistsError
from adk_worker.events import Event, NewEvent
from adk_worker.filters import RunFilter
from adk_worker.idempotency import Claim, Intent, check_claim
from adk_worker.lease import RunLease, check_holder, check_ttl
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.booking import Ledger, Reservation
from adk_worker.ledger.rounds import Round
from adk_worker.memory import (
    advancing,
    approving,
    asked,
    claims,
    deciding,
    journal,
    ledgers,
    pruning,
    reading,
    resealing,
    resting,
    sweeping,
)
from adk_worker.memory.data import MemoryData, RunKey, StoredRun, as_run_lease, stale
from adk_worker.messages import canonical_json
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.pruning import Prune, Pruned
from adk_worker.runs import Boundary, Committed, NewRun, Reaped, Renewal, Run, Submitted, Sweep, Taken
from adk_worker.sealing.resealing import Reseal
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import leases as lease_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.leases import Holding, StoreTime
from adk_worker.transitions.runs import Attention, FleetPolicy, Phase, Reason


class MemoryRunStore:
    """A :class:`~adk_worker.runs.RunStore` for one process; usable from any thread and event loop."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    async def submit(self, new: NewRun, *, policy: FleetPolicy, connection: object | None = None) -> Submitted:
        if connection is not None:
            raise ConfigurationError("the memory store has no transaction to join: submit without `connection`.")
        asked = submission.checked(new)
        key = (asked.tenant, asked.run_id)
        with self._data.lock:
            if key not in self._data.runs:
                return self._submitted(key, asked, policy)
            run = reading.run_of(self._data, key)
            if not submission.same_request(run, asked):
                raise RunExistsError(tenant=run.tenant, run_id=run.run_id, agent=run.agent)
            state = journal.state_of(self._data, key)
            queued = state.phase is Phase.LIVE and state.lease.holding is Holding.QUEUE
            return Submitted(run, state.lease.fence if queued else None)

    async def take(self, run_id: str, *, tenant: str, ticket: int, holder: str, ttl_seconds: float) -> Taken | None:
        key = check_run(tenant, run_id)
        check_holder(holder)
        check_ttl(ttl_seconds)
        with self._data.lock:
            return advancing.take(self._data, key, ticket=ticket, holder=holder, ttl=ttl_seconds)

    async def held_by(self, run_id: str, *, tenant: str, holder: str) -> Taken | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            lease = self._data.lease(key)
            held = lease.holding is Holding.WORKER and lease.holder == holder and not lease.lapsed(self._data.clock())
            if not held or key not in self._data.runs:
                return None
            return reading.taken_of(self._data, key, limited=ledgers.limited(self._data, key))

    async def renew_many(self, leases: Sequence[RunLease], *, ttl_seconds: float) -> Sequence[Renewal]:
        check_ttl(ttl_seconds)
        keys = [check_run(lease.tenant, lease.run_id) for lease in leases]
        with self._data.lock:
            at = self._data.at()
            return [self._renewed(key, lease, at, ttl_seconds) for key, lease in zip(keys, leases, strict=True)]

    async def begin(
        self, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool = False
    ) -> tuple[Committed, Sequence[Claim]]:
        check_run(lease.tenant, lease.run_id)
        for intent in intents:
            check_claim(lease.tenant, intent.key, owner)
        with self._data.lock:
            return advancing.begin(self._data, lease, intents, owner=owner, ahead=ahead)

    async def commit(self, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
        key = check_run(lease.tenant, lease.run_id)
        if (boundary.checkpoint.tenant, boundary.checkpoint.run_id) != key:
            raise ValueError("the boundary is of another run than the lease")
        with self._data.lock:
            return advancing.commit(self._data, lease, boundary, policy=policy)

    async def park(
        self,
        lease: RunLease,
        *,
        attention: Attention,
        detail: str,
        undecided: Sequence[Claim] = (),
        events: Sequence[NewEvent] = (),
    ) -> Committed:
        check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            return resting.park(self._data, lease, attention=attention, detail=detail, undecided=undecided, told=events)

    async def fail(
        self, lease: RunLease, *, detail: str, events: Sequence[NewEvent] = (), asked: bool = False
    ) -> Committed:
        check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            return resting.fail(self._data, lease, detail=detail, told=events, asked=asked)

    async def give_back(
        self,
        lease: RunLease,
        *,
        reason: Reason,
        detail: str,
        policy: FleetPolicy,
        attention: Attention | None = None,
        delay: float | None = None,
        asked: bool = False,
    ) -> Committed:
        check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            return resting.give_back(
                self._data,
                lease,
                reason=reason,
                detail=detail,
                policy=policy,
                attention=attention,
                delay=delay,
                asked=asked,
            )

    async def settle(self, lease: RunLease, claim: Claim, outcome: ToolOutcome, *, by: str) -> Claim:
        key = check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            self._may_write(key, lease)
            stored = claims.load(self._data, (lease.tenant, claim.key))
            after = claim_transitions.settle(stored, seen=claim, outcome=outcome, by=by)
            claims.decide(self._data, stored, after)
            if after != stored:
                tells = [events.settled(claim.key, by)]
                journal.tell(self._data, key, tells, at=self._data.at(), fence=lease.fence)
            return after

    async def note_dead(self, lease: RunLease, claims: Sequence[Claim]) -> Sequence[Claim]:
        key = check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            self._may_write(key, lease)
            return self._noted(lease, claims)

    async def claim_lapsed(self, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
        with self._data.lock:
            due = [key for _, key in sweeping.lapsed(self._data)[:limit]]
            acted = [sweeping.reap(self._data, key, policy=policy, count_crashes=count_crashes) for key in due]
            return [reaped for reaped in acted if reaped is not None]

    async def claim_dead(self, run_id: str, *, tenant: str, holder: str, policy: FleetPolicy) -> Reaped | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            lease = self._data.lease(key)
            if key not in self._data.runs or lease.holding is not Holding.WORKER or lease.holder != holder:
                return None
            return sweeping.reap(self._data, key, policy=policy, known_dead=True)

    async def held_on(self, host: str, *, within: float) -> Sequence[RunLease]:
        check_name(host, what="host")
        with self._data.lock:
            return sweeping.held_on(self._data, host, within=within)

    async def sweep(self) -> Sweep:
        with self._data.lock:
            now, last = self._data.clock(), self._data.last_sweep
            self._data.last_sweep = now
            return Sweep(now, last)

    async def requeue(
        self, run_id: str, *, tenant: str, by: Actor, policy: FleetPolicy, seen: Run | None = None
    ) -> Submitted:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return resting.requeue(self._data, key, by=by, policy=policy, seen=seen)

    async def cancel(self, run_id: str, *, tenant: str, by: Actor, seen: Run | None = None) -> Run:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return resting.cancel(self._data, key, by=by, seen=seen)

    async def decide(
        self, run_id: str, *, tenant: str, claim: Claim, asked: Settlement, policy: FleetPolicy
    ) -> Settled:
        key = check_run(tenant, run_id)
        check_claim(tenant, claim.key, claim.owner)
        with self._data.lock:
            return deciding.decide_of_run(self._data, key, claim, asked, policy=policy)

    async def reserve(self, lease: RunLease, asked: Reservation) -> Committed:
        check_run(lease.tenant, lease.run_id)
        with self._data.lock:
            return ledgers.reserve(self._data, lease, asked)

    async def change_budget(
        self, run_id: str, *, tenant: str, change: BudgetChange, by: Actor, policy: FleetPolicy
    ) -> Submitted:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return ledgers.change_budget(self._data, key, change=change, by=by, policy=policy)

    async def account(self, tenant: str) -> Account | None:
        check_name(tenant, what="tenant")
        with self._data.lock:
            return self._data.accounts.get(tenant)

    async def change_account(self, tenant: str, *, change: BudgetChange, by: Actor) -> Account:
        check_name(tenant, what="tenant")
        with self._data.lock:
            return ledgers.change_account(self._data, tenant, change=change, by=by)

    async def rounds_due(self, *, limit: int, after: str | None = None) -> tuple[Sequence[Round], str | None]:
        with self._data.lock:
            return ledgers.rounds_due(self._data, limit=limit, after=after)

    async def requeue_over_budget(
        self, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
    ) -> tuple[Sequence[Submitted], Round | None]:
        check_name(made.tenant, what="tenant")
        with self._data.lock:
            return ledgers.requeue_over_budget(self._data, made, by=by, policy=policy, limit=limit)

    async def get(self, run_id: str, *, tenant: str) -> Run | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return reading.run_of(self._data, key) if key in self._data.runs else None

    async def payload(self, run_id: str, *, tenant: str) -> str | None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            stored = self._data.checkpoints.get(key)
            return None if stored is None else stored.payload

    async def list(self, where: RunFilter, *, limit: int, after: str | None = None) -> tuple[Sequence[Run], str | None]:
        with self._data.lock:
            return reading.page(self._data, where, limit=limit, after=after)

    async def events(self, run_id: str, *, tenant: str, after: int = 0, limit: int = 500) -> Sequence[Event]:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return reading.events_of(self._data, key, after=after, limit=limit)

    async def claims(self, run_id: str, *, tenant: str) -> Sequence[Claim]:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return claims.of_run(self._data, key)

    async def prune(self, which: Prune, *, limit: int, after: str | None = None) -> Pruned:
        with self._data.lock:
            return pruning.prune(self._data, which, limit=limit, after=after)

    async def approvals(self, run_id: str, *, tenant: str) -> Asked:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return Asked(self._data.clock(), asked.load(self._data, key))

    async def answer(self, run_id: str, given: Answer, *, tenant: str, by: Actor, policy: FleetPolicy) -> Answered:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return approving.answer(self._data, key, given, by=by, policy=policy)

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: Actor) -> Grant:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return approving.revoke(self._data, key, grant_id, by=by)

    async def expire(self, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
        with self._data.lock:
            due = approving.overdue(self._data)[:limit]
            acted = [approving.expire(self._data, key, policy=policy) for key in due]
            return [expired for expired in acted if expired is not None]

    async def reseal(self, run_id: str, *, tenant: str, change: Reseal) -> bool:
        key = check_run(tenant, run_id)
        with self._data.lock:
            return resealing.reseal(self._data, key, change)

    async def oldest_lapsed(self) -> float | None:
        with self._data.lock:
            due = sweeping.lapsed(self._data)
            return self._data.clock() - due[0][0] if due else None

    def _submitted(self, key: RunKey, asked: NewRun, policy: FleetPolicy) -> Submitted:
        data = self._data
        if key in data.checkpoints:
            # Of a run in process: what it has done is not this request's to carry on.
            raise RunExistsError(tenant=asked.tenant, run_id=asked.run_id, agent=data.checkpoints[key].agent)
        at = data.at()
        state = run_transitions.submit(at=at, policy=policy, fence=data.lease(key).fence)
        said = {"agent": asked.agent, "input": asked.input, "metadata": asked.metadata, "masks": asked.masks}
        data.runs[key] = StoredRun(
            canonical_json(said),
            state,
            data.next_number(),
            asked.revision,
            at.now,
            at.now,
            ledger=Ledger(limits=asked.budget),
        )
        journal.write(data, key, state, [events.submitted(asked.agent)], at=at)
        return Submitted(reading.run_of(data, key), state.lease.fence)

    def _renewed(self, key: RunKey, lease: RunLease, at: StoreTime, ttl: float) -> Renewal:
        renewed = lease_transitions.renew(self._data.lease(key), fence=lease.fence, at=at, ttl=ttl)
        if renewed is None:
            return Renewal(None)
        self._data.leases[key] = renewed
        run = self._data.runs.get(key)
        return Renewal(as_run_lease(key, renewed), run is not None and run.state.cancel_requested)

    def _may_write(self, key: RunKey, lease: RunLease) -> None:
        if key not in self._data.runs or not journal.state_of(self._data, key).writable_by(lease.fence):
            raise stale(key, presented=lease.fence, current=self._data.lease(key).fence)

    def _noted(self, lease: RunLease, seen: Sequence[Claim]) -> Sequence[Claim]:
        noted = []
        for claim in seen:
            stored = claims.load(self._data, (lease.tenant, claim.key))
            if stored is None:
                raise ClaimOwnerError(key=claim.key)
            noted.append(claim_transitions.note_dead(stored, seen=claim, now=self._data.clock()))
        for claim in noted:
            claims.save(self._data, claim)
        return noted
