"""Budgets on a real fleet: crossed in mid-run, raised, and kept through the death of workers (C6, P3)."""

from __future__ import annotations

import pytest

from adk_worker import Budget, BudgetChange, RunStatus
from adk_worker.ledger.amounts import Amount, Kind, Unaccounted
from adk_worker.ledger.booking import Scope
from adk_worker.transitions.runs import Attention
from tests.acceptance import scenarios
from tests.acceptance.spenders import AT_MOST, TAKES
from tests.waiting import wait_until

CALLS = [1, 2, 3, 4, 5]
"""A search, a hold, a booking, a payment, and the answer."""
ONE = Amount(AT_MOST, 10_000)


@pytest.fixture
def work(fleet):
    """Starts a worker."""
    return lambda name: fleet.worker(name, ADK_AGENTS="tests.acceptance.spenders")


def submit(fleet, run_id, **budget):
    said = {"tenant": "acme", "run_id": run_id, "budget": Budget(**budget)}
    return fleet.sync.submit("spender", "a seat to Berlin, please", **said)


def asked(fleet, run_id):
    """The iterations for which the model was asked, in order."""
    return [call.iteration for call in fleet.models.calls("began") if call.run_id == run_id]


def to(tokens):
    return BudgetChange(to={Kind.TOKENS: tokens})


def test_a_run_crosses_its_budget_in_mid_run_and_goes_on_after_a_raise(fleet, work):
    """P3, P5: parked before the call, not failed; it goes on by itself, and no call is made twice."""
    work("worker")
    submit(fleet, "run", tokens=AT_MOST + 2 * TAKES)
    parked = fleet.rests("run", RunStatus.PARKED)
    before = asked(fleet, "run")

    fleet.sync.change_budget("run", tenant="acme", change=BudgetChange(by={Kind.TOKENS: AT_MOST}), by="ann")
    fleet.done_once("run")

    assert parked.attention is Attention.OVER_BUDGET
    assert "adk budget raise run --tenant acme --tokens" in parked.detail
    assert parked.ledger.refused.scope is Scope.RUN
    assert (before, asked(fleet, "run")) == (CALLS[:3], CALLS)
    ledger = fleet.run("run").ledger
    assert (ledger.spent, ledger.reserved, ledger.unaccounted) == (Amount(5 * TAKES, 5_000), None, Unaccounted())
    (changed,) = fleet.events("run", "budget_changed")
    assert changed.data["by"] == "ann"


def test_a_worker_killed_in_a_model_call_leaves_it_unaccounted(fleet, work):
    """C6: with what was reserved for it; without a budget nobody knows how much, but that there was one."""
    names = ("run", "free")
    for name in names:
        fleet.models.hold(name, tenant="acme", iteration=2)
    victim = work("victim")
    submit(fleet, "run", tokens=100 * AT_MOST)
    submit(fleet, "free")
    for name in names:
        fleet.asked(name, iteration=2)
    victim.kill()
    for name in names:
        fleet.models.release(name, tenant="acme", iteration=2)
    work("heir")

    fleet.done_once(*names)

    ledgers = {name: fleet.run(name).ledger for name in names}
    assert [asked(fleet, name) for name in names] == [[1, 2, 2, 3, 4, 5]] * 2
    assert ledgers["run"].unaccounted == Unaccounted(1, ONE)
    assert ledgers["free"].unaccounted == Unaccounted(1)
    assert {ledger.spent for ledger in ledgers.values()} == {Amount(5 * TAKES, 5_000)}


def test_a_crash_loop_ends_at_the_budget(fleet, work):
    """C6: each attempt that dies counts as what it may have taken; the run is parked before it is poisoned."""
    fleet.models.hold("run", tenant="acme", iteration=1)
    submit(fleet, "run", tokens=2 * AT_MOST)
    for number in (1, 2):
        victim = work(f"victim-{number}")
        what = f"the model to be asked for the {number}. time"
        wait_until(lambda number=number: len(asked(fleet, "run")) == number, within=fleet.patience, what=what)
        victim.kill()
    work("heir")

    parked = fleet.rests("run", RunStatus.PARKED)

    assert parked.attention is Attention.OVER_BUDGET
    assert parked.ledger.unaccounted == Unaccounted(2, ONE + ONE)
    assert asked(fleet, "run") == [1, 1]


def test_runs_of_a_tenant_stay_within_its_limit_and_go_on_after_a_raise(fleet, work):
    """P3, L7: many at once, on several workers; none is over the limit, and none stays behind.

    They are parked for what others have reserved, and go on as these settle for less: until nothing fits any more.
    """
    names = [f"run-{number}" for number in range(6)]
    fleet.sync.change_account("acme", change=to(2 * AT_MOST), by="ann")
    for number in range(2):
        work(f"worker-{number}")
    for name in names:
        submit(fleet, name)

    def used_up():
        """The account, once so much is spent that no call fits."""
        account = fleet.sync.account("acme")
        assert account.stands.tokens <= 2 * AT_MOST
        return account if account.stands == account.spent and account.spent.tokens > AT_MOST else None

    before = wait_until(used_up, within=fleet.patience, what=f"the limit to be used up\n{fleet.logs()}")
    resting = [fleet.rests_somehow(name) for name in names]
    account, queued = fleet.sync.change_account("acme", change=to(1000 * AT_MOST), by="ben")
    fleet.done_once(*names)

    assert before.spent.tokens == AT_MOST + TAKES
    assert {run.attention for run in resting if run.status is RunStatus.PARKED} == {Attention.OVER_BUDGET}
    # The sweeps look at them too, by now.
    assert 0 <= queued <= sum(run.status is RunStatus.PARKED for run in resting)
    after = fleet.sync.account("acme")
    assert after.spent == Amount(6 * 5 * TAKES, 6 * 5_000)
    assert (after.reserved, after.unaccounted) == (Amount(), Unaccounted())
    assert [change.by for change in account.changes] == ["ann", "ben"]


def test_a_raise_whose_program_is_killed_is_carried_through(make_fleet, postgres_proxy):
    """P3: between the write of a tenant's limit and the runs that were parked on it."""
    scenarios.killed_in_a_raise(make_fleet(reaped=False), store=postgres_proxy, at=b"'over_budget'")
