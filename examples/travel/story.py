"""What became of a run, as a timeline: a fold over the run's events, the claims of its calls, and the kills.

Nothing here asks anybody anything. The events are the store's own record, written in the same transactions as what they
tell of, so the timeline is what happened and not what some log hoped for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from adk_worker import CheckpointBoundary
from adk_worker.events import Event, EventKind
from adk_worker.idempotency import Claim
from adk_worker.liveness import Holder
from adk_worker.runs import Run, RunStatus

BY_PROBE: Final = "probe"
"""``settled_by`` of a claim that its tool's probe decided (I7)."""


class Moment(StrEnum):
    """In the middle of what a worker was killed."""

    MODEL_CALL = "a model call"
    BOOKING = "a booking"


@dataclass(frozen=True, slots=True)
class Kill:
    """One SIGKILL: to the process ``pid``, which held ``run_id`` under ``fence``, at ``at`` seconds since the epoch."""

    run_id: str
    moment: Moment
    pid: int
    fence: int
    at: float
    key: str | None = None
    """The idempotency key of the call that was in flight, where one was."""


@dataclass(frozen=True, slots=True)
class Story:
    """A run as it stands, what happened to it, and the claims of its calls."""

    run: Run
    events: tuple[Event, ...]
    claims: tuple[Claim, ...]

    def recovery_from(self, pid: int) -> Event | None:
        """The event in which a reaper took the run from the process ``pid``, if there is one."""
        return next((event for event in self.events if event.kind == EventKind.RECOVERED and _pid(event) == pid), None)


class Tone(StrEnum):
    """What a line of a timeline is about, for whoever gives it a colour."""

    PLAIN = "plain"
    KILLED = "killed"
    MENDED = "mended"
    DONE = "done"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Line:
    """One line: when (seconds since the epoch), who, under which fence, and what."""

    at: float
    who: str
    what: str
    fence: int | None = None
    tone: Tone = Tone.PLAIN


@dataclass(slots=True)
class _Step:
    """What one acquisition of the lease has come to so far."""

    at: float
    pid: int | None
    fence: int
    doing: str
    """What it is in the middle of; empty once that is over."""
    done: list[str] = field(default_factory=list)
    tone: Tone = Tone.PLAIN

    def line(self) -> Line:
        parts = [*self.done, f"{self.doing} …"] if self.doing else self.done
        return Line(self.at, f"worker {self.pid or '?'}", ", ".join(parts), self.fence, self.tone)


def timeline(story: Story, kills: Sequence[Kill] = ()) -> tuple[Line, ...]:
    """The run's lines, oldest first: one for each acquisition of its lease, and one for whatever came between."""
    return tuple(_Fold(story, kills).lines())


class _Fold:
    def __init__(self, story: Story, kills: Sequence[Kill]) -> None:
        self._story = story
        self._tools: Mapping[str, str] = {claim.key: claim.tool or "a call" for claim in story.claims}
        self._kills = {kill.pid: kill for kill in kills}
        self._step: _Step | None = None
        self._outstanding = ""
        """The tools of the turn that is not over, across the deaths of workers."""

    def lines(self) -> Iterator[Line]:
        for event in self._story.events:
            if self._step is None or not self._goes_into(self._step, event):
                yield from self._finished()
                yield from self._stands_alone(event)
        yield from self._finished()

    def _finished(self) -> Iterator[Line]:
        if self._step is not None:
            yield self._step.line()
        self._step = None

    def _goes_into(self, step: _Step, event: Event) -> bool:
        """Whether ``event`` tells of the step that is going on; then it is taken into that."""
        match event.kind:
            case CheckpointBoundary.AFTER_MODEL_CALL:
                calls = event.data.get("calls")
                step.doing = self._outstanding = ", ".join(map(str, calls)) if isinstance(calls, list) else ""
            case CheckpointBoundary.AFTER_TOOL_RESULT:
                if step.doing:
                    step.done.append(step.doing)
                step.doing = self._outstanding = ""
            case EventKind.SETTLED:
                by = "the tool's probe" if event.data.get("by") == BY_PROBE else event.data.get("by")
                step.done.append(f"{self._tools.get(str(event.data.get('key')), 'a call')} settled by {by}")
                step.doing, step.tone = "", Tone.MENDED
            case RunStatus.COMPLETED:
                step.done.append(f"“{self._story.run.output}”")
                step.doing, step.tone = "", Tone.DONE
            case _:
                return False
        return True

    def _stands_alone(self, event: Event) -> Iterator[Line]:
        data = event.data
        match event.kind:
            case EventKind.TAKEN:
                self._step = _Step(event.at, _pid(event), event.fence, self._outstanding or "asks the model")
            case EventKind.SUBMITTED:
                yield Line(event.at, "client", f"submits it to agent {data.get('agent')}", event.fence)
            case EventKind.RECOVERED:
                pid = _pid(event)
                if pid in self._kills:
                    yield self._killed(self._kills[pid])
                who, found = "reaper", "its lease lapsed"
                if data.get("known_dead"):  # which the dead one's parent can tell, and the next worker on its host
                    who, found = "its host", "the worker is dead"
                yield Line(event.at, who, f"{found}: queues the run again", event.fence, Tone.MENDED)
            case EventKind.PUBLISHED_AGAIN:
                yield Line(
                    event.at, "reaper", "the message is lost or late: publishes it again", event.fence, Tone.MENDED
                )
            case EventKind.PARKED | EventKind.FAILED:
                yield Line(event.at, "fleet", f"{event.kind}: {_said(data)}", event.fence, Tone.WRONG)
            case _:
                yield Line(event.at, "fleet", f"{event.kind}: {_said(data)}" if data else event.kind, event.fence)

    def _killed(self, kill: Kill) -> Line:
        its_own = kill.run_id == self._story.run.run_id
        when = f"in the middle of {kill.moment}" if its_own else "which held this run too"
        return Line(kill.at, "kill -9", f"worker {kill.pid}, {when}", tone=Tone.KILLED)


def _said(data: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in data.items())


def _pid(event: Event) -> int | None:
    holder = Holder.parse(str(event.data.get("holder")))
    return holder.process.pid if holder else None
