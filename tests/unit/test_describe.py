"""A run in words (P4)."""

from __future__ import annotations

import pytest

from adk_worker.checkpoint import Checkpoint, CheckpointBoundary, OutstandingCall
from adk_worker.describe import WORDS, describe, describe_event
from adk_worker.errors import HistoryUnavailableError, IndeterminateToolCallError
from adk_worker.events import Event, EventKind
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.inspection import Inspection
from adk_worker.lease import QUEUE, RunLease
from adk_worker.liveness import Holder, ProcessIdentity
from adk_worker.messages import Usage
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.resume import PlannedCall, ResumePlan, ToolDisposition
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.runs import Attention

AT = 1_795_000_000.0  # 2026-11-18 11:06:40Z
WORKER = str(Holder(ProcessIdentity("web-7", 4711, "12", "another boot", "4026"), "a task", "6e6f"))
HEAD = ["run run_1  tenant acme  agent booking", "iteration 3  1200 in, 300 out  4100 micros"]


def a_run(status=RunStatus.PARKED, **fields):
    known = {
        "tenant": "acme",
        "run_id": "run_1",
        "agent": "booking",
        "revision": "r1",
        "input": "book",
        "status": status,
        "sequence": 7,
        "iteration": 3,
        "usage": Usage(input_tokens=1200, output_tokens=300),
        "cost_micros": 4100,
        "fence": 12,
    }
    return Run(**{**known, **fields})


def a_frontier(**fields):
    known = {"tenant": "acme", "run_id": "run_1", "agent": "booking", "revision": "r1", "sequence": 7, "iteration": 3}
    return Checkpoint(**{**known, **fields})


def found(run, **fields):
    return Inspection("acme", "run_1", run, **fields)


def a_lease(holder=WORKER):
    return RunLease("acme", "run_1", holder, 12, AT)


def lines(*args, **kwargs):
    return describe(*args, **kwargs).split("\n")


def test_the_first_two_lines_say_which_run_it_is_and_how_far_it_came():
    assert lines(found(a_run()))[:2] == HEAD


@pytest.mark.parametrize(
    ("inspection", "said"),
    [
        (
            found(a_run(RunStatus.RUNNING, holder=WORKER), lease=a_lease()),
            "running on web-7 pid 4711 under fence 12, leased until 2026-11-18 11:06:40Z",
        ),
        (
            found(a_run(RunStatus.QUEUED, holder=QUEUE), lease=a_lease(QUEUE)),
            "queued under fence 12: if no worker takes it, it is published again at 2026-11-18 11:06:40Z",
        ),
        (
            found(a_run(RunStatus.QUEUED, holder=QUEUE, expires_at=AT)),
            "queued under fence 12: its message is overdue since 2026-11-18 11:06:40Z",
        ),
        (
            found(a_run(RunStatus.RUNNING, holder=WORKER, expires_at=AT)),
            "nobody carries it: the lease of web-7 pid 4711 under fence 12 lapsed at 2026-11-18 11:06:40Z",
        ),
        (found(a_run(RunStatus.WAITING_APPROVAL, detail="req-9")), "waiting on approval req-9"),
        (found(a_run(RunStatus.FAILED, detail="the script is over")), "failed: the script is over"),
        (found(a_run(RunStatus.CANCELLED)), "cancelled"),
        (
            found(None, frontier=a_frontier()),
            "not a run of the fleet: a process carries it by itself, and so does whoever resumes it",
        ),
    ],
)
def test_the_third_line_says_where_it_stands(inspection, said):
    assert lines(inspection)[2] == said


def test_a_parked_run_says_why_in_words_and_what_stands_behind_it():
    said = lines(found(a_run(attention=Attention.POISONED, detail="its worker died 5 times")))
    assert said[2:4] == [f"parked (poisoned): {WORDS[Attention.POISONED]}", "    its worker died 5 times"]


def test_of_an_event_what_is_not_so_is_not_said():
    told = {"holder": WORKER, "crashes": 1, "known_dead": False}
    event = Event(id=1, at=AT, kind="recovered", fence=12, data=told)
    assert describe_event(event) == "2026-11-18 11:06:40Z  recovered  fence 12  holder web-7 pid 4711  crashes 1"


def test_every_attention_has_its_words():
    assert set(WORDS) == set(Attention)


def test_a_completed_run_ends_with_its_output_and_no_advice():
    said = lines(found(a_run(RunStatus.COMPLETED, output="Booked.\nHave a good flight.")))
    assert said == [*HEAD, "completed", "    Booked.", "    Have a good flight."]


def test_what_is_in_a_live_runs_way_is_said():
    run = a_run(
        RunStatus.QUEUED,
        holder=QUEUE,
        attention=Attention.REVISION_MISMATCH,
        detail="pinned to r1",
        tries=4,
        crashes=1,
        cancel_requested=True,
        behind=True,
    )
    said = describe(found(run, lease=a_lease(QUEUE)))
    for part in (
        "a cancel was requested",
        f"in its way (revision_mismatch): {WORDS[Attention.REVISION_MISMATCH]}\n    pinned to r1",
        "1 crashes or exceptions, given back 4 times",
        "ahead of its newest stored frontier",
    ):
        assert part in said


def a_call(index=0, **fields):
    return OutstandingCall(
        **{"call_id": f"call_{index}", "tool": "book", "index": index, "key": f"key-{index}", **fields}
    )


def a_claim(state=ClaimState.IN_FLIGHT, owner=WORKER, **fields):
    return Claim("acme", "key-0", owner, "d", state, began_at=AT, **fields)


BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content=1)


@pytest.mark.parametrize(
    ("planned", "more", "said"),
    [
        (PlannedCall(a_call(), ToolDisposition.NEVER_RAN), {}, "never ran"),
        (
            PlannedCall(a_call(), ToolDisposition.COMPLETED, a_claim(settled_by="owner"), BOOKED),
            {},
            "completed: returned",
        ),
        (
            PlannedCall(a_call(), ToolDisposition.COMPLETED, a_claim(settled_by="probe"), BOOKED),
            {},
            "completed: returned by probe",
        ),
        (
            PlannedCall(a_call(), ToolDisposition.INDETERMINATE, a_claim()),
            {},
            "indeterminate, begun at 2026-11-18 11:06:40Z by web-7 pid 4711",
        ),
        (
            PlannedCall(a_call(), ToolDisposition.INDETERMINATE, a_claim(dead_seen_at=AT)),
            {},
            "indeterminate, begun at 2026-11-18 11:06:40Z by web-7 pid 4711, known dead",
        ),
        (
            PlannedCall(a_call(effect=Effect.IDEMPOTENT), ToolDisposition.INDETERMINATE, a_claim()),
            {},
            (
                "indeterminate, begun at 2026-11-18 11:06:40Z by web-7 pid 4711: may be called again under its key "
                "(idempotent)"
            ),
        ),
        (
            PlannedCall(a_call(), ToolDisposition.INDETERMINATE, a_claim()),
            {"to_probe": (PlannedCall(a_call(), ToolDisposition.INDETERMINATE, a_claim()),)},
            (
                "indeterminate, begun at 2026-11-18 11:06:40Z by web-7 pid 4711: its tool's probe is asked by whoever "
                "carries the run on"
            ),
        ),
        (
            PlannedCall(a_call(), ToolDisposition.INDETERMINATE, a_claim()),
            {"lease": a_lease()},
            "in flight now, begun at 2026-11-18 11:06:40Z by web-7 pid 4711",
        ),
        (PlannedCall(a_call(key=None), ToolDisposition.INDETERMINATE), {}, "indeterminate"),
    ],
)
def test_each_outstanding_call_is_named_with_what_is_known_of_it(planned, more, said):
    """I5."""
    status = RunStatus.RUNNING if "lease" in more else RunStatus.PARKED
    plan = ResumePlan("acme", "run_1", (planned,))
    described = lines(found(a_run(status, holder=WORKER), frontier=a_frontier(), plan=plan, **more))
    heading = described.index("calls of this turn:")
    assert described[heading + 1] == f"  book (call_0)  {said}  key {planned.call.key or 'none'}"


def test_where_the_frontier_is_is_said():
    said = describe(found(a_run(), frontier=a_frontier(boundary=CheckpointBoundary.AFTER_TOOL_RESULT)))
    assert "frontier at sequence 7, after the tools' results" in said


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.PARKED, RunStatus.COMPLETED])
def test_a_run_that_has_crossed_says_in_which_execution_it_is(status):
    """K1: below the two lines that never change; one that never has, says nothing."""
    run = a_run(status).model_copy(update={"execution": 3})
    for said in (describe(run), describe(found(run))):
        assert said.splitlines()[2].startswith("execution 3: ")
    assert "execution" not in describe(found(a_run(status)))


def test_what_must_not_be_carried_on_says_why_and_not_how():
    gone = HistoryUnavailableError(handle="h1.x.1.y", reason="the store has no such transcript")
    said = lines(found(a_run(), obstacle=gone))
    assert said[-1] == f"must not be carried on: {gone}"
    assert "--resume" not in describe(found(a_run(), obstacle=gone))


def test_what_can_be_carried_on_says_how_in_words_for_a_shell():
    run = a_run(run_id="it's *", tenant="a b")
    assert lines(Inspection("a b", "it's *", run))[-1] == (
        """to carry it on: adk run --resume 'it'"'"'s *' --tenant 'a b'"""
    )


HOSTILE = "\x1b[2J\u202egnp\x07"


def test_nothing_that_others_wrote_reaches_the_terminal_as_it_is():
    """P4: names, texts of models and tools, holders."""
    call = a_call(tool=HOSTILE, call_id=HOSTILE)
    run = a_run(
        RunStatus.PARKED,
        run_id="run\u202e1",
        tenant="acme\u2066",
        agent=HOSTILE,
        detail=HOSTILE,
        attention=Attention.EXCEPTION,
    )
    refused = IndeterminateToolCallError(tenant="acme", run_id="run_1", calls=((HOSTILE, HOSTILE, None),))
    said = describe(
        Inspection(
            run.tenant,
            run.run_id,
            run,
            lease=a_lease(HOSTILE),
            frontier=a_frontier(agent=HOSTILE),
            plan=ResumePlan(
                "acme", "run_1", (PlannedCall(call, ToolDisposition.INDETERMINATE, a_claim(owner=HOSTILE)),)
            ),
            obstacle=refused,
        ),
        events=[Event(id=1, at=AT, kind=HOSTILE, fence=1, data={HOSTILE: HOSTILE, "holder": HOSTILE, "n": [HOSTILE]})],
    )
    assert all(line.isprintable() for line in said.split("\n"))
    output = describe(found(a_run(RunStatus.COMPLETED, output=HOSTILE + "\n" + HOSTILE)))
    assert all(line.isprintable() for line in output.split("\n"))


def test_a_bare_run_is_described_by_its_row():
    """Nobody has asked the store's clock whether its lease has lapsed, so nothing is said about it."""
    running = lines(a_run(RunStatus.RUNNING, holder=WORKER))
    assert running == [*HEAD, "running on web-7 pid 4711 under fence 12"]
    assert lines(a_run(RunStatus.QUEUED))[2] == "queued under fence 12"
    assert lines(a_run(RunStatus.FAILED, detail="no"))[2] == "failed: no"


def test_a_frontier_that_nobody_can_read_is_described_all_the_same():
    said = lines(Inspection("acme", "run_1", None, obstacle=ValueError("format 9")))
    assert said[0] == "run run_1  tenant acme  agent unknown"
    assert said[-1] == "must not be carried on: format 9"


def test_an_event_is_one_line_with_its_data_in_order():
    event = Event(
        id=4, at=AT, kind=EventKind.TAKEN, fence=12, data={"holder": WORKER, "ticket": 11, "none": None, "ok": True}
    )
    assert describe_event(event) == "2026-11-18 11:06:40Z  taken  fence 12  holder web-7 pid 4711  ticket 11  ok true"
    assert describe_event(Event(id=1, at=AT, kind="cancelled", fence=3)) == "2026-11-18 11:06:40Z  cancelled  fence 3"
    asked = Event(id=1, at=AT, kind="approval_requested", fence=3, data={"expires_at": AT + 60.5})
    assert describe_event(asked).endswith("approval_requested  fence 3  expires_at 2026-11-18 11:07:40Z")


def test_events_come_last():
    event = Event(id=1, at=AT, kind="submitted", fence=1, data={"agent": "booking"})
    assert lines(found(a_run(RunStatus.CANCELLED)), events=[event])[-1] == describe_event(event)
