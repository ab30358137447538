"""Idempotency stores that lie."""

from __future__ import annotations

import time
from dataclasses import replace

from adk_worker.conformance import DecisionsConformance, IdempotencyStoreConformance, ResumeClaimsConformance
from adk_worker.errors import ClaimOwnerError
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.memory import MemoryIdempotencyStore, claims
from tests.conformance.liars.lie import Lie, standing

_HOUR = 3600.0


class Racy(MemoryIdempotencyStore):
    """An upsert whose loser reads nothing from its snapshot, and goes on as if the key were its own (I3)."""

    async def begin(self, key, *, tenant, owner, digest):
        claim = await super().begin(key, tenant=tenant, owner=owner, digest=digest)
        return Claim(tenant, key, owner, digest, ClaimState.IN_FLIGHT, began_at=claim.began_at)


class Ageing(MemoryIdempotencyStore):
    """Lets a claim in flight age into "never ran" (I4)."""

    async def begin(self, key, *, tenant, owner, digest):
        stands = (await self.peek([key], tenant=tenant))[key]
        if stands and stands.state is ClaimState.IN_FLIGHT and time.time() - stands.began_at > _HOUR:
            self._data.claims.pop((tenant, key))
        return await super().begin(key, tenant=tenant, owner=owner, digest=digest)


class Expiring(MemoryIdempotencyStore):
    """Returns an outcome that has expired once more, and deletes it then (I2)."""

    async def begin(self, key, *, tenant, owner, digest):
        claim = await super().begin(key, tenant=tenant, owner=owner, digest=digest)
        if claim.state is ClaimState.SETTLED and time.time() - claim.began_at > _HOUR:
            self._data.claims.pop((tenant, key))
        return claim


class Unowned(MemoryIdempotencyStore):
    """Lets anyone record an outcome (I3)."""

    async def record(self, claim, outcome):
        await super().record(await standing(self._data, claim) or claim, outcome)


class Careless(MemoryIdempotencyStore):
    """Lets anyone abandon a claim (I3)."""

    async def abandon(self, claim):
        await super().abandon(await standing(self._data, claim) or claim)


class Reusing(MemoryIdempotencyStore):
    """Does not look at the digest (I1)."""

    async def begin(self, key, *, tenant, owner, digest):
        stands = (await self.peek([key], tenant=tenant))[key]
        return await super().begin(key, tenant=tenant, owner=owner, digest=stands.digest if stands else digest)


class Overwriting(MemoryIdempotencyStore):
    """Lets a late outcome replace the settlement (F4)."""

    async def record(self, claim, outcome):
        self._data.claims.pop((claim.tenant, claim.key), None)
        await super().begin(claim.key, tenant=claim.tenant, owner=claim.owner, digest=claim.digest)
        await super().record(claim, outcome)


class Deaf(MemoryIdempotencyStore):
    """Refuses what comes after the settlement, instead of keeping it as evidence (F4)."""

    async def record(self, claim, outcome):
        stands = await standing(self._data, claim)
        if stands and stands.state is ClaimState.SETTLED and stands.outcome != outcome:
            return
        await super().record(claim, outcome)


class Heirs(MemoryIdempotencyStore):
    """Forgets the owner before when a claim is taken over, and so refuses its evidence (F4)."""

    async def record(self, claim, outcome):
        stands = await standing(self._data, claim)
        if stands is None or stands.owner != claim.owner:
            raise ClaimOwnerError(key=claim.key)
        await super().record(claim, outcome)


class Seizing(MemoryIdempotencyStore):
    """Takes over from whoever has the claim now (I7)."""

    async def take_over(self, claim, owner):
        return await super().take_over(await standing(self._data, claim) or claim, owner)


class Absent(MemoryIdempotencyStore):
    """Makes a claim absent that was taken over and abandoned, though its first owner may have dispatched (I4)."""

    async def abandon(self, claim):
        if self._data.claims.pop((claim.tenant, claim.key), None) is None:
            raise ClaimOwnerError(key=claim.key)


class Peeking(MemoryIdempotencyStore):
    """Plans by begin and abandon (I5)."""

    async def peek(self, keys, *, tenant):
        found = {}
        for key in keys:
            try:
                claim = await self.begin(key, tenant=tenant, owner="peeking", digest="")
            except Exception:  # noqa: BLE001 - whatever stands there has another digest
                found[key] = (await super().peek([key], tenant=tenant))[key]
            else:
                found[key] = None if claim.owner == "peeking" else claim
        return found


class Joined(MemoryIdempotencyStore):
    """Joins tenant and key into one (T1)."""

    async def begin(self, key, *, tenant, owner, digest):
        return await super().begin(f"{tenant}:{key}", tenant="all", owner=owner, digest=digest)


class Immortal(MemoryIdempotencyStore):
    """Lets a resume's claim stand until it is ended (I9)."""

    async def claim_resume(self, run_id, *, tenant, owner, fence=None, ttl_seconds=300.0):
        await super().claim_resume(run_id, tenant=tenant, owner=owner, fence=fence, ttl_seconds=1e9)


class Doubled(MemoryIdempotencyStore):
    """Lets two resume at once (I9)."""

    async def claim_resume(self, run_id, *, tenant, owner, fence=None, ttl_seconds=300.0):
        self._data.resumes.pop((tenant, run_id), None)
        await super().claim_resume(run_id, tenant=tenant, owner=owner, fence=fence, ttl_seconds=ttl_seconds)


class Anyones(MemoryIdempotencyStore):
    """Ends a resume for whoever asks (I9)."""

    async def end_resume(self, run_id, *, tenant, owner):
        self._data.resumes.pop((tenant, run_id), None)


class Trusting(MemoryIdempotencyStore):
    """Believes that a call never ran whoever may still be at it (I8)."""

    async def decide(self, claim, asked):
        return await super().decide(claim, replace(asked, owner_may_live=True))


class Unlearning(MemoryIdempotencyStore):
    """Refuses, and forgets what it was told of the owner's death (I11)."""

    async def decide(self, claim, asked):
        settled = await super().decide(claim, asked)
        if settled.refused:
            with self._data.lock:
                claims.save(self._data, claim)
        return settled


class Overruling(MemoryIdempotencyStore):
    """Lets the last one to decide be right (I8)."""

    async def decide(self, claim, asked):
        with self._data.lock:
            claims.save(self._data, claim)
        return await super().decide(claim, asked)


class Obeying(MemoryIdempotencyStore):
    """Has a call made that is known to have happened, since somebody said that it never ran (F4)."""

    async def take_over(self, claim, owner):
        with self._data.lock:
            stored = claims.load(self._data, (claim.tenant, claim.key))
            if stored is not None and stored.state is ClaimState.NEVER_RAN:
                claims.save(self._data, replace(stored, late=()))
        return await super().take_over(claim, owner)


class Reopening(MemoryIdempotencyStore):
    """Forgets what was decided about the owner before, once the next one takes its intent back (I8)."""

    async def abandon(self, claim):
        await super().abandon(claim)
        with self._data.lock:
            stored = claims.load(self._data, (claim.tenant, claim.key))
            if stored is not None:
                claims.save(self._data, replace(stored, state=ClaimState.IN_FLIGHT))


LIES = (
    Lie(IdempotencyStoreConformance, Racy, "test_of_many_that_begin_exactly_one_owns"),
    Lie(IdempotencyStoreConformance, Racy, "test_of_many_that_begin_in_threads_exactly_one_owns"),
    Lie(IdempotencyStoreConformance, Ageing, "test_nothing_expires"),
    Lie(IdempotencyStoreConformance, Expiring, "test_nothing_expires"),
    Lie(IdempotencyStoreConformance, Unowned, "test_a_stranger_records_nothing"),
    Lie(IdempotencyStoreConformance, Careless, "test_only_the_owner_of_a_claim_in_flight_abandons_it"),
    Lie(IdempotencyStoreConformance, Reusing, "test_a_key_with_another_digest_is_refused"),
    Lie(IdempotencyStoreConformance, Overwriting, "test_an_outcome_after_the_settlement_is_evidence"),
    Lie(IdempotencyStoreConformance, Deaf, "test_an_outcome_after_the_settlement_is_evidence"),
    Lie(IdempotencyStoreConformance, Heirs, "test_the_outcome_of_a_former_owner_is_evidence"),
    Lie(IdempotencyStoreConformance, Seizing, "test_a_claim_that_moved_on_is_not_taken_over"),
    Lie(IdempotencyStoreConformance, Absent, "test_a_claim_taken_over_and_abandoned_is_the_former_owners_again"),
    Lie(IdempotencyStoreConformance, Peeking, "test_a_key_without_a_claim_is_absent"),
    Lie(IdempotencyStoreConformance, Joined, "test_no_name_reaches_anothers_claim"),
    Lie(ResumeClaimsConformance, Immortal, "test_a_claim_expires_by_the_stores_clock"),
    Lie(ResumeClaimsConformance, Doubled, "test_of_many_resumes_exactly_one_claims"),
    Lie(ResumeClaimsConformance, Anyones, "test_the_end_of_a_resume_ends_no_other"),
    Lie(DecisionsConformance, Trusting, "test_never_ran_needs_a_proof_that_nothing_is_under_way"),
    Lie(DecisionsConformance, Unlearning, "test_never_ran_needs_a_proof_that_nothing_is_under_way"),
    Lie(DecisionsConformance, Overruling, "test_a_second_decision_hears_of_the_first"),
    Lie(DecisionsConformance, Overruling, "test_of_two_people_one_decides"),
    Lie(DecisionsConformance, Obeying, "test_a_call_that_ran_after_all_is_not_made_again"),
    Lie(DecisionsConformance, Reopening, "test_an_intent_that_is_taken_back_leaves_what_was_decided"),
)
