"""Whether the demo has shown what it says: a function of the evidence, with every shortfall by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from adk_worker.liveness import short_name
from adk_worker.runs import RunStatus
from examples.travel.journal import Verdict
from examples.travel.model import ModelCall
from examples.travel.story import BY_PROBE, Kill, Moment, Story


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that there is to judge by: the fleet's own record, the model's, and the booking service's.

    ``kills`` are those that the demo made; ``verdict`` is the service's count over all of ``stories``' runs.
    """

    stories: Mapping[str, Story]
    kills: Sequence[Kill]
    model_calls: Sequence[ModelCall]
    verdict: Verdict


def shortfalls(evidence: Evidence) -> tuple[str, ...]:
    """What the evidence lacks, in sentences; empty exactly if the demo has shown what it set out to show."""
    return (
        *_unfinished(evidence.stories),
        *_count(evidence),
        *_kills(evidence),
    )


def _unfinished(stories: Mapping[str, Story]) -> Iterator[str]:
    for run_id, story in stories.items():
        run = story.run
        if run.status is not RunStatus.COMPLETED:
            why = ": ".join(filter(None, (run.attention, run.detail)))
            yield f"run {run_id} is {run.status}{f' ({why})' if why else ''}, not completed"


def _count(evidence: Evidence) -> Iterator[str]:
    verdict = evidence.verdict
    yield from (f"the booking service: {fault}" for fault in (*verdict.duplicates, *verdict.lost))
    seats = [seat for booked in verdict.seats.values() for seat in booked]
    if len(set(seats)) != len(evidence.stories):
        yield f"the booking service has {len(set(seats))} seats booked for {len(evidence.stories)} runs"


def _kills(evidence: Evidence) -> Iterator[str]:
    moments = [kill.moment for kill in evidence.kills]
    if sorted(moments) != sorted(Moment):
        yield f"a worker was to be killed in each of: {', '.join(Moment)}; it was in: {', '.join(moments) or 'none'}"
    if len({kill.pid for kill in evidence.kills}) != len(evidence.kills):
        yield "the kills hit one process twice"
    for kill in evidence.kills:
        story = evidence.stories[kill.run_id]
        recovery = story.recovery_from(kill.pid)
        if recovery is None:
            yield f"run {kill.run_id} has no 'recovered' event that names worker {kill.pid}"
        if kill.moment is Moment.MODEL_CALL:
            yield from _asked_again(kill, evidence.model_calls)
        else:
            yield from _settled_by_probe(kill, story)


def _asked_again(kill: Kill, calls: Sequence[ModelCall]) -> Iterator[str]:
    of_run = [call for call in calls if call.run_id == kill.run_id]
    cut = [call.iteration for call in of_run if call.pid == kill.pid and call.event == "began"]
    cut = [number for number in cut if not any(c.iteration == number and c.pid == kill.pid for c in _ended(of_run))]
    if not cut:
        yield f"worker {kill.pid} was in no model call of run {kill.run_id} when it was killed"
    for number in cut:
        if not any(call.iteration == number for call in _ended(of_run)):
            yield f"the model call that was cut off, number {number} of run {kill.run_id}, was never made again"


def _ended(calls: Sequence[ModelCall]) -> list[ModelCall]:
    return [call for call in calls if call.event == "ended"]


def _settled_by_probe(kill: Kill, story: Story) -> Iterator[str]:
    claim = next((claim for claim in story.claims if claim.key == kill.key), None)
    if claim is None:
        yield f"run {kill.run_id} has no claim on the call that was in flight, key {kill.key}"
        return
    if claim.settled_by != BY_PROBE:
        yield f"the call of run {kill.run_id} that was in flight was settled by {claim.settled_by}, not by its probe"
    bookings = [other for other in story.claims if other.tool == claim.tool]
    if len(bookings) != 1:
        owners = ", ".join(short_name(other.owner) for other in bookings)
        yield f"run {kill.run_id} called {claim.tool} {len(bookings)} times ({owners}), not once"
