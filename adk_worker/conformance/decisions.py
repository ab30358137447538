"""What a :class:`~adk_worker.settling.settlement.TakesDecisions` has to do, beside being an idempotency store (I8)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Protocol

import pytest
import pytest_asyncio

from adk_worker.actors import Actor
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.waiting import Racer, race_in_threads, winners
from adk_worker.errors import CallDecidedError, CallStateError, ClaimOwnerError
from adk_worker.idempotency import Claim, ClaimState, Decision, IdempotencyStore
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.settling.settlement import Settlement, TakesDecisions

TENANT = "acme"
BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"booking": 7})
ANN = Actor("ann", "op-1")
HAPPENED = Settlement(ANN, "it is in their list", BOOKED)
NEVER_RAN = Settlement(ANN, "they never heard of it", owner_may_live=True)
_KEYS = 10


class DecidingStore(IdempotencyStore, TakesDecisions, Protocol):
    """An idempotency store that takes what a person decides."""


class DecisionsConformance:
    """Override the fixture ``make_store``: it gives a function that makes an unused store."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[DecidingStore]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[DecidingStore]) -> DecidingStore:
        """The store of one test."""
        return await made(make_store)

    async def test_a_person_says_what_a_call_returned(self, store: DecidingStore) -> None:
        """I8, P5: kept with who, when, why and through which user."""
        claim = await _begin(store)

        settled = await store.decide(claim, HAPPENED)

        kept = await _peek(store)
        (decision,) = kept.decisions
        assert decision == Decision("ann", "op-1", decision.at, HAPPENED.why, "one", BOOKED)
        assert (kept.state, kept.outcome, kept.settled_by) == (ClaimState.SETTLED, BOOKED, "person:ann")
        assert (settled.claim, settled.run, settled.ticket, settled.refused) == (kept, None, None, None)

    async def test_a_call_that_never_ran_is_made_under_the_same_key(self, store: DecidingStore) -> None:
        """I8, I3: by whoever takes it over, one alone."""
        claim = await _begin(store)
        decided = (await store.decide(claim, NEVER_RAN)).claim

        begun = await store.begin("k", tenant=TENANT, owner="two", digest="d")
        taken = await store.take_over(decided, "two")
        with pytest.raises(ClaimOwnerError):
            await store.take_over(decided, "three")

        assert (decided.state, begun) == (ClaimState.NEVER_RAN, decided)
        assert taken.owned_in_flight_by("two")
        assert taken.former == ("one",)

    async def test_never_ran_needs_a_proof_that_nothing_is_under_way(self, store: DecidingStore) -> None:
        """I8, I11: that the owner is dead is kept; and so is the claim as it was."""
        claim = await _begin(store)
        asked = replace(NEVER_RAN, owner_may_live=False)

        answers = [
            await store.decide(claim, asked),
            await store.decide(claim, replace(asked, owner_dead=True)),
            await store.decide(claim, replace(asked, max_in_flight=600.0)),
        ]
        kept = await _peek(store)
        allowed = await store.decide(claim, replace(asked, max_in_flight=0.0))

        assert all(answer.refused and answer.claim.in_flight for answer in answers)
        assert kept == replace(claim, dead_seen_at=kept.dead_seen_at)
        assert kept.dead_seen_at is not None
        assert (allowed.refused, allowed.claim.state) == (None, ClaimState.NEVER_RAN)

    async def test_a_call_that_ran_after_all_is_not_made_again(self, store: DecidingStore) -> None:
        """F4, I8: the decision stays on record, with the evidence beside it."""
        claim = await _begin(store)
        decided = (await store.decide(claim, NEVER_RAN)).claim

        await store.record(claim, BOOKED)

        with pytest.raises(ClaimOwnerError):
            await store.take_over(decided, "two")
        kept = await _peek(store)
        assert (kept.state, kept.late, kept.known) == (ClaimState.NEVER_RAN, (BOOKED,), BOOKED)
        assert kept.contradicted

    async def test_an_intent_that_is_taken_back_leaves_what_was_decided(self, store: DecidingStore) -> None:
        """I8, I3."""
        decided = (await store.decide(await _begin(store), NEVER_RAN)).claim

        await store.abandon(await store.take_over(decided, "two"))

        kept = await _peek(store)
        assert (kept.state, kept.owner, kept.former) == (ClaimState.NEVER_RAN, "one", ())

    async def test_a_second_decision_hears_of_the_first(self, store: DecidingStore) -> None:
        """I8; the very same one again finds itself done (F5)."""
        claim = await _begin(store)
        first = await store.decide(claim, NEVER_RAN)

        with pytest.raises(CallDecidedError) as refused:
            await store.decide(claim, HAPPENED)

        assert (refused.value.by, refused.value.how) == ("person:ann", "never ran")
        assert await store.decide(claim, NEVER_RAN) == first
        assert await _peek(store) == first.claim

    async def test_a_call_that_was_never_begun_is_not_decided(self, store: DecidingStore) -> None:
        """I8, I2: nor one that somebody else has begun since."""
        claim = await _begin(store)
        await store.take_over(claim, "two")
        with pytest.raises(CallStateError):
            await store.decide(claim, HAPPENED)
        with pytest.raises(CallStateError):
            await store.decide(replace(claim, key="other"), HAPPENED)

        assert (await _peek(store)).in_flight
        assert await store.peek(["other"], tenant=TENANT) == {"other": None}

    async def test_of_two_people_one_decides(self, store: DecidingStore) -> None:
        """I8: on connections of their own."""
        for number in range(_KEYS):
            claim = await _begin(store, f"k-{number}")
            racers: list[Racer] = [
                partial(store.decide, claim, HAPPENED),
                partial(store.decide, claim, replace(NEVER_RAN, by=Actor("bob"))),
            ]

            (won,) = winners(await race_in_threads(racers), CallDecidedError)

            assert await _peek(store, claim.key) == won.claim


async def _begin(store: DecidingStore, key: str = "k") -> Claim:
    return await store.begin(key, tenant=TENANT, owner="one", digest="d")


async def _peek(store: DecidingStore, key: str = "k") -> Claim:
    claim = (await store.peek([key], tenant=TENANT))[key]
    assert claim is not None
    return claim
