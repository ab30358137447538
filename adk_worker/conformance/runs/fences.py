"""Stale fences and leases that were given up: every write of a run's state is refused under them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adk_worker.checkpoint import Checkpoint
from adk_worker.conformance.runs.driver import BOOKED, TENANT, Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import StaleFenceError
from adk_worker.idempotency import Claim
from adk_worker.lease import RunLease
from adk_worker.messages import Message
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then

Lost = Callable[[Driver, RunLease], Awaitable[Any]]


async def _hand_over(driver: Driver, lease: RunLease) -> None:
    await driver.commit(lease, 2, Then.HAND_OVER)


async def _hand_over_and_be_followed(driver: Driver, lease: RunLease) -> None:
    await driver.commit(lease, 2, Then.HAND_OVER)
    await driver.worker()


async def _complete(driver: Driver, lease: RunLease) -> None:
    await driver.commit(lease, 2, Then.COMPLETE)


async def _fail(driver: Driver, lease: RunLease) -> None:
    await driver.runs.fail(lease, detail="it cannot be done")


async def _wait(driver: Driver, lease: RunLease) -> None:
    await driver.commit(lease, 2, Then.WAIT_APPROVAL)


async def _park(driver: Driver, lease: RunLease) -> None:
    await driver.park(lease)


async def _give_back(driver: Driver, lease: RunLease) -> None:
    await driver.give_back(lease, Reason.CONFLICT)


async def _release(driver: Driver, lease: RunLease) -> None:
    await driver.stores.leases.release(lease)


async def _be_cancelled(driver: Driver, lease: RunLease) -> None:
    await driver.cancel()
    await driver.begin(lease)


async def _be_found_dead(driver: Driver, lease: RunLease) -> None:
    await driver.runs.claim_dead(driver.run_id, tenant=driver.tenant, holder=lease.holder, policy=driver.policy)


async def _lapse_and_be_reaped(driver: Driver, lease: RunLease) -> None:
    await driver.stores.leases.renew(lease, ttl_seconds=0.01)
    await driver.lapse()
    await driver.reap()


async def _lapse_and_be_superseded(driver: Driver, lease: RunLease) -> None:
    await _lapse_and_be_reaped(driver, lease)
    await driver.worker()


_WAYS: list[Lost] = [
    _hand_over,
    _hand_over_and_be_followed,
    _complete,
    _fail,
    _wait,
    _park,
    _give_back,
    _release,
    _be_cancelled,
    _be_found_dead,
    _lapse_and_be_reaped,
    _lapse_and_be_superseded,
]


def _writes(driver: Driver, lease: RunLease, claim: Claim) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Every write that presents a fence."""
    stores, runs = driver.stores, driver.runs
    frontier = Checkpoint(tenant=TENANT, run_id="run", agent="booking", revision="r1", sequence=9)
    return {
        "put": lambda: stores.checkpoints.put(frontier, fence=lease.fence),
        "forget": lambda: stores.checkpoints.forget("run", tenant=TENANT, fence=lease.fence),
        "append": lambda: stores.history.append(
            "run", tenant=TENANT, start=0, messages=[Message.user("late")], fence=lease.fence
        ),
        "renew": lambda: stores.leases.renew(lease, ttl_seconds=LONG),
        "begin": lambda: runs.begin(lease, [driver.intent(5)], owner=lease.holder, ahead=True),
        "begin nothing": lambda: runs.begin(lease, [], owner=lease.holder, ahead=True),
        "commit": lambda: driver.commit(lease, 7, segment=driver.segment("late"), settled=[(claim, BOOKED)]),
        "park": lambda: driver.park(lease),
        "park on a call": lambda: driver.park(lease, claim),
        "fail": lambda: runs.fail(lease, detail="late"),
        "give back": lambda: driver.give_back(lease),
        "drain": lambda: driver.give_back(lease, Reason.DRAIN),
        "settle": lambda: runs.settle(lease, claim, BOOKED, by="probe"),
        "note dead": lambda: runs.note_dead(lease, [claim]),
    }


class FencesConformance:
    """F1: accepted means that the fence is equal and the lease is still held by that acquisition."""

    @pytest.mark.parametrize("lose", _WAYS, ids=lambda lose: lose.__name__.strip("_"))
    async def test_whoever_lost_the_lease_writes_nothing(self, stores: Stores, lose: Lost) -> None:
        """F1, L3, H3: every write is refused, naming both numbers, and nothing at all is written."""
        driver = Driver(stores)
        lease = await driver.worker()
        (claim,) = await driver.begin(lease, 0)
        await driver.commit(lease, 1)
        await lose(driver, lease)
        before = await driver.picture()
        assert before.run is not None

        for name, write in _writes(driver, lease, claim).items():
            with pytest.raises(StaleFenceError) as refused:
                await write()
            assert (refused.value.tenant, refused.value.run_id) == (TENANT, "run"), name
            assert (refused.value.presented, refused.value.current) == (lease.fence, before.run.fence), name
            assert await driver.picture() == before, name

        assert await driver.stores.history.fetch(str(driver.segment("late").handle), tenant=TENANT) is None

    @pytest.mark.parametrize("then", [Then.PARK, Then.COMPLETE, Then.FAIL])
    async def test_a_lease_on_a_resting_run_is_no_leave_to_carry_it_on(self, stores: Stores, then: Then) -> None:
        """F1: whoever acquired it may hold it; a run's row is written by whoever took it with a ticket."""
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, then)
        lease = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)
        before = await driver.picture()

        for write in (
            lambda: driver.commit(lease, 2, Then.HAND_OVER),
            lambda: driver.begin(lease, 0),
            lambda: driver.runs.park(lease, attention=Attention.OVER_BUDGET, detail="mine"),
            lambda: driver.runs.fail(lease, detail="mine"),
            lambda: driver.give_back(lease),
        ):
            with pytest.raises(StaleFenceError):
                await write()

        assert await driver.picture() == before

    async def test_a_fence_is_one_runs(self, stores: Stores) -> None:
        """F1, T1: the same number opens neither another run nor another tenant's of the same name."""
        driver = Driver(stores)
        lease = await driver.worker()
        others = [Driver(stores, run_id="other"), Driver(stores, tenant="other")]
        for other in others:
            await other.worker()
            stolen = RunLease(other.tenant, other.run_id, lease.holder, lease.fence + 100, lease.expires_at)
            before = await other.picture()

            with pytest.raises(StaleFenceError):
                await other.commit(stolen, 1)
            with pytest.raises(StaleFenceError):
                await other.begin(stolen, 0)

            assert await other.picture() == before

    async def test_a_run_that_is_not_there_is_not_written(self, stores: Stores) -> None:
        """F1, T1: it is refused as any other fence that may not write, and nothing comes of it."""
        driver = Driver(stores)
        lease = RunLease(TENANT, "run", "one", 7, 0.0)

        with pytest.raises(StaleFenceError):
            await driver.commit(lease, 1)
        with pytest.raises(StaleFenceError):
            await driver.begin(lease, 0)

        assert await driver.run_or_none() is None
        assert await driver.claims() == []

    async def test_the_epoch_lifts_every_fence_above_all_before(self, stores: Stores) -> None:
        """L2: after a restore that lost writes; whoever holds a lease goes on until its next hand-over."""
        driver = Driver(stores)
        lease = await driver.worker()

        epochs = [await stores.lifecycle.bump_epoch() for _ in range(2)]
        await driver.commit(lease, 1, Then.HAND_OVER)

        ticket = (await driver.run()).fence
        assert epochs[1] == epochs[0] + 1
        assert ticket == (epochs[1] << 40) + 1
        assert (await driver.worker()).fence == ticket + 1
        lone = await stores.leases.acquire("lone", tenant=TENANT, holder="one", ttl_seconds=LONG)
        assert (epochs[1] << 40) < lone.fence < 2**53

    async def test_a_new_store_answers_and_has_this_versions_schema(self, stores: Stores) -> None:
        """L2: what wiring asks before the first message."""
        await stores.lifecycle.verify()

        assert (await Driver(stores).submit()).run.status is RunStatus.QUEUED
