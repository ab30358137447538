"""Approvals: what people are asked is bound to its call, and answered once, by whoever may."""

from __future__ import annotations

from functools import partial

import pytest

from adk_worker.approvals.answers import Answered
from adk_worker.approvals.requests import SYSTEM_TIMEOUT, Approvals, RequestState
from adk_worker.approvals.store import Expired
from adk_worker.conformance.clocks import YEAR, caller_off_by
from adk_worker.conformance.runs.asker import BOB, Asker
from adk_worker.conformance.runs.driver import ANN, PATIENT
from adk_worker.conformance.waiting import LONG, SOON, Racer, race_in_threads, until, winners
from adk_worker.errors import (
    ApprovalRefusedError,
    NotAllowedError,
    RunNotFoundError,
    StaleFenceError,
)
from adk_worker.events import EventKind
from adk_worker.pruning import Prune
from adk_worker.runs import Dispatch, RunStatus, Stores
from adk_worker.transitions.runs import Attention, Then, Verdict

_RUNS = 10


class ApprovalsConformance:
    """P1: an approval is bound to the call, its arguments, who may answer, and a time; it is answered once."""

    # --- asking -----------------------------------------------------------------------------------------------

    async def test_a_boundary_asks_in_its_own_write(self, stores: Stores) -> None:
        """P1, F1: with the frontier, the run that waits, and the events; nobody holds the lease meanwhile."""
        driver = Asker(stores)

        committed = await driver.ask(0, 2, approvers=("ann", "bob"))

        assert (committed.verdict, committed.lease, committed.ticket) == (Verdict.DONE, None, None)
        run = await driver.run()
        assert (run.status, run.attention, run.holder) == (RunStatus.WAITING_APPROVAL, Attention.APPROVAL, None)
        assert run.detail == "req-1, req-2"
        first, second = (await driver.approvals()).requests
        new = driver.request(2)
        assert (second.request_id, second.call_id, second.key, second.digest) == (
            "req-2",
            "call-2",
            new.key,
            new.digest,
        )
        assert (first.tool, first.arguments, first.approvers) == ("book", {"seat": "12A"}, ("ann", "bob"))
        assert (first.state, first.expires_at) == (RequestState.PENDING, first.asked_at + LONG)
        told = [event.data for event in await driver.events(EventKind.APPROVAL_REQUESTED)]
        assert [data["request"] for data in told] == ["req-1", "req-2"]
        assert told[0]["approvers"] == ["ann", "bob"]

    async def test_what_may_not_be_written_asks_nobody(self, stores: Stores) -> None:
        """F1, P2: neither a worker that gave up its lease, nor one whose run is to end."""
        driver, cancelled = Asker(stores), Asker(stores, run_id="cancelled")
        lease = await driver.worker()
        await driver.commit(lease, 1, Then.HAND_OVER)
        with pytest.raises(StaleFenceError):
            await driver.ask(0, sequence=2, lease=lease)
        assert (await driver.approvals()).requests == ()

        lease = await cancelled.worker()
        await cancelled.cancel()
        assert (await cancelled.ask(0, lease=lease)).verdict is Verdict.CANCELLED
        assert (await cancelled.approvals()).requests == ()
        assert (await cancelled.run()).status is RunStatus.CANCELLED

    async def test_a_boundary_that_is_written_again_asks_once(self, stores: Stores) -> None:
        """F5: its answer was lost."""
        driver = Asker(stores)
        lease = await driver.worker()
        await driver.ask(0, lease=lease)
        before = await driver.everything()

        again = await driver.ask(0, lease=lease)

        assert again.verdict is Verdict.REPEATED
        assert await driver.everything() == before

    async def test_requests_are_numbered_within_their_run(self, stores: Stores) -> None:
        """P1: an id names one request for as long as the run is there."""
        driver, other = Asker(stores), Asker(stores, run_id="other")
        await driver.ask(0, 1)
        await other.ask(0)
        for name in ("req-1", "req-2"):
            await driver.answer(name)

        await driver.ask(3, sequence=2)

        assert [request.request_id for request in (await driver.approvals()).requests] == ["req-1", "req-2", "req-3"]
        assert [request.request_id for request in (await other.approvals()).requests] == ["req-1"]
        assert (await stores.runs.approvals("none", tenant=driver.tenant)).approvals == Approvals()

    # --- answering --------------------------------------------------------------------------------------------

    async def test_the_last_answer_queues_the_run_in_its_own_write(self, stores: Stores) -> None:
        """P1, L2: under a new ticket; until then it waits, for what is left."""
        driver = Asker(stores)
        lease = await driver.worker()
        await driver.ask(0, 1, lease=lease)

        first = await driver.answer("req-2", approved=False, reason="too dear", by=BOB)

        assert (first.ticket, first.run) == (None, await driver.run())
        assert (first.run.status, first.run.detail) == (RunStatus.WAITING_APPROVAL, "req-1")
        assert await driver.take(lease.fence) is None
        last = await driver.answer("req-1")
        assert last.run == await driver.run()
        assert (last.run.status, last.run.attention, last.run.detail) == (RunStatus.QUEUED, None, None)
        assert last.ticket == last.run.fence > lease.fence
        assert await driver.take(last.ticket) is not None
        assert (first.request, last.request) == (await driver.asked("req-2"), await driver.asked("req-1"))
        told = [event.data for event in await driver.events(EventKind.APPROVAL_ANSWERED)]
        assert told[0] == {
            "request": "req-2",
            "tool": "book",
            "answer": "denied",
            "by": "bob",
            "os_user": "op-2",
            "reason": "too dear",
        }
        assert (told[1]["answer"], told[1]["by"]) == ("approved", "ann")

    async def test_a_request_is_answered_once(self, stores: Stores) -> None:
        """P1: the second is told what stands, and changes nothing; whoever asks, and however."""
        driver = Asker(stores)
        await driver.ask(0, 1)
        await driver.answer("req-1", approved=False, reason="too dear")
        before = await driver.everything()

        for approved, by in ((True, ANN), (False, ANN), (True, BOB)):
            with pytest.raises(ApprovalRefusedError, match=r"was denied by ann.*too dear"):
                await driver.answer("req-1", approved=approved, by=by, answer_id="another")

        assert await driver.everything() == before

    async def test_an_answer_that_was_given_finds_itself(self, stores: Stores) -> None:
        """F5: whoever lost the answer to their answer gives it again, under its answer_id."""
        driver = Asker(stores)
        await driver.ask(0)
        first = await driver.answer("req-1", answer_id="t-1")
        before = await driver.everything()

        again = await driver.answer("req-1", answer_id="t-1")

        assert again == first
        assert await driver.everything() == before

    async def test_only_those_who_may_answer_do(self, stores: Stores) -> None:
        """P1: by name, where names were given."""
        driver = Asker(stores)
        await driver.ask(0, approvers=("bob",))
        before = await driver.everything()

        for approved in (True, False):
            with pytest.raises(NotAllowedError, match="bob"):
                await driver.answer("req-1", approved=approved)

        assert await driver.everything() == before
        assert (await driver.answer("req-1", by=BOB)).ticket is not None

    async def test_an_answer_to_other_arguments_is_refused(self, stores: Stores) -> None:
        """P1: whoever says what they have seen answers that alone."""
        driver = Asker(stores)
        await driver.ask(0)
        before = await driver.everything()

        with pytest.raises(ApprovalRefusedError, match="other arguments"):
            await driver.answer("req-1", digest=driver.intent(0, seat="1A").digest)

        assert await driver.everything() == before
        assert (await driver.answer("req-1", digest=driver.intent(0).digest)).ticket is not None

    async def test_nobody_reaches_another_s_request(self, stores: Stores) -> None:
        """T1: neither another tenant's, nor another run's, nor one that there is not."""
        driver, other = Asker(stores), Asker(stores, run_id="other")
        await driver.ask(0)
        await other.ask(0, 1)
        before = await driver.everything()

        with pytest.raises(RunNotFoundError):
            await Asker(stores, tenant="elsewhere").answer("req-1")
        with pytest.raises(ApprovalRefusedError, match=r"no such request.*req-1"):
            await driver.answer("req-2")
        assert await Asker(stores, tenant="elsewhere").approvals() == Approvals()
        assert await driver.everything() == before

    async def test_it_is_the_store_s_clock_that_says_when_it_is_too_late(self, stores: Stores) -> None:
        """L1, P1: a caller's is nobody's business but its own."""
        driver, late = Asker(stores), Asker(stores, run_id="late")
        await driver.ask(0)
        await late.ask(0, expires_in=SOON)
        await late.over()

        with caller_off_by(YEAR):
            assert list(await stores.runs.expire(policy=PATIENT, limit=10)) != []
            assert (await driver.answer("req-1")).ticket is not None
        with caller_off_by(-YEAR), pytest.raises(ApprovalRefusedError, match=SYSTEM_TIMEOUT):
            await late.answer("req-1")

    async def test_what_is_past_its_time_takes_no_answer(self, stores: Stores) -> None:
        """P1: before any reaper has come by; ``now == expires_at`` is too late."""
        driver = Asker(stores)
        await driver.ask(0, expires_in=SOON)
        await driver.over()
        before = await driver.everything()

        with pytest.raises(ApprovalRefusedError, match="expired"):
            await driver.answer("req-1")

        assert await driver.everything() == before

    async def test_whoever_has_the_lease_of_a_run_that_waits_loses_it(self, stores: Stores) -> None:
        """L3: as by a cancel; nobody would bring the answer again."""
        driver = Asker(stores)
        await driver.ask(0)
        lease = await stores.leases.acquire("run", tenant=driver.tenant, holder="cli", ttl_seconds=LONG)

        answered = await driver.answer("req-1")

        assert answered.ticket is not None
        assert answered.ticket > lease.fence
        assert await driver.take(answered.ticket) is not None

    async def test_a_run_that_was_cancelled_waits_for_nothing(self, stores: Stores) -> None:
        """P2: what was asked is withdrawn; an answer is told so, and brings nothing back."""
        driver = Asker(stores)
        await driver.ask(0, 1, expires_in=SOON)
        await driver.cancel()
        await driver.over()
        before = await driver.everything()

        assert {request.state for request in (await driver.approvals()).requests} == {RequestState.WITHDRAWN}
        with pytest.raises(ApprovalRefusedError, match="cancelled"):
            await driver.answer("req-1")
        assert list(await stores.runs.expire(policy=PATIENT, limit=10)) == []
        assert await driver.everything() == before

    async def test_a_run_that_has_ended_takes_no_answer(self, stores: Stores) -> None:
        """P1: nor any that is a copy of the one that it had."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1")
        await driver.commit(await driver.worker(), 2, Then.COMPLETE)
        before = await driver.everything()

        with pytest.raises(ApprovalRefusedError, match="was approved by ann"):
            await driver.answer("req-1", by=BOB)

        assert await driver.everything() == before

    # --- races ------------------------------------------------------------------------------------------------

    async def test_of_two_deciders_one_is_heard(self, stores: Stores) -> None:
        """P1: whoever comes second is told what the first has said; one hand-over follows."""
        for number in range(_RUNS):
            driver = Asker(stores, run_id=f"run-{number}")
            await driver.ask(0)
            racers: list[Racer] = [
                partial(driver.answer, "req-1", by=ANN),
                partial(driver.answer, "req-1", by=BOB, approved=False, reason="no"),
            ]

            answers = winners(await race_in_threads(racers), ApprovalRefusedError)

            (won,) = answers
            assert won.request == await driver.asked()
            assert won.ticket == (await driver.run()).fence
            assert len(await driver.events(EventKind.APPROVAL_ANSWERED)) == 1

    async def test_of_two_answers_the_last_one_alone_queues_the_run(self, stores: Stores) -> None:
        """P1, L2: those of one turn, given at once: neither is lost, and one ticket is made."""
        for number in range(_RUNS):
            driver = Asker(stores, run_id=f"run-{number}")
            await driver.ask(0, 1)
            racers: list[Racer] = [partial(driver.answer, "req-1"), partial(driver.answer, "req-2", by=BOB)]

            answers = winners(await race_in_threads(racers), ApprovalRefusedError)

            assert sorted(answer.ticket is None for answer in answers) == [False, True]
            assert (await driver.approvals()).pending == ()
            assert (await driver.run()).status is RunStatus.QUEUED

    async def test_an_answer_and_its_expiry_are_never_both_heard(self, stores: Stores) -> None:
        """P1: whichever comes first stands."""
        for number in range(_RUNS):
            driver = Asker(stores, run_id=f"run-{number}")
            await driver.ask(0, expires_in=SOON)

            async def expire() -> list[Expired]:
                return list(await stores.runs.expire(policy=PATIENT, limit=10))

            async def ended(driver: Asker = driver) -> bool:
                expired = await expire()
                return bool(expired) or not (await driver.approvals()).pending

            racers: list[Racer] = [partial(driver.answer, "req-1"), expire]
            answers = winners(await race_in_threads(racers), ApprovalRefusedError)
            await until(ended, what="the request to be over")

            decided = [answer for answer in answers if isinstance(answer, Answered)]
            (event,) = await driver.events(EventKind.APPROVAL_ANSWERED)
            assert event.data["by"] == ("ann" if decided else SYSTEM_TIMEOUT)
            assert (await driver.run()).status is RunStatus.QUEUED

    async def test_a_cancel_and_an_answer_end_in_one_state(self, stores: Stores) -> None:
        """P2: the cancel is never lost: what the answer queued ends too."""
        for number in range(_RUNS):
            driver = Asker(stores, run_id=f"run-{number}")
            await driver.ask(0)

            racers: list[Racer] = [partial(driver.answer, "req-1"), driver.cancel]
            await race_in_threads(racers)

            assert (await driver.run()).status is RunStatus.CANCELLED
            assert (await driver.approvals()).pending == ()

    # --- expiry -----------------------------------------------------------------------------------------------

    async def test_what_nobody_answers_is_denied_in_time(self, stores: Stores) -> None:
        """P1: by the system, with the same hand-over as an answer; the message is a recovery's."""
        driver, patient = Asker(stores), Asker(stores, run_id="patient")
        lease = await driver.worker()
        await driver.ask(0, 1, expires_in=SOON, lease=lease)
        await patient.ask(0)
        await driver.over("req-2")

        (expired,) = await stores.runs.expire(policy=PATIENT, limit=10)

        run = await driver.run()
        dispatch = Dispatch(driver.tenant, "run", run.fence, recovery=True)
        assert expired == Expired(driver.tenant, "run", ("req-1", "req-2"), dispatch)
        assert (run.status, run.attention, run.detail) == (RunStatus.QUEUED, None, None)
        assert run.fence > lease.fence
        request = await driver.asked()
        assert (request.state, request.answered_by) == (RequestState.DENIED, SYSTEM_TIMEOUT)
        told = [event.data for event in await driver.events(EventKind.APPROVAL_ANSWERED)]
        assert [data["by"] for data in told] == [SYSTEM_TIMEOUT, SYSTEM_TIMEOUT]
        assert (await patient.run()).status is RunStatus.WAITING_APPROVAL
        assert list(await stores.runs.expire(policy=PATIENT, limit=10)) == []

    async def test_what_is_left_of_a_turn_still_waits(self, stores: Stores) -> None:
        """P1: one request is over, another one is not."""
        driver = Asker(stores)
        lease = await driver.worker()
        requests = [driver.request(0, expires_in=SOON), driver.request(1)]
        await driver.commit(lease, 1, Then.WAIT_APPROVAL, requests=requests, attention=Attention.APPROVAL)
        await driver.over()

        (expired,) = await stores.runs.expire(policy=PATIENT, limit=10)

        assert expired == Expired(driver.tenant, "run", ("req-1",), None)
        run = await driver.run()
        assert (run.status, run.detail) == (RunStatus.WAITING_APPROVAL, "req-2")
        assert (await driver.answer("req-2")).ticket is not None

    async def test_the_longest_overdue_come_first(self, stores: Stores) -> None:
        """P1: as many as the reaper asks for; any number of reapers, each of which acts on what no other has."""
        drivers = [Asker(stores, run_id=f"run-{number}") for number in range(4)]
        for driver in drivers:
            await driver.ask(0, expires_in=SOON)
            await driver.over()

        first = await stores.runs.expire(policy=PATIENT, limit=3)
        second = await stores.runs.expire(policy=PATIENT, limit=3)

        assert [expired.run_id for expired in first] == ["run-0", "run-1", "run-2"]
        assert [expired.run_id for expired in second] == ["run-3"]

    async def test_of_many_reapers_one_denies(self, stores: Stores) -> None:
        """L7, P1."""
        drivers = [Asker(stores, run_id=f"run-{number}") for number in range(_RUNS)]
        for driver in drivers:
            await driver.ask(0, expires_in=SOON)
        for driver in drivers:
            await driver.over()

        async def expire() -> list[Expired]:
            return list(await stores.runs.expire(policy=PATIENT, limit=_RUNS))

        swept = winners(await race_in_threads([expire] * 4), StaleFenceError)
        swept.append(await expire())

        assert sorted(one.run_id for answer in swept for one in answer) == sorted(driver.run_id for driver in drivers)
        for driver in drivers:
            assert len(await driver.events(EventKind.APPROVAL_ANSWERED)) == 1

    # --- in the end -------------------------------------------------------------------------------------------

    async def test_what_was_asked_goes_with_its_run(self, stores: Stores) -> None:
        """P1: and nothing else does; a new run under the name was asked nothing."""
        driver, other = Asker(stores), Asker(stores, run_id="run:")
        for one in (driver, other):
            await one.granted()
        held = await driver.held()
        assert held is not None
        await driver.commit(held, 2, Then.COMPLETE)
        kept = await other.approvals()

        assert (await stores.runs.prune(Prune(older_than=0.0), limit=10)).removed == 1

        assert await driver.approvals() == Approvals()
        assert await other.approvals() == kept
        await driver.ask(0)
        assert [request.request_id for request in (await driver.approvals()).requests] == ["req-1"]
