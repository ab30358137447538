"""A tenant's account in Redis is not in its runs' part: a death between the two writes loses nothing of it (C6)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from adk_worker.conformance.runs.accounts import account_of, charge, grant, workers
from adk_worker.conformance.runs.driver import TENANT, Driver
from adk_worker.conformance.runs.prune import OVER
from adk_worker.conformance.runs.waitlist import begun, due, go_round, parked, sweep_up
from adk_worker.errors import CommitUnknownError, StaleFenceError
from adk_worker.ledger.amounts import Amount, BudgetChange, Kind, Unaccounted
from adk_worker.ledger.booking import Reservation
from adk_worker.memory import MemoryRunStore
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention, Then, Verdict
from stores.redis import RedisOptions, open_redis, rounds
from stores.redis.data import RunData
from stores.redis.keys import Keys, bucket_of_run, bucket_of_tenant, run_of
from stores.redis.reference import at_once
from stores.redis.rows import wait_of
from stores.redis.server import Server
from stores.redis.transaction import Applied, Transaction
from tests.redis_stores import made

RUN = (TENANT, "run")
ASKED = Amount(600)


class Died(Exception):  # noqa: N818 - no error of anybody's
    """A process ends."""


@pytest.fixture
def url(redis_url):
    return made(redis_url)


@pytest.fixture
async def stores(url):
    bundle = open_redis(url)
    yield bundle
    await bundle.lifecycle.close()


@pytest.fixture
def server(url):
    return Server(url, RedisOptions(pool_size=2))


@pytest.fixture
async def worker(stores, server):
    """A run of a tenant with limits, with a worker; ends with the server's connections."""
    await grant(stores)
    driver = Driver(stores)
    yield driver, await driver.worker()
    await server.close()


async def dies_after_the_account(server, lease):
    """Reserve, and die before the run's own write."""

    def reserve(data):
        at_once(MemoryRunStore(data).reserve(lease, Reservation(1, lease.fence, ASKED)))
        raise Died

    with pytest.raises(Died):
        await server.write(bucket_of_run(RUN), reserve)


def test_an_account_is_not_where_its_runs_are():
    """So that what is below is about something."""
    assert bucket_of_tenant(TENANT) != bucket_of_run(RUN)


async def test_what_only_the_account_knows_is_found_by_whoever_asks_again(server, worker, stores):
    """F5: the same attempt, whose answer was lost."""
    driver, lease = worker
    await dies_after_the_account(server, lease)

    committed = await driver.reserve(lease, ASKED.tokens)

    assert committed.verdict is Verdict.DONE
    assert (await account_of(stores)).reserved == ASKED
    assert (await driver.ledger()).reserved.on_account


async def test_what_only_the_account_knows_counts_and_is_shown_as_unaccounted(server, worker, stores):
    """C6: from the death on, and for good with the run's next call."""
    driver, lease = worker
    await dies_after_the_account(server, lease)
    await stores.leases.renew(lease, ttl_seconds=0.05)
    await driver.lapse()
    await driver.reap()

    shown = await account_of(stores)
    refused = Driver(stores, run_id="other")
    committed = await refused.reserve(await refused.worker(), 401)
    again = await driver.reserve(await driver.worker(), 400)

    assert (shown.reserved, shown.unaccounted) == (Amount(), Unaccounted(1, ASKED))
    assert committed.verdict is Verdict.PARKED
    assert again.verdict is Verdict.DONE
    account = await account_of(stores)
    assert (account.reserved, account.unaccounted) == (Amount(400), Unaccounted(1, ASKED))


async def test_a_settlement_that_the_account_was_not_told_of_is_found_by_whoever_commits_again(server, worker, stores):
    """F5: the answer to the commit was lost, and the worker asks again."""
    driver, lease = worker
    await driver.reserve(lease, ASKED.tokens)
    boundary = driver.boundary(1, charge=charge(150))
    process = server.blocking()
    data = RunData(Transaction(process, bucket_of_run(RUN)), RedisOptions(), around=process)
    at_once(MemoryRunStore(data).commit(lease, boundary, policy=driver.policy))
    assert data.flush() is Applied.DONE
    before = await account_of(stores)

    again = await driver.runs.commit(lease, boundary, policy=driver.policy)

    assert again.verdict is Verdict.REPEATED
    assert (before.spent, before.reserved) == (Amount(), ASKED)
    account = await account_of(stores)
    assert (account.spent, account.reserved, account.unaccounted) == (Amount(150), Amount(), Unaccounted())


async def test_a_settlement_that_the_account_is_never_told_of_is_unaccounted(server, worker, stores):
    """C6: what was reserved stays counted; the run's own ledger has what it took."""
    driver, lease = worker
    await driver.reserve(lease, ASKED.tokens)
    process = server.blocking()
    data = RunData(Transaction(process, bucket_of_run(RUN)), RedisOptions(), around=process)
    at_once(
        MemoryRunStore(data).commit(lease, driver.boundary(1, Then.HAND_OVER, charge=charge(150)), policy=driver.policy)
    )
    assert data.flush() is Applied.DONE

    account = await account_of(stores)

    assert (await driver.ledger()).spent == Amount(150)
    assert (account.spent, account.unaccounted) == (Amount(), Unaccounted(1, ASKED))


async def test_a_cancel_in_between_leaves_nothing_reserved(server, worker, stores):
    """P2, C6: nobody has made the call."""
    driver, lease = worker
    await dies_after_the_account(server, lease)
    await driver.cancel()

    committed = await driver.reserve(lease, ASKED.tokens)

    assert committed.verdict is Verdict.CANCELLED
    account = await account_of(stores)
    assert (account.reserved, account.unaccounted) == (Amount(), Unaccounted())


async def test_a_run_that_is_turned_away_as_the_limit_is_raised_asks_again(server, worker, stores):
    """P3: it is about to be parked on what it was told before the raise, and nobody would find it later."""
    driver, lease = worker
    process = server.blocking()
    data = RunData(Transaction(process, bucket_of_run(RUN)), RedisOptions(), around=process)
    turned_away = at_once(MemoryRunStore(data).reserve(lease, Reservation(1, lease.fence, Amount(5000))))
    await grant(stores, BudgetChange(by={Kind.TOKENS: 9000}))

    queued = await go_round(stores, await begun(stores))
    landed = data.flush()
    still = await due(stores)
    committed = await driver.reserve(lease, 5000)

    assert turned_away.verdict is Verdict.PARKED
    assert (queued, landed) == ([], Applied.MOVED)
    assert committed.verdict is Verdict.DONE
    # It counts as one that the round has queued: it may come to take less, or nothing.
    assert [one.tenant for one in still] == [TENANT]
    await sweep_up(stores)
    assert waiting(process) == {}


def waiting(process):
    """What the account has of runs that wait, by run; the index beside it has the same."""
    keys = Keys(bucket_of_tenant(TENANT))
    noted = process.client.hgetall(keys.wanted(TENANT))
    assert sorted(process.client.zrange(keys.waiting(TENANT), 0, -1)) == sorted(noted)
    return {run_of(name)[1]: wait_of(text).fence for name, text in noted.items()}


async def test_a_run_that_does_not_wait_any_more_is_forgotten_by_the_account(server, stores):
    """P3: one that has ended, is pruned, is parked for something else, or was taken again since; none is written."""
    await grant(stores, BudgetChange(to={Kind.TOKENS: 1}))
    drivers = await parked(stores, 5, 500)
    process = server.blocking()
    pruned, ended, other, taken, waits = drivers
    await pruned.cancel()
    await stores.runs.prune(OVER, limit=10)
    await ended.cancel()
    for driver in (other, taken):
        await driver.requeue()
    its = await other.worker()
    await stores.runs.park(its, attention=Attention.HISTORY_UNAVAILABLE, detail="no transcript")
    lease = await taken.worker()
    row = Keys(bucket_of_run((TENANT, taken.run_id))).run((TENANT, taken.run_id))
    stamp = process.client.hget(row, "stamp")
    noted = waiting(process)
    await grant(stores, BudgetChange(to={Kind.TOKENS: 3000}))

    queued = await go_round(stores, await begun(stores))

    assert sorted(noted) == [driver.run_id for driver in drivers]
    assert [one.run.run_id for one in queued] == [waits.run_id]
    assert waiting(process) == {}
    assert process.client.hget(row, "stamp") == stamp
    assert (await taken.reserve(lease, 500)).verdict is Verdict.DONE


async def test_a_run_that_is_turned_away_anew_is_not_forgotten(server, stores, monkeypatch):
    """P3: between its being queued and the account's being told."""
    await grant(stores, BudgetChange(to={Kind.TOKENS: 1}))
    (driver,) = await parked(stores, 1, 500)
    await grant(stores, BudgetChange(to={Kind.TOKENS: 1000}))
    ((first, its),) = await workers(stores, 1, prefix="first")
    process = server.blocking()
    forget = rounds._forget  # noqa: SLF001

    def late(data, run, wait):
        monkeypatch.undo()
        at_once_elsewhere(first.reserve(its, 900))
        at_once_elsewhere(turned_away(driver))
        return forget(data, run, wait)

    monkeypatch.setattr(rounds, "_forget", late)

    await go_round(stores, await begun(stores))

    assert list(waiting(process)) == [driver.run_id]
    await first.commit(its, 1, charge=charge(10))
    await sweep_up(stores)
    assert (await driver.run()).status is RunStatus.QUEUED


async def turned_away(driver):
    assert (await driver.reserve(await driver.worker(), 500)).verdict is Verdict.PARKED


def at_once_elsewhere(work):
    """Carry it out on a thread and a loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


async def test_what_the_account_did_not_answer_to_is_booked_once_it_does(url, redis_proxy):
    """C6, P3: the run is over by then, so that whoever asks again is refused, and nobody else would ever close it."""
    bundle = open_redis(redis_proxy.url(url))
    try:
        await grant(bundle)
        driver = Driver(bundle)
        lease = await driver.worker()
        await driver.reserve(lease, ASKED.tokens)
        tag = f"{{adk:{bucket_of_tenant(TENANT):03}}}".encode()
        # A read is sent again once where its connection has ended.
        lost = redis_proxy.lose_request(lambda request: tag in request, times=2)

        with pytest.raises(CommitUnknownError):
            await driver.runs.fail(lease, detail="the model is not to be had")
        with pytest.raises(StaleFenceError):
            await driver.runs.fail(lease, detail="the model is not to be had")
        run = await driver.run()

        assert lost.count == 2
        assert run.status is RunStatus.FAILED
        account = await account_of(bundle)
        assert (account.reserved, account.unaccounted) == (Amount(), Unaccounted())
    finally:
        await bundle.lifecycle.close()


async def test_an_account_that_cannot_be_told_any_more_fails_nobody_elses_operation(url, redis_proxy, server):
    """C6: it is damaged meanwhile. Whoever asks for the account itself is told."""
    bundle = open_redis(redis_proxy.url(url))
    try:
        await grant(bundle)
        driver = Driver(bundle)
        lease = await driver.worker()
        await driver.reserve(lease, ASKED.tokens)
        tag = f"{{adk:{bucket_of_tenant(TENANT):03}}}".encode()
        redis_proxy.lose_request(lambda request: tag in request, times=2)
        with pytest.raises(CommitUnknownError):
            await driver.runs.fail(lease, detail="the model is not to be had")
        server.blocking().client.hset(Keys(bucket_of_tenant(TENANT)).account(TENANT), "body", "{")

        run = await driver.run()

        assert run.status is RunStatus.FAILED
        with pytest.raises(ValueError, match="JSON"):
            await account_of(bundle)
    finally:
        await bundle.lifecycle.close()
        await server.close()
