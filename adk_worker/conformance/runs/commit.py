"""Boundaries: all of one is written, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import pytest

from adk_worker.conformance.runs.driver import BOOKED, REFUSED, TENANT, Driver
from adk_worker.conformance.texts import CONTENTS, MEGABYTE, TRICKY
from adk_worker.conformance.waiting import Racer, race_in_threads, winners
from adk_worker.errors import ClaimOwnerError, FrontierLostError, HistoryUnavailableError, StaleFenceError
from adk_worker.events import EventKind, NewEvent
from adk_worker.idempotency import BY_OWNER, Claim, ClaimState
from adk_worker.messages import Usage
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_RUNS = 10
_RACERS = 6

_RESTING = [
    (Then.WAIT_APPROVAL, RunStatus.WAITING_APPROVAL),
    (Then.PARK, RunStatus.PARKED),
    (Then.FAIL, RunStatus.FAILED),
    (Then.COMPLETE, RunStatus.COMPLETED),
]


class CommitConformance:
    """What a boundary writes."""

    async def test_a_boundary_keeps_the_lease_where_more_is_to_come(self, stores: Stores) -> None:
        """F1: the frontier, the run's row and the events, in one write."""
        driver = Driver(stores)
        lease = await driver.worker()
        told = (NewEvent("first", {"text": TRICKY}), NewEvent("second"))

        committed = await driver.commit(lease, 1, frontier={"output": TRICKY, "revision": "r2"}, events=told)

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, lease, None)
        assert await driver.held() == lease
        run = await driver.run()
        assert (run.status, run.sequence, run.iteration, run.revision) == (RunStatus.RUNNING, 1, 1, "r2")
        assert (run.usage, run.cost_micros) == (Usage(input_tokens=100, output_tokens=10), 1000)
        assert (run.output, run.detail, run.attention) == (TRICKY, None, None)
        boundary = driver.boundary(1, frontier={"output": TRICKY, "revision": "r2"})
        assert await driver.payload() == boundary.payload
        assert await stores.checkpoints.latest("run", tenant=TENANT) == boundary.checkpoint
        events = (await driver.events())[-2:]
        assert [(event.kind, event.data, event.fence) for event in events] == [
            ("first", {"text": TRICKY}, lease.fence),
            ("second", {}, lease.fence),
        ]

    async def test_a_boundary_hands_over(self, stores: Stores) -> None:
        """L2, F1: in the same write, under a new ticket; the right to write is given up."""
        driver = Driver(stores)
        lease = await driver.worker()

        committed = await driver.commit(lease, 1, Then.HAND_OVER)

        run = await driver.run()
        assert (run.status, run.fence) == (RunStatus.QUEUED, committed.ticket)
        assert (committed.verdict, committed.lease) == (Verdict.DONE, None)
        assert committed.ticket is not None
        assert committed.ticket > lease.fence
        assert (run.expires_at or 0) - run.updated_at == pytest.approx(driver.policy.dispatch_grace)
        assert await driver.take(committed.ticket) is not None

    @pytest.mark.parametrize(("then", "status"), _RESTING)
    async def test_a_boundary_lets_the_run_rest(self, stores: Stores, then: Then, status: RunStatus) -> None:
        """L2: the lease is free, the fence is kept."""
        driver = Driver(stores)
        lease = await driver.worker()

        committed = await driver.commit(lease, 1, then, attention=Attention.APPROVAL, detail=TRICKY)

        run = await driver.run()
        assert (run.status, run.holder, run.expires_at, run.fence) == (status, None, None, lease.fence)
        assert (run.attention, run.detail, run.sequence) == (Attention.APPROVAL, TRICKY, 1)
        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        assert await driver.held() is None

    @pytest.mark.parametrize(("then", "status"), _RESTING)
    async def test_a_completed_run_alone_forgets_its_frontier(
        self, stores: Stores, then: Then, status: RunStatus
    ) -> None:
        """C5: a failed or parked one is carried on once the cause is gone."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)

        await driver.commit(lease, 2, then)

        assert (await driver.run()).status is status
        assert await driver.payload() == (None if then is Then.COMPLETE else driver.boundary(2).payload)

    async def test_parking_and_failing_at_a_boundary_are_told(self, stores: Stores) -> None:
        """H1: as where there is no boundary, behind the boundary's own events."""
        parked, failed = Driver(stores, run_id="parked"), Driver(stores, run_id="failed")

        await parked.commit(await parked.worker(), 1, Then.PARK, attention=Attention.OVER_BUDGET, detail="too dear")
        await failed.commit(await failed.worker(), 1, Then.FAIL, detail="no such model")

        said = {"attention": "over_budget", "detail": "too dear"}
        assert [(event.kind, event.data) for event in (await parked.events())[3:]] == [(EventKind.PARKED, said)]
        said = {"detail": "no such model"}
        assert [(event.kind, event.data) for event in (await failed.events())[3:]] == [(EventKind.FAILED, said)]

    async def test_a_boundary_takes_what_came_in_the_way_back(self, stores: Stores) -> None:
        """C3, C4: a new boundary is progress: crashes, tries and attention begin afresh."""
        driver = Driver(stores)
        await driver.give_back(await driver.worker(), attention=Attention.EXCEPTION)

        await driver.commit(await driver.worker(), 1)

        run = await driver.run()
        assert (run.crashes, run.tries, run.attention, run.detail) == (0, 0, None, None)

    # --- what belongs to it -----------------------------------------------------------------------------------

    async def test_a_boundary_brings_its_messages(self, stores: Stores) -> None:
        """H1, H3: in the same write; each adds its own alone."""
        driver = Driver(stores)
        lease = await driver.worker()
        first = driver.segment("one")
        second = driver.segment("two", after=first.handle)

        await driver.commit(lease, 1, segment=first, frontier={"history_handle": str(first.handle)})
        await driver.commit(lease, 2, segment=second, frontier={"history_handle": str(second.handle)})

        messages = await stores.history.fetch(str(second.handle), tenant=TENANT)
        assert [message.text for message in messages or ()] == ["one", "two"]

    async def test_a_boundary_records_outcomes(self, stores: Stores) -> None:
        """I2: a lone call's, which saves a write of its own; one that is settled already keeps it as evidence."""
        driver = Driver(stores)
        lease = await driver.worker()
        first, second = await driver.begin(lease, 0, 1)
        await stores.idempotency.record(second, BOOKED)

        await driver.commit(lease, 1, settled=[(first, BOOKED), (second, REFUSED)])

        one, two = await driver.claims()
        assert (one.state, one.outcome, one.settled_by) == (ClaimState.SETTLED, BOOKED, BY_OWNER)
        assert (two.outcome, two.late) == (BOOKED, (REFUSED,))

    async def test_a_boundary_with_a_strangers_outcome_writes_nothing(self, stores: Stores) -> None:
        """I3, F1: whole or not at all: neither the frontier, nor the messages, nor the other outcome."""
        driver = Driver(stores)
        lease = await driver.worker()
        mine, other = await driver.begin(lease, 0, 1)
        stranger = Claim(other.tenant, other.key, "stranger", other.digest, other.state)
        segment = driver.segment("one")
        before = await driver.picture()

        with pytest.raises(ClaimOwnerError):
            await driver.commit(lease, 1, Then.HAND_OVER, segment=segment, settled=[(mine, BOOKED), (stranger, BOOKED)])

        await self._assert_unwritten(driver, before, segment.handle)

    @pytest.mark.parametrize("sequence", [0, 1, 3])
    async def test_a_boundary_follows_the_one_before(self, stores: Stores, sequence: int) -> None:
        """C5, F1: the sequence rises by one; anything else is a mistake of the caller's, and writes nothing."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.HAND_OVER)
        lease = await driver.worker()
        segment = driver.segment("one")
        before = await driver.picture()

        with pytest.raises(ValueError, match="follow"):
            await driver.commit(lease, sequence, segment=segment)

        await self._assert_unwritten(driver, before, segment.handle)

    async def test_a_boundary_is_of_the_leases_run(self, stores: Stores) -> None:
        """F1, T1: a fence is no leave to write another run's frontier."""
        driver, other = Driver(stores), Driver(stores, run_id="other")
        lease = await driver.worker()
        await other.worker()
        before = await driver.picture(), await other.picture()

        with pytest.raises(ValueError, match="another run"):
            await other.commit(lease, 1)

        assert (await driver.picture(), await other.picture()) == before

    @pytest.mark.parametrize("content", CONTENTS)
    async def test_every_json_of_a_frontier_reads_as_it_was_written(self, stores: Stores, content: object) -> None:
        """T2: every script, NUL, and a megabyte, in a frontier, an event and a transcript."""
        driver = Driver(stores)
        told = (NewEvent("told", {"content": content}),)
        segment = driver.segment(f"{content}")

        await driver.commit(
            await driver.worker(), 1, frontier={"metadata": {"c": content}}, events=told, segment=segment
        )

        latest = await stores.checkpoints.latest("run", tenant=TENANT)
        assert latest is not None
        assert latest.metadata == {"c": content}
        assert (await driver.events())[-1].data == {"content": content}
        messages = await stores.history.fetch(str(segment.handle), tenant=TENANT)
        assert [message.text for message in messages or ()] == [f"{content}"]

    async def test_a_store_has_no_cap_of_its_own(self, stores: Stores) -> None:
        """C2: the policy's is the only one, and nothing is trimmed."""
        driver = Driver(stores)
        large = {"text": "x" * 3 * MEGABYTE}

        await driver.commit(await driver.worker(), 1, frontier={"metadata": large})

        latest = await stores.checkpoints.latest("run", tenant=TENANT)
        assert latest is not None
        assert latest.metadata == large

    # --- repeated ---------------------------------------------------------------------------------------------

    async def test_a_commit_whose_answer_was_lost_is_found_done(self, stores: Stores) -> None:
        """F5: by its fence and sequence, with the ticket that is to be dispatched; nothing is written."""
        driver = Driver(stores)
        lease = await driver.worker()
        (claim,) = await driver.begin(lease, 0)
        parts = {"segment": driver.segment("one"), "settled": [(claim, BOOKED)]}
        first = await driver.commit(lease, 1, Then.HAND_OVER, **parts)
        before = await driver.picture()

        again = await driver.commit(lease, 1, Then.HAND_OVER, **parts)

        assert (again.verdict, again.lease, again.ticket) == (Verdict.REPEATED, None, first.ticket)
        assert await driver.picture() == before

    async def test_a_repeated_commit_says_what_stands_now(self, stores: Stores) -> None:
        """F5: the lease while it is still held; and no ticket once somebody took it."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)

        kept = await driver.commit(lease, 1)
        await driver.commit(lease, 2, Then.HAND_OVER)
        await driver.worker()
        taken = await driver.commit(lease, 2, Then.HAND_OVER)

        assert (kept.verdict, kept.lease, kept.ticket) == (Verdict.REPEATED, lease, None)
        assert (taken.verdict, taken.lease, taken.ticket) == (Verdict.REPEATED, None, None)

    @pytest.mark.parametrize(("then", "status"), _RESTING)
    async def test_a_commit_that_let_the_run_rest_is_found_done(
        self, stores: Stores, then: Then, status: RunStatus
    ) -> None:
        """F5: the end of a run is not to be taken for a lost lease."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1, then)
        before = await driver.picture()

        again = await driver.commit(lease, 1, then)

        assert (again.verdict, again.lease, again.ticket) == (Verdict.REPEATED, None, None)
        assert (await driver.run()).status is status
        assert await driver.picture() == before

    async def test_of_a_commit_that_is_repeated_at_once_one_is_written(self, stores: Stores) -> None:
        """F5, F1: a retry may overtake what it repeats."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            lease = await driver.worker()
            racers = [
                lambda driver=driver, lease=lease: driver.commit(lease, 1, Then.HAND_OVER) for _ in range(_RACERS)
            ]

            committed = winners(await race_in_threads(racers), ClaimOwnerError)

            verdicts = sorted(one.verdict for one in committed)
            assert verdicts == sorted([Verdict.DONE] + [Verdict.REPEATED] * (_RACERS - 1))
            assert {one.ticket for one in committed} == {(await driver.run()).fence}
            assert len(await driver.events()) == 3

    async def test_of_a_boundary_and_the_reaper_one_decides(self, stores: Stores) -> None:
        """F1, L7: either the boundary is written, and the worker was never dead; or nothing of it is."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            lease = await driver.dead_worker()

            racers: list[Racer] = [
                partial(driver.commit, lease, 1, Then.HAND_OVER),
                driver.reap,
            ]
            committed, reaped = await race_in_threads(racers)

            run = await driver.run()
            assert run.status is RunStatus.QUEUED
            if isinstance(committed, StaleFenceError):
                assert (run.sequence, run.crashes, await driver.payload()) == (0, 1, None)
                assert committed.current == run.fence
            else:
                assert reaped is None
                assert (run.sequence, run.crashes) == (1, 0)
                assert await driver.payload() == driver.boundary(1).payload

    # --- the tombstone ----------------------------------------------------------------------------------------

    async def test_a_tombstone_marks_the_run(self, stores: Stores) -> None:
        """C3: the older frontier is kept to be looked at, and never resumed from as if it were current."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)

        committed = await driver.commit(lease, 2, stored=False)

        assert (committed.verdict, committed.lease) == (Verdict.DONE, lease)
        run = await driver.run()
        assert (run.behind, run.sequence) == (True, 2)
        assert await driver.payload() == driver.boundary(1).payload
        with pytest.raises(FrontierLostError) as refused:
            await stores.checkpoints.latest("run", tenant=TENANT)
        assert (refused.value.tenant, refused.value.run_id, refused.value.sequence) == (TENANT, "run", 1)

    async def test_a_stored_frontier_takes_the_mark_away(self, stores: Stores) -> None:
        """C3: memory is not ahead any more."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1, stored=False)
        marked = await driver.frontier_lost()

        await driver.commit(lease, 2)

        assert marked
        assert not (await driver.run()).behind
        assert not await driver.frontier_lost()

    async def test_a_tombstone_alone_hands_nothing_over(self, stores: Stores) -> None:
        """C3: nobody could carry the run on from there; nothing is written."""
        driver = Driver(stores)
        lease = await driver.worker()
        before = await driver.picture()

        for then in (Then.HAND_OVER, Then.WAIT_APPROVAL):
            with pytest.raises(ValueError, match="frontier"):
                await driver.commit(lease, 1, then, stored=False)

        assert await driver.picture() == before

    async def test_a_marked_run_that_is_given_back_is_parked(self, stores: Stores) -> None:
        """C3: it is not tried again from the older frontier."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1, stored=False)

        committed = await driver.give_back(lease, Reason.DRAIN)

        run = await driver.run()
        assert (committed.verdict, committed.ticket) == (Verdict.PARKED, None)
        assert (run.status, run.attention, run.behind) == (RunStatus.PARKED, Attention.FRONTIER_LOST, True)
        with pytest.raises(FrontierLostError):
            await driver.requeue()

    @staticmethod
    async def _assert_unwritten(driver: Driver, before: object, handle: object) -> None:
        assert await driver.picture() == before
        fetched: Sequence[object] | None = None
        with suppress(HistoryUnavailableError):
            fetched = await driver.stores.history.fetch(str(handle), tenant=TENANT)
        assert fetched is None
