"""The fleet's store in Redis: every operation is one transaction on its run's rows (F1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Grant
from adk_worker.approvals.store import Asked, Expired
from adk_worker.errors import ConfigurationError, StoreUnavailableError
from adk_worker.events import Event, NewEvent
from adk_worker.filters import RunFilter
from adk_worker.idempotency import Claim, Intent, check_claim
from adk_worker.lease import RunLease, check_ttl
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.booking import Reservation
from adk_worker.ledger.rounds import Round
from adk_worker.memory import MemoryRunStore
from adk_worker.memory.data import RunKey
from adk_worker.memory.reading import number_of
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.pruning import Prune, Pruned
from adk_worker.runs import Boundary, Committed, NewRun, Reaped, Renewal, Run, Submitted, Sweep, Taken
from adk_worker.sealing.resealing import Reseal
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions.runs import Attention, FleetPolicy, Reason
from stores.redis import accounts, pruning, reading, rounds, sweeping
from stores.redis.apart import not_read, together
from stores.redis.data import RunData
from stores.redis.keys import bucket_of_run, bucket_of_tenant
from stores.redis.reference import at_once
from stores.redis.server import Process, Server

T = TypeVar("T")
Operation = Callable[[MemoryRunStore], Coroutine[Any, Any, T]]
"""An operation of the store in memory, over the rows of a transaction."""


class RedisRunStore:
    """A :class:`~adk_worker.runs.RunStore` in Redis; usable from any thread, event loop and process."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def submit(self, new: NewRun, *, policy: FleetPolicy, connection: object | None = None) -> Submitted:
        if connection is not None:
            raise ConfigurationError(
                "a store in Redis has no transaction that a submit could join: submit without `connection`, once yours "
                "has been committed."
            )
        run = check_run(new.tenant, new.run_id)
        return await self._read_whole(run, lambda runs: runs.submit(new, policy=policy))

    async def take(self, run_id: str, *, tenant: str, ticket: int, holder: str, ttl_seconds: float) -> Taken | None:
        return await self._read_whole(
            check_run(tenant, run_id),
            lambda runs: runs.take(run_id, tenant=tenant, ticket=ticket, holder=holder, ttl_seconds=ttl_seconds),
        )

    async def held_by(self, run_id: str, *, tenant: str, holder: str) -> Taken | None:
        """See the protocol.

        It stamps the run's row: a take whose answer was lost, and which is still on its way, cannot land after it.
        """
        run = check_run(tenant, run_id)

        def held_by(data: RunData) -> Taken | None:
            data.look(submitted=[run])
            if run in data.runs:
                data.touch(run)
            return at_once(MemoryRunStore(data).held_by(run_id, tenant=tenant, holder=holder))

        return await self._server.write(bucket_of_run(run), held_by)

    async def renew_many(self, leases: Sequence[RunLease], *, ttl_seconds: float) -> Sequence[Renewal]:
        check_ttl(ttl_seconds)
        parted: dict[int, list[int]] = defaultdict(list)
        for number, lease in enumerate(leases):
            parted[bucket_of_run(check_run(lease.tenant, lease.run_id))].append(number)

        def renew(process: Process) -> Sequence[Renewal]:
            answers: dict[int, Renewal] = {}
            away: dict[str, StoreUnavailableError] = {}
            for bucket, numbers in parted.items():
                place = process.place(bucket)
                # A node that is away is asked once, and keeps no other's leases from being renewed (L8).
                renewed: Sequence[Renewal] = [Renewal(None, busy=True)] * len(numbers)
                if place not in away:
                    here = [leases[number] for number in numbers]
                    try:
                        renewed = _renew(process, bucket, here, ttl=ttl_seconds)
                    except StoreUnavailableError as error:
                        away[place] = error
                answers |= dict(zip(numbers, renewed, strict=True))
            if away and all(answer.busy for answer in answers.values()):
                raise next(iter(away.values()))
            return [answers[number] for number in range(len(leases))]

        return await self._server.run(renew) if leases else []

    async def begin(
        self, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool = False
    ) -> tuple[Committed, Sequence[Claim]]:
        return await self._under(
            lease,
            lambda runs: runs.begin(lease, intents, owner=owner, ahead=ahead),
            calls=(intent.key for intent in intents),
        )

    async def commit(self, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
        return await self._under(
            lease,
            lambda runs: runs.commit(lease, boundary, policy=policy),
            calls=(claim.key for claim, _ in boundary.settled),
        )

    async def park(
        self,
        lease: RunLease,
        *,
        attention: Attention,
        detail: str,
        undecided: Sequence[Claim] = (),
        events: Sequence[NewEvent] = (),
    ) -> Committed:
        return await self._under(
            lease,
            lambda runs: runs.park(lease, attention=attention, detail=detail, undecided=undecided, events=events),
            calls=(claim.key for claim in undecided),
        )

    async def fail(
        self, lease: RunLease, *, detail: str, events: Sequence[NewEvent] = (), asked: bool = False
    ) -> Committed:
        return await self._under(lease, lambda runs: runs.fail(lease, detail=detail, events=events, asked=asked))

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
        return await self._under(
            lease,
            lambda runs: runs.give_back(
                lease,
                reason=reason,
                detail=detail,
                policy=policy,
                attention=attention,
                delay=delay,
                asked=asked,
            ),
        )

    async def settle(self, lease: RunLease, claim: Claim, outcome: ToolOutcome, *, by: str) -> Claim:
        return await self._under(lease, lambda runs: runs.settle(lease, claim, outcome, by=by), calls=[claim.key])

    async def note_dead(self, lease: RunLease, claims: Sequence[Claim]) -> Sequence[Claim]:
        return await self._under(
            lease, lambda runs: runs.note_dead(lease, claims), calls=(claim.key for claim in claims)
        )

    async def claim_lapsed(self, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
        return await self._server.run(
            lambda process: sweeping.claim_lapsed(process, policy=policy, limit=limit, count_crashes=count_crashes)
        )

    async def claim_dead(self, run_id: str, *, tenant: str, holder: str, policy: FleetPolicy) -> Reaped | None:
        return await self._on(
            check_run(tenant, run_id),
            lambda runs: runs.claim_dead(run_id, tenant=tenant, holder=holder, policy=policy),
        )

    async def held_on(self, host: str, *, within: float) -> Sequence[RunLease]:
        check_name(host, what="host")
        return await self._server.run(lambda process: sweeping.held_on(process, host, within=within))

    async def sweep(self) -> Sweep:
        return await self._server.run(sweeping.sweep)

    async def requeue(
        self, run_id: str, *, tenant: str, by: Actor, policy: FleetPolicy, seen: Run | None = None
    ) -> Submitted:
        return await self._read_whole(
            check_run(tenant, run_id), lambda runs: runs.requeue(run_id, tenant=tenant, by=by, policy=policy, seen=seen)
        )

    async def cancel(self, run_id: str, *, tenant: str, by: Actor, seen: Run | None = None) -> Run:
        return await self._read_whole(
            check_run(tenant, run_id), lambda runs: runs.cancel(run_id, tenant=tenant, by=by, seen=seen)
        )

    async def decide(
        self, run_id: str, *, tenant: str, claim: Claim, asked: Settlement, policy: FleetPolicy
    ) -> Settled:
        check_claim(tenant, claim.key, claim.owner)
        return await self._read_whole(
            check_run(tenant, run_id),
            lambda runs: runs.decide(run_id, tenant=tenant, claim=claim, asked=asked, policy=policy),
        )

    async def reserve(self, lease: RunLease, asked: Reservation) -> Committed:
        return await self._under(lease, lambda runs: runs.reserve(lease, asked))

    async def change_budget(
        self, run_id: str, *, tenant: str, change: BudgetChange, by: Actor, policy: FleetPolicy
    ) -> Submitted:
        return await self._read_whole(
            check_run(tenant, run_id),
            lambda runs: runs.change_budget(run_id, tenant=tenant, change=change, by=by, policy=policy),
        )

    async def account(self, tenant: str) -> Account | None:
        """See the protocol. A reservation whose worker is gone is shown as unaccounted, told or not."""
        check_name(tenant, what="tenant")
        return await self._server.run(lambda process: accounts.read(process, tenant))

    async def change_account(self, tenant: str, *, change: BudgetChange, by: Actor) -> Account:
        check_name(tenant, what="tenant")
        return await self._server.write(
            bucket_of_tenant(tenant),
            lambda data: at_once(MemoryRunStore(data).change_account(tenant, change=change, by=by)),
        )

    async def rounds_due(self, *, limit: int, after: str | None = None) -> tuple[Sequence[Round], str | None]:
        return await self._server.run(lambda process: rounds.due(process, limit=limit, after=after))

    async def requeue_over_budget(
        self, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
    ) -> tuple[Sequence[Submitted], Round | None]:
        check_name(made.tenant, what="tenant")
        return await self._server.run(lambda process: rounds.requeue(process, made, by=by, policy=policy, limit=limit))

    async def get(self, run_id: str, *, tenant: str) -> Run | None:
        return await self._read_whole(check_run(tenant, run_id), lambda runs: runs.get(run_id, tenant=tenant))

    async def payload(self, run_id: str, *, tenant: str) -> str | None:
        return await self._on(check_run(tenant, run_id), lambda runs: runs.payload(run_id, tenant=tenant))

    async def list(self, where: RunFilter, *, limit: int, after: str | None = None) -> tuple[Sequence[Run], str | None]:
        before = number_of(after)
        return await self._server.run(lambda process: reading.page(process, where, limit=limit, before=before))

    async def events(self, run_id: str, *, tenant: str, after: int = 0, limit: int = 500) -> Sequence[Event]:
        run = check_run(tenant, run_id)
        return await self._server.run(lambda process: reading.events_of(process, run, after=after, limit=limit))

    async def claims(self, run_id: str, *, tenant: str) -> Sequence[Claim]:
        return await self._on(check_run(tenant, run_id), lambda runs: runs.claims(run_id, tenant=tenant))

    async def prune(self, which: Prune, *, limit: int, after: str | None = None) -> Pruned:
        behind = number_of(after) or 0
        return await self._server.run(lambda process: pruning.prune(process, which, limit=limit, behind=behind))

    async def approvals(self, run_id: str, *, tenant: str) -> Asked:
        return await self._on(check_run(tenant, run_id), lambda runs: runs.approvals(run_id, tenant=tenant))

    async def answer(self, run_id: str, given: Answer, *, tenant: str, by: Actor, policy: FleetPolicy) -> Answered:
        return await self._read_whole(
            check_run(tenant, run_id), lambda runs: runs.answer(run_id, given, tenant=tenant, by=by, policy=policy)
        )

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: Actor) -> Grant:
        return await self._on(
            check_run(tenant, run_id), lambda runs: runs.revoke(run_id, grant_id, tenant=tenant, by=by)
        )

    async def expire(self, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
        return await self._server.run(lambda process: sweeping.expire(process, policy=policy, limit=limit))

    async def reseal(self, run_id: str, *, tenant: str, change: Reseal) -> bool:
        run = check_run(tenant, run_id)
        claims = [(tenant, check_name(key, what="idempotency key")) for key in change.outcomes]

        def reseal(data: RunData) -> bool:
            data.look(submitted=[run], checkpoints=[run], claims=claims)
            return at_once(MemoryRunStore(data).reseal(run_id, tenant=tenant, change=change))

        return await self._server.write(bucket_of_run(run), reseal)

    async def oldest_lapsed(self) -> float | None:
        return await self._server.run(sweeping.oldest_lapsed)

    async def _under(self, lease: RunLease, operation: Operation[T], *, calls: Iterable[str] = ()) -> T:
        """Carry out a write that presents a lease; ``calls`` are the keys of the claims that it is about."""
        run = check_run(lease.tenant, lease.run_id)
        claims = [(lease.tenant, check_name(key, what="idempotency key")) for key in calls]

        def write(data: RunData) -> T:
            data.look(runs=[run], claims=claims)
            return at_once(operation(MemoryRunStore(data)))

        return await self._server.write(bucket_of_run(run), write)

    async def _read_whole(self, run: RunKey, operation: Operation[T]) -> T:
        """Carry out an operation that shows the run, with what was submitted."""

        def carry_out(data: RunData) -> T:
            data.look(submitted=[run])
            return at_once(operation(MemoryRunStore(data)))

        return await self._server.write(bucket_of_run(run), carry_out)

    async def _on(self, run: RunKey, operation: Operation[T]) -> T:
        return await self._server.write(bucket_of_run(run), lambda data: at_once(operation(MemoryRunStore(data))))


def _renew(process: Process, bucket: int, leases: Sequence[RunLease], *, ttl: float) -> Sequence[Renewal]:
    def renew(data: RunData, leases: Sequence[RunLease]) -> Sequence[Renewal]:
        data.look(runs=[(lease.tenant, lease.run_id) for lease in leases])
        return at_once(MemoryRunStore(data).renew_many(leases, ttl_seconds=ttl))

    def unreadable(lease: RunLease, error: ValueError) -> Sequence[Renewal]:
        run = lease.tenant, lease.run_id
        # It is asked again soon, until it has lapsed: once is enough for the log.
        if run not in process.not_renewed:
            process.not_renewed.add(run)
            not_read(run, error)
        return [Renewal(None, busy=True)]

    return [answer for some in together(process, bucket, leases, renew, unreadable=unreadable) for answer in some]
