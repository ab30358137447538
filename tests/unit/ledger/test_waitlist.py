"""Who waits for room on a tenant's account, and who of them fits: the rules alone (P3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.actors import Actor
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount, Budget, BudgetChange, Kind, Unaccounted
from adk_worker.ledger.booking import Closed, Reservation
from adk_worker.ledger.rounds import Round
from adk_worker.ledger.waitlist import Waitlist

HELD = Reservation(1, 7, Amount(100, 10), on_account=True)
NOTHING = Waitlist()


def test_room_that_comes_back_is_due_only_where_somebody_waits():
    """P3."""
    assert not NOTHING.free().due
    assert NOTHING.join().free().due
    assert not NOTHING.join().due


def test_what_was_made_is_not_due_any_more_and_those_who_are_left_wait_on():
    """P3."""
    waits = NOTHING.join().free()

    assert (waits.serve(waits, empty=False).due, waits.serve(waits, empty=False).waits) == (False, True)
    assert (waits.serve(waits, empty=True).due, waits.serve(waits, empty=True).waits) == (False, False)


def test_what_came_during_a_round_is_due_after_it():
    """P3: more room, or one more who waits."""
    seen = NOTHING.join().free()

    assert seen.free().serve(seen, empty=False).due
    assert seen.join().serve(seen, empty=True).waits


@given(st.lists(st.sampled_from(["join", "free", "look", "full", "empty", "again"]), max_size=30))
def test_no_round_s_end_takes_away_what_came_after_its_beginning(does):
    """P3: whichever rounds end in which order, each of them twice."""
    stands, seen = NOTHING, [NOTHING]
    joins = frees = 0  # since the newest beginning of any round
    for one in does:
        match one:
            case "join":
                stands, joins = stands.join(), joins + 1
            case "free":
                frees += stands.waits
                stands = stands.free()
            case "look":
                seen.append(stands)
                joins = frees = 0
            case _:
                begun = seen[-1] if one == "full" or len(seen) == 1 else seen[-2]
                stands = stands.serve(begun, empty=one == "empty")
        assert stands.waits or not joins
        assert stands.due or not frees


def limited(tokens, **fields):
    return Account(limits=Budget(tokens=tokens), **fields)


def waits(account):
    return account.turn_away()


@pytest.mark.parametrize(
    ("closed", "room"),
    [
        (Closed(HELD, spent=Amount(99, 10)), True),
        (Closed(HELD, spent=Amount(200, 9)), True),
        (Closed(HELD), True),
        (Closed(HELD, spent=HELD.amount), False),
        (Closed(HELD, spent=Amount(101, 11)), False),
        (Closed(HELD, unaccounted=Unaccounted(1, HELD.amount)), False),
    ],
)
def test_a_reservation_s_end_gives_room_if_less_of_anything_counts_than_before(closed, room):
    """C6, P3."""
    account = waits(limited(1000).reserve(HELD))

    assert account.close(closed).waitlist.due is room


def test_other_limits_are_due_to_those_who_wait():
    """P3: in the very value that is written."""
    change = BudgetChange(to={Kind.TOKENS: 5})

    assert waits(limited(1)).change(change, by=Actor("ann"), at=1.0).waitlist.due
    assert not limited(1).change(change, by=Actor("ann"), at=1.0).waitlist.due


def test_what_a_round_has_promised_counts_for_those_behind():
    """P3."""
    account = limited(250, spent=Amount(50))
    made = Round.begun("acme", account)

    assert made.fits(account, Amount(200))
    assert not made.fits(account, Amount(201))
    assert made.promise(Amount(100)).fits(account, Amount(100))
    assert not made.promise(Amount(100)).fits(account, Amount(101))
    assert not made.promise(Amount(200)).fits(account, Amount())


def test_a_round_that_has_queued_somebody_stays_due():
    """P3: what was queued may come to take less, or nothing."""
    account = waits(limited(10)).change(BudgetChange(to={Kind.TOKENS: 500}), by=Actor("ann"), at=1.0)
    made = Round.begun("acme", account).meet()

    assert made.promise(Amount(100)).served(account) == account
    assert not made.served(account).waitlist.due


def test_a_round_that_could_not_ask_one_who_fits_stays_due():
    """P3: whoever makes the next one asks again."""
    account = waits(limited(10)).change(BudgetChange(to={Kind.TOKENS: 500}), by=Actor("ann"), at=1.0)

    assert Round.begun("acme", account).meet().miss().served(account) == account
