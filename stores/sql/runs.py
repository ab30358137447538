"""The fleet's store in a database: every operation is one transaction under its run's lock (F1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from adk_worker import submission
from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered
from adk_worker.approvals.requests import Grant
from adk_worker.approvals.store import Asked, Expired
from adk_worker.errors import ConfigurationError
from adk_worker.events import Event, NewEvent
from adk_worker.filters import RunFilter
from adk_worker.idempotency import Claim, Intent, check_claim
from adk_worker.lease import RunLease, check_holder, check_ttl
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.booking import Reservation
from adk_worker.ledger.rounds import Round
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.pruning import Prune, Pruned
from adk_worker.runs import Boundary, Committed, NewRun, Reaped, Renewal, Run, Submitted, Sweep, Taken
from adk_worker.sealing.resealing import Reseal
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions.runs import Attention, FleetPolicy, Reason
from stores.sql import (
    accounts,
    advancing,
    approving,
    asked,
    checkpoints,
    claim_rows,
    deciding,
    ledgers,
    pruning,
    reading,
    renewing,
    requests,
    resealing,
    resting,
    rounds,
    sweeping,
)
from stores.sql.database import Database
from stores.sql.locks import database_time


class SqlRunStore:
    """A :class:`~adk_worker.runs.RunStore` in a database; usable from any thread, event loop and process."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def submit(self, new: NewRun, *, policy: FleetPolicy, connection: object | None = None) -> Submitted:
        """See the protocol.

        With a ``connection`` it all happens on that, on the calling thread, which must be the one that may use it. The
        database's errors are then the driver's own: the transaction is the caller's to give up, or to do again.
        """
        asked = submission.checked(new)
        if connection is None:
            return await self._database.write(lambda tx: requests.submit(tx, asked, policy=policy))
        tx = _joined(connection, self._database.dialect)
        with self._database.joined():
            return requests.submit(tx, asked, policy=policy)

    async def take(self, run_id: str, *, tenant: str, ticket: int, holder: str, ttl_seconds: float) -> Taken | None:
        check_run(tenant, run_id)
        check_holder(holder)
        check_ttl(ttl_seconds)
        return await self._database.write(
            lambda tx: advancing.take(tx, tenant, run_id, ticket=ticket, holder=holder, ttl=ttl_seconds)
        )

    async def held_by(self, run_id: str, *, tenant: str, holder: str) -> Taken | None:
        check_run(tenant, run_id)
        return await self._database.write(lambda tx: advancing.held_by(tx, tenant, run_id, holder=holder))

    async def renew_many(self, leases: Sequence[RunLease], *, ttl_seconds: float) -> Sequence[Renewal]:
        check_ttl(ttl_seconds)
        for lease in leases:
            check_run(lease.tenant, lease.run_id)
        if not leases:
            return []
        return await self._database.write(lambda tx: renewing.renew_many(tx, leases, ttl=ttl_seconds))

    async def begin(
        self, lease: RunLease, intents: Sequence[Intent], *, owner: str, ahead: bool = False
    ) -> tuple[Committed, Sequence[Claim]]:
        check_run(lease.tenant, lease.run_id)
        for intent in intents:
            check_claim(lease.tenant, intent.key, owner)
        return await self._database.write(lambda tx: advancing.begin(tx, lease, intents, owner=owner, ahead=ahead))

    async def commit(self, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
        if (boundary.checkpoint.tenant, boundary.checkpoint.run_id) != check_run(lease.tenant, lease.run_id):
            raise ValueError("the boundary is of another run than the lease")
        return await self._database.write(lambda tx: advancing.commit(tx, lease, boundary, policy=policy))

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

        def park(tx: Connection) -> Committed:
            return resting.park(tx, lease, attention=attention, detail=detail, undecided=undecided, told=events)

        return await self._database.write(park)

    async def fail(
        self, lease: RunLease, *, detail: str, events: Sequence[NewEvent] = (), asked: bool = False
    ) -> Committed:
        check_run(lease.tenant, lease.run_id)
        return await self._database.write(lambda tx: resting.fail(tx, lease, detail=detail, told=events, asked=asked))

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
        give_back = partial(
            resting.give_back,
            lease=lease,
            reason=reason,
            detail=detail,
            policy=policy,
            attention=attention,
            delay=delay,
            asked=asked,
        )
        return await self._database.write(give_back)

    async def settle(self, lease: RunLease, claim: Claim, outcome: ToolOutcome, *, by: str) -> Claim:
        check_run(lease.tenant, lease.run_id)
        return await self._database.write(lambda tx: resting.settle(tx, lease, claim, outcome, by=by))

    async def note_dead(self, lease: RunLease, claims: Sequence[Claim]) -> Sequence[Claim]:
        check_run(lease.tenant, lease.run_id)
        return await self._database.write(lambda tx: resting.note_dead(tx, lease, claims))

    async def claim_lapsed(self, *, policy: FleetPolicy, limit: int, count_crashes: bool) -> Sequence[Reaped]:
        def claiming(claim: Callable[..., Sequence[Reaped]]) -> Callable[[Connection], Sequence[Reaped]]:
            return lambda tx: claim(tx, policy=policy, limit=limit, count_crashes=count_crashes)

        try:
            return await self._database.write(claiming(sweeping.claim_lapsed))
        except (DBAPIError, ValueError):
            # One run that cannot be written is not to keep all others from being recovered.
            return await self._database.write(claiming(sweeping.claim_lapsed_apart))

    async def claim_dead(self, run_id: str, *, tenant: str, holder: str, policy: FleetPolicy) -> Reaped | None:
        check_run(tenant, run_id)
        return await self._database.write(
            lambda tx: sweeping.claim_dead(tx, tenant, run_id, holder=holder, policy=policy)
        )

    async def held_on(self, host: str, *, within: float) -> Sequence[RunLease]:
        check_name(host, what="host")
        return await self._database.read(lambda tx: sweeping.held_on(tx, host, within=within))

    async def sweep(self) -> Sweep:
        return await self._database.write(sweeping.sweep)

    async def requeue(
        self, run_id: str, *, tenant: str, by: Actor, policy: FleetPolicy, seen: Run | None = None
    ) -> Submitted:
        check_run(tenant, run_id)
        return await self._database.write(
            lambda tx: requests.requeue(tx, tenant, run_id, by=by, policy=policy, seen=seen)
        )

    async def cancel(self, run_id: str, *, tenant: str, by: Actor, seen: Run | None = None) -> Run:
        check_run(tenant, run_id)
        return await self._database.write(lambda tx: requests.cancel(tx, tenant, run_id, by=by, seen=seen))

    async def decide(
        self, run_id: str, *, tenant: str, claim: Claim, asked: Settlement, policy: FleetPolicy
    ) -> Settled:
        check_run(tenant, run_id)
        check_claim(tenant, claim.key, claim.owner)
        return await self._database.write(
            lambda tx: deciding.decide_of_run(tx, tenant, run_id, claim, asked, policy=policy)
        )

    async def reserve(self, lease: RunLease, asked: Reservation) -> Committed:
        check_run(lease.tenant, lease.run_id)
        return await self._database.write(lambda tx: ledgers.reserve(tx, lease, asked))

    async def change_budget(
        self, run_id: str, *, tenant: str, change: BudgetChange, by: Actor, policy: FleetPolicy
    ) -> Submitted:
        check_run(tenant, run_id)
        return await self._database.write(
            lambda tx: ledgers.change_budget(tx, tenant, run_id, change=change, by=by, policy=policy)
        )

    async def account(self, tenant: str) -> Account | None:
        check_name(tenant, what="tenant")
        return await self._database.read(lambda tx: accounts.read(tx, tenant))

    async def change_account(self, tenant: str, *, change: BudgetChange, by: Actor) -> Account:
        check_name(tenant, what="tenant")
        return await self._database.write(lambda tx: accounts.change(tx, tenant, change, by=by))

    async def rounds_due(self, *, limit: int, after: str | None = None) -> tuple[Sequence[Round], str | None]:
        return await rounds.due(self._database, limit=limit, after=after)

    async def requeue_over_budget(
        self, made: Round, *, by: Actor, policy: FleetPolicy, limit: int
    ) -> tuple[Sequence[Submitted], Round | None]:
        check_name(made.tenant, what="tenant")
        return await rounds.requeue(self._database, made, by=by, policy=policy, limit=limit)

    async def get(self, run_id: str, *, tenant: str) -> Run | None:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: reading.get(tx, tenant, run_id))

    async def payload(self, run_id: str, *, tenant: str) -> str | None:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: checkpoints.payload_of(tx, tenant, run_id))

    async def list(self, where: RunFilter, *, limit: int, after: str | None = None) -> tuple[Sequence[Run], str | None]:
        before = reading.cursor(after)
        try:
            return await self._database.read(lambda tx: reading.page(tx, where, limit=limit, before=before))
        except ValueError:
            # One run that cannot be read is not to keep all others from being seen.
            return await self._database.read(lambda tx: reading.page_apart(tx, where, limit=limit, before=before))

    async def events(self, run_id: str, *, tenant: str, after: int = 0, limit: int = 500) -> Sequence[Event]:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: reading.events_of(tx, tenant, run_id, after=after, limit=limit))

    async def claims(self, run_id: str, *, tenant: str) -> Sequence[Claim]:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: claim_rows.of_run(tx, tenant, run_id))

    async def prune(self, which: Prune, *, limit: int, after: str | None = None) -> Pruned:
        behind = reading.cursor(after) or 0
        return await self._database.write(lambda tx: pruning.prune(tx, which, limit=limit, behind=behind))

    async def approvals(self, run_id: str, *, tenant: str) -> Asked:
        check_run(tenant, run_id)
        return await self._database.read(lambda tx: Asked(database_time(tx), asked.read(tx, tenant, run_id)))

    async def answer(self, run_id: str, given: Answer, *, tenant: str, by: Actor, policy: FleetPolicy) -> Answered:
        check_run(tenant, run_id)
        return await self._database.write(lambda tx: approving.answer(tx, tenant, run_id, given, by=by, policy=policy))

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: Actor) -> Grant:
        check_run(tenant, run_id)
        return await self._database.write(lambda tx: approving.revoke(tx, tenant, run_id, grant_id, by=by))

    async def expire(self, *, policy: FleetPolicy, limit: int) -> Sequence[Expired]:
        return await self._database.write(lambda tx: approving.expire(tx, policy=policy, limit=limit))

    async def reseal(self, run_id: str, *, tenant: str, change: Reseal) -> bool:
        check_run(tenant, run_id)
        return await self._database.write(lambda tx: resealing.reseal(tx, tenant, run_id, change))

    async def oldest_lapsed(self) -> float | None:
        return await self._database.read(sweeping.oldest_lapsed)


def _joined(connection: object, dialect: str) -> Connection:
    """The caller's connection, if it is one that can be joined."""
    from sqlalchemy.orm import Session, scoped_session  # noqa: PLC0415 - half a second, for those alone who join one

    tx = connection.connection() if isinstance(connection, Session | scoped_session) else connection
    if not isinstance(tx, Connection):
        raise ConfigurationError(
            f"submit(connection=…) joins a sqlalchemy.Connection or a sqlalchemy.orm.Session, not {type(tx).__name__}. "
            "Where there is an async one alone, submit without a connection once its transaction has been committed."
        )
    if tx.dialect.name != dialect:
        raise ConfigurationError(
            f"the connection is to {tx.dialect.name} and the store is in {dialect}: a submit can join only a "
            "transaction of the store's own database."
        )
    return tx
