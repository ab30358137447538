"""One sweep: what is recovered, what counts, and what is published."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.actors import Actor
from adk_worker.ledger.amounts import Amount, BudgetChange, Kind
from adk_worker.ledger.booking import Reservation
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.reaper import SweepReport, bury, sweep
from adk_worker.runs import Dispatch, NewRun, RunStatus
from adk_worker.transitions.runs import Attention, FleetPolicy
from tests.unit.clock import Clock

POLICY = FleetPolicy(lease_ttl=60, dispatch_grace=30, max_crashes=3)


class Fleet:
    """A store in memory with runs in it, and a broker that the test takes away."""

    def __init__(self):
        self.clock = Clock(1_700_000_000.0)
        self.runs = memory_stores(MemoryData(clock=self.clock)).runs
        self.sent = []
        self.tried = 0
        self.broker_away = False

    async def dispatch(self, message):
        self.tried += 1
        if self.broker_away:
            raise ConnectionError("no broker")
        self.sent.append(message)

    async def submit(self, run_id):
        submitted = await self.runs.submit(
            NewRun(tenant="acme", run_id=run_id, agent="booking", input="book"), policy=POLICY
        )
        return submitted.ticket

    async def hold(self, run_id, *, holder="host/1"):
        """Submit a run that a worker takes at once."""
        taken = await self.runs.take(
            run_id, tenant="acme", ticket=await self.submit(run_id), holder=holder, ttl_seconds=POLICY.lease_ttl
        )
        return taken.lease

    async def sweep(self, *, after=0.0, **how):
        self.clock.now += after
        return await sweep(self.runs, self, POLICY, **how)

    async def get(self, run_id):
        return await self.runs.get(run_id, tenant="acme")


@pytest.fixture
async def fleet():
    """A fleet that has been swept a moment ago."""
    fleet = Fleet()
    await fleet.sweep()
    return fleet


async def test_a_lease_that_lives_is_left_alone(fleet):
    await fleet.hold("run_1")
    await fleet.submit("run_2")
    assert await fleet.sweep(after=29) == SweepReport()
    assert fleet.sent == []


async def test_a_dead_worker_s_run_is_queued_again_and_its_message_says_that_it_is_a_recovery(fleet):
    """L2, L6: the fence has risen before the message goes out."""
    lease = await fleet.hold("run_1")
    await fleet.sweep(after=30)
    report = await fleet.sweep(after=30)
    run = await fleet.get("run_1")
    assert report == SweepReport(recovered=1)
    assert fleet.sent == [Dispatch("acme", "run_1", run.fence, recovery=True)]
    assert run.fence > lease.fence
    assert (run.status, run.crashes) == (RunStatus.QUEUED, 1)


async def test_a_lost_message_is_published_again_under_the_same_ticket(fleet):
    ticket = await fleet.submit("run_1")
    assert await fleet.sweep(after=30) == SweepReport(published_again=1)
    assert fleet.sent == [Dispatch("acme", "run_1", ticket)]


async def test_every_lapsed_lease_is_found_however_many_there_are(fleet):
    for n in range(7):
        await fleet.hold(f"run_{n}")
    assert await fleet.sweep(after=60, batch=3) == SweepReport(recovered=7)
    assert sorted(message.run_id for message in fleet.sent) == [f"run_{n}" for n in range(7)]


async def test_two_reapers_publish_nothing_twice(fleet):
    await fleet.hold("run_1")
    await fleet.sweep(after=60)
    assert await fleet.sweep() == SweepReport()
    assert len(fleet.sent) == 1


async def test_a_run_that_died_too_often_is_parked(fleet):
    """Poisoned, after max_crashes without a boundary."""
    await fleet.hold("run_1")
    for _ in range(POLICY.max_crashes - 1):
        await fleet.sweep(after=60)
        message = fleet.sent.pop()
        await fleet.runs.take("run_1", tenant="acme", ticket=message.ticket, holder="host/2", ttl_seconds=60)
    assert await fleet.sweep(after=60) == SweepReport(parked=1)
    assert fleet.sent == []
    assert (await fleet.get("run_1")).attention is Attention.POISONED


async def test_a_cancel_that_the_dead_worker_did_not_see_ends_the_run(fleet):
    """P2: every reap looks at the flag."""
    await fleet.hold("run_1")
    await fleet.runs.cancel("run_1", tenant="acme", by=Actor("alice"))
    assert await fleet.sweep(after=60) == SweepReport(cancelled=1)
    assert fleet.sent == []


class TestWhetherDeathsCount:
    """After a gap nobody can say whether the workers died or the store was away, and with it their renewals."""

    async def test_they_do_when_somebody_looked_within_a_ttl(self, fleet):
        await fleet.hold("run_1")
        assert (await fleet.sweep(after=60)).counted
        assert (await fleet.get("run_1")).crashes == 1

    async def test_they_do_not_after_a_longer_gap(self, fleet):
        await fleet.hold("run_1")
        report = await fleet.sweep(after=60.1)
        assert (report.counted, report.recovered) == (False, 1)
        assert (await fleet.get("run_1")).crashes == 0

    async def test_they_do_not_in_the_very_first_sweep(self):
        """Before it nobody looked at all: a gap without a beginning."""
        fleet = Fleet()
        await fleet.hold("run_1")
        report = await fleet.sweep(after=60)
        assert (report.counted, report.recovered) == (False, 1)
        assert (await fleet.get("run_1")).crashes == 0

    async def test_they_do_again_in_the_sweep_after_that(self, fleet):
        await fleet.hold("run_1")
        await fleet.sweep(after=1000)
        await fleet.runs.take(
            "run_1", tenant="acme", ticket=fleet.sent.pop().ticket, holder="host/2", ttl_seconds=POLICY.lease_ttl
        )
        await fleet.sweep(after=40)
        await fleet.sweep(after=20)
        assert (await fleet.get("run_1")).crashes == 1

    async def test_a_reaper_that_comes_seldom_says_so(self, fleet):
        """Else no death would ever count, and nothing ever be poisoned."""
        await fleet.hold("run_1")
        assert (await fleet.sweep(after=100, gap=180)).counted


class TestABrokerThatIsAway:
    async def test_fails_no_sweep_and_costs_nothing_but_time(self, fleet):
        """The ticket is in the store: its lease lapses again, and is published then."""
        await fleet.hold("run_1")
        fleet.broker_away = True
        assert await fleet.sweep(after=60) == SweepReport(recovered=1, unpublished=1)
        fleet.broker_away = False
        assert await fleet.sweep(after=30) == SweepReport(published_again=1)
        assert [message.run_id for message in fleet.sent] == ["run_1"]

    async def test_is_not_tried_again_for_each_of_a_thousand_runs(self, fleet):
        """Each try may cost a time-out. What is not claimed yet stays lapsed, for the next sweep."""
        for n in range(10):
            await fleet.hold(f"run_{n}")
        fleet.broker_away = True
        report = await fleet.sweep(after=60, batch=5)
        assert report == SweepReport(recovered=5, unpublished=5)
        assert fleet.tried == 3
        fleet.broker_away = False
        assert await fleet.sweep(after=1) == SweepReport(recovered=5)

    async def test_is_not_thought_away_for_single_failures(self, fleet):
        for n in range(10):
            await fleet.hold(f"run_{n}")
        flaky = iter([True, True, False] * 4)

        async def dispatch(message):
            if next(flaky):
                raise ConnectionError
            fleet.sent.append(message)

        fleet.dispatch = dispatch
        report = await fleet.sweep(after=60)
        assert (report.recovered, report.unpublished, len(fleet.sent)) == (10, 7, 3)


class TestADeathThatIsKnown:
    """I11: a run need not wait for its lease to lapse."""

    async def test_is_recovered_at_once_and_counts(self, fleet):
        await fleet.hold("run_1", holder="host/1")
        message = await bury(fleet.runs, fleet, POLICY, tenant="acme", run_id="run_1", holder="host/1")
        run = await fleet.get("run_1")
        assert fleet.sent == [message] == [Dispatch("acme", "run_1", run.fence, recovery=True)]
        assert run.crashes == 1

    async def test_of_somebody_who_does_not_hold_it_any_more_changes_nothing(self, fleet):
        await fleet.hold("run_1", holder="host/2")
        before = await fleet.get("run_1")
        assert await bury(fleet.runs, fleet, POLICY, tenant="acme", run_id="run_1", holder="host/1") is None
        assert await fleet.get("run_1") == before
        assert fleet.sent == []

    async def test_parks_a_run_that_kills_its_worker_every_time(self, fleet):
        policy = replace(POLICY, max_crashes=1)
        await fleet.hold("run_1", holder="host/1")
        assert await bury(fleet.runs, fleet, policy, tenant="acme", run_id="run_1", holder="host/1") is None
        assert (await fleet.get("run_1")).attention is Attention.POISONED


# --- over budget ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def waiting(fleet):
    """A fleet with three runs that were parked on their tenant's limit, which has been raised; nobody went on."""
    await fleet.runs.change_account("acme", change=BudgetChange(to={Kind.TOKENS: 1}), by=Actor("ann"))
    for number in range(3):
        lease = await fleet.hold(f"run_{number}", holder=f"host/{number}")
        await fleet.runs.reserve(lease, Reservation(1, lease.fence, Amount(100)))
    await fleet.runs.change_account("acme", change=BudgetChange(to={Kind.TOKENS: 1000}), by=Actor("ann"))
    return fleet


async def test_who_waits_for_room_goes_on_with_the_sweep(waiting):
    """P3: whoever raised the limit died before they could see to it; it is told who did."""
    report = await waiting.sweep(batch=1)

    assert report == SweepReport(afforded=3)
    runs = [await waiting.get(f"run_{number}") for number in range(3)]
    assert waiting.sent == [Dispatch("acme", run.run_id, run.fence, recovery=True) for run in runs]
    (event,) = [one for one in await waiting.runs.events("run_0", tenant="acme") if one.kind == "requeued"]
    assert event.data["by"] == "system:budget"
    assert await waiting.sweep() == SweepReport()


async def test_who_waits_for_room_is_queued_also_while_the_broker_is_away(waiting):
    """P3: and published once it is back."""
    waiting.broker_away = True
    report = await waiting.sweep()
    waiting.broker_away = False
    later = await waiting.sweep(after=30)

    assert report == SweepReport(afforded=3, unpublished=3)
    assert (later.published_again, len(waiting.sent)) == (3, 3)


async def test_a_sweep_that_has_lost_the_broker_begins_no_round(waiting):
    """P3: the next one does."""
    for number in range(3):
        await waiting.submit(f"lost_{number}")
    waiting.broker_away = True
    away = await waiting.sweep(after=30)
    waiting.broker_away = False

    assert (away.afforded, (await waiting.get("run_0")).status) == (0, RunStatus.PARKED)
    assert (await waiting.sweep()).afforded == 3


async def test_a_tenant_whose_runs_cannot_be_read_holds_up_no_other(waiting, monkeypatch):
    """P3, T1."""
    await waiting.runs.change_account("a", change=BudgetChange(to={Kind.TOKENS: 1}), by=Actor("ann"))
    submitted = await waiting.runs.submit(NewRun(tenant="a", run_id="r", agent="booking", input="book"), policy=POLICY)
    taken = await waiting.runs.take("r", tenant="a", ticket=submitted.ticket, holder="host/a", ttl_seconds=60)
    await waiting.runs.reserve(taken.lease, Reservation(1, taken.lease.fence, Amount(100)))
    await waiting.runs.change_account("a", change=BudgetChange(to={Kind.TOKENS: 1000}), by=Actor("ann"))
    whole = type(waiting.runs).requeue_over_budget

    async def broken(self, made, **how):
        if made.tenant == "a":
            raise ValueError("no ledger at all")
        return await whole(self, made, **how)

    monkeypatch.setattr(type(waiting.runs), "requeue_over_budget", broken)

    assert (await waiting.sweep()).afforded == 3
