"""Taking runs from the queue, and keeping their leases."""

from __future__ import annotations

import math

import pytest

from adk_worker.conformance.runs.driver import HASTY, TENANT, Driver
from adk_worker.conformance.waiting import LONG, race, race_in_threads, winners
from adk_worker.errors import ConfigurationError, InvalidNameError, RunLeaseError
from adk_worker.events import EventKind
from adk_worker.lease import QUEUE, RunLease
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import Then

_RUNS = 10
_RACERS = 8


class TakeConformance:
    """Who may advance a run."""

    async def test_the_ticket_takes_the_run(self, stores: Stores) -> None:
        """L2: under a fence above the ticket; and all that is needed is read under the lease."""
        driver = Driver(stores)
        submitted = await driver.submit()
        assert submitted.ticket is not None

        taken = await driver.take(submitted.ticket, holder="one")

        assert taken is not None
        assert (taken.lease.tenant, taken.lease.run_id, taken.lease.holder) == (TENANT, "run", "one")
        assert taken.lease.fence > submitted.ticket
        assert (taken.run.status, taken.run.holder, taken.run.fence) == (RunStatus.RUNNING, "one", taken.lease.fence)
        assert taken.run.expires_at == taken.lease.expires_at
        assert taken.payload is None
        assert await driver.run() == taken.run
        assert await driver.held() == taken.lease
        (event,) = await driver.events(EventKind.TAKEN)
        assert (event.data, event.fence) == ({"holder": "one", "ticket": submitted.ticket}, taken.lease.fence)

    async def test_no_other_number_takes_the_run(self, stores: Stores) -> None:
        """L2: neither one above nor one below; nothing is written."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None
        before = await driver.picture()

        for wrong in (ticket - 1, ticket + 1, 0, -1, 2**53 - 1):
            assert await driver.take(wrong) is None

        assert await driver.picture() == before

    async def test_a_message_that_comes_again_is_a_duplicate(self, stores: Stores) -> None:
        """F1: while its run is held, after it was handed over, and when it has ended; nothing is written."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None
        taken = await driver.take(ticket)
        assert taken is not None

        assert await driver.take(ticket) is None
        assert (await driver.run()).fence == taken.lease.fence
        next_ticket = (await driver.commit(taken.lease, 1, Then.HAND_OVER)).ticket
        assert await driver.take(ticket) is None
        assert (await driver.run()).fence == next_ticket
        await driver.commit(await driver.worker(), 2, Then.COMPLETE)
        before = await driver.picture()
        for old in (ticket, next_ticket):
            assert old is not None
            assert await driver.take(old) is None

        assert await driver.picture() == before

    async def test_a_late_message_takes_what_the_queue_still_holds(self, stores: Stores) -> None:
        """L2: lapsed or not: a backlog is not starved."""
        driver = Driver(stores, policy=HASTY)
        ticket = (await driver.submit()).ticket
        assert ticket is not None
        await driver.lapse()

        assert await driver.take(ticket) is not None

    async def test_a_ticket_does_not_take_a_dead_workers_run(self, stores: Stores) -> None:
        """L2: only the reaper's new ticket does."""
        driver = Driver(stores)
        dead = await driver.dead_worker()

        for old in (dead.fence, dead.fence - 1):
            assert await driver.take(old) is None
        reaped = await driver.reap()

        assert reaped is not None
        assert reaped.dispatch is not None
        assert reaped.dispatch.ticket > dead.fence
        assert await driver.take(reaped.dispatch.ticket) is not None

    async def test_the_frontier_is_read_under_the_lease(self, stores: Stores) -> None:
        """F1: as the boundary before has left it."""
        driver = Driver(stores)
        ticket = (await driver.commit(await driver.worker(), 1, Then.HAND_OVER)).ticket
        assert ticket is not None

        taken = await driver.take(ticket)

        assert taken is not None
        assert taken.payload == driver.boundary(1).payload
        assert (taken.run.sequence, taken.run.iteration) == (1, 1)

    async def test_what_is_not_there_is_not_taken(self, stores: Stores) -> None:
        """T1: an unknown run, and another tenant's."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None

        assert await Driver(stores, run_id="another").take(ticket) is None
        assert await Driver(stores, tenant="other").take(ticket) is None

        assert (await driver.run()).status is RunStatus.QUEUED

    @pytest.mark.parametrize("then", [Then.PARK, Then.WAIT_APPROVAL, Then.FAIL, Then.COMPLETE])
    async def test_a_resting_run_is_not_taken(self, stores: Stores, then: Then) -> None:
        """L2: whatever number is presented: its lease is free, and its fence is kept."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1, then)

        for ticket in (lease.fence - 1, lease.fence, lease.fence + 1):
            assert await driver.take(ticket) is None

        run = await driver.run()
        assert (run.holder, run.expires_at, run.fence) == (None, None, lease.fence)

    async def test_of_many_copies_of_a_message_one_takes(self, stores: Stores) -> None:
        """L7: Celery may deliver as often as it likes."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            ticket = (await driver.submit()).ticket
            assert ticket is not None

            answers = await race([driver.take(ticket) for _ in range(_RACERS)])

            (won,) = [taken for taken in winners(answers, RunLeaseError) if taken is not None]
            assert await driver.held() == won.lease

    async def test_of_many_copies_of_a_message_in_threads_one_takes(self, stores: Stores) -> None:
        """L7: with a connection each, where a store has such."""
        for number in range(_RUNS):
            driver = Driver(stores, run_id=f"run-{number}")
            ticket = (await driver.submit()).ticket
            assert ticket is not None
            racers = [lambda driver=driver, ticket=ticket: driver.take(ticket) for _ in range(_RACERS)]

            answers = await race_in_threads(racers)

            (won,) = [taken for taken in winners(answers, RunLeaseError) if taken is not None]
            assert await driver.held() == won.lease
            assert len(await driver.events(EventKind.TAKEN)) == 1

    async def test_a_take_whose_answer_was_lost_is_found(self, stores: Stores) -> None:
        """F5: by the holder's name, which nobody else has; and only while it holds the lease."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None
        taken = await driver.take(ticket, holder="one")
        assert taken is not None
        held_by = stores.runs.held_by

        assert await held_by("run", tenant=TENANT, holder="one") == taken
        assert await held_by("run", tenant=TENANT, holder="two") is None
        assert await held_by("run", tenant="other", holder="one") is None
        assert await held_by("another", tenant=TENANT, holder="one") is None
        await driver.commit(taken.lease, 1, Then.HAND_OVER)
        assert await held_by("run", tenant=TENANT, holder="one") is None
        assert await held_by("run", tenant=TENANT, holder=QUEUE) is None

    # --- the lease of a live run ------------------------------------------------------------------------------

    async def test_a_queued_runs_lease_is_the_queues(self, stores: Stores) -> None:
        """L5: whoever asks for it is told so."""
        driver = Driver(stores)
        submitted = await driver.submit()

        with pytest.raises(RunLeaseError) as refused:
            await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        assert (refused.value.holder, refused.value.fence) == (QUEUE, submitted.ticket)
        assert refused.value.expires_at == submitted.run.expires_at

    async def test_a_running_runs_lease_is_its_workers(self, stores: Stores) -> None:
        """L5: whoever asks for it is told which."""
        driver = Driver(stores)
        lease = await driver.worker()

        with pytest.raises(RunLeaseError) as refused:
            await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        assert (refused.value.holder, refused.value.fence) == (lease.holder, lease.fence)

    async def test_a_live_run_that_is_released_is_the_queues(self, stores: Stores) -> None:
        """L2, L10: a live run never has a free lease; this one has lapsed at once, so that the reaper publishes it."""
        driver = Driver(stores)
        lease = await driver.worker()

        await stores.leases.release(lease)

        run = await driver.run()
        assert (run.status, run.holder) == (RunStatus.QUEUED, QUEUE)
        assert run.fence > lease.fence
        assert await driver.held() is None
        reaped = await driver.reap()
        assert reaped is not None
        assert (reaped.was, reaped.dispatch.ticket if reaped.dispatch else None) == (Holding.QUEUE, run.fence)
        assert (await driver.run()).crashes == 0

    async def test_a_resting_run_that_is_released_is_free(self, stores: Stores) -> None:
        """L10: nobody publishes it."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.PARK)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        await stores.leases.release(lease)

        run = await driver.run()
        assert (run.status, run.holder, run.fence) == (RunStatus.PARKED, None, lease.fence)
        assert await driver.reap() is None

    # --- renewal ----------------------------------------------------------------------------------------------

    async def test_leases_are_renewed_in_one_batch(self, stores: Stores) -> None:
        """L3, L8: the answers are in order, a lost lease and a cancelled run among them."""
        drivers = [Driver(stores, run_id=f"run-{number}") for number in range(4)]
        leases = [await driver.worker() for driver in drivers]
        await drivers[1].commit(leases[1], 1, Then.HAND_OVER)
        await drivers[2].cancel()
        lone = await stores.leases.acquire("lone", tenant=TENANT, holder="one", ttl_seconds=LONG)
        unknown = RunLease(TENANT, "unknown", "one", 1, 0.0)

        renewals = await stores.runs.renew_many([*leases, lone, unknown], ttl_seconds=2 * LONG)

        fences = [renewal.lease.fence if renewal.lease else None for renewal in renewals]
        assert fences == [leases[0].fence, None, leases[2].fence, leases[3].fence, lone.fence, None]
        assert [renewal.cancel_requested for renewal in renewals] == [False, False, True, False, False, False]
        for driver, lease, renewal in zip(drivers, leases, renewals, strict=False):
            if renewal.lease is not None:
                assert renewal.lease.expires_at > lease.expires_at
                assert await driver.held() == renewal.lease

    async def test_a_lapsed_lease_that_nobody_took_is_renewed(self, stores: Stores) -> None:
        """L3: and the reaper leaves it alone then."""
        driver = Driver(stores)
        lease = await driver.dead_worker()

        (renewal,) = await stores.runs.renew_many([lease], ttl_seconds=LONG)

        assert renewal.lease is not None
        assert await driver.reap() is None
        assert (await driver.run()).status is RunStatus.RUNNING

    async def test_nothing_is_renewed_in_an_empty_batch(self, stores: Stores) -> None:
        """L8: an idle worker's."""
        assert list(await stores.runs.renew_many([], ttl_seconds=LONG)) == []

    @pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf])
    async def test_a_ttl_that_cannot_be_is_refused(self, stores: Stores, ttl: float) -> None:
        """L6: such a lease would be lapsed at once, or never."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None

        with pytest.raises(ConfigurationError):
            await driver.take(ticket, ttl=ttl)
        lease = await driver.worker()
        with pytest.raises(ConfigurationError):
            await stores.runs.renew_many([lease], ttl_seconds=ttl)

        assert await driver.held() == lease

    @pytest.mark.parametrize("holder", ["a\x00b", " ", QUEUE])
    async def test_what_names_no_holder_is_refused(self, stores: Stores, holder: str) -> None:
        """L4, L5: nobody is called like the queue."""
        driver = Driver(stores)
        ticket = (await driver.submit()).ticket
        assert ticket is not None

        with pytest.raises(InvalidNameError):
            await driver.take(ticket, holder=holder)
