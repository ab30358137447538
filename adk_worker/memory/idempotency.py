"""Claims in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adk_worker.errors import ResumeConflictError
from adk_worker.idempotency import RESUME_CLAIM_SECONDS, Claim, Intent, check_claim
from adk_worker.lease import check_ttl
from adk_worker.memory import claims, deciding
from adk_worker.memory.data import MemoryData
from adk_worker.names import check_name, check_run
from adk_worker.outcomes import ToolOutcome
from adk_worker.settling.settlement import Settled, Settlement
from adk_worker.transitions import claims as claim_transitions


class MemoryIdempotencyStore:
    """An :class:`~adk_worker.idempotency.IdempotencyStore` for one process, with the claims of resumes (I9).

    Usable from any thread and event loop. What it keeps ends with the process: enough to plan within one, and no
    protection beyond.
    """

    def __init__(self, data: MemoryData | None = None) -> None:
        self._data = data or MemoryData()

    async def begin(self, key: str, *, tenant: str, owner: str, digest: str) -> Claim:
        check_claim(tenant, key, owner)
        with self._data.lock:
            stored = claims.load(self._data, (tenant, key))
            intent = Intent(key, digest)
            stands = claim_transitions.begin(stored, intent, tenant=tenant, owner=owner, now=self._data.clock())
            if stored is None:
                claims.save(self._data, stands)
            return stands

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        check_name(tenant, what="tenant")
        with self._data.lock:
            return {key: claims.load(self._data, (tenant, key)) for key in keys}

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        with self._data.lock:
            stored = claims.load(self._data, (claim.tenant, claim.key))
            after = claim_transitions.record(stored, key=claim.key, owner=claim.owner, outcome=outcome)
            claims.decide(self._data, stored, after)

    async def abandon(self, claim: Claim) -> None:
        check_claim(claim.tenant, claim.key, claim.owner)
        with self._data.lock:
            stored = claims.load(self._data, (claim.tenant, claim.key))
            after = claim_transitions.abandon(stored, key=claim.key, owner=claim.owner)
            if after is None:
                claims.remove(self._data, (claim.tenant, claim.key))
            else:
                claims.give_back(self._data, after)

    async def take_over(self, claim: Claim, owner: str) -> Claim:
        check_claim(claim.tenant, claim.key, owner)
        with self._data.lock:
            stored = claims.load(self._data, (claim.tenant, claim.key))
            after = claim_transitions.take_over(
                stored, key=claim.key, seen=claim.owner, owner=owner, now=self._data.clock()
            )
            claims.save(self._data, after)
            return after

    async def decide(self, claim: Claim, asked: Settlement) -> Settled:
        check_claim(claim.tenant, claim.key, claim.owner)
        with self._data.lock:
            return deciding.decide_alone(self._data, claim, asked)

    async def claim_resume(
        self,
        run_id: str,
        *,
        tenant: str,
        owner: str,
        fence: int | None = None,
        ttl_seconds: float = RESUME_CLAIM_SECONDS,
    ) -> None:
        key = check_run(tenant, run_id)
        check_name(owner, what="owner")
        check_ttl(ttl_seconds)
        with self._data.lock:
            claimed = claim_transitions.claim_resume(
                self._data.resumes.get(key), owner=owner, fence=fence, now=self._data.clock(), ttl=ttl_seconds
            )
            if claimed is None:
                raise ResumeConflictError(tenant=tenant, run_id=run_id)
            self._data.resumes[key] = claimed

    async def end_resume(self, run_id: str, *, tenant: str, owner: str) -> None:
        key = check_run(tenant, run_id)
        with self._data.lock:
            claimed = self._data.resumes.get(key)
            if claimed is not None and claimed.owner == owner:
                del self._data.resumes[key]
