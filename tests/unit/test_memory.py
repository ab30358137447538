"""What the suites cannot show of every store: time itself, and what is particular to the one in memory."""

from __future__ import annotations

import pytest

from adk_worker.errors import ConfigurationError, ResumeConflictError, RunLeaseError
from adk_worker.filters import RunFilter
from adk_worker.idempotency import ClaimState
from adk_worker.memory import MemoryData, MemoryIdempotencyStore, MemoryLeaseStore, memory_stores
from adk_worker.runs import NewRun, RunStatus
from adk_worker.transitions.leases import MAX_EPOCH
from adk_worker.transitions.runs import FleetPolicy, Reason, Verdict
from stores.memory import open_memory
from tests.unit.clock import Clock

POLICY = FleetPolicy(lease_ttl=60, dispatch_grace=30, dispatch_grace_max=100, retry_backoff=4, max_crashes=3)
TENANT = "acme"
YEARS = 10 * 365 * 86_400.0


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def stores(clock):
    return open_memory(clock=clock)


async def submit(stores, run_id="run", **fields):
    return await stores.runs.submit(NewRun(TENANT, run_id, "booking", "book it", **fields), policy=POLICY)


async def take(stores, ticket, run_id="run"):
    return await stores.runs.take(run_id, tenant=TENANT, ticket=ticket, holder=f"holder-of-{ticket}", ttl_seconds=60)


async def sweep(stores):
    return await stores.runs.claim_lapsed(policy=POLICY, limit=10, count_crashes=True)


@pytest.mark.parametrize(("seconds", "lapsed"), [(59.999, False), (60.0, True), (60.001, True)])
async def test_a_lease_that_expires_now_has_lapsed(clock, seconds, lapsed):
    """L6, L1: by the store's clock, to the fraction."""
    store = MemoryLeaseStore(MemoryData(clock))
    lease = await store.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    assert lease.expires_at == clock.now + 60

    clock.now += seconds

    assert (await store.held("run", tenant=TENANT) is None) is lapsed
    if lapsed:
        assert (await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=60)).fence > lease.fence
    else:
        with pytest.raises(RunLeaseError):
            await store.acquire("run", tenant=TENANT, holder="two", ttl_seconds=60)


@pytest.mark.parametrize(("seconds", "lapsed"), [(59.999, False), (60.0, True)])
async def test_a_dead_workers_run_is_reaped_as_its_lease_expires(clock, stores, seconds, lapsed):
    """L6."""
    taken = await take(stores, (await submit(stores)).ticket)
    assert taken.lease.expires_at == clock.now + 60

    clock.now += seconds

    assert bool(await sweep(stores)) is lapsed
    status = RunStatus.QUEUED if lapsed else RunStatus.RUNNING
    assert (await stores.runs.get("run", tenant=TENANT)).status is status


async def test_a_lost_message_is_published_at_its_times(clock, stores):
    """L2, L6: after the grace, then after twice as long, up to the cap."""
    ticket = (await submit(stores)).ticket
    published = []
    for _ in range(400):
        clock.now += 1
        published += [(clock.now - 1000, reaped.dispatch.ticket) for reaped in await sweep(stores)]

    assert published == [(30, ticket), (90, ticket), (190, ticket), (290, ticket), (390, ticket)]


async def test_a_run_that_was_given_back_is_published_after_its_backoff(clock, stores):
    """C4, L6."""
    taken = await take(stores, (await submit(stores)).ticket)
    await stores.runs.give_back(taken.lease, reason=Reason.CONFLICT, detail="another revision", policy=POLICY)

    clock.now += 3.999
    early = await sweep(stores)
    clock.now += 0.001
    (reaped,) = await sweep(stores)

    assert list(early) == []
    assert reaped.verdict is Verdict.DONE


async def test_no_claim_grows_old(clock):
    """I4: neither for its owner nor for anybody else."""
    store = MemoryIdempotencyStore(MemoryData(clock))
    claim = await store.begin("k", tenant=TENANT, owner="one", digest="d")

    clock.now += YEARS

    assert await store.begin("k", tenant=TENANT, owner="two", digest="d") == claim
    assert (await store.peek(["k"], tenant=TENANT))["k"].state is ClaimState.IN_FLIGHT


@pytest.mark.parametrize(("seconds", "free"), [(299.999, False), (300.0, True)])
async def test_a_resume_is_claimed_for_five_minutes(clock, seconds, free):
    """I9, L1."""
    store = MemoryIdempotencyStore(MemoryData(clock))
    await store.claim_resume("run", tenant=TENANT, owner="one")

    clock.now += seconds

    if free:
        await store.claim_resume("run", tenant=TENANT, owner="two")
    else:
        with pytest.raises(ResumeConflictError):
            await store.claim_resume("run", tenant=TENANT, owner="two")


async def test_times_are_the_stores(clock, stores):
    """L1: of a run, its events, its claims, and a sweep."""
    ticket = (await submit(stores)).ticket
    clock.now += 5
    await take(stores, ticket)

    run = await stores.runs.get("run", tenant=TENANT)
    events = await stores.runs.events("run", tenant=TENANT)

    assert (run.created_at, run.updated_at) == (1000, 1005)
    assert [event.at for event in events] == [1000, 1005]
    assert ((await stores.runs.sweep()).now, (await stores.runs.sweep()).last) == (1005, 1005)


async def test_the_oldest_lapsed_lease_says_for_how_long(clock, stores):
    """L6."""
    await submit(stores)
    clock.now += 30
    of_now = await stores.runs.oldest_lapsed()
    clock.now += 7

    assert (of_now, await stores.runs.oldest_lapsed()) == (0, 7)


async def test_a_submit_joins_no_transaction(stores):
    """There is none; and a run that the caller's own rollback would not undo is worse than an error."""
    with pytest.raises(ConfigurationError, match="connection"):
        await stores.runs.submit(NewRun(TENANT, "run", "booking", "book it"), policy=POLICY, connection=object())

    assert await stores.runs.list(RunFilter(), limit=1) == ([], None)


async def test_the_epoch_ends_where_fences_have_no_room():
    """L2."""
    data = MemoryData()
    data.epoch = MAX_EPOCH - 1
    stores = memory_stores(data)

    assert await stores.lifecycle.bump_epoch() == MAX_EPOCH
    lease = await stores.leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=60)
    assert lease.fence < 2**53
    with pytest.raises(ConfigurationError, match="epoch"):
        await stores.lifecycle.bump_epoch()


async def test_two_bundles_share_nothing():
    """T1."""
    one, other = open_memory(), open_memory()
    await submit(one)

    assert await other.runs.get("run", tenant=TENANT) is None
    await one.lifecycle.close()
