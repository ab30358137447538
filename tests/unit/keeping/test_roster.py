"""What is due with each kept lease, as a function of the time."""

from __future__ import annotations

import pytest

from adk_worker.interruption import Cause
from adk_worker.keeping.roster import LAST_WORDS, NOT_LEFT, NOT_RENEWED, SUPERSEDED, Roster
from adk_worker.lease import LeasePolicy, RunLease
from adk_worker.runs import Renewal

POLICY = LeasePolicy(ttl_seconds=60, renew_within=20)
ITERATION, DRAIN = 600.0, 20.0


class Told:
    """Stands in for an interruption: what the work was told, in order."""

    def __init__(self):
        self.causes = []

    def set(self, cause):
        self.causes.append(cause)


def lease(fence=7, run_id="run_1"):
    return RunLease("acme", run_id, "holder", fence, expires_at=5_000_000.0)


@pytest.fixture
def roster():
    return Roster(POLICY, iteration_timeout=ITERATION, drain_timeout=DRAIN)


@pytest.fixture
def told(roster):
    told = Told()
    roster.enter(lease(), told, now=0.0)
    return told


class TestRenewal:
    def test_is_due_within_renew_within_of_entering_and_of_each_renewal(self, roster, told):
        """L10: at least every `renew_within`."""
        assert roster.due(19.9) == ()
        assert roster.due(20.0) == (lease(),)
        roster.renewed([lease()], [Renewal(lease())], sent_at=18.0)
        assert roster.due(37.9) == ()
        assert roster.due(38.0) == (lease(),)

    def test_comes_for_all_that_would_be_due_soon_once_it_is_due_for_one(self, roster, told):
        """L8: one batch, and none for leases that have only just been renewed."""
        roster.enter(lease(9, "run_2"), Told(), now=10.0)
        roster.enter(lease(11, "run_3"), Told(), now=10.1)
        assert roster.due(20.0) == (lease(), lease(9, "run_2"))

    def test_of_a_lease_whose_row_is_in_use_is_due_again_soon_and_brings_no_other_along(self, roster, told):
        """L8: it is neither lost nor renewed, and its time goes on."""
        roster.enter(lease(9, "run_2"), Told(), now=0.0)
        roster.renewed([lease(), lease(9, "run_2")], [Renewal(None, busy=True), Renewal(lease(9, "run_2"))], sent_at=20)
        assert roster.due(24.9) == ()
        assert roster.due(25.0) == (lease(),)
        assert roster.lost(lease(), now=49.9) is None
        assert roster.lost(lease(), now=50.0) == NOT_RENEWED
        assert roster.lost(lease(9, "run_2"), now=69.9) is None

    def test_that_failed_is_due_again_soon(self, roster, told):
        roster.failed([lease()], now=20.0)
        assert roster.due(24.9) == ()
        assert roster.due(25.0) == (lease(),)

    def test_goes_on_with_the_lease_that_it_brought(self, roster, told):
        newer = RunLease("acme", "run_1", "holder", 7, expires_at=6_000_000.0)
        roster.renewed([lease()], [Renewal(newer)], sent_at=10.0)
        assert roster.due(30.0) == (newer,)

    def test_refused_supersedes_the_work_and_is_asked_for_no_more(self, roster, told):
        """L3, L9."""
        roster.renewed([lease()], [Renewal(None)], sent_at=20.0)
        assert told.causes == [Cause.SUPERSEDED]
        assert roster.due(1000.0) == ()
        assert roster.lost(lease(), now=21.0) == SUPERSEDED

    def test_that_brings_a_cancel_tells_it_once_and_goes_on(self, roster, told):
        """P2: a held run's cancel is seen at its next renewal; the lease is kept while the work winds up."""
        for sent_at in (20.0, 40.0):
            roster.renewed([lease()], [Renewal(lease(), cancel_requested=True)], sent_at=sent_at)
        assert told.causes == [Cause.CANCEL]
        assert roster.due(60.0) == (lease(),)

    def test_answered_after_the_work_has_left_is_nobodys(self, roster, told):
        roster.leave(lease())
        roster.renewed([lease()], [Renewal(None)], sent_at=20.0)
        roster.failed([lease()], now=21.0)
        assert told.causes == []

    def test_has_to_be_answered_for_every_lease(self, roster, told):
        with pytest.raises(ValueError, match="zip"):
            roster.renewed([lease()], [], sent_at=20.0)


class TestALeaseThatCannotBeRenewed:
    """L9: given up a margin before the store would let another in, counted from when it was last asked."""

    def test_is_lost_a_margin_before_its_expiry(self, roster, told):
        assert roster.look(now=49.9) is None
        assert told.causes == []
        roster.look(now=50.0)
        assert told.causes == [Cause.SUPERSEDED]
        assert roster.due(1000.0) == ()

    def test_is_counted_from_the_sending_of_its_last_renewal(self, roster, told):
        """Not from the answer: the store may have granted it as early as it was asked."""
        roster.renewed([lease()], [Renewal(lease())], sent_at=20.0)
        roster.failed([lease()], now=45.0)
        assert roster.lost(lease(), now=69.9) is None
        assert roster.lost(lease(), now=70.0) == NOT_RENEWED

    def test_is_counted_from_when_it_was_asked_for_if_that_is_known(self, roster):
        told = Told()
        roster.enter(lease(), told, now=30.0, since=10.0)
        roster.look(now=60.0)
        assert told.causes == [Cause.SUPERSEDED]

    def test_stays_lost_when_an_answer_comes_after_all(self, roster, told):
        roster.look(now=50.0)
        roster.renewed([lease()], [Renewal(lease())], sent_at=49.0)
        assert told.causes == [Cause.SUPERSEDED]
        assert roster.lost(lease(), now=51.0) == NOT_RENEWED

    def test_is_lost_to_whoever_asks_before_the_keeper_looks(self, roster, told):
        """A process that was paused past its lease must not believe in it until its thread has had its turn."""
        assert roster.lost(lease(), now=4000.0) == NOT_RENEWED


class TestAnIterationThatTakesTooLong:
    """L8: it is not renewed for ever."""

    def keep_renewed(self, roster, until, *leases):
        roster.renewed(leases, [Renewal(one) for one in leases], sent_at=until)

    def test_is_told_to_stop_hard_once(self, roster, told):
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.0)
        assert told.causes == []
        roster.look(now=600.1)
        roster.look(now=601.0)
        assert told.causes == [Cause.TIMEOUT]

    def test_is_renewed_while_it_winds_up(self, roster, told):
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.1)
        assert roster.due(620.0) == (lease(),)

    def test_is_renewed_no_more_once_it_has_not_stopped(self, roster, told):
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.1)
        self.keep_renewed(roster, 655.0, lease())
        assert roster.look(now=660.1) is None
        stuck = roster.look(now=660.2)
        assert NOT_LEFT in stuck
        assert "run_1" in stuck
        assert roster.lost(lease(), now=660.2) == NOT_LEFT
        assert roster.due(10_000.0) == ()

    def test_lets_the_process_hand_its_other_runs_over_first(self, roster, told):
        other, others = lease(9, "run_2"), Told()
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.1)
        roster.enter(other, others, now=650.0)
        self.keep_renewed(roster, 655.0, lease(), other)
        assert roster.look(now=660.2) is None
        assert others.causes == [Cause.DRAIN]
        assert roster.due(680.0) == (other,)
        roster.leave(other)
        assert NOT_LEFT in roster.look(now=661.0)

    def test_does_not_wait_for_those_for_ever(self, roster, told):
        other, others = lease(9, "run_2"), Told()
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.1)
        roster.enter(other, others, now=650.0)
        roster.look(now=660.2)
        self.keep_renewed(roster, 680.0, other)
        assert roster.look(now=660.2 + DRAIN) is None
        assert others.causes == [Cause.DRAIN, Cause.TIMEOUT]
        assert NOT_LEFT in roster.look(now=660.2 + DRAIN + LAST_WORDS)

    def test_that_leaves_in_time_is_forgiven(self, roster, told):
        self.keep_renewed(roster, 600.0, lease())
        roster.look(now=600.1)
        roster.leave(lease())
        assert roster.look(now=10_000.0) is None


class TestALoopThatDoesNotAnswer:
    """L8: a loop that shows no heartbeat is not renewed for ever, whether or not it holds a lease."""

    def test_ends_the_process(self, roster):
        roster.beat_sent(now=100.0)
        assert roster.look(now=100.0 + ITERATION + 60.0) is None
        assert "event loop" in roster.look(now=100.1 + ITERATION + 60.0)

    def test_has_all_its_work_told_first(self, roster):
        roster.beat_sent(now=100.0)
        late = Told()
        roster.enter(lease(), late, now=690.0)
        assert roster.look(now=700.1) is None
        assert late.causes == [Cause.TIMEOUT]

    def test_is_counted_from_the_oldest_beat_that_it_has_not_answered(self, roster):
        for now in (100.0, 200.0, 600.0):
            roster.beat_sent(now=now)
        assert "event loop" in roster.look(now=100.1 + ITERATION + 60.0)

    def test_that_answers_again_is_forgiven(self, roster):
        roster.beat_sent(now=100.0)
        roster.beat_heard()
        roster.beat_sent(now=700.0)
        assert roster.look(now=800.0) is None


class TestADrain:
    def test_tells_all_work_and_what_enters_later(self, roster, told):
        roster.drain(now=5.0)
        roster.drain(now=6.0)
        late = Told()
        roster.enter(lease(9, "run_2"), late, now=7.0)
        assert told.causes == late.causes == [Cause.DRAIN]

    def test_cancels_what_is_left_after_its_time(self, roster, told):
        roster.drain(now=5.0)
        assert roster.look(now=4.9 + DRAIN) is None
        assert told.causes == [Cause.DRAIN]
        roster.look(now=5.0 + DRAIN)
        assert told.causes == [Cause.DRAIN, Cause.TIMEOUT]

    def test_goes_on_renewing(self, roster, told):
        roster.drain(now=5.0)
        assert roster.due(20.0) == (lease(),)

    def test_ends_the_process_when_something_does_not_stop_at_all(self, roster, told):
        roster.drain(now=5.0)
        roster.look(now=5.0 + DRAIN)
        assert roster.look(now=4.9 + DRAIN + LAST_WORDS) is None
        assert "run_1" in roster.look(now=5.0 + DRAIN + LAST_WORDS)

    def test_leaves_the_end_of_an_idle_process_to_whoever_drains_it(self, roster, told):
        roster.drain(now=5.0)
        roster.leave(lease())
        assert roster.look(now=10_000.0) is None
        assert len(roster) == 0


def test_without_time_limits_nothing_is_ever_too_late():
    roster, told = Roster(POLICY), Told()
    roster.enter(lease(), told, now=0.0)
    roster.drain(now=0.0)
    roster.renewed([lease()], [Renewal(lease())], sent_at=1e9)
    assert roster.look(now=1e9) is None
    assert told.causes == [Cause.DRAIN]
