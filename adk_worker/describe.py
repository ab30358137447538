"""A run in words: one function for ``adk inspect``, ``adk run --resume``, the client and whatever page comes (P4).

The first two lines never change their form, for people who grep::

    run run_1  tenant acme  agent booking
    iteration 3  1200 in, 300 out  4100 micros

What follows says where the run stands, what was in flight, and what to do next, to somebody who is on call and has not
written it. Names and texts of other people's are shown as :func:`adk_worker.printable.printable` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from adk_worker.approvals.words import granted, waiting
from adk_worker.checkpoint import CheckpointBoundary
from adk_worker.events import Event
from adk_worker.inspection import Inspection
from adk_worker.lease import QUEUE, RunLease
from adk_worker.ledger.words import of_run
from adk_worker.liveness import known_dead, short_name
from adk_worker.messages import canonical_json
from adk_worker.printable import printable, printable_lines, quoted, time_of
from adk_worker.runs import Run, RunStatus
from adk_worker.settling.evidence import adrift, described
from adk_worker.transitions.runs import Attention

_MAX_TEXT: Final = 2_000
_MAX_DATA: Final = 300

WORDS: Final[Mapping[Attention, str]] = MappingProxyType(
    {
        Attention.APPROVAL: "a call waits for a person's decision",
        Attention.UNDECIDED_CALL: "a call may have happened or not, and only its far side knows",
        Attention.KEY_REUSED: "a call's key is on record with other arguments; look at its claims before anything else",
        Attention.POISONED: "it failed or its worker died too often without getting any further; mend the cause first",
        Attention.FRONTIER_LOST: "it went on beyond what could be stored; look at its calls, then start it anew",
        Attention.HISTORY_UNAVAILABLE: "its transcript is gone or damaged; restore it first",
        Attention.SEAL_KEY_MISSING: "it holds secrets sealed under a key that its worker lacks; put that back first",
        Attention.OVER_BUDGET: "its next model call may take more than is left to spend; raise that budget first",
        Attention.AGENT_UNKNOWN: "no worker that took it knows its agent; deploy one with the agent in ADK_AGENTS",
        Attention.REVISION_MISMATCH: "no worker that took it has its revision of the agent; deploy one that has",
        Attention.FORMAT_TOO_NEW: "a newer adk-worker has written its frontier; deploy workers of that version",
        Attention.RESUME_CONFLICT: "another resume of it was under way; it is tried again",
        Attention.MODEL_UNAVAILABLE: "its model's provider takes no calls for now; it is tried again",
        Attention.EXCEPTION: "its last try failed; it is tried again",
    }
)
"""What each attention means, to somebody who has to act."""

_BOUNDARIES: Final[Mapping[CheckpointBoundary, str]] = MappingProxyType(
    {
        CheckpointBoundary.AFTER_MODEL_CALL: "after a model call",
        CheckpointBoundary.AFTER_TOOL_RESULT: "after the tools' results",
        CheckpointBoundary.BEFORE_APPROVAL: "before an approval",
    }
)


def describe(found: Inspection | Run, *, events: Iterable[Event] = ()) -> str:
    """What is known of a run, in lines. A bare :class:`Run` is described by what its row says."""
    if isinstance(found, Run):
        found = Inspection(found.tenant, found.run_id, found)
        return "\n".join([*_head(found), *_row(found), *_ledger(found)])
    parts = (_head, _standing, _ledger, _asked, _frontier, _calls, _advice)
    lines = [line for part in parts for line in part(found)]
    return "\n".join([*lines, *(describe_event(event) for event in events)])


def describe_event(event: Event) -> str:
    """One event, on one line."""
    return f"{time_of(event.at)}  {printable(event.kind)}  fence {event.fence}  {_data(event.data)}".rstrip()


# --- who, and how far ---------------------------------------------------------------------------------------------


def _head(found: Inspection) -> Iterator[str]:
    subject = found.subject
    agent = printable(subject.agent) if subject else "unknown"
    yield f"run {printable(found.run_id)}  tenant {printable(found.tenant)}  agent {agent}"
    if subject is not None:
        usage = f"{subject.usage.input_tokens} in, {subject.usage.output_tokens} out"
        yield f"iteration {subject.iteration}  {usage}  {subject.cost_micros} micros"
        if subject.execution > 1:
            yield f"execution {subject.execution}: it has grown long, and goes on in a new one now and then"


# --- where it stands ----------------------------------------------------------------------------------------------


def _row(found: Inspection) -> Iterator[str]:
    """The status as the run's row alone tells it: no clock of the store's says whether its lease has lapsed."""
    run = found.run
    if run is None:
        return
    if run.status is RunStatus.RUNNING:
        yield f"running on {_holder(run)} under fence {run.fence}"
    elif run.status is RunStatus.QUEUED:
        yield f"queued under fence {run.fence}"
    else:
        yield from _resting(run)
    yield from _troubles(run)


def _standing(found: Inspection) -> Iterator[str]:
    run, lease = found.run, found.lease
    if run is None:
        yield "not a run of the fleet: a process carries it by itself, and so does whoever resumes it"
        yield from _held(lease)
        return
    if run.status.resting:
        yield from _resting(run)
        yield from _held(lease)
    elif lease is None:
        yield _lapsed(run)
    elif lease.holder == QUEUE:
        until = time_of(lease.expires_at)
        yield f"queued under fence {lease.fence}: if no worker takes it, it is published again at {until}"
    else:
        until = time_of(lease.expires_at)
        yield f"running on {printable(short_name(lease.holder))} under fence {lease.fence}, leased until {until}"
    yield from _troubles(run)


def _ledger(found: Inspection) -> Iterator[str]:
    if found.run is not None:
        yield from of_run(found.run.ledger)


def _held(lease: RunLease | None) -> Iterator[str]:
    if lease is not None:
        until = time_of(lease.expires_at)
        yield f"held by {printable(short_name(lease.holder))} under fence {lease.fence} until {until}"


def _lapsed(run: Run) -> str:
    since = "" if run.expires_at is None else f" at {time_of(run.expires_at)}"
    if run.holder in {None, QUEUE}:
        return f"queued under fence {run.fence}: its message is overdue since{since.removeprefix(' at')}"
    gone = ", and is known dead" if run.holder and known_dead(run.holder) else ""
    return f"nobody carries it: the lease of {_holder(run)} under fence {run.fence} lapsed{since}{gone}"


def _resting(run: Run) -> Iterator[str]:
    match run.status:
        case RunStatus.WAITING_APPROVAL:
            on = f" {printable(run.detail, limit=_MAX_TEXT)}" if run.detail else ""
            yield f"waiting on approval{on}"
        case RunStatus.COMPLETED:
            yield "completed"
            yield from (f"    {line}" for line in printable_lines(run.output or "", limit=_MAX_TEXT) if run.output)
        case RunStatus.PARKED:
            why = f" ({run.attention}): {WORDS[run.attention]}" if run.attention else ""
            yield f"parked{why}"
            yield from _said(run)
        case RunStatus.FAILED:
            yield f"failed{_detail(run)}"
        case _:
            yield run.status.value


def _troubles(run: Run) -> Iterator[str]:
    if run.status.resting:
        return
    if run.cancel_requested:
        yield "a cancel was requested: it ends at its worker's next write or renewal"
    if run.attention is not None:
        yield f"in its way ({run.attention}): {WORDS[run.attention]}"
        yield from _said(run)
    if run.crashes or run.tries:
        yield f"since its newest boundary: {run.crashes} crashes or exceptions, given back {run.tries} times"
    if run.behind:
        yield "what ran is ahead of its newest stored frontier: should its worker die, it is parked"


def _detail(run: Run) -> str:
    return f": {printable(run.detail, limit=_MAX_TEXT)}" if run.detail else ""


def _said(run: Run) -> Iterator[str]:
    if run.detail:
        yield f"    {printable(run.detail, limit=_MAX_TEXT)}"


def _asked(found: Inspection) -> Iterator[str]:
    if found.run is not None and not found.run.status.ended:
        yield from waiting(found.approvals, run_id=found.run_id, tenant=found.tenant)
        yield from granted(found.approvals, run_id=found.run_id, tenant=found.tenant)


# --- what was in flight -------------------------------------------------------------------------------------------


def _frontier(found: Inspection) -> Iterator[str]:
    if found.frontier is not None and not found.over:
        yield f"frontier at sequence {found.frontier.sequence}, {_BOUNDARIES[found.frontier.boundary]}"


def _calls(found: Inspection) -> Iterator[str]:
    if found.plan is not None and found.plan.calls:
        yield "calls of this turn:"
        for planned in found.plan.calls:
            yield from described(planned, found)
    if found.adrift:
        yield "calls in flight that its frontier does not show:"
        for claim in found.adrift:
            yield from adrift(claim, found)


# --- what to do ---------------------------------------------------------------------------------------------------


def _advice(found: Inspection) -> Iterator[str]:
    if found.obstacle is not None:
        yield f"must not be carried on: {printable(str(found.obstacle), limit=_MAX_TEXT)}"
    elif found.run is not None and not found.over and found.lease is None:
        if found.run.attention is Attention.OVER_BUDGET:
            yield from _affordable(found)
            return  # its detail says what carries it on; a resume alone would park it again
        ids = f"{quoted(found.run_id)} --tenant {quoted(found.tenant)}"
        yield f"to carry it on: adk run --resume {ids}"


def _affordable(found: Inspection) -> Iterator[str]:
    """What has changed since the run was parked for its budget."""
    if found.run is None or found.afford is None or found.afford.refusal == found.run.ledger.refused:
        return
    if found.afford.refusal is None:
        yield "there is room for it by now: the next sweep has it go on"
    else:
        yield f"by now: {printable(found.afford.refusal.reason(tenant=found.tenant), limit=_MAX_TEXT)}"


def _holder(run: Run) -> str:
    return printable(short_name(run.holder or "nobody"))


def _data(data: Mapping[str, object]) -> str:
    # What is not so is not said: "known_dead false" would read as a claim that somebody lives.
    said = {name: value for name, value in data.items() if value is not None and value is not False}
    return "  ".join(f"{printable(name)} {_value(name, value)}" for name, value in said.items())


def _value(name: str, value: object) -> str:
    if isinstance(value, str):
        return printable(short_name(value) if name == "holder" else value, limit=_MAX_DATA)
    if name.endswith("_at") and isinstance(value, int | float):
        return time_of(value)
    return printable(canonical_json(value), limit=_MAX_DATA)
