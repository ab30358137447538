"""Calls that a person has decided, and what comes to light about them afterwards or at the same time."""

from __future__ import annotations

from functools import partial

from adk_worker.conformance.runs.deciding import BOB, begin, completed, decide, never_ran, parked_on
from adk_worker.conformance.runs.driver import BOOKED, REFUSED
from adk_worker.conformance.waiting import Racer, race_in_threads, winners
from adk_worker.errors import CallDecidedError
from adk_worker.events import EventKind
from adk_worker.idempotency import BY_OWNER, ClaimState
from adk_worker.runs import Committed, RunStatus, Stores
from adk_worker.transitions.runs import Verdict

_RUNS = 10


class HindsightConformance:
    """F4, I8: a decision stands, what is known to have happened is not made again, and nothing is lost."""

    # --- late outcomes ----------------------------------------------------------------------------------------

    async def test_an_outcome_after_a_persons_is_evidence(self, stores: Stores) -> None:
        """F4: it overwrites nothing and queues nothing."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, completed(outcome=REFUSED))
        before = await driver.run()

        await stores.idempotency.record(claim, BOOKED)

        (kept,) = await driver.claims()
        assert (kept.outcome, kept.settled_by, kept.late) == (REFUSED, "person:ann", (BOOKED,))
        assert (await driver.run()).fence == before.fence
        assert [event.data for event in await driver.events(EventKind.LATE_OUTCOME)] == [{"key": claim.key}]

    async def test_a_call_that_ran_after_all_is_not_made_again(self, stores: Stores) -> None:
        """F4, I8: its outcome came between a person's word and the dispatch; the word stays on record, and is shown."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())

        await stores.idempotency.record(claim, BOOKED)

        begun = await begin(driver, claim.owner)
        (kept,) = await driver.claims()
        assert begun == kept
        assert (kept.state, kept.owner, kept.late, kept.known) == (
            ClaimState.NEVER_RAN,
            claim.owner,
            (BOOKED,),
            BOOKED,
        )
        assert (kept.settled_by, len(kept.decisions)) == ("person:ann", 1)
        assert [event.data for event in await driver.events(EventKind.LATE_OUTCOME)] == [
            {"key": claim.key, "contradicts": "ann"}
        ]

    async def test_a_call_that_ran_after_all_is_shown_when_it_was_made_again(self, stores: Stores) -> None:
        """F4, I8: what the next owner does is its own; both are on record."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())
        begun = await begin(driver, claim.owner)

        await stores.idempotency.record(claim, BOOKED)
        await stores.idempotency.record(begun, REFUSED)

        (kept,) = await driver.claims()
        assert (kept.outcome, kept.settled_by, kept.late) == (REFUSED, BY_OWNER, (BOOKED,))
        assert kept.contradicted
        assert [event.data["contradicts"] for event in await driver.events(EventKind.LATE_OUTCOME)] == ["ann"]

    async def test_an_intent_that_is_taken_back_leaves_what_was_decided(self, stores: Stores) -> None:
        """I8, I3: nobody has to be asked again about a call that the next owner did not send either."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())
        begun = await begin(driver, claim.owner)

        await stores.idempotency.abandon(begun)

        (kept,) = await driver.claims()
        assert (kept.state, kept.owner, kept.former) == (ClaimState.NEVER_RAN, claim.owner, ())

    async def test_an_intent_that_is_taken_back_late_heals_the_run(self, stores: Stores) -> None:
        """I8, F4: it is parked on the next owner's intent, and that owner never sent it."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())
        lease = await driver.worker()
        intent = driver.intent(take_over=claim.owner)
        _, (begun,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
        await driver.park(lease, begun)

        await stores.idempotency.abandon(begun)

        assert (await driver.run()).status is RunStatus.QUEUED

    async def test_a_run_is_not_parked_on_a_call_that_never_ran(self, stores: Stores) -> None:
        """I8: another call's plan is older than the decision."""
        driver, claims = await parked_on(stores, count=2)
        await decide(driver, claims[0], never_ran())
        await decide(driver, claims[1], never_ran())

        committed = await driver.park(await driver.worker(), claims[0])

        assert committed.verdict is Verdict.REFUSED

    async def test_a_call_is_decided_again_when_its_next_owner_dies_too(self, stores: Stores) -> None:
        """I8: both decisions are kept, the newest last."""
        driver, (claim,) = await parked_on(stores)
        await decide(driver, claim, never_ran())
        lease = await driver.worker()
        intent = driver.intent(take_over=claim.owner)
        _, (begun,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
        await driver.park(lease, begun)

        settled = await decide(driver, begun, completed(BOB))

        assert [(decision.by, decision.owner) for decision in settled.claim.decisions] == [
            ("ann", claim.owner),
            ("bob", begun.owner),
        ]
        assert settled.claim.outcome == BOOKED

    # --- races ------------------------------------------------------------------------------------------------

    async def test_of_two_people_one_decides(self, stores: Stores) -> None:
        """I8: the other hears who has; the run is queued once."""
        for number in range(_RUNS):
            driver, (claim,) = await parked_on(stores, f"run-{number}")
            racers: list[Racer] = [
                partial(decide, driver, claim, completed()),
                partial(decide, driver, claim, never_ran(BOB)),
            ]

            answers = await race_in_threads(racers)

            (won,) = winners(answers, CallDecidedError)
            (lost,) = [answer for answer in answers if isinstance(answer, CallDecidedError)]
            (kept,) = await driver.claims()
            assert won.claim == kept
            assert lost.by == kept.settled_by == f"person:{kept.decisions[0].by}"
            assert len(await driver.events(EventKind.REQUEUED)) == 1
            assert len(await driver.events(EventKind.DECIDED)) == 1

    async def test_two_people_decide_two_calls(self, stores: Stores) -> None:
        """I8: whoever is last queues the run, once."""
        for number in range(_RUNS):
            driver, (first, second) = await parked_on(stores, f"run-{number}", count=2)
            racers: list[Racer] = [
                partial(decide, driver, first, completed()),
                partial(decide, driver, second, never_ran(BOB)),
            ]

            answers = winners(await race_in_threads(racers), CallDecidedError)

            run = await driver.run()
            assert (run.status, run.parked_on) == (RunStatus.QUEUED, ())
            assert sorted(answer.ticket is not None for answer in answers) == [False, True]
            assert len(await driver.events(EventKind.REQUEUED)) == 1

    async def test_a_persons_decision_races_the_owners_outcome(self, stores: Stores) -> None:
        """I8, F4: whichever comes first stands, and nothing is lost."""
        for number in range(_RUNS):
            driver, (claim,) = await parked_on(stores, f"run-{number}")
            racers: list[Racer] = [
                partial(decide, driver, claim, never_ran()),
                partial(stores.idempotency.record, claim, BOOKED),
            ]

            winners(await race_in_threads(racers), CallDecidedError)

            (kept,) = await driver.claims()
            assert kept.known == BOOKED
            assert (await driver.run()).status is RunStatus.QUEUED
            begun = await begin(driver, claim.owner)
            assert not begun.in_flight

    async def test_a_decision_races_a_cancel(self, stores: Stores) -> None:
        """I8, P2: the cancel is not lost, and nor is the decision unless the run had ended before it was looked at."""
        for number in range(_RUNS):
            driver, (claim,) = await parked_on(stores, f"run-{number}")
            racers: list[Racer] = [partial(decide, driver, claim, completed()), driver.cancel]

            await race_in_threads(racers)

            run = await driver.run()
            assert (run.status, run.holder) == (RunStatus.CANCELLED, None)
            assert (await driver.claims())[0].outcome == BOOKED
            assert await driver.payload() is None

    async def test_a_call_that_never_ran_is_begun_once(self, stores: Stores) -> None:
        """I8, I3, F4: its next owner and its old one's outcome at once: made, or known, and never neither."""
        for number in range(_RUNS):
            driver, (claim,) = await parked_on(stores, f"run-{number}")
            await decide(driver, claim, never_ran())
            lease = await driver.worker()
            intent = driver.intent(take_over=claim.owner)
            racers: list[Racer] = [
                partial(driver.runs.begin, lease, [intent], owner=lease.holder),
                partial(stores.idempotency.record, claim, BOOKED),
            ]

            answers = await race_in_threads(racers)

            begun, recorded = answers
            assert recorded is None
            assert isinstance(begun, tuple)
            committed, (stands,) = begun
            assert isinstance(committed, Committed)
            (kept,) = await driver.claims()
            assert kept.late == (BOOKED,)
            assert stands.owned_in_flight_by(lease.holder) is kept.in_flight
            assert kept.in_flight is not (kept.known == BOOKED)
            assert committed.verdict is Verdict.DONE
