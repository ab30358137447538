"""Runs that wait for room on their tenant's account: they go on once there is some, whoever dies, and no sooner."""

from __future__ import annotations

from functools import partial

from adk_worker.conformance.runs.accounts import account_of, grant, workers
from adk_worker.conformance.runs.budgets import charge
from adk_worker.conformance.runs.driver import ANN, HASTY, PATIENT, TENANT, Driver
from adk_worker.conformance.waiting import Racer, race_in_threads, winners
from adk_worker.errors import AdkError
from adk_worker.events import EventKind
from adk_worker.ledger.amounts import Budget, BudgetChange, Kind
from adk_worker.ledger.rounds import Round
from adk_worker.runs import RunStatus, Stores, Submitted
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_RACERS = 6
_ROUNDS = 4


def to(tokens: int | None) -> BudgetChange:
    """A limit of so many tokens."""
    return BudgetChange(to={Kind.TOKENS: tokens})


async def begun(stores: Stores, tenant: str = TENANT) -> Round:
    """A round over a tenant's runs that begins now."""
    return Round.begun(tenant, await account_of(stores, tenant))


async def go_round(stores: Stores, begun: Round, *, limit: int = 100) -> list[Submitted]:
    """Make the round; what was queued."""
    queued: list[Submitted] = []
    made: Round | None = begun
    while made is not None:
        found, made = await stores.runs.requeue_over_budget(made, by=ANN, policy=PATIENT, limit=limit)
        assert len(found) <= limit
        queued += found
    return queued


async def due(stores: Stores, *, limit: int = 100) -> list[Round]:
    """The rounds that are to be made."""
    found: list[Round] = []
    cursor: str | None = None
    more = True
    while more:
        page, cursor = await stores.runs.rounds_due(limit=limit, after=cursor)
        assert len(page) <= limit
        found += page
        more = cursor is not None
    return found


async def sweep(stores: Stores) -> list[Submitted]:
    """Make all rounds that are due, once each, as a reaper does; what was queued."""
    return [one for begun in await due(stores) for one in await go_round(stores, begun)]


async def sweep_up(stores: Stores) -> None:
    """Sweep until nothing is due."""
    for _ in range(_ROUNDS):
        if await due(stores):
            await sweep(stores)
    assert await due(stores) == []


async def parked(stores: Stores, count: int, wanted: int, *, prefix: str = "parked") -> list[Driver]:
    """So many runs that their tenant's account has turned away, each of which wants so many tokens."""
    drivers = []
    for driver, lease in await workers(stores, count, prefix=prefix):
        assert (await driver.reserve(lease, wanted)).verdict is Verdict.PARKED
        drivers.append(driver)
    return drivers


def ids(found: list[Submitted]) -> list[str]:
    """Whose they are."""
    return sorted(one.run.run_id for one in found)


class WaitlistConformance:
    """Those who wait for room on an account."""

    # --- after a raise ----------------------------------------------------------------------------------------

    async def test_after_a_raise_its_parked_runs_are_queued_again_in_batches(self, stores: Stores) -> None:
        """P3, P5: every one of them once, with a ticket to be dispatched."""
        await grant(stores, to(1))
        drivers = await parked(stores, 5, 10)
        await grant(stores, to(1001))

        queued = await go_round(stores, await begun(stores), limit=2)

        assert ids(queued) == [driver.run_id for driver in drivers]
        for one in queued:
            driver = Driver(stores, run_id=one.run.run_id)
            assert await driver.run() == one.run
            assert (one.run.status, one.run.fence, one.run.attention) == (RunStatus.QUEUED, one.ticket, None)
            (event,) = await driver.events(EventKind.REQUEUED)
            assert event.data == {"by": "ann", "os_user": "op-1"}
            assert (await driver.reserve(await driver.worker(), 10)).verdict is Verdict.DONE

    async def test_no_other_run_is_queued_again(self, stores: Stores) -> None:
        """P3, T1: not one that is parked on its own limit, for something else, ended meanwhile, or another tenant's."""
        await grant(stores, to(1))
        await grant(stores, to(1), tenant="other")
        own, elsewhere = Driver(stores, run_id="own"), Driver(stores, tenant="other", policy=HASTY)
        await own.submit(budget=Budget(tokens=0))
        await own.reserve(await own.worker(), 10)
        await elsewhere.reserve(await elsewhere.worker(), 10)
        (other, lease), (cancelled, its) = await workers(stores, 2)
        await other.park(lease)
        await cancelled.reserve(its, 10)
        await cancelled.cancel()
        before = [await driver.run() for driver in (own, elsewhere, other, cancelled)]
        await grant(stores, to(1001))

        queued = await go_round(stores, await begun(stores))

        assert queued == []
        assert [await driver.run() for driver in (own, elsewhere, other, cancelled)] == before

    async def test_a_raise_whose_program_dies_is_carried_through_by_whoever_sweeps(self, stores: Stores) -> None:
        """P3: the limits' own write says that there is something to be done, until it has been."""
        await grant(stores, to(1))
        drivers = await parked(stores, 3, 10)
        before = await due(stores)
        await grant(stores, to(1001))

        (found,) = await due(stores)
        first, made = await stores.runs.requeue_over_budget(found, by=ANN, policy=PATIENT, limit=1)
        rest = await sweep(stores)
        last = await sweep(stores)

        assert made is not None
        assert (before, found.tenant, last) == ([], TENANT, [])
        assert ids([*first, *rest]) == [driver.run_id for driver in drivers]
        assert await due(stores) == []

    async def test_of_many_tenants_each_is_found(self, stores: Stores) -> None:
        """P3, T1: page by page, and each once."""
        names = sorted([*(f"tenant-{number}" for number in range(5)), "a:b", "*", "wörld"])
        for name in names:
            await grant(stores, to(1), tenant=name)
            driver = Driver(stores, tenant=name)
            await driver.reserve(await driver.worker(), 10)
            await grant(stores, to(1001), tenant=name)

        found = await due(stores, limit=2)
        queued = [(one.run.tenant, one.run.run_id) for made in found for one in await go_round(stores, made)]

        assert sorted(made.tenant for made in found) == names
        assert sorted(queued) == [(name, "run") for name in names]

    async def test_a_raise_during_a_round_is_not_lost(self, stores: Stores) -> None:
        """P3: the round has looked at some before it, who fit now, and comes to its end having found none."""
        await grant(stores, to(1))
        (small,) = await parked(stores, 1, 500, prefix="small")
        await parked(stores, 1, 5000, prefix="large")
        await grant(stores, to(2))
        (before,) = await due(stores)
        first, made = await stores.runs.requeue_over_budget(before, by=ANN, policy=PATIENT, limit=1)
        assert made is not None

        await grant(stores, to(1000))
        rest = await go_round(stores, made)

        assert [*first, *rest] == []
        assert ids(await sweep(stores)) == [small.run_id]

    async def test_limits_that_are_taken_away_hold_up_nobody(self, stores: Stores) -> None:
        """P3."""
        await grant(stores, to(1))
        drivers = await parked(stores, 3, 500)
        await grant(stores, to(None))

        await sweep(stores)

        assert {(await driver.run()).status for driver in drivers} == {RunStatus.QUEUED}

    # --- who fits ---------------------------------------------------------------------------------------------

    async def test_what_does_not_fit_stays_parked(self, stores: Stores) -> None:
        """P3: it would be parked again at once. A smaller one behind it goes on."""
        await grant(stores, to(1))
        (large,) = await parked(stores, 1, 500, prefix="large")
        (small,) = await parked(stores, 1, 50, prefix="small")
        before, told = await large.run(), await large.events()
        await grant(stores, to(499))

        queued = await sweep(stores)

        assert ids(queued) == [small.run_id]
        assert (await large.run(), await large.events()) == (before, told)

    async def test_no_more_are_queued_than_there_is_room_for(self, stores: Stores) -> None:
        """P3: the oldest first, over all batches of a round; the others once these have settled for less."""
        await grant(stores, to(1))
        drivers = await parked(stores, 5, 100)
        await grant(stores, to(250))

        first = await go_round(stores, await begun(stores), limit=1)

        assert ids(first) == [driver.run_id for driver in drivers[:2]]
        for driver in drivers[:2]:
            lease = await driver.worker()
            assert (await driver.reserve(lease, 100)).verdict is Verdict.DONE
            await driver.commit(lease, 1, Then.COMPLETE, charge=charge(10))
        assert ids(await sweep(stores)) == [driver.run_id for driver in drivers[2:4]]

    async def test_room_that_one_who_was_queued_does_not_take_is_another_s(self, stores: Stores) -> None:
        """P3: a round that has queued somebody stays due, until one finds nobody who fits."""
        await grant(stores, to(1))
        one, other = await parked(stores, 2, 100)
        await grant(stores, to(100))

        first = await go_round(stores, await begun(stores))
        await one.cancel()
        second = await sweep(stores)
        lease = await other.worker()
        reserved = await other.reserve(lease, 100)
        third = await sweep(stores)

        assert (ids(first), ids(second), third) == ([one.run_id], [other.run_id], [])
        assert reserved.verdict is Verdict.DONE
        assert await due(stores) == []

    # --- room that comes back ---------------------------------------------------------------------------------

    async def test_room_that_a_settlement_gives_back_is_for_those_who_wait(self, stores: Stores) -> None:
        """P3: nobody raises anything."""
        await grant(stores, to(1000))
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 900)
        (waits,) = await parked(stores, 1, 500)
        before = await due(stores)

        await driver.commit(lease, 1, charge=charge(100))

        assert before == []
        assert ids(await sweep(stores)) == [waits.run_id]

    async def test_room_that_comes_back_without_a_settlement_is_theirs_too(self, stores: Stores) -> None:
        """P3: the call was never made."""
        await grant(stores, to(1000))
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 900)
        (waits,) = await parked(stores, 1, 500)

        await driver.give_back(lease, Reason.DRAIN)

        assert ids(await sweep(stores)) == [waits.run_id]

    async def test_a_call_that_took_all_that_was_reserved_gives_no_room(self, stores: Stores) -> None:
        """P3, C6: nor does one of which nobody knows what it took."""
        await grant(stores, to(1000))
        (one, its), (other, others) = await workers(stores, 2)
        await one.reserve(its, 400)
        await other.reserve(others, 400)
        await parked(stores, 1, 500)

        await one.commit(its, 1, charge=charge(400))
        await other.give_back(others, Reason.DRAIN, asked=True)

        assert await due(stores) == []

    async def test_where_nobody_waits_nothing_is_due(self, stores: Stores) -> None:
        """P3: nor any more once those who waited have gone on."""
        await grant(stores, to(1000))
        (one, its), (other, others) = await workers(stores, 2)
        await one.reserve(its, 600)
        await one.commit(its, 1, charge=charge(10))
        never = await due(stores)
        await one.reserve(its, 900, iteration=2)
        await other.reserve(others, 500)
        await one.commit(its, 2, charge=charge(10, iteration=2))
        await sweep_up(stores)

        await one.reserve(its, 100, iteration=3)
        await one.commit(its, 3, charge=charge(10, iteration=3))

        assert (await other.run()).status is RunStatus.QUEUED
        assert (never, await due(stores)) == ([], [])

    # --- races ------------------------------------------------------------------------------------------------

    async def test_no_run_stays_parked_beside_a_raise_that_lets_it_go_on(self, stores: Stores) -> None:
        """P3: whichever comes first, the raise or the call that is turned away."""

        async def raised() -> None:
            await grant(stores, BudgetChange(by={Kind.TOKENS: 100_000}))
            await go_round(stores, await begun(stores))

        for number in range(_ROUNDS):
            await grant(stores, to(0))
            racing = await workers(stores, _RACERS, prefix=f"round-{number}")
            racers: list[Racer] = [partial(driver.reserve, lease, 10) for driver, lease in racing]

            answers = await race_in_threads([raised, *racers])

            assert not [answer for answer in answers if isinstance(answer, BaseException)]
            assert [(await driver.run()).status for driver, _ in racing if (await driver.run()).status.resting] == []

    async def test_no_run_stays_parked_beside_a_settlement_that_lets_it_go_on(self, stores: Stores) -> None:
        """P3: whichever comes first, and whoever sweeps at that moment."""
        for number in range(_ROUNDS):
            tenant = f"tenant-{number}"
            await grant(stores, to(1000), tenant=tenant)
            drivers = [Driver(stores, tenant=tenant, run_id=f"run-{one}") for one in range(_RACERS)]
            settling = Driver(stores, tenant=tenant, run_id="settling")
            its = await settling.worker()
            await settling.reserve(its, 1000)
            others: list[Racer] = [partial(settling.commit, its, 1, charge=charge(10)), partial(sweep, stores)]
            racers: list[Racer] = [partial(one.reserve, await one.worker(), 100) for one in drivers]

            answers = await race_in_threads([*others, *racers])

            assert not [answer for answer in answers if isinstance(answer, BaseException)]
            await sweep_up(stores)
            assert Attention.OVER_BUDGET not in [(await driver.run()).attention for driver in drivers]

    async def test_of_many_rounds_at_once_each_run_is_queued_by_one(self, stores: Stores) -> None:
        """P3: reapers, and whoever raised the limit."""
        await grant(stores, to(0))
        drivers = await parked(stores, _RACERS, 10)
        await grant(stores, to(100_000))
        made = await begun(stores)

        answers = await race_in_threads([partial(go_round, stores, made) for _ in range(3)])

        queued = [one for answer in winners(answers, AdkError) for one in answer]
        assert ids(queued) == [driver.run_id for driver in drivers]
