"""What every :class:`~adk_worker.checkpoint.CheckpointStore` has to do."""

from __future__ import annotations

from functools import partial

import pytest
import pytest_asyncio

from adk_worker.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointBoundary,
    CheckpointPolicy,
    CheckpointStore,
    OutstandingCall,
    encode_checkpoint,
)
from adk_worker.conformance.fencing import Fences
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.texts import CONTENTS, TRICKY
from adk_worker.conformance.waiting import LONG, race, race_in_threads, winners
from adk_worker.errors import CheckpointFormatError, InvalidNameError, StaleFenceError
from adk_worker.lease import LeaseStore
from adk_worker.messages import Message, ToolCallPart, ToolResultPart, Usage
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome

TENANT = "acme"
_RUNS = 10
_RACERS = 8


def checkpoint(sequence: int = 1, *, tenant: str = TENANT, run_id: str = "run") -> Checkpoint:
    """A small frontier."""
    return Checkpoint(tenant=tenant, run_id=run_id, agent="booking", revision="r1", sequence=sequence)


class CheckpointStoreConformance:
    """Override the fixture ``make_store``: it gives a function that makes a checkpoint store that nobody has used.

    Override ``leases`` too where the store compares fences with leases of its own.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[CheckpointStore]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[CheckpointStore]) -> CheckpointStore:
        """The store of one test."""
        return await made(make_store)

    @pytest.fixture
    def leases(self) -> LeaseStore | None:
        """The lease store whose leases decide about this store's fences; ``None`` if it knows of no leases."""
        return None

    async def test_a_run_without_a_frontier_has_none(self, store: CheckpointStore) -> None:
        """C5: and reading leaves nothing behind."""
        assert await store.latest("run", tenant=TENANT) is None
        assert await store.latest("run", tenant=TENANT) is None

    async def test_a_frontier_reads_as_it_was_written(self, store: CheckpointStore) -> None:
        """C5: with every field."""
        outcome = ToolOutcome(kind=OutcomeKind.REFUSED, content={"why": TRICKY})
        calls = (
            OutstandingCall(call_id="c-0", tool="book", arguments={"seat": "12A", "n": [1, None]}, index=0, key="k-0"),
            OutstandingCall(call_id="c-1", tool="look", index=1, effect=Effect.READ_ONLY, outcome=outcome),
        )
        said = Message.assistant(TRICKY, [ToolCallPart(id="c-0", name="book", arguments={"seat": "12A"})])
        told = Message.tool([ToolResultPart(call_id="c-0", name="book", content=[TRICKY], is_error=True)])
        written = Checkpoint(
            tenant=TENANT,
            run_id="run",
            agent="booking",
            revision="r1",
            sequence=7,
            boundary=CheckpointBoundary.BEFORE_APPROVAL,
            iteration=3,
            messages=(Message.user("book it"), said, told),
            history_handle="h1.cnVu.3.0",
            calls=calls,
            usage=Usage(input_tokens=1200, output_tokens=300),
            cost_micros=2**53,
            metadata={TRICKY: {"nested": [True, 1.5]}},
            masks={"[secret:1]": "x"},
            grant_id="grant-1",
            output=TRICKY,
        )

        await store.put(written)

        assert await store.latest("run", tenant=TENANT) == written

    async def test_there_is_one_frontier_and_the_last_write_wins(self, store: CheckpointStore) -> None:
        """C5, F2: without a fence, whatever the sequence."""
        for sequence in (1, 5, 2):
            await store.put(checkpoint(sequence))
            assert await store.latest("run", tenant=TENANT) == checkpoint(sequence)

    async def test_a_forgotten_frontier_is_gone(self, store: CheckpointStore) -> None:
        """C5: forgetting what is not there is harmless, and a later one is stored again."""
        await store.put(checkpoint(1))

        await store.forget("run", tenant=TENANT)
        await store.forget("run", tenant=TENANT)
        gone = await store.latest("run", tenant=TENANT)
        await store.put(checkpoint(2))

        assert gone is None
        assert await store.latest("run", tenant=TENANT) == checkpoint(2)

    # --- fences -----------------------------------------------------------------------------------------------

    async def test_the_fence_that_may_write_writes(self, store: CheckpointStore, leases: LeaseStore | None) -> None:
        """F1, F2: as often as it likes."""
        fence = await self._fences(leases).next()

        for sequence in (1, 2):
            await store.put(checkpoint(sequence), fence=fence)
            assert await store.latest("run", tenant=TENANT) == checkpoint(sequence)
        await store.forget("run", tenant=TENANT, fence=fence)

        assert await store.latest("run", tenant=TENANT) is None

    async def test_a_stale_fence_writes_nothing(self, store: CheckpointStore, leases: LeaseStore | None) -> None:
        """F1: put and forget are refused, and the refusal names both numbers."""
        fences = self._fences(leases)
        old = await fences.next()
        await store.put(checkpoint(1), fence=old)
        new = await fences.next()
        await store.put(checkpoint(2), fence=new)

        with pytest.raises(StaleFenceError) as put:
            await store.put(checkpoint(3), fence=old)
        with pytest.raises(StaleFenceError) as forget:
            await store.forget("run", tenant=TENANT, fence=old)

        for refused in (put.value, forget.value):
            assert (refused.tenant, refused.run_id) == (TENANT, "run")
            assert (refused.presented, refused.current) == (old, new)
        assert await store.latest("run", tenant=TENANT) == checkpoint(2)

    async def test_forgetting_a_frontier_does_not_forget_its_fence(
        self, store: CheckpointStore, leases: LeaseStore | None
    ) -> None:
        """F1, L2: a paused worker must not bring back what its successor has ended."""
        fences = self._fences(leases)
        old = await fences.next()
        await store.put(checkpoint(1), fence=old)
        await store.forget("run", tenant=TENANT, fence=await fences.next())

        with pytest.raises(StaleFenceError):
            await store.put(checkpoint(2), fence=old)

        assert await store.latest("run", tenant=TENANT) is None

    async def test_without_a_fence_nothing_is_asked(self, store: CheckpointStore, leases: LeaseStore | None) -> None:
        """F2: the runner in process has no lease; and its write does not lower the fence."""
        fences = self._fences(leases)
        old = await fences.next()
        await store.put(checkpoint(1), fence=old)
        await store.put(checkpoint(2), fence=await fences.next())

        await store.put(checkpoint(3))

        assert await store.latest("run", tenant=TENANT) == checkpoint(3)
        with pytest.raises(StaleFenceError):
            await store.put(checkpoint(4), fence=old)

    async def test_a_fence_is_one_runs(self, store: CheckpointStore, leases: LeaseStore | None) -> None:
        """F1, T1: the fences of one run say nothing about another's, nor about another tenant's of the same name."""
        fences = self._fences(leases)
        for _ in range(5):
            await store.put(checkpoint(1), fence=await fences.next())
        others = [(TENANT, "other"), ("other", "run")]

        for tenant, run_id in others:
            fence = await Fences(leases, tenant=tenant, run_id=run_id).next()
            await store.put(checkpoint(1, tenant=tenant, run_id=run_id), fence=fence)

        for tenant, run_id in others:
            assert await store.latest(run_id, tenant=tenant) == checkpoint(1, tenant=tenant, run_id=run_id)

    async def test_a_fence_that_was_given_up_writes_nothing(
        self, store: CheckpointStore, leases: LeaseStore | None
    ) -> None:
        """F1: it is equal still, and the lease is not held any more: accepted means both."""
        if leases is None:
            pytest.skip("this store knows of no leases")
        lease = await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
        await store.put(checkpoint(1), fence=lease.fence)
        await leases.release(lease)

        with pytest.raises(StaleFenceError) as put:
            await store.put(checkpoint(2), fence=lease.fence)
        with pytest.raises(StaleFenceError) as forget:
            await store.forget("run", tenant=TENANT, fence=lease.fence)

        for refused in (put.value, forget.value):
            assert (refused.presented, refused.current) == (lease.fence, lease.fence)
        assert await store.latest("run", tenant=TENANT) == checkpoint(1)

    async def test_stale_fences_that_race_never_displace_the_newest(
        self, store: CheckpointStore, leases: LeaseStore | None
    ) -> None:
        """F1: compared in the same operation as the write, not before it."""
        for run_id in (f"run-{number}" for number in range(_RUNS)):
            fences = Fences(leases, tenant=TENANT, run_id=run_id)
            numbers = [await fences.next() for _ in range(_RACERS)]
            racers = [
                partial(store.put, checkpoint(sequence, run_id=run_id), fence=fence)
                for sequence, fence in enumerate(numbers, 1)
            ]

            winners(await race_in_threads(racers), StaleFenceError)

            assert await store.latest(run_id, tenant=TENANT) == checkpoint(_RACERS, run_id=run_id)

    async def test_of_writes_that_race_one_stands_whole(self, store: CheckpointStore) -> None:
        """F2: no frontier is ever a mixture."""
        frontiers = [checkpoint(number).updated(metadata={"text": str(number) * 1000}) for number in range(_RACERS)]

        winners(await race([store.put(frontier) for frontier in frontiers]), StaleFenceError)

        assert await store.latest("run", tenant=TENANT) in frontiers

    # --- payloads ---------------------------------------------------------------------------------------------

    @pytest.mark.parametrize("content", CONTENTS)
    async def test_every_json_reads_as_it_was_written(self, store: CheckpointStore, content: object) -> None:
        """T2: every script, NUL, and a megabyte."""
        written = checkpoint().updated(metadata={"content": content})

        await store.put(written)

        read = await store.latest("run", tenant=TENANT)
        assert read is not None
        assert read.metadata == {"content": content}

    async def test_a_store_has_no_cap_below_the_policys(self, store: CheckpointStore) -> None:
        """C2: and trims nothing."""
        cap = CheckpointPolicy().max_bytes
        written = checkpoint().updated(metadata={"text": "x" * cap})
        written = written.updated(metadata={"text": "x" * (2 * cap - len(encode_checkpoint(written)))})
        assert len(encode_checkpoint(written, max_bytes=cap)) == cap

        await store.put(written)

        assert await store.latest("run", tenant=TENANT) == written

    async def test_a_newer_format_is_refused_and_left_where_it_is(self, store: CheckpointStore) -> None:
        """C4: for a newer version to read."""
        await store.put(checkpoint().updated(format=CHECKPOINT_FORMAT + 1))

        for _ in range(2):
            with pytest.raises(CheckpointFormatError) as refused:
                await store.latest("run", tenant=TENANT)
            assert (refused.value.found, refused.value.supported) == (CHECKPOINT_FORMAT + 1, CHECKPOINT_FORMAT)

    async def test_what_is_stored_is_no_live_object(self, store: CheckpointStore) -> None:
        """T2: neither the writer nor a reader can change it afterwards."""
        written = checkpoint().updated(metadata={"seats": ["12A"]})
        await store.put(written)

        written.metadata["seats"] = []
        read = await store.latest("run", tenant=TENANT)
        assert read is not None
        read.metadata["seats"] = None

        assert await store.latest("run", tenant=TENANT) == checkpoint().updated(metadata={"seats": ["12A"]})

    # --- names ------------------------------------------------------------------------------------------------

    async def test_no_name_reaches_anothers_frontier(self, store: CheckpointStore) -> None:
        """T1: neither to read nor to forget it."""
        frontiers = {
            (tenant, run_id): checkpoint(number, tenant=tenant, run_id=run_id)
            for number, (tenant, run_id) in enumerate(HOSTILE_RUNS)
        }
        for frontier in frontiers.values():
            await store.put(frontier)

        for tenant, run_id in HOSTILE_RUNS:
            assert await store.latest(run_id, tenant=tenant) == frontiers[tenant, run_id]
            await store.forget(run_id, tenant=tenant)
            assert await store.latest(run_id, tenant=tenant) is None

    async def test_another_tenant_has_no_such_frontier(self, store: CheckpointStore) -> None:
        """T1: and cannot tell it from one that nobody has."""
        await store.put(checkpoint())

        assert await store.latest("run", tenant="other") is None
        await store.forget("run", tenant="other")

        assert await store.latest("run", tenant=TENANT) == checkpoint()

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, store: CheckpointStore, name: str) -> None:
        """T1: of a tenant and a run, by every method."""
        with pytest.raises(InvalidNameError):
            await store.put(checkpoint().updated(tenant=name))
        with pytest.raises(InvalidNameError):
            await store.put(checkpoint().updated(run_id=name))
        with pytest.raises(InvalidNameError):
            await store.latest(name, tenant=TENANT)
        with pytest.raises(InvalidNameError):
            await store.latest("run", tenant=name)
        with pytest.raises(InvalidNameError):
            await store.forget("run", tenant=name)

    @staticmethod
    def _fences(leases: LeaseStore | None) -> Fences:
        return Fences(leases, tenant=TENANT, run_id="run")
