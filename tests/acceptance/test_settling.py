"""Calls that no probe can decide, on a real fleet: what a person says of them, and what comes in late."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from adk_worker.describe import describe
from adk_worker.errors import OwnerMayLiveError
from adk_worker.idempotency import ClaimState
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention
from examples.travel.client import ask
from tests.acceptance.fleet import PATIENCE
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]

SAID = {"tenant": "acme", "why": "the airline's desk has looked", "by": "ana"}


def booking_of(fleet, run_id):
    """The claim of the booking that nobody can decide."""
    found = fleet.sync.inspect(run_id, tenant="acme")
    (planned,) = found.plan.indeterminate
    assert planned.call.tool == "book_seat"
    return planned.claim


def at_the_desk(fleet, key):
    """What the airline's desk sees of a key."""
    return ask(fleet.travel.url, "GET", f"/effects/{key}")


def settle(fleet, run_id, *options):
    """``adk settle`` of the booking, as somebody types it: its exit code, and what it printed."""
    said = ["--tenant", "acme", "--why", SAID["why"], "--by", "ana"]
    ran = subprocess.run(
        [sys.executable, "-m", "adk_worker.cli", "settle", run_id, "book_seat", *said, *options],
        check=False,
        cwd=fleet.folder,
        env=fleet.environment(),
        capture_output=True,
        text=True,
        timeout=fleet.patience,
    )
    return ran.returncode, ran.stdout, ran.stderr


def killed_in_its_booking(fleet, run_id, *, at, then, agent="blind"):
    """A worker is killed in a booking, and its heir parks the run on it: the claim."""
    held = fleet.travel.hold("book", run_id=run_id, at=at)
    victim = fleet.worker("victim")
    fleet.submit(run_id, agent=agent)
    held.wait(within=PATIENCE)
    victim.kill()
    held.release(then=then)
    fleet.worker("heir")
    return parked(fleet, run_id)


def paused_in_its_booking(fleet, run_id, *, agent="blind"):
    """A worker with one slot is stopped once its seat is booked; an heir parks the run, and leaves: worker, claim."""
    held = fleet.travel.hold("book", run_id=run_id, at="before_answer")
    sleeper = fleet.worker("sleeper", slots=1)
    fleet.submit(run_id, agent=agent)
    held.wait(within=PATIENCE)
    sleeper.pause()
    heir = fleet.worker("heir")
    claim = parked(fleet, run_id)
    heir.stop()
    held.release(then="go_on")
    return sleeper, claim


def parked(fleet, run_id):
    run = fleet.rests(run_id, RunStatus.PARKED)
    assert run.attention is Attention.UNDECIDED_CALL, run
    return booking_of(fleet, run_id)


def test_a_booking_that_happened(fleet):
    """I8: SIGKILL between effect and record; the desk has the booking, and the run goes on with what it says."""
    claim = killed_in_its_booking(fleet, "happened", at="before_answer", then="drop")
    known = at_the_desk(fleet, claim.key)
    assert known["state"] == "happened"

    code, printed, complained = settle(fleet, "happened", "--completed", json.dumps(known["outcome"]), "--json")

    assert code == 0, complained
    assert json.loads(printed)["status"] == "queued"
    fleet.done_once("happened")
    (decided,) = fleet.events("happened", "decided")
    assert (decided.data["by"], decided.data["how"], decided.data["why"]) == ("ana", "completed", SAID["why"])
    assert decided.data["os_user"]


def test_a_booking_that_never_ran(fleet):
    """I8, I1: SIGKILL between intent and effect; the desk has dropped it, and the heir books under the same key."""
    claim = killed_in_its_booking(fleet, "never-ran", at="before_effect", then="drop")
    assert at_the_desk(fleet, claim.key)["state"] != "happened"

    # Nobody has declared for how long a request may outlive its sender, dead as that is.
    code, _, complained = settle(fleet, "never-ran", "--never-ran")
    assert (code, "max_in_flight" in complained) == (4, True), complained
    code, _, complained = settle(fleet, "never-ran", "--never-ran", "--owner-may-live")
    assert code == 0, complained

    fleet.done_once("never-ran")
    assert at_the_desk(fleet, claim.key)["state"] == "happened"
    # And whoever comes second hears that it is over.
    code, _, complained = settle(fleet, "never-ran", "--completed", "{}")
    assert (code, "is completed: it has ended" in complained) == (65, True), complained


@pytest.mark.parametrize(
    ("agent", "said"), [("breaking", "the probe raised RuntimeError"), ("hanging", "the probe did not answer within")]
)
def test_a_probe_that_is_of_no_use_leaves_it_to_a_person(make_fleet, agent, said):
    """I7, I8: it parks the run with what went wrong, and decides nothing. A probe that hangs is given half a minute."""
    fleet = make_fleet(patience=180)
    claim = killed_in_its_booking(fleet, agent, at="before_answer", then="drop", agent=agent)
    assert said in fleet.run(agent).detail

    code, _, complained = settle(fleet, agent, "--completed", json.dumps(at_the_desk(fleet, claim.key)["outcome"]))

    assert code == 0, complained
    fleet.done_once(agent)


def test_a_probe_that_sees_nothing_yet_of_a_paused_worker(fleet):
    """I7, I8, I11: no permission while its owner lives, to the fleet or to a person; its outcome heals the run (F4)."""
    sleeper, claim = paused_in_its_booking(fleet, "not-yet", agent="blinking")
    assert "its owner may be alive" in fleet.run("not-yet").detail
    assert claim.max_in_flight == pytest.approx(0.1)

    with pytest.raises(OwnerMayLiveError, match="its owner may be alive"):
        fleet.sync.settle("not-yet", claim.key, never_ran=True, **SAID)
    sleeper.go_on()

    wait_until(lambda: fleet.events("not-yet", "healed"), within=fleet.patience, what="the late outcome to heal it")
    fleet.done_once("not-yet")
    assert not fleet.events("not-yet", "decided")


def test_an_outcome_after_a_persons_is_evidence(fleet):
    """F4, I8: the run goes on with what the person said; the paused worker's outcome is kept beside it."""
    sleeper, claim = paused_in_its_booking(fleet, "late")
    outcome = at_the_desk(fleet, claim.key)["outcome"]

    fleet.sync.settle("late", "book_seat", completed=outcome, **SAID)
    fleet.worker("next")
    fleet.done_once("late")
    sleeper.go_on()

    wait_until(lambda: fleet.events("late", "late_outcome"), within=fleet.patience, what="the late outcome")
    fleet.done_once("late")


def test_a_booking_that_was_said_never_to_have_run_and_did(fleet):
    """F4, I8: its outcome comes in before it is made again, so it is not, and everybody can see who was wrong."""
    sleeper, claim = paused_in_its_booking(fleet, "wrong")

    fleet.sync.settle("wrong", "book_seat", never_ran=True, owner_may_live=True, **SAID)
    # It has one slot, and that has the booking: it takes nothing up before it has recorded the outcome.
    sleeper.go_on()

    fleet.done_once("wrong")
    (late,) = fleet.events("wrong", "late_outcome")
    assert late.data == {"key": claim.key, "contradicts": "ana"}


def test_what_is_known_is_shown(fleet):
    """I8, P4: a worker that is known dead, its fence, the key, the arguments, and what to type."""
    claim = killed_in_its_booking(fleet, "shown", at="before_answer", then="drop")

    said = describe(fleet.sync.inspect("shown", tenant="acme"))

    assert f"key {claim.key}" in said
    assert f"sent under fence {claim.fence} by" in said
    assert "is known dead since" in said
    assert 'arguments {"hold":' in said
    assert "adk settle shown" in said
    assert claim.state is ClaimState.IN_FLIGHT
