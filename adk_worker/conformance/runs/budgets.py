"""What a run may spend: reserved before a model call, settled after it, and unaccounted where nobody knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adk_worker.checkpoint import OutstandingCall
from adk_worker.conformance.runs.driver import TENANT, Driver
from adk_worker.conformance.waiting import LONG
from adk_worker.errors import BudgetError, RunNotFoundError, RunStateError, StaleFenceError
from adk_worker.events import EventKind
from adk_worker.lease import RunLease
from adk_worker.ledger.amounts import Amount, Budget, BudgetChange, Kind, Unaccounted
from adk_worker.ledger.booking import Charge, Ledger, Reservation, Scope
from adk_worker.outcomes import Effect
from adk_worker.runs import RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then, Verdict

_CALL = OutstandingCall(call_id="c-1", tool="book", arguments={}, index=0, effect=Effect.READ_ONLY)
_MORE = BudgetChange(by={Kind.TOKENS: 1000})


async def limited(stores: Stores, tokens: int = 1000, **fields: Any) -> tuple[Driver, RunLease]:
    """A run with a budget, and the worker that has taken it."""
    driver = Driver(stores, **fields)
    await driver.submit(budget=Budget(tokens=tokens))
    return driver, await driver.worker()


def charge(tokens: int, cost_micros: int = 0, *, iteration: int = 1) -> Charge:
    """What a model call has taken."""
    return Charge(iteration, Amount(tokens, cost_micros))


class BudgetsConformance:
    """The ledger of a run."""

    async def test_a_run_has_the_limits_that_it_was_submitted_with(self, stores: Stores) -> None:
        """P3: and its worker is told that there are some."""
        driver = Driver(stores)
        submitted = await driver.submit(budget=Budget(tokens=1000, cost_micros=7))
        assert submitted.ticket is not None

        taken = await driver.take(submitted.ticket)

        assert taken is not None
        assert taken.limited
        assert taken.run.ledger == submitted.run.ledger == Ledger(limits=Budget(tokens=1000, cost_micros=7))

    async def test_a_run_without_limits_counts_what_it_spends(self, stores: Stores) -> None:
        """C6: in the boundary's own write; nothing has to be reserved for it."""
        driver = Driver(stores)
        submitted = await driver.submit()
        assert submitted.ticket is not None
        taken = await driver.take(submitted.ticket)
        assert taken is not None

        await driver.commit(taken.lease, 1, charge=charge(100, 30))
        await driver.commit(taken.lease, 2, charge=charge(10, 3, iteration=2))

        assert not taken.limited
        assert await driver.ledger() == Ledger(spent=Amount(110, 33))

    async def test_what_is_reserved_is_settled_by_the_boundary(self, stores: Stores) -> None:
        """C6: by what the call took, be it less or more; the frontier's usage has no part in it."""
        driver, lease = await limited(stores)

        committed = await driver.reserve(lease, 400, 70)
        reserved = await driver.ledger()
        await driver.commit(lease, 1, charge=charge(150, 20))

        assert (committed.verdict, committed.lease) == (Verdict.DONE, lease)
        assert reserved.reserved == Reservation(1, lease.fence, Amount(400, 70))
        assert reserved.spent == Amount()
        assert await driver.ledger() == Ledger(limits=Budget(tokens=1000), spent=Amount(150, 20))

    async def test_a_reservation_that_comes_again_changes_nothing(self, stores: Stores) -> None:
        """F5, C6: the same attempt at the same call."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)
        before = await driver.picture()

        again = await driver.reserve(lease, 600)

        assert again.verdict is Verdict.DONE
        assert await driver.picture() == before

    async def test_a_boundary_that_comes_again_settles_once(self, stores: Stores) -> None:
        """F5, C6."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)
        await driver.commit(lease, 1, charge=charge(150))

        again = await driver.commit(lease, 1, charge=charge(150))

        assert again.verdict is Verdict.REPEATED
        assert (await driver.ledger()).spent == Amount(150)

    async def test_a_call_over_the_limit_parks_the_run_before_it_is_made(self, stores: Stores) -> None:
        """P3: it does not fail; what stood against it is told, and how to have it go on."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)
        await driver.commit(lease, 1, charge=charge(500))

        committed = await driver.reserve(lease, 501, iteration=2)

        run = await driver.run()
        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.PARKED, None, None)
        assert (run.status, run.attention, run.detail) == (RunStatus.PARKED, Attention.OVER_BUDGET, committed.detail)
        assert (run.holder, run.fence) == (None, lease.fence)
        refused = run.ledger.refused
        assert refused is not None
        assert (refused.scope, refused.kind, refused.limit) == (Scope.RUN, Kind.TOKENS, 1000)
        assert (refused.spent, refused.reserved, refused.unaccounted, refused.wanted) == (500, 0, 0, Amount(501))
        assert run.ledger.reserved is None
        for said in ("1000", "500", "501", "adk budget raise run --tenant acme --tokens"):
            assert said in (run.detail or "")
        (event,) = await driver.events(EventKind.PARKED)
        assert (event.data, event.fence) == ({"attention": "over_budget", "detail": run.detail}, lease.fence)
        assert await driver.payload() == driver.boundary(1).payload

    async def test_a_limit_is_reached_and_not_passed(self, stores: Stores) -> None:
        """P3: what just fits is allowed; then nothing is, be it a call of which nobody knows the price."""
        driver = Driver(stores)
        await driver.submit(budget=Budget(cost_micros=1000))
        lease = await driver.worker()

        fits = await driver.reserve(lease, 1, 1000)
        await driver.commit(lease, 1, charge=charge(1, 1000))
        unpriced = await stores.runs.reserve(lease, Reservation(2, lease.fence, Amount(1), priced=False))

        assert (fits.verdict, unpriced.verdict) == (Verdict.DONE, Verdict.PARKED)

    async def test_a_call_at_no_known_price_is_counted(self, stores: Stores) -> None:
        """C6: its tokens alone are reserved, which is said."""
        driver, lease = await limited(stores)

        await stores.runs.reserve(lease, Reservation(1, lease.fence, Amount(5), priced=False))

        assert (await driver.ledger()).unpriced == 1

    async def test_a_call_in_flight_at_a_crash_is_unaccounted(self, stores: Stores) -> None:
        """C6: neither free nor spent; and it counts, so that a crash loop ends at the limit."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)
        await self._dies(driver, lease)

        reaped = await driver.reap()
        ledger = await driver.ledger()
        again = await driver.reserve(await driver.worker(), 600)

        assert reaped is not None
        assert (ledger.reserved, ledger.spent) == (None, Amount())
        assert ledger.unaccounted == Unaccounted(1, Amount(600))
        assert again.verdict is Verdict.PARKED
        assert (await driver.run()).attention is Attention.OVER_BUDGET

    async def test_a_call_that_may_have_been_in_flight_without_a_limit_is_unaccounted_too(self, stores: Stores) -> None:
        """C6: nobody knows how much, but that there was one; not where the tools' results were waited for."""
        asking, calling = Driver(stores, run_id="asking"), Driver(stores, run_id="calling")
        await asking.submit()
        await self._dies(asking, await asking.worker())
        lease = await calling.worker()
        await calling.commit(lease, 1, frontier={"calls": (_CALL,)}, charge=charge(5))
        await self._dies(calling, lease)

        await stores.runs.claim_lapsed(policy=asking.policy, limit=10, count_crashes=True)

        assert (await asking.ledger()).unaccounted == Unaccounted(1)
        assert (await calling.ledger()).unaccounted == Unaccounted()

    async def test_a_message_that_was_late_leaves_nothing_unaccounted(self, stores: Stores) -> None:
        """C6: nobody has made a call under the queue's lease."""
        driver, lease = await limited(stores)
        await driver.give_back(lease, delay=0.0)

        assert await driver.reap() is not None

        assert (await driver.ledger()).unaccounted == Unaccounted()

    @pytest.mark.parametrize("asked", [True, False])
    @pytest.mark.parametrize("reason", list(Reason))
    async def test_who_gives_a_run_back_says_whether_a_call_was_made(
        self, stores: Stores, reason: Reason, *, asked: bool
    ) -> None:
        """C6: what was aborted or failed is unaccounted; what was never sent is free again."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)

        await driver.give_back(lease, reason, asked=asked)

        ledger = await driver.ledger()
        assert ledger.reserved is None
        assert ledger.unaccounted == (Unaccounted(1, Amount(600)) if asked else Unaccounted())

    @pytest.mark.parametrize("asked", [True, False])
    async def test_who_fails_a_run_says_whether_a_call_was_made(self, stores: Stores, *, asked: bool) -> None:
        """C6: also of a run without limits, of which it is not known how much."""
        driver = Driver(stores)

        await stores.runs.fail(await driver.worker(), detail="the model call failed", asked=asked)

        assert (await driver.ledger()).unaccounted == Unaccounted(int(asked))

    async def test_a_run_that_is_parked_has_nothing_reserved(self, stores: Stores) -> None:
        """C6."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)

        await driver.park(lease)

        ledger = await driver.ledger()
        assert (ledger.reserved, ledger.unaccounted) == (None, Unaccounted())

    async def test_a_reservation_of_an_attempt_that_was_lost_is_unaccounted(self, stores: Stores) -> None:
        """C6: where the lease was let go of and nobody told what came of the call."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 300)
        await stores.leases.release(lease)
        await driver.reap()
        other = await driver.worker()

        await driver.reserve(other, 300)

        ledger = await driver.ledger()
        assert ledger.unaccounted == Unaccounted(1, Amount(300))

    async def test_a_worker_that_was_superseded_reserves_nothing(self, stores: Stores) -> None:
        """F1: nor whoever holds the lease of a run that rests."""
        driver, lease = await limited(stores)
        await driver.commit(lease, 1, Then.HAND_OVER)
        await driver.worker()
        before = await driver.picture()

        with pytest.raises(StaleFenceError) as refused:
            await driver.reserve(lease, 1)

        assert refused.value.presented == lease.fence
        assert await driver.picture() == before

    async def test_a_cancel_ends_the_run_before_its_next_call(self, stores: Stores) -> None:
        """P2: the reservation looks at the flag in its own write."""
        driver, lease = await limited(stores)
        await driver.cancel()

        committed = await driver.reserve(lease, 1)

        assert committed.verdict is Verdict.CANCELLED
        assert (await driver.run()).status is RunStatus.CANCELLED

    async def test_a_cancelled_run_has_nothing_reserved(self, stores: Stores) -> None:
        """P2, C6: its model call was aborted, and nobody knows what it took."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 600)
        await driver.cancel()

        committed = await driver.give_back(lease, Reason.DRAIN, asked=True)

        assert committed.verdict is Verdict.CANCELLED
        ledger = await driver.ledger()
        assert (ledger.reserved, ledger.unaccounted) == (None, Unaccounted(1, Amount(600)))

    async def test_a_run_that_cannot_rest_is_parked_as_lost(self, stores: Stores) -> None:
        """C3: over its budget while what ran is ahead of what is stored, it cannot be carried on from there."""
        driver, lease = await limited(stores, tokens=10)
        await driver.commit(lease, 1, stored=False)

        committed = await driver.reserve(lease, 11, iteration=2)

        assert committed.verdict is Verdict.PARKED
        assert (await driver.run()).attention is Attention.FRONTIER_LOST

    # --- raising ----------------------------------------------------------------------------------------------

    async def test_a_raise_queues_the_run_again_in_its_own_write(self, stores: Stores) -> None:
        """P3, P5: and who raised it is told."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 1500)

        submitted = await driver.change_budget(_MORE)

        run = await driver.run()
        assert submitted.run == run
        assert (run.status, run.fence) == (RunStatus.QUEUED, submitted.ticket)
        assert (run.attention, run.detail) == (None, None)
        assert run.ledger == Ledger(limits=Budget(tokens=2000))
        (changed,) = await driver.events(EventKind.BUDGET_CHANGED)
        assert changed.data == {"tokens": 2000, "cost_micros": None, "by": "ann", "os_user": "op-1"}
        (requeued,) = await driver.events(EventKind.REQUEUED)
        assert requeued.data == {"by": "ann", "os_user": "op-1"}
        assert (await driver.reserve(await driver.worker(), 1500)).verdict is Verdict.DONE

    async def test_a_raise_that_is_too_small_leaves_the_run_parked(self, stores: Stores) -> None:
        """P3: with the limit that it has now, until another one comes."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 2500)

        first = await driver.change_budget(_MORE)
        status = (await driver.run()).status
        second = await driver.change_budget(BudgetChange(to={Kind.TOKENS: None}))

        assert (first.ticket, status) == (None, RunStatus.PARKED)
        assert second.ticket is not None
        assert (await driver.ledger()).limits == Budget()

    async def test_a_raise_while_somebody_holds_the_resting_run_has_it_go_on(self, stores: Stores) -> None:
        """P3, L2: nobody would raise it again once they have let go."""
        driver, lease = await limited(stores)
        await driver.reserve(lease, 1500)
        held = await stores.leases.acquire("run", tenant=TENANT, holder="cli", ttl_seconds=LONG)

        submitted = await driver.change_budget(_MORE)

        assert submitted.ticket is not None
        assert submitted.ticket > held.fence

    async def test_limits_are_changed_under_a_worker_and_hold_from_its_next_call_on(self, stores: Stores) -> None:
        """P3: lowered below what is spent, too."""
        driver, lease = await limited(stores)
        await driver.commit(lease, 1, charge=charge(500))

        submitted = await driver.change_budget(BudgetChange(to={Kind.TOKENS: 400}))

        assert submitted.ticket is None
        assert await driver.held() == lease
        assert (await driver.reserve(lease, 1, iteration=2)).verdict is Verdict.PARKED

    @pytest.mark.parametrize(
        "get_there",
        [
            lambda driver, lease: driver.park(lease),
            lambda driver, lease: driver.commit(lease, 1, Then.FAIL),
            lambda driver, lease: driver.commit(lease, 1, Then.HAND_OVER),
        ],
        ids=["parked", "failed", "queued"],
    )
    async def test_a_raise_moves_no_run_that_is_not_parked_on_its_limits(
        self, stores: Stores, get_there: Callable[[Driver, RunLease], Awaitable[Any]]
    ) -> None:
        """P3, C5."""
        driver, lease = await limited(stores)
        await get_there(driver, lease)
        before = await driver.run()

        submitted = await driver.change_budget(_MORE)

        run = await driver.run()
        assert submitted.ticket is None
        assert (run.status, run.attention, run.fence) == (before.status, before.attention, before.fence)
        assert run.ledger.limits == Budget(tokens=2000)

    async def test_what_has_no_limit_is_not_raised(self, stores: Stores) -> None:
        """P3: it would become one; nothing is written."""
        driver, _ = await limited(stores)
        before = await driver.picture()

        with pytest.raises(BudgetError):
            await driver.change_budget(BudgetChange(by={Kind.COST: 5}))

        assert await driver.picture() == before

    async def test_a_run_that_is_over_keeps_its_limits(self, stores: Stores) -> None:
        """P3: it will never spend anything again."""
        driver, lease = await limited(stores)
        await driver.commit(lease, 1, Then.COMPLETE)
        before = await driver.picture()

        with pytest.raises(RunStateError) as refused:
            await driver.change_budget(_MORE)

        assert refused.value.status == RunStatus.COMPLETED
        assert await driver.picture() == before

    async def test_what_is_not_there_has_no_budget(self, stores: Stores) -> None:
        """T1: another tenant's run is not there."""
        driver, _ = await limited(stores)

        with pytest.raises(RunNotFoundError):
            await Driver(stores, tenant="other").change_budget(_MORE)

        assert (await driver.ledger()).limits == Budget(tokens=1000)

    @staticmethod
    async def _dies(driver: Driver, lease: RunLease) -> None:
        """The worker falls silent, and its lease lapses."""
        await driver.stores.leases.renew(lease, ttl_seconds=0.05)
        await driver.lapse()
