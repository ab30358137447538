"""Claims (I1-I4), and the claims of resumes (I9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select, update

from adk_worker.errors import ResumeConflictError
from adk_worker.idempotency import RESUME_CLAIM_SECONDS, Claim, Intent, check_claim
from adk_worker.lease import check_ttl
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import settling as settle_transitions
from adk_worker.transitions.claims import ResumeClaim
from adk_worker.transitions.runs import FleetPolicy
from stores.sql import claim_rows, deciding
from stores.sql.claim_rows import StoredClaim
from stores.sql.database import Database
from stores.sql.dialects import PerDialect
from stores.sql.locks import LockedRun, database_time, lock_run
from stores.sql.schema import claims, resumes

_RUN_OF: Final = select(claims.c.run_id).where(
    claims.c.tenant == bindparam("for_tenant"), claims.c.key == bindparam("for_key")
)

_THIS_RESUME = (resumes.c.tenant == bindparam("for_tenant")) & (resumes.c.run_id == bindparam("for_run"))
_LOCK_RESUME: Final = select(resumes).where(_THIS_RESUME).with_for_update()
_INSERT_RESUME: Final = PerDialect(lambda insert: insert(resumes).on_conflict_do_nothing().returning(resumes.c.owner))
_WRITE_RESUME: Final = (
    update(resumes).where(_THIS_RESUME).values({name: bindparam(name) for name in ("owner", "fence", "expires_at")})
)
_END_RESUME: Final = delete(resumes).where(_THIS_RESUME, resumes.c.owner == bindparam("for_owner"))


class SqlIdempotencyStore:
    """An :class:`~adk_worker.idempotency.IdempotencyStore` in a database, with the claims of resumes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, key: str, *, tenant: str, owner: str, digest: str) -> Claim:
        check_claim(tenant, key, owner)
        intent = Intent(key, digest)

        def begin(tx: Connection) -> Claim:
            (claim,) = claim_rows.begin(tx, tenant, [intent], owner=owner, now=database_time(tx))
            return claim

        return await self._database.write(begin)

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        check_name(tenant, what="tenant")
        stand = await self._database.read(lambda tx: claim_rows.read(tx, tenant, keys)) if keys else {}
        return {key: stand.get(key) for key in keys}

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        await self._database.write(lambda tx: _record(tx, claim, outcome))

    async def abandon(self, claim: Claim) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        await self._database.write(lambda tx: _abandon(tx, claim))

    async def take_over(self, claim: Claim, owner: str) -> Claim:
        check_claim(claim.tenant, claim.key, owner)
        return await self._database.write(lambda tx: _take_over(tx, claim, owner))

    async def decide(self, claim: Claim, asked: Settlement) -> Settled:
        check_claim(claim.tenant, claim.key, claim.owner)
        return await self._database.write(lambda tx: _decide(tx, claim, asked))

    async def claim_resume(
        self,
        run_id: str,
        *,
        tenant: str,
        owner: str,
        fence: int | None = None,
        ttl_seconds: float = RESUME_CLAIM_SECONDS,
    ) -> None:
        check_run(tenant, run_id)
        check_name(owner, what="owner")
        check_ttl(ttl_seconds)

        def claim(tx: Connection) -> None:
            _claim_resume(tx, tenant, run_id, owner=owner, fence=fence, ttl=ttl_seconds)

        await self._database.write(claim)

    async def end_resume(self, run_id: str, *, tenant: str, owner: str) -> None:
        check_run(tenant, run_id)
        this = {"for_tenant": tenant, "for_run": run_id, "for_owner": owner}
        await self._database.write(lambda tx: tx.execute(_END_RESUME, this).rowcount)


def _record(tx: Connection, claim: Claim, outcome: ToolOutcome) -> None:
    run, stored = locked(tx, claim)
    before = stored.claim if stored else None
    after = claim_transitions.record(before, key=claim.key, owner=claim.owner, outcome=outcome)
    claim_rows.decide(tx, run, before, after)


def _decide(tx: Connection, claim: Claim, asked: Settlement) -> Settled:
    run, stored = locked(tx, claim)
    if run is not None:
        return deciding.decide(tx, run, stored, claim, asked, policy=FleetPolicy())
    before = stored.claim if stored else None
    decided = settle_transitions.decide(before, seen=claim, asked=asked, now=database_time(tx))
    claim_rows.save(tx, decided.claim)
    return Settled(decided.claim, refused=decided.why)


def locked(tx: Connection, claim: Claim) -> tuple[LockedRun | None, StoredClaim | None]:
    """The claim that stands on the key, and the run that it belongs to: that is locked first."""
    while True:
        run_id = tx.execute(_RUN_OF, {"for_tenant": claim.tenant, "for_key": claim.key}).scalar_one_or_none()
        run = None if run_id is None else lock_run(tx, claim.tenant, run_id)
        stored = claim_rows.lock(tx, claim.tenant, [claim.key]).get(claim.key)
        # Unless the claim that was there has been abandoned meanwhile, and begun anew for a run.
        if stored is None or stored.run_id == run_id:
            return run, stored


def _abandon(tx: Connection, claim: Claim) -> None:
    run, stored = locked(tx, claim)
    before = stored.claim if stored else None
    after = claim_transitions.abandon(before, key=claim.key, owner=claim.owner)
    if after is None:
        claim_rows.remove(tx, run, claim)
    else:
        claim_rows.give_back(tx, run, after)


def _take_over(tx: Connection, claim: Claim, owner: str) -> Claim:
    stored = claim_rows.lock(tx, claim.tenant, [claim.key]).get(claim.key)
    before = stored.claim if stored else None
    now = database_time(tx)
    after = claim_transitions.take_over(before, key=claim.key, seen=claim.owner, owner=owner, now=now)
    claim_rows.save(tx, after)
    return after


def _claim_resume(tx: Connection, tenant: str, run_id: str, *, owner: str, fence: int | None, ttl: float) -> None:
    this = {"for_tenant": tenant, "for_run": run_id}
    while True:
        row = tx.execute(_LOCK_RESUME, this).mappings().one_or_none()
        stored = None if row is None else ResumeClaim(row["owner"], row["fence"], row["expires_at"])
        now = database_time(tx)
        claimed = claim_transitions.claim_resume(stored, owner=owner, fence=fence, now=now, ttl=ttl)
        if claimed is None:
            raise ResumeConflictError(tenant=tenant, run_id=run_id)
        columns = {"owner": claimed.owner, "fence": claimed.fence, "expires_at": claimed.expires_at}
        if stored is not None:
            tx.execute(_WRITE_RESUME, {**this, **columns})
            return
        inserted = tx.execute(_INSERT_RESUME.on(tx), {"tenant": tenant, "run_id": run_id, **columns})
        if inserted.one_or_none() is not None:
            return
        # Somebody else's came first: judge that one.
