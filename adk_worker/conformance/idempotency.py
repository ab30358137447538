"""What every :class:`~adk_worker.idempotency.IdempotencyStore` has to do."""

from __future__ import annotations

import pytest
import pytest_asyncio

from adk_worker.conformance.clocks import YEAR, caller_off_by
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.texts import CONTENTS
from adk_worker.conformance.waiting import race, race_in_threads, winners
from adk_worker.errors import CallKeyReusedError, ClaimOwnerError, InvalidNameError
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState, IdempotencyStore, call_digest, call_key
from adk_worker.outcomes import OutcomeKind, ToolOutcome

TENANT = "acme"
KEY = call_key(tenant=TENANT, run_id="run", iteration=1, index=0)
DIGEST = call_digest(KEY, tool="book", arguments={"seat": "12A"})
OTHER_DIGEST = call_digest(KEY, tool="book", arguments={"seat": "12B"})
BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"booking": 7})
REFUSED = ToolOutcome(kind=OutcomeKind.FAILED, content="no seat left")
_KEYS = 20
_RACERS = 8


class IdempotencyStoreConformance:
    """Override the fixture ``make_store``: it gives a function that makes an idempotency store that nobody has used."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[IdempotencyStore]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[IdempotencyStore]) -> IdempotencyStore:
        """The store of one test."""
        return await made(make_store)

    # --- begin ------------------------------------------------------------------------------------------------

    async def test_a_key_without_a_claim_is_absent(self, store: IdempotencyStore) -> None:
        """I2, I5: every key that was asked about has an answer, and asking leaves nothing behind."""
        assert await store.peek([KEY, "another"], tenant=TENANT) == {KEY: None, "another": None}
        assert await store.peek([], tenant=TENANT) == {}
        assert (await self._begin(store, "one")).owned_in_flight_by("one")

    async def test_an_intent_is_in_flight_under_its_owner(self, store: IdempotencyStore) -> None:
        """I2, I3: and reads the same afterwards."""
        claim = await self._begin(store, "one")

        assert (claim.tenant, claim.key, claim.owner, claim.digest) == (TENANT, KEY, "one", DIGEST)
        assert (claim.state, claim.outcome, claim.settled_by) == (ClaimState.IN_FLIGHT, None, None)
        assert claim.began_at is not None
        assert await self._peek(store) == claim

    async def test_a_claim_in_flight_is_nobody_elses(self, store: IdempotencyStore) -> None:
        """I3, I4: whoever comes later finds it as it is, and cannot take it for their own."""
        first = await self._begin(store, "one")

        assert await self._begin(store, "two") == first
        assert not (await self._begin(store, "two")).owned_in_flight_by("two")
        assert await self._peek(store) == first

    async def test_the_owner_finds_its_claim_again(self, store: IdempotencyStore) -> None:
        """I3, F5: after an answer that was lost."""
        first = await self._begin(store, "one")

        again = await self._begin(store, "one")

        assert again == first
        assert again.owned_in_flight_by("one")

    async def test_of_many_that_begin_exactly_one_owns(self, store: IdempotencyStore) -> None:
        """I3: and all others see that one, not an absent row."""
        for number in range(_KEYS):
            racers = [
                store.begin(f"key-{number}", tenant=TENANT, owner=f"racer-{racer}", digest=DIGEST)
                for racer in range(_RACERS)
            ]

            self._only_one_owns(winners(await race(racers), ClaimOwnerError))

    async def test_of_many_that_begin_in_threads_exactly_one_owns(self, store: IdempotencyStore) -> None:
        """I3: a store may be used from any thread and any event loop."""

        async def begin_all(owner: str) -> list[Claim]:
            return [
                await store.begin(f"key-{number}", tenant=TENANT, owner=owner, digest=DIGEST) for number in range(_KEYS)
            ]

        racers = [lambda owner=f"racer-{racer}": begin_all(owner) for racer in range(_RACERS)]
        begun = winners(await race_in_threads(racers), ClaimOwnerError)

        for claims in zip(*begun, strict=True):
            self._only_one_owns(list(claims))

    async def test_a_key_with_another_digest_is_refused(self, store: IdempotencyStore) -> None:
        """I1: in flight and settled, to the owner too; the outcome is never reused, and nothing is written."""
        claim = await self._begin(store, "one")
        for owner in ("one", "two"):
            with pytest.raises(CallKeyReusedError) as refused:
                await store.begin(KEY, tenant=TENANT, owner=owner, digest=OTHER_DIGEST)
            assert refused.value.key == KEY
        assert await self._peek(store) == claim

        await store.record(claim, BOOKED)
        settled = await self._peek(store)
        with pytest.raises(CallKeyReusedError):
            await store.begin(KEY, tenant=TENANT, owner="two", digest=OTHER_DIGEST)
        assert await self._peek(store) == settled

    # --- record -----------------------------------------------------------------------------------------------

    async def test_the_owner_settles_its_claim(self, store: IdempotencyStore) -> None:
        """I2: the outcome is on record before anything is built on it."""
        claim = await self._begin(store, "one")

        await store.record(claim, BOOKED)

        settled = await self._peek(store)
        assert (settled.state, settled.outcome, settled.settled_by) == (ClaimState.SETTLED, BOOKED, BY_OWNER)
        assert (settled.owner, settled.late) == ("one", ())

    async def test_a_settled_call_is_never_in_flight_again(self, store: IdempotencyStore) -> None:
        """I1, I2: whoever begins it is given the outcome."""
        await store.record(await self._begin(store, "one"), BOOKED)

        for owner in ("one", "two"):
            again = await self._begin(store, owner)
            assert (again.state, again.outcome) == (ClaimState.SETTLED, BOOKED)

    async def test_a_stranger_records_nothing(self, store: IdempotencyStore) -> None:
        """I3: the token of somebody who never owned the claim opens nothing."""
        claim = await self._begin(store, "one")

        with pytest.raises(ClaimOwnerError) as refused:
            await store.record(self._as(claim, "two"), BOOKED)

        assert refused.value.key == KEY
        assert await self._peek(store) == claim

    async def test_nothing_is_recorded_on_an_absent_claim(self, store: IdempotencyStore) -> None:
        """I2, I3: no outcome without an intent."""
        claim = await self._begin(store, "one")
        await store.abandon(claim)

        with pytest.raises(ClaimOwnerError):
            await store.record(claim, BOOKED)

        assert await store.peek([KEY], tenant=TENANT) == {KEY: None}

    async def test_recording_the_same_again_is_harmless(self, store: IdempotencyStore) -> None:
        """F5: after an answer that was lost."""
        claim = await self._begin(store, "one")
        await store.record(claim, BOOKED)
        settled = await self._peek(store)

        await store.record(claim, BOOKED)

        assert await self._peek(store) == settled

    async def test_an_outcome_after_the_settlement_is_evidence(self, store: IdempotencyStore) -> None:
        """F4: it overwrites nothing, and is kept once."""
        claim = await self._begin(store, "one")
        await store.record(claim, BOOKED)

        await store.record(claim, REFUSED)
        await store.record(claim, REFUSED)

        settled = await self._peek(store)
        assert (settled.outcome, settled.settled_by, settled.late) == (BOOKED, BY_OWNER, (REFUSED,))

    @pytest.mark.parametrize("kind", OutcomeKind)
    async def test_every_kind_of_outcome_reads_as_it_was_written(
        self, store: IdempotencyStore, kind: OutcomeKind
    ) -> None:
        """I10: how a call ended is told apart."""
        outcome = ToolOutcome(kind=kind, content="so it went")

        await store.record(await self._begin(store, "one"), outcome)

        assert (await self._peek(store)).outcome == outcome

    @pytest.mark.parametrize("content", CONTENTS)
    async def test_every_json_reads_as_it_was_written(self, store: IdempotencyStore, content: object) -> None:
        """T2, I2: every script, NUL, and a megabyte, in an outcome and in evidence."""
        outcome = ToolOutcome.model_validate({"kind": "returned", "content": content})
        claim = await self._begin(store, "one")

        await store.record(claim, outcome)
        await store.record(claim, REFUSED)
        await store.record(claim, ToolOutcome.model_validate({"kind": "unusable", "content": content}))

        settled = await self._peek(store)
        assert settled.outcome is not None
        assert settled.outcome.content == content
        assert [late.content for late in settled.late] == [REFUSED.content, content]

    async def test_what_is_stored_is_no_live_object(self, store: IdempotencyStore) -> None:
        """T2: neither the writer nor a reader can change it afterwards."""
        seats = ["12A"]
        outcome = ToolOutcome(kind=OutcomeKind.RETURNED, content={"seats": seats})  # type: ignore[dict-item]
        await store.record(await self._begin(store, "one"), outcome)

        seats.append("12B")
        (await self._peek(store)).outcome.content["seats"].append("12C")  # type: ignore[union-attr,index,call-overload]

        assert (await self._peek(store)).outcome == ToolOutcome(
            kind=OutcomeKind.RETURNED,
            content={"seats": ["12A"]},
        )

    # --- abandon ----------------------------------------------------------------------------------------------

    async def test_an_abandoned_intent_is_absent(self, store: IdempotencyStore) -> None:
        """I3: its owner knows that it never dispatched, so the next one may."""
        await store.abandon(await self._begin(store, "one"))

        assert await store.peek([KEY], tenant=TENANT) == {KEY: None}
        assert (await self._begin(store, "two")).owned_in_flight_by("two")

    async def test_only_the_owner_of_a_claim_in_flight_abandons_it(self, store: IdempotencyStore) -> None:
        """I3: not a stranger, not a settled one, not an absent one."""
        claim = await self._begin(store, "one")
        with pytest.raises(ClaimOwnerError):
            await store.abandon(self._as(claim, "two"))
        assert await self._peek(store) == claim

        await store.record(claim, BOOKED)
        settled = await self._peek(store)
        with pytest.raises(ClaimOwnerError):
            await store.abandon(claim)
        assert await self._peek(store) == settled

        absent = await store.begin("another", tenant=TENANT, owner="one", digest=DIGEST)
        await store.abandon(absent)
        with pytest.raises(ClaimOwnerError):
            await store.abandon(absent)

    # --- take over --------------------------------------------------------------------------------------------

    async def test_a_claim_in_flight_is_taken_over_by_name(self, store: IdempotencyStore) -> None:
        """I7: the owner before is remembered."""
        claim = await self._begin(store, "one")

        taken = await store.take_over(claim, "two")

        assert taken.owned_in_flight_by("two")
        assert taken.former == ("one",)
        assert await self._peek(store) == taken

    async def test_a_claim_that_moved_on_is_not_taken_over(self, store: IdempotencyStore) -> None:
        """I3, I7: compare and set, on the owner that was seen; nothing is written."""
        claim = await self._begin(store, "one")
        taken = await store.take_over(claim, "two")
        with pytest.raises(ClaimOwnerError):
            await store.take_over(claim, "three")
        assert await self._peek(store) == taken

        await store.record(taken, BOOKED)
        settled = await self._peek(store)
        with pytest.raises(ClaimOwnerError):
            await store.take_over(taken, "three")
        assert await self._peek(store) == settled

        absent = await store.begin("another", tenant=TENANT, owner="one", digest=DIGEST)
        await store.abandon(absent)
        with pytest.raises(ClaimOwnerError):
            await store.take_over(absent, "three")

    async def test_of_many_that_take_over_exactly_one_owns(self, store: IdempotencyStore) -> None:
        """I3: what the plan has seen may have been seen by others too."""
        for number in range(_KEYS):
            claim = await store.begin(f"key-{number}", tenant=TENANT, owner="dead", digest=DIGEST)
            answers = await race([store.take_over(claim, f"racer-{racer}") for racer in range(_RACERS)])

            (won,) = winners(answers, ClaimOwnerError)
            assert (await store.peek([claim.key], tenant=TENANT))[claim.key] == won

    async def test_the_outcome_of_a_former_owner_is_evidence(self, store: IdempotencyStore) -> None:
        """F4: it is kept, and settles nothing; the owner does."""
        claim = await self._begin(store, "one")
        taken = await store.take_over(claim, "two")

        await store.record(claim, REFUSED)
        kept = await self._peek(store)
        await store.record(taken, BOOKED)

        assert (kept.state, kept.owner, kept.outcome, kept.late) == (ClaimState.IN_FLIGHT, "two", None, (REFUSED,))
        settled = await self._peek(store)
        assert (settled.outcome, settled.settled_by, settled.late) == (BOOKED, BY_OWNER, (REFUSED,))

    async def test_a_claim_taken_over_and_abandoned_is_the_former_owners_again(self, store: IdempotencyStore) -> None:
        """I4: that one may have dispatched, so it does not become absent."""
        claim = await self._begin(store, "one")
        taken = await store.take_over(claim, "two")
        with pytest.raises(ClaimOwnerError):
            await store.abandon(claim)

        await store.abandon(taken)

        back = await self._peek(store)
        assert back.owned_in_flight_by("one")
        assert back.former == ()

    # --- time -------------------------------------------------------------------------------------------------

    async def test_nothing_expires(self, store: IdempotencyStore) -> None:
        """I2, I4: a claim in flight does not age into permission, and an outcome is not returned for a last time."""
        in_flight = await store.begin("in flight", tenant=TENANT, owner="one", digest=DIGEST)
        await store.record(await self._begin(store, "one"), BOOKED)
        settled = await self._peek(store)

        with caller_off_by(YEAR):
            for _ in range(3):
                assert await store.begin("in flight", tenant=TENANT, owner="two", digest=DIGEST) == in_flight
                assert await self._begin(store, "two") == settled
                assert await store.peek(["in flight", KEY], tenant=TENANT) == {"in flight": in_flight, KEY: settled}

    # --- names ------------------------------------------------------------------------------------------------

    async def test_no_name_reaches_anothers_claim(self, store: IdempotencyStore) -> None:
        """T1: neither the same key of another tenant, nor a tenant and key that join to the same text."""
        for number, (tenant, key) in enumerate(HOSTILE_RUNS):
            claim = await store.begin(key, tenant=tenant, owner=f"owner-{number}", digest=DIGEST)
            assert claim.owned_in_flight_by(f"owner-{number}")

        for number, (tenant, key) in enumerate(HOSTILE_RUNS):
            claim = (await store.peek([key], tenant=tenant))[key]  # type: ignore[assignment]
            assert (claim.tenant, claim.key, claim.owner) == (tenant, key, f"owner-{number}")
            await store.abandon(claim)
            assert await store.peek([key], tenant=tenant) == {key: None}

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, store: IdempotencyStore, name: str) -> None:
        """T1: of a tenant, a key and an owner, by every method that writes."""
        claim = await self._begin(store, "one")
        with pytest.raises(InvalidNameError):
            await store.begin(KEY, tenant=name, owner="one", digest=DIGEST)
        with pytest.raises(InvalidNameError):
            await store.begin(name, tenant=TENANT, owner="one", digest=DIGEST)
        with pytest.raises(InvalidNameError):
            await store.begin(KEY, tenant=TENANT, owner=name, digest=DIGEST)
        with pytest.raises(InvalidNameError):
            await store.peek([KEY], tenant=name)
        with pytest.raises(InvalidNameError):
            await store.take_over(claim, name)

        assert await self._peek(store) == claim

    @staticmethod
    async def _begin(store: IdempotencyStore, owner: str) -> Claim:
        return await store.begin(KEY, tenant=TENANT, owner=owner, digest=DIGEST)

    @staticmethod
    async def _peek(store: IdempotencyStore) -> Claim:
        claim = (await store.peek([KEY], tenant=TENANT))[KEY]
        assert claim is not None
        return claim

    @staticmethod
    def _as(claim: Claim, owner: str) -> Claim:
        return Claim(claim.tenant, claim.key, owner, claim.digest, claim.state)

    @staticmethod
    def _only_one_owns(claims: list[Claim]) -> None:
        owners = {claim.owner for claim in claims}
        assert len(owners) == 1
        mine = [number for number, claim in enumerate(claims) if claim.owned_in_flight_by(f"racer-{number}")]
        assert len(mine) == 1
