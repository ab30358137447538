"""Lapsed leases, and who acts on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from adk_worker.conformance.clocks import YEAR, caller_off_by
from adk_worker.conformance.runs.driver import HASTY, PATIENT, TENANT, Driver
from adk_worker.conformance.waiting import LONG, SOON, Racer, race_in_threads, until, winners
from adk_worker.errors import StaleFenceError
from adk_worker.events import EventKind
from adk_worker.lease import QUEUE
from adk_worker.lifecycle import TellsSweeps
from adk_worker.runs import Dispatch, Reaped, RunStatus, Stores
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Attention, Then, Verdict

_RUNS = 12
_RACERS = 4


class ReaperConformance:
    """Each claim of a lapsed lease is one compare-and-set, so that any number of reapers may run."""

    async def test_nothing_lapsed_is_nothing_to_do(self, stores: Stores) -> None:
        """L6: a queued run, a running one, and one that rests."""
        drivers = [Driver(stores, run_id=f"run-{number}") for number in range(3)]
        await drivers[0].submit()
        await drivers[1].worker()
        await drivers[2].commit(await drivers[2].worker(), 1, Then.PARK)
        before = [await driver.picture() for driver in drivers]

        assert list(await stores.runs.claim_lapsed(policy=PATIENT, limit=10, count_crashes=True)) == []

        assert [await driver.picture() for driver in drivers] == before
        assert await stores.runs.oldest_lapsed() is None

    async def test_a_dead_workers_run_is_queued_under_a_new_ticket(self, stores: Stores) -> None:
        """L2: the crash is counted, and its message is a recovery's."""
        driver = Driver(stores)
        dead = await driver.dead_worker()

        reaped = await driver.reap()

        run = await driver.run()
        assert run.fence > dead.fence
        assert (run.status, run.crashes, run.tries, run.attention) == (RunStatus.QUEUED, 1, 0, None)
        dispatch = Dispatch(TENANT, "run", run.fence, recovery=True)
        assert reaped == Reaped(TENANT, "run", Holding.WORKER, Verdict.DONE, dispatch)
        assert (run.expires_at or 0) - run.updated_at == pytest.approx(PATIENT.dispatch_grace)
        (event,) = await driver.events(EventKind.RECOVERED)
        assert event.data == {"holder": dead.holder, "crashes": 1, "known_dead": False}
        assert event.fence == run.fence
        assert await driver.reap() is None

    async def test_a_lost_message_is_published_again_under_the_same_ticket(self, stores: Stores) -> None:
        """L2: the wait doubles up to its cap, so that a backlog is neither starved nor multiplied."""
        driver = Driver(stores, policy=HASTY)
        ticket = (await driver.submit()).ticket
        assert ticket is not None

        reaped = [await until(driver.reap, what="the queued lease to lapse") for _ in range(4)]

        for one in reaped:
            dispatch = Dispatch(TENANT, "run", ticket, recovery=False)
            assert one == Reaped(TENANT, "run", Holding.QUEUE, Verdict.DONE, dispatch)
        waits = [event.data["wait"] for event in await driver.events(EventKind.PUBLISHED_AGAIN)]
        assert waits == pytest.approx([2 * SOON, 4 * SOON, 4 * SOON, 4 * SOON])
        assert (await driver.run()).crashes == 0
        assert await driver.take(ticket) is not None

    async def test_after_a_gap_no_crash_is_counted(self, stores: Stores) -> None:
        """L9: the store was away, or the reaper; the workers are not to blame."""
        driver = Driver(stores)
        await driver.dead_worker()

        reaped = await driver.reap(count_crashes=False)

        assert reaped is not None
        assert reaped.verdict is Verdict.DONE
        assert (await driver.run()).crashes == 0

    async def test_the_callers_clock_lapses_nothing(self, stores: Stores) -> None:
        """L1: a reaper whose machine is a year ahead finds nothing, and one a year behind finds what there is."""
        alive, queued, dead = (Driver(stores, run_id=run_id) for run_id in ("alive", "queued", "dead"))
        lease = await alive.worker()
        await queued.submit()
        await dead.dead_worker()

        with caller_off_by(-YEAR):
            assert await dead.reap() is not None
        with caller_off_by(YEAR):
            assert await stores.runs.oldest_lapsed() is None
            assert list(await stores.runs.claim_lapsed(policy=PATIENT, limit=10, count_crashes=True)) == []
            assert await alive.held() == lease
            assert await stores.runs.held_by("alive", tenant=TENANT, holder=lease.holder) is not None

    async def test_a_run_that_keeps_killing_its_workers_is_parked(self, stores: Stores) -> None:
        """C3: as poisoned; nothing is dispatched, and its frontier is kept."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.HAND_OVER)

        reaped = []
        for _ in range(PATIENT.max_crashes):
            await driver.dead_worker()
            reaped.append(await driver.reap())

        verdicts = [(one.verdict, one.dispatch is None) for one in reaped if one is not None]
        assert verdicts == [(Verdict.DONE, False), (Verdict.DONE, False), (Verdict.PARKED, True)]
        run = await driver.run()
        assert (run.status, run.attention, run.holder) == (RunStatus.PARKED, Attention.POISONED, None)
        assert run.crashes == PATIENT.max_crashes
        (event,) = await driver.events(EventKind.PARKED)
        assert event.data == {"attention": "poisoned", "detail": run.detail}
        assert await driver.payload() == driver.boundary(1).payload

    async def test_exceptions_and_deaths_are_counted_together(self, stores: Stores) -> None:
        """C3: and a new boundary begins afresh."""
        driver = Driver(stores)
        for sequence in (1, 2):
            await driver.give_back(await driver.worker())
            await driver.dead_worker()
            await driver.reap()
            assert (await driver.run()).crashes == 2
            await driver.commit(await driver.worker(), sequence, Then.HAND_OVER)

        assert (await driver.run()).status is RunStatus.QUEUED

    async def test_a_lease_that_was_renewed_is_not_reaped(self, stores: Stores) -> None:
        """L3: looked at again in the same operation as the write."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            dead = await driver.dead_worker()

            racers: list[Racer] = [partial(driver.runs.renew_many, [dead], ttl_seconds=LONG), driver.reap]
            renewals, reaped = await race_in_threads(racers)

            assert isinstance(renewals, Sequence)
            renewed = renewals[0].lease is not None
            assert renewed is (reaped is None)
            status = RunStatus.RUNNING if renewed else RunStatus.QUEUED
            assert (await driver.run()).status is status

    async def test_the_longest_lapsed_come_first(self, stores: Stores) -> None:
        """L6: as many as the reaper asks for."""
        drivers = [Driver(stores, run_id=f"run-{number}") for number in range(4)]
        for driver in drivers:
            await driver.dead_worker()

        first = await stores.runs.claim_lapsed(policy=PATIENT, limit=3, count_crashes=True)
        second = await stores.runs.claim_lapsed(policy=PATIENT, limit=3, count_crashes=True)

        assert [reaped.run_id for reaped in first] == ["run-0", "run-1", "run-2"]
        assert [reaped.run_id for reaped in second] == ["run-3"]

    async def test_of_many_reapers_one_acts_on_each_lease(self, stores: Stores) -> None:
        """L7: two beats, or a sweep that takes longer than the next one waits."""
        drivers = [Driver(stores, run_id=f"run-{number}") for number in range(_RUNS)]
        for driver in drivers:
            await driver.worker(ttl=SOON)
        for driver in drivers:
            await driver.lapse()

        async def sweep() -> list[Reaped]:
            return list(await stores.runs.claim_lapsed(policy=PATIENT, limit=_RUNS, count_crashes=True))

        swept = winners(await race_in_threads([sweep] * _RACERS), StaleFenceError)
        # A store may let a reaper pass by what another one is at: a last sweep finds what is left.
        swept.append(await sweep())

        acted = [reaped.run_id for answer in swept for reaped in answer]
        assert sorted(acted) == sorted(driver.run_id for driver in drivers)
        for driver in drivers:
            assert (await driver.run()).crashes == 1

    async def test_a_lease_without_a_live_run_is_not_reaped(self, stores: Stores) -> None:
        """L2: neither one of a run in process, nor one that somebody held on a resting run."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)
        for run_id in ("run", "lone"):
            await stores.leases.acquire(run_id, tenant=TENANT, holder="cli", ttl_seconds=SOON)
        await driver.lapse()
        await Driver(stores, run_id="lone").lapse()

        assert list(await stores.runs.claim_lapsed(policy=PATIENT, limit=10, count_crashes=True)) == []

        assert (await driver.run()).status is RunStatus.PARKED
        assert await stores.runs.oldest_lapsed() is None

    # --- known dead -------------------------------------------------------------------------------------------

    async def test_a_holder_known_dead_need_not_lapse(self, stores: Stores) -> None:
        """I11: its parent saw it die."""
        driver = Driver(stores)
        lease = await driver.worker()

        reaped = await self._claim_dead(driver, lease.holder)

        run = await driver.run()
        dispatch = Dispatch(TENANT, "run", run.fence, recovery=True)
        assert reaped == Reaped(TENANT, "run", Holding.WORKER, Verdict.DONE, dispatch)
        assert (run.status, run.crashes) == (RunStatus.QUEUED, 1)
        (event,) = await driver.events(EventKind.RECOVERED)
        assert event.data == {"holder": lease.holder, "crashes": 1, "known_dead": True}

    async def test_a_holder_that_has_the_lease_no_more_is_not_acted_on(self, stores: Stores) -> None:
        """I11, L4: by its name, which is given once; nor is the queue, or what is not there."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1, Then.HAND_OVER)
        next_lease = await driver.worker()
        before = await driver.picture()

        for holder in (lease.holder, "somebody", QUEUE):
            assert await self._claim_dead(driver, holder) is None
        assert await self._claim_dead(Driver(stores, tenant="other"), next_lease.holder) is None
        assert await self._claim_dead(Driver(stores, run_id="another"), next_lease.holder) is None
        assert await driver.picture() == before

        await driver.commit(next_lease, 2, Then.HAND_OVER)
        assert await self._claim_dead(driver, QUEUE) is None

    async def test_a_dead_holder_of_a_resting_run_is_not_acted_on(self, stores: Stores) -> None:
        """I11, L2: there is nothing to recover; its lease lapses by itself."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)
        before = await driver.picture()

        assert await self._claim_dead(driver, lease.holder) is None

        assert await driver.picture() == before

    async def test_a_death_that_is_told_often_counts_once(self, stores: Stores) -> None:
        """L7: a parent's word, and the reaper's sweep."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            lease = await driver.dead_worker()
            racers: list[Racer] = [driver.reap, *[partial(self._claim_dead, driver, lease.holder)] * _RACERS]

            answers = winners(await race_in_threads(racers), StaleFenceError)

            assert sum(answer is not None for answer in answers) == 1
            assert (await driver.run()).crashes == 1

    async def test_a_run_that_died_too_often_is_parked_by_whoever_knows_it(self, stores: Stores) -> None:
        """C3, I11: as the reaper would."""
        driver = Driver(stores, policy=replace(PATIENT, max_crashes=1))
        lease = await driver.worker()

        reaped = await self._claim_dead(driver, lease.holder)

        assert reaped == Reaped(TENANT, "run", Holding.WORKER, Verdict.PARKED, None)
        assert (await driver.run()).attention is Attention.POISONED

    async def test_what_a_host_holds_is_found_by_its_holders_names(self, stores: Stores) -> None:
        """I11: a worker that starts asks for its dead predecessors' leases; names are taken literally (T1)."""
        names = {
            "mine": "host_1/7/label",
            "lapsed": "host_1/8/label",
            "another": "host_10/7/label",
            "wild": "hostX1/7/label",
            "upper": "HOST_1/7/label",
            "foreign": "host_1",
        }
        leases = {}
        for run_id, holder in names.items():
            driver = Driver(stores, run_id=run_id)
            ticket = (await driver.submit()).ticket
            assert ticket is not None
            taken = await driver.take(ticket, holder=holder, ttl=SOON if run_id == "lapsed" else LONG)
            assert taken is not None
            leases[run_id] = taken.lease
        await Driver(stores, run_id="lapsed").lapse()

        assert list(await stores.runs.held_on("host_1", within=2 * LONG)) == [leases["lapsed"], leases["mine"]]
        assert list(await stores.runs.held_on("host_1", within=LONG / 2)) == [leases["lapsed"]]
        assert list(await stores.runs.held_on("host_%", within=2 * LONG)) == []

    async def test_what_no_worker_holds_is_nobody_s_on_any_host(self, stores: Stores) -> None:
        """I11, L2: neither the queue's, nor what a worker has given up, nor a lease on a resting run."""
        queued, over, resting = (Driver(stores, run_id=f"run-{number}") for number in range(3))
        for driver, then in ((queued, Then.HAND_OVER), (over, Then.COMPLETE), (resting, Then.PARK)):
            ticket = (await driver.submit()).ticket
            assert ticket is not None
            taken = await driver.take(ticket, holder="host/7/label")
            assert taken is not None
            await driver.commit(taken.lease, 1, then)
        await stores.leases.acquire("run-2", tenant=TENANT, holder="host/8/cli", ttl_seconds=LONG)
        await stores.leases.acquire("lone", tenant=TENANT, holder="host/9/cli", ttl_seconds=LONG)

        assert list(await stores.runs.held_on("host", within=2 * LONG)) == []

    # --- what to look at --------------------------------------------------------------------------------------

    async def test_the_time_of_the_last_sweep_is_kept(self, stores: Stores) -> None:
        """L1: by the store's clock, so that a gap is noticed by whichever reaper comes next."""
        first = await stores.runs.sweep()
        second = await stores.runs.sweep()
        third = await stores.runs.sweep()

        assert (first.last, second.last, third.last) == (None, first.now, second.now)
        assert first.now <= second.now <= third.now

    async def test_to_ask_when_it_was_swept_is_no_sweep(self, stores: Stores) -> None:
        """For those alone whose lifecycle tells it (``TellsSweeps``)."""
        if not isinstance(stores.lifecycle, TellsSweeps):
            return
        before = await stores.lifecycle.swept()
        swept = await stores.runs.sweep()
        once, again = await stores.lifecycle.swept(), await stores.lifecycle.swept()

        assert (before.last, swept.last) == (None, None)
        assert once.last == again.last == swept.now
        assert before.now <= swept.now <= once.now <= again.now

    async def test_the_oldest_lapsed_lease_says_how_far_behind_the_reaper_is(self, stores: Stores) -> None:
        """L6: in seconds, of a worker's lease and of the queue's."""
        dead, lost = Driver(stores, run_id="dead"), Driver(stores, run_id="lost", policy=HASTY)
        await dead.dead_worker()
        of_a_worker = await stores.runs.oldest_lapsed()
        await dead.reap()
        of_none = await stores.runs.oldest_lapsed()
        await lost.submit()
        await lost.lapse()
        of_the_queue = await stores.runs.oldest_lapsed()

        assert of_none is None
        for seconds in (of_a_worker, of_the_queue):
            assert seconds is not None
            assert seconds >= 0

    @staticmethod
    async def _claim_dead(driver: Driver, holder: str) -> Reaped | None:
        return await driver.runs.claim_dead(driver.run_id, tenant=driver.tenant, holder=holder, policy=driver.policy)
