"""What a tenant may spend, over all of its runs."""

from __future__ import annotations

from functools import partial

import pytest

from adk_worker.conformance.runs.budgets import charge
from adk_worker.conformance.runs.driver import ANN, PATIENT, TENANT, Driver
from adk_worker.conformance.runs.prune import OVER
from adk_worker.conformance.waiting import race_in_threads
from adk_worker.errors import BudgetError, InvalidNameError
from adk_worker.lease import RunLease
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount, Budget, BudgetChange, Kind, Unaccounted
from adk_worker.ledger.booking import Scope
from adk_worker.ledger.rounds import Round
from adk_worker.ledger.waitlist import Waitlist
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_RACERS = 6
_ROUNDS = 4
_TO_1000 = BudgetChange(to={Kind.TOKENS: 1000})
_BY_1000 = BudgetChange(by={Kind.TOKENS: 1000})


async def grant(stores: Stores, change: BudgetChange = _TO_1000, *, tenant: str = TENANT) -> Account:
    """Change a tenant's limits, as a person would."""
    return await stores.runs.change_account(tenant, change=change, by=ANN)


async def account_of(stores: Stores, tenant: str = TENANT) -> Account:
    """A tenant's account, which is there."""
    account = await stores.runs.account(tenant)
    assert account is not None
    return account


async def workers(stores: Stores, count: int, *, prefix: str = "run") -> list[tuple[Driver, RunLease]]:
    """So many runs of one tenant, each with a worker."""
    drivers = [Driver(stores, run_id=f"{prefix}-{number}") for number in range(count)]
    return [(driver, await driver.worker()) for driver in drivers]


class AccountsConformance:
    """The account of a tenant."""

    async def test_there_is_no_account_before_there_are_limits(self, stores: Stores) -> None:
        """C6: and none of its runs is held to any."""
        driver = Driver(stores)
        lease = await driver.worker()

        await driver.commit(lease, 1, charge=charge(10))

        assert await stores.runs.account(TENANT) is None

    async def test_limits_are_set_and_raised_and_it_is_kept_by_whom(self, stores: Stores) -> None:
        """P3, P5."""
        await grant(stores)
        answered = await grant(stores, BudgetChange(by={Kind.TOKENS: 500}, to={Kind.COST: 9}))

        account = await account_of(stores)
        assert account == answered
        assert account.limits == Budget(tokens=1500, cost_micros=9)
        assert [(change.by, change.os_user, change.limits) for change in account.changes] == [
            ("ann", "op-1", Budget(tokens=1000)),
            ("ann", "op-1", Budget(tokens=1500, cost_micros=9)),
        ]
        assert await stores.runs.account("other") is None

    async def test_what_a_tenant_has_no_limit_of_is_not_raised(self, stores: Stores) -> None:
        """P3: nothing is written."""
        with pytest.raises(BudgetError):
            await grant(stores, _BY_1000)

        assert await stores.runs.account(TENANT) is None

    @pytest.mark.parametrize("name", ["", "a\0b"])
    async def test_a_tenant_has_a_name(self, stores: Stores, name: str) -> None:
        """T1."""
        with pytest.raises(InvalidNameError):
            await stores.runs.account(name)
        with pytest.raises(InvalidNameError):
            await grant(stores, tenant=name)
        with pytest.raises(InvalidNameError):
            await stores.runs.requeue_over_budget(Round(name, Waitlist()), by=ANN, policy=PATIENT, limit=1)

    async def test_a_worker_is_told_of_its_tenants_limits(self, stores: Stores) -> None:
        """P3: also where it asks again what it has taken; not any more once they are taken away."""
        driver = Driver(stores)
        await grant(stores)
        first = await driver.submit()
        assert first.ticket is not None

        taken = await driver.take(first.ticket, holder="w1")
        held = await stores.runs.held_by("run", tenant=TENANT, holder="w1")
        await grant(stores, BudgetChange(to={Kind.TOKENS: None}))
        assert taken is not None
        assert held is not None
        committed = await driver.commit(taken.lease, 1, Then.HAND_OVER)
        assert committed.ticket is not None
        later = await driver.take(committed.ticket)

        assert later is not None
        assert (taken.limited, held.limited, later.limited) == (True, True, False)

    async def test_what_runs_reserve_and_spend_adds_up(self, stores: Stores) -> None:
        """C6."""
        await grant(stores)
        (one, its), (other, others) = await workers(stores, 2)

        await one.reserve(its, 300, 3)
        await other.reserve(others, 200, 2)
        reserved = await account_of(stores)
        await one.commit(its, 1, charge=charge(100, 1))
        settled = await account_of(stores)

        assert (reserved.reserved, reserved.spent) == (Amount(500, 5), Amount())
        assert (settled.reserved, settled.spent) == (Amount(200, 2), Amount(100, 1))
        assert (await one.ledger()).spent == Amount(100, 1)

    async def test_a_reservation_that_comes_again_counts_once_there_too(self, stores: Stores) -> None:
        """F5, C6."""
        await grant(stores)
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 600)
        before = await account_of(stores)

        again = await driver.reserve(lease, 600)

        assert again.verdict is Verdict.DONE
        assert await account_of(stores) == before

    async def test_a_boundary_that_comes_again_settles_once_there_too(self, stores: Stores) -> None:
        """F5, C6."""
        await grant(stores)
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 600)
        await driver.commit(lease, 1, charge=charge(150))

        await driver.commit(lease, 1, charge=charge(150))

        account = await account_of(stores)
        assert (account.spent, account.reserved) == (Amount(150), Amount())

    async def test_a_call_over_the_tenants_limit_parks_its_run(self, stores: Stores) -> None:
        """P3: its own ledger keeps why; what others have reserved counts."""
        await grant(stores)
        (one, its), (other, others) = await workers(stores, 2)
        await one.reserve(its, 700)

        committed = await other.reserve(others, 301)

        run = await other.run()
        assert committed.verdict is Verdict.PARKED
        assert (run.status, run.attention, run.detail) == (RunStatus.PARKED, Attention.OVER_BUDGET, committed.detail)
        assert run.ledger.refused is not None
        assert (run.ledger.refused.scope, run.ledger.refused.reserved) == (Scope.TENANT, 700)
        assert "adk budget raise --tenant acme --tokens" in (run.detail or "")
        assert (await account_of(stores)).reserved == Amount(700)

    async def test_a_call_over_the_runs_own_limit_takes_nothing_of_the_tenants(self, stores: Stores) -> None:
        """P3."""
        await grant(stores)
        driver = Driver(stores)
        await driver.submit(budget=Budget(tokens=10))

        committed = await driver.reserve(await driver.worker(), 11)

        assert committed.verdict is Verdict.PARKED
        assert (await account_of(stores)).reserved == Amount()

    async def test_another_tenant_is_not_touched(self, stores: Stores) -> None:
        """T1."""
        await grant(stores)
        await grant(stores, BudgetChange(to={Kind.TOKENS: 50}), tenant="other")
        before = await account_of(stores)
        driver = Driver(stores, tenant="other")

        committed = await driver.reserve(await driver.worker(), 50)

        assert committed.verdict is Verdict.DONE
        assert await account_of(stores) == before
        assert (await account_of(stores, "other")).reserved == Amount(50)

    async def test_a_call_in_flight_at_a_crash_is_unaccounted_there_too(self, stores: Stores) -> None:
        """C6."""
        await grant(stores)
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.reserve(lease, 600)
        await stores.leases.renew(lease, ttl_seconds=0.05)
        await driver.lapse()

        await driver.reap()

        account = await account_of(stores)
        assert (account.reserved, account.unaccounted) == (Amount(), Unaccounted(1, Amount(600)))

    @pytest.mark.parametrize("asked", [True, False])
    async def test_what_is_given_back_ends_there_too(self, stores: Stores, *, asked: bool) -> None:
        """C6."""
        await grant(stores)
        (given, its), (failed, others), (parked, thirds) = await workers(stores, 3)
        await given.reserve(its, 100)
        await failed.reserve(others, 10)
        await parked.reserve(thirds, 1)

        await given.give_back(its, Reason.DRAIN, asked=asked)
        await stores.runs.fail(others, detail="the model call failed", asked=asked)
        await parked.park(thirds)

        account = await account_of(stores)
        assert account.reserved == Amount()
        assert account.unaccounted == (Unaccounted(2, Amount(110)) if asked else Unaccounted())

    async def test_a_reservation_of_an_attempt_that_was_lost_is_unaccounted_there_too(self, stores: Stores) -> None:
        """C6."""
        await grant(stores)
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 300)
        await stores.leases.release(lease)
        await driver.reap()

        await driver.reserve(await driver.worker(), 200)

        account = await account_of(stores)
        assert (account.reserved, account.unaccounted) == (Amount(200), Unaccounted(1, Amount(300)))

    async def test_what_a_run_has_spent_outlives_it(self, stores: Stores) -> None:
        """C6: its own ledger goes with it."""
        await grant(stores)
        ((driver, lease),) = await workers(stores, 1)
        await driver.reserve(lease, 300)
        await driver.commit(lease, 1, Then.COMPLETE, charge=charge(250))
        before = await account_of(stores)

        await stores.runs.prune(OVER, limit=10)

        assert await driver.run_or_none() is None
        assert await account_of(stores) == before
        assert before.spent == Amount(250)

    # --- races ------------------------------------------------------------------------------------------------

    async def test_of_many_runs_no_more_reserve_than_there_is_room_for(self, stores: Stores) -> None:
        """P3, L7: each from a thread of its own, against one limit."""
        for number in range(_ROUNDS):
            racers = await workers(stores, _RACERS, prefix=f"round-{number}")
            await grant(stores, BudgetChange(to={Kind.TOKENS: 300 * (number + 1)}))

            answers = await race_in_threads([partial(driver.reserve, lease, 100) for driver, lease in racers])

            verdicts = [answer.verdict if not isinstance(answer, BaseException) else answer for answer in answers]
            assert sorted(map(str, verdicts)) == ["done"] * 3 + ["parked"] * (_RACERS - 3)
            assert (await account_of(stores)).reserved == Amount(300 * (number + 1))

    async def test_what_many_runs_spend_at_once_adds_up(self, stores: Stores) -> None:
        """C6, F5: no settlement is lost."""
        await grant(stores, BudgetChange(to={Kind.TOKENS: 100_000}))
        racers = await workers(stores, _RACERS)
        for driver, lease in racers:
            await driver.reserve(lease, 100)

        await race_in_threads([partial(driver.commit, lease, 1, charge=charge(7)) for driver, lease in racers])

        account = await account_of(stores)
        assert (account.spent, account.reserved) == (Amount(7 * _RACERS), Amount())
