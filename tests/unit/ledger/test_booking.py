"""What may be spent: the rules alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.actors import Actor
from adk_worker.adapters import adapter
from adk_worker.errors import BudgetError
from adk_worker.ledger import booking
from adk_worker.ledger.accounts import CHANGES_KEPT, Account
from adk_worker.ledger.amounts import HIGHEST, Amount, Budget, BudgetChange, Kind, Unaccounted, in_units
from adk_worker.ledger.booking import Charge, Closed, Ledger, Refusal, Reservation, Scope

ASKED = Reservation(1, 7, Amount(100, 10), on_account=True)


@pytest.mark.parametrize("limit", [-1, 1.5, True, "9", HIGHEST + 1])
@pytest.mark.parametrize("kind", Kind)
def test_a_limit_is_a_whole_number(kind, limit):
    with pytest.raises(BudgetError, match=kind.value):
        Budget(**{kind.value: limit})


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"to": {Kind.TOKENS: 5}, "by": {Kind.TOKENS: 5}},
        {"by": {Kind.TOKENS: 0}},
        {"by": {Kind.COST: -5}},
        {"to": {Kind.COST: -5}},
        {"to": {"cost": 5}},
    ],
)
def test_a_change_changes_something_by_something(change):
    with pytest.raises(BudgetError):
        BudgetChange(**change)


def test_a_change_leaves_alone_what_it_does_not_name():
    """P3."""
    limits = Budget(tokens=10, cost_micros=20)

    assert BudgetChange(to={Kind.TOKENS: None}).applied(limits) == Budget(cost_micros=20)
    assert BudgetChange(by={"cost_micros": 5}).applied(limits) == Budget(tokens=10, cost_micros=25)
    with pytest.raises(BudgetError, match="no limit of tokens"):
        BudgetChange(by={Kind.TOKENS: 5}).applied(Budget(cost_micros=20))


def test_a_raise_does_not_go_beyond_the_highest_limit():
    with pytest.raises(BudgetError, match="the highest"):
        BudgetChange(by={Kind.TOKENS: HIGHEST}).applied(Budget(tokens=1))


def test_the_first_kind_over_its_limit_is_told():
    """P3: with all that stands against it."""
    stands = Ledger(
        limits=Budget(tokens=1000, cost_micros=50),
        spent=Amount(500, 20),
        unaccounted=Unaccounted(1, Amount(100, 20)),
    )

    assert stands.refusal(Amount(400, 10)) is None
    assert stands.refusal(Amount(401, 99)) == Refusal(Scope.RUN, Kind.TOKENS, 1000, 500, 0, 100, Amount(401, 99))
    assert stands.refusal(Amount(400, 11)) == Refusal(Scope.RUN, Kind.COST, 50, 20, 0, 20, Amount(400, 11))


@pytest.mark.parametrize(
    ("scope", "reserved", "said"),
    [
        (Scope.TENANT, 700, "It goes on by itself once there is room; to make some: adk budget raise --tenant acme"),
        (Scope.TENANT, 0, "To have it go on: adk budget raise --tenant acme"),
        (Scope.RUN, 700, "To have it go on: adk budget raise run --tenant acme"),
    ],
)
def test_a_refusal_for_what_others_have_reserved_says_that_it_may_pass(scope, reserved, said):
    """P3: nothing else comes back by itself."""
    refused = Refusal(scope, Kind.TOKENS, 1000, 200, reserved, 0, Amount(900))

    assert said in refused.words(tenant="acme", run_id="run")


def test_a_refusal_says_what_to_do_in_words_that_a_shell_takes():
    """P3."""
    refused = Refusal(Scope.RUN, Kind.COST, 1_500_000, 1_200_000, 0, 100_000, Amount(4000, 250_000))

    said = refused.words(tenant="a b", run_id="run 1")

    assert "cost limit 1.5, spent 1.2, reserved 0, unaccounted 0.1" in said
    assert "may take 0.25" in said
    assert said.endswith("adk budget raise 'run 1' --tenant 'a b' --cost N")


def test_a_charge_settles_the_attempt_that_made_it():
    """C6: the account is told of what was reserved there."""
    reserved = booking.reserve(Ledger(), ASKED).ledger

    booked = booking.settle(reserved, Charge(1, Amount(40, 4)), fence=7, asks=False)

    assert booked.ledger == Ledger(spent=Amount(40, 4), asks=False)
    assert booked.closed == Closed(ASKED, spent=Amount(40, 4))


@pytest.mark.parametrize(("iteration", "fence"), [(2, 7), (1, 8)])
def test_a_charge_leaves_anothers_attempt_unaccounted(iteration, fence):
    """C6: whatever became of that."""
    reserved = booking.reserve(Ledger(), ASKED).ledger

    booked = booking.settle(reserved, Charge(iteration, Amount(40, 4)), fence=fence, asks=True)

    assert booked.ledger == Ledger(spent=Amount(40, 4), unaccounted=Unaccounted(1, ASKED.amount))
    assert booked.closed == Closed(ASKED, unaccounted=Unaccounted(1, ASKED.amount))


@pytest.mark.parametrize("asks", [True, False])
def test_without_a_reservation_the_frontier_says_whether_a_call_may_be_in_flight(asks):
    """C6."""
    assert booking.lost(Ledger(asks=asks)).ledger.unaccounted == Unaccounted(int(asks))


_AMOUNTS = st.builds(Amount, st.integers(0, 100), st.integers(0, 100))
_STEPS = st.lists(
    st.tuples(st.sampled_from(["reserve", "settle", "lost", "free"]), _AMOUNTS, st.integers(1, 3)), max_size=30
)


@given(_STEPS)
def test_an_account_stands_as_its_runs_ledgers_do(steps):
    """C6: nothing is lost between the two, and nothing counted twice."""
    account, stands = Account(), Ledger()
    for fence, (name, amount, iteration) in enumerate(steps):
        match name:
            case "reserve":
                booked = booking.reserve(stands, Reservation(iteration, fence, amount, on_account=True))
            case "settle":
                made = stands.reserved
                charge = Charge(made.iteration if made else iteration, amount)
                booked = booking.settle(stands, charge if made else None, fence=made.fence if made else 0, asks=True)
            case _:
                booked = booking.lost(stands, in_flight=name == "lost" and stands.reserved is not None)
        stands = booked.ledger
        if booked.closed is not None:
            account = account.close(booked.closed)
        if name == "reserve":
            account = account.reserve(stands.reserved)
    assert (account.spent, account.unaccounted) == (stands.spent, stands.unaccounted)
    assert account.reserved == (stands.reserved.amount if stands.reserved else Amount())


@given(st.integers(1, 300), st.lists(_AMOUNTS, max_size=20))
def test_a_crash_loop_ends_at_the_limit(limit, wanted):
    """C6: every attempt that dies counts as what it may have taken."""
    stands = Ledger(limits=Budget(tokens=limit))
    made = 0
    for fence, amount in enumerate(wanted):
        if stands.refusal(amount) is None:
            made += amount.tokens
            stands = booking.lost(booking.reserve(stands, Reservation(1, fence, amount)).ledger).ledger

    assert made == stands.unaccounted.amount.tokens <= limit


def test_an_account_remembers_the_newest_changes():
    """P5."""
    account = Account()
    for number in range(CHANGES_KEPT + 3):
        account = account.change(BudgetChange(to={Kind.TOKENS: number}), by=Actor("ann", "op"), at=float(number))

    assert len(account.changes) == CHANGES_KEPT
    assert (account.changes[-1].at, account.changes[-1].by, account.changes[-1].limits) == (22.0, "ann", Budget(22))


@pytest.mark.parametrize(("micros", "said"), [(0, "0"), (4_100, "0.0041"), (1_500_000, "1.5"), (20_000_000, "20")])
def test_a_cost_is_told_in_currency_units(micros, said):
    assert in_units(micros) == said


def test_a_ledger_is_read_as_it_was_written():
    """What is as in a new one is left out, so that a run without a budget carries nothing."""
    full = Ledger(
        limits=Budget(tokens=1),
        spent=Amount(1, 2),
        unaccounted=Unaccounted(1, Amount(3)),
        reserved=ASKED,
        unpriced=1,
        asks=False,
        refused=Refusal(Scope.TENANT, Kind.COST, 1, 2, 3, 4, Amount(5, 6)),
    )

    assert adapter(Ledger).validate_json(adapter(Ledger).dump_json(full, exclude_defaults=True)) == full
    assert adapter(Ledger).dump_python(Ledger(), mode="json", exclude_defaults=True) == {}
