"""Thousands of contended keys on real servers. The racers of one key stand side by side in the line of threads."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.conformance.waiting import LONG, SOON, until
from adk_worker.errors import RunLeaseError, StaleFenceError
from adk_worker.events import EventKind
from adk_worker.idempotency import Intent
from adk_worker.runs import NewRun, RunStatus
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Then, Verdict

TENANT = "acme"
RACERS = 3
POLICY = FleetPolicy(lease_ttl=LONG, dispatch_grace=LONG, dispatch_grace_max=LONG)

pytestmark = pytest.mark.timeout(240)


async def raced(names, race):
    """What each racer of each name returned or raised."""
    answers = await asyncio.gather(
        *(race(name, racer) for name in names for racer in range(RACERS)), return_exceptions=True
    )
    return [answers[first : first + RACERS] for first in range(0, len(answers), RACERS)]


def parted(answers, refusal):
    """Winners and refusals. Any other error is raised: a racer may lose, not break."""
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, refusal):
            raise answer
    lost = [answer for answer in answers if isinstance(answer, BaseException)]
    return [answer for answer in answers if not isinstance(answer, BaseException)], lost


async def submitted(stores, names, policy=POLICY):
    """Runs that are queued: their tickets by name."""
    made = await asyncio.gather(
        *(stores.runs.submit(NewRun(TENANT, name, "booking", "book"), policy=policy) for name in names)
    )
    return {name: one.ticket for name, one in zip(names, made, strict=True)}


async def taken(stores, names, *, ttl):
    """Runs that a worker has taken: their leases by name."""
    tickets = await submitted(stores, names)
    answers = await asyncio.gather(
        *(
            stores.runs.take(name, tenant=TENANT, ticket=ticket, holder=f"holder-{name}", ttl_seconds=ttl)
            for name, ticket in tickets.items()
        )
    )
    return {answer.lease.run_id: answer.lease for answer in answers}


async def all_lapsed(stores, names):
    async def lapsed():
        held = await asyncio.gather(*(stores.leases.held(name, tenant=TENANT) for name in names))
        return not any(held)

    await until(lapsed, what="the leases to lapse")


async def test_of_the_acquirers_of_each_of_many_leases_one_wins(stores):
    """L7, L5: of a lease that nobody ever had, and again once it has been released, under a higher fence."""
    names = [f"run-{number}" for number in range(600)]
    fences = dict.fromkeys(names, 0)

    for contended in (names, names[:200]):
        answers = await raced(
            contended,
            lambda name, racer: stores.leases.acquire(name, tenant=TENANT, holder=f"{name}-{racer}", ttl_seconds=LONG),
        )

        for name, of_name in zip(contended, answers, strict=True):
            (won,), lost = parted(of_name, RunLeaseError)
            assert {(error.holder, error.fence) for error in lost} == {(won.holder, won.fence)}
            assert won.fence > fences[name]
            fences[name] = won.fence
            await stores.leases.release(won)


async def test_of_those_that_begin_each_of_many_calls_one_owns(stores):
    """I3: and every other is shown that owner. One that reads nothing in place of the winner's row would own it too."""
    keys = [f"key-{number}" for number in range(600)]

    answers = await raced(
        keys,
        lambda key, racer: stores.idempotency.begin(key, tenant=TENANT, owner=f"{key}-{racer}", digest="d"),
    )

    stands = await stores.idempotency.peek(keys, tenant=TENANT)
    for key, of_key in zip(keys, answers, strict=True):
        claims, _ = parted(of_key, ())
        assert {claim.owner for claim in claims} == {stands[key].owner}


async def test_calls_that_are_begun_and_taken_back_all_the_time_have_one_owner_at_a_time(stores):
    """I3: the row that stood in a racer's way may be gone when the racer comes to read it."""
    keys = [f"key-{number}" for number in range(25)]
    owners = Counter()

    async def worker(number):
        for turn in range(20):
            for key in random.sample(keys, 5):
                owner = f"{number}-{turn}-{key}"
                claim = await stores.idempotency.begin(key, tenant=TENANT, owner=owner, digest="d")
                if claim.owned_in_flight_by(owner):
                    owners[key] += 1
                    assert owners[key] == 1, "two own it at once"
                    owners[key] -= 1
                    await stores.idempotency.abandon(claim)

    await asyncio.gather(*(worker(number) for number in range(8)))

    assert set((await stores.idempotency.peek(keys, tenant=TENANT)).values()) == {None}


# In Redis a claim stands with the run that its key is of, and no other run can begin it.
@pytest.mark.parametrize("stores", ["postgres"], indirect=True)
async def test_batches_of_calls_in_any_order_do_not_wait_for_each_other_in_a_circle(stores):
    """I3: of calls that two runs have in common, as they never should, each still has one owner."""
    leases = list((await taken(stores, [f"run-{number}" for number in range(6)], ttl=LONG)).values())
    for turn in range(15):
        intents = [Intent(f"key-{turn}-{number}", "d") for number in range(20)]

        answers = await asyncio.gather(
            *(stores.runs.begin(lease, random.sample(intents, len(intents)), owner=lease.holder) for lease in leases)
        )

        shown = {(claim.key, claim.owner) for _, claims in answers for claim in claims}
        assert len(shown) == len(intents)


async def test_of_the_copies_of_each_of_many_messages_one_takes(stores):
    """L7: one ticket, many takers."""
    tickets = await submitted(stores, [f"run-{number}" for number in range(600)])

    answers = await raced(
        tickets,
        lambda name, racer: stores.runs.take(
            name, tenant=TENANT, ticket=tickets[name], holder=f"{name}-{racer}", ttl_seconds=LONG
        ),
    )

    for of_name in answers:
        took, _ = parted(of_name, ())
        assert sum(one is not None for one in took) == 1


async def test_of_several_reapers_one_finds_each_dead_worker(stores):
    """L7: whoever comes second finds the lease moved on, and counts no second crash."""
    names = [f"run-{number}" for number in range(300)]
    leases = await taken(stores, names, ttl=SOON)
    await all_lapsed(stores, names)

    async def reaper():
        found = []
        while sweep := await stores.runs.claim_lapsed(policy=POLICY, limit=20, count_crashes=True):
            found += sweep
        return found

    found = [reaped for sweep in await asyncio.gather(*(reaper() for _ in range(6))) for reaped in sweep]

    assert sorted(reaped.run_id for reaped in found) == sorted(names)
    for reaped in found:
        run = await stores.runs.get(reaped.run_id, tenant=TENANT)
        assert (reaped.was, reaped.verdict) == (Holding.WORKER, Verdict.DONE)
        assert (run.crashes, run.fence) == (1, leases[reaped.run_id].fence + 1)
        assert reaped.dispatch.ticket == run.fence
        assert reaped.dispatch.recovery is True


async def test_a_boundary_a_renewal_and_a_reaper_agree_on_who_has_the_run(stores):
    """F1, L3: either the worker was in time and its boundary stands, or the reaper was and nothing of it does."""
    names = [f"run-{number}" for number in range(300)]
    leases = await taken(stores, names, ttl=SOON)
    await all_lapsed(stores, names)
    outcomes = Counter()

    async def worker(name):
        driver = Driver(stores, run_id=name, policy=POLICY)
        return await driver.commit(leases[name], 1, Then.HAND_OVER, segment=driver.segment("hello"))

    async def keeper(batch):
        return await stores.runs.renew_many([leases[name] for name in batch], ttl_seconds=LONG)

    async def reaper():
        return await stores.runs.claim_lapsed(policy=POLICY, limit=10, count_crashes=True)

    crowd = [worker(name) for name in names]
    crowd += [keeper(random.sample(names, 20)) for _ in range(10)]
    crowd += [reaper() for _ in range(30)]
    random.shuffle(crowd)

    parted(await asyncio.gather(*crowd, return_exceptions=True), StaleFenceError)

    for name in names:
        run = await stores.runs.get(name, tenant=TENANT)
        kinds = [event.kind for event in await stores.runs.events(name, tenant=TENANT)]
        recovered, committed = kinds.count(EventKind.RECOVERED), kinds.count("after_tool_result")
        outcomes["recovered" if recovered else "committed"] += 1
        assert (recovered, committed) in {(1, 0), (0, 1)}
        assert (run.sequence, run.crashes) == (committed, recovered)
        assert (run.status, run.fence) == (RunStatus.QUEUED, leases[name].fence + 1)
        assert (await stores.runs.payload(name, tenant=TENANT) is not None) is bool(committed)
    assert outcomes["recovered"] > 0
    assert outcomes["committed"] > 0


async def test_renewals_of_the_same_leases_wait_for_nobody_and_lose_nothing(stores):
    """L3, L8: batches of several keepers, among boundaries and outcomes of the same runs; what is in use is busy."""
    names = [f"run-{number}" for number in range(40)]
    leases = await taken(stores, names, ttl=LONG)

    async def keeper():
        for _ in range(10):
            batch = random.sample(names, len(names))
            renewed = await stores.runs.renew_many([leases[name] for name in batch], ttl_seconds=LONG)
            assert all(renewal.busy is (renewal.lease is None) for renewal in renewed)
            assert {renewal.lease.run_id for renewal in renewed if renewal.lease} <= set(batch)

    async def worker(name):
        driver = Driver(stores, run_id=name, policy=POLICY)
        (claim,) = await driver.begin(leases[name], 0)
        await stores.idempotency.record(claim, BOOKED)
        await driver.commit(leases[name], 1)

    await asyncio.gather(*(keeper() for _ in range(4)), *(worker(name) for name in names))

    renewed = await stores.runs.renew_many([leases[name] for name in names], ttl_seconds=LONG)
    assert [renewal.lease.run_id for renewal in renewed] == names
    assert {(await stores.runs.get(name, tenant=TENANT)).sequence for name in names} == {1}


async def test_an_outcome_and_a_park_on_its_call_leave_no_run_waiting(stores):
    """F4: the outcome comes in before the park, which then is refused, or after it, and queues the run."""
    names = [f"run-{number}" for number in range(200)]
    leases = await taken(stores, names, ttl=LONG)
    drivers = {name: Driver(stores, run_id=name, policy=POLICY) for name in names}
    claims = {name: (await drivers[name].begin(leases[name], 0))[0] for name in names}

    crowd = [drivers[name].park(leases[name], claims[name]) for name in names]
    crowd += [stores.idempotency.record(claims[name], BOOKED) for name in names]
    random.shuffle(crowd)
    await asyncio.gather(*crowd)

    for name in names:
        run = await stores.runs.get(name, tenant=TENANT)
        assert run.status in {RunStatus.QUEUED, RunStatus.RUNNING}
