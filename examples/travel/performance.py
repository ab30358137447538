"""What is performed: six runs, two kills, and nothing else that would not happen by itself."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from adk_worker.client import Fleet
from adk_worker.events import Event, EventKind
from adk_worker.runs import Run, RunStatus
from examples.travel.control import Control, Made, Waiting
from examples.travel.model import ModelSide
from examples.travel.show import Show
from examples.travel.stage import StageError, kill_holder, wait_for
from examples.travel.story import Kill, Moment, Story, Tone

TENANT: Final = "acme"

PASSENGERS: Final[Mapping[str, str]] = MappingProxyType(
    {"ada": "Ada", "grace": "Grace", "edsger": "Edsger", "barbara": "Barbara", "dennis": "Dennis", "frances": "Frances"}
)
"""Run ids, and for whom each books."""

THINKER: Final = "ada"
"""Whose worker is killed in the middle of a model call."""
BOOKER: Final = "grace"
"""Whose worker is killed in the middle of a booking."""

_ASKS_TO_BOOK: Final = 3
"""The number of the model call that asks for the booking."""
_ASKS_TO_PAY: Final = 4

_NEWS: Final[Mapping[str, tuple[str, Tone]]] = MappingProxyType(
    {
        EventKind.RECOVERED: ("{run_id}'s worker is gone; queued again, under fence {fence}", Tone.MENDED),
        EventKind.PUBLISHED_AGAIN: ("reaper: {run_id}'s message is lost or late; published again", Tone.MENDED),
        RunStatus.COMPLETED: ("{run_id} is completed", Tone.DONE),
        EventKind.PARKED: ("{run_id} is parked", Tone.WRONG),
        EventKind.FAILED: ("{run_id} has failed", Tone.WRONG),
    }
)


class Performance:
    """The show from the first submit to the last run's end.

    Nothing is left to chance: the model and the booking service, which are outside the fleet, hold their answers back
    at the moments at which a worker is to die, and while one dies no other call is under way.
    """

    def __init__(self, show: Show, fleet: Fleet, control: Control, models: ModelSide) -> None:
        self._show = show
        self._fleet: Any = fleet.sync
        self._control = control
        self._models = models
        self._kills: list[Kill] = []
        self._seen = dict.fromkeys(PASSENGERS, 0)

    def perform(self) -> tuple[Kill, ...]:
        """Submit, kill twice, and return the kills once every run rests.

        :raises StageError: something did not come about that should have.
        """
        booking = self._control.hold("book", run_id=BOOKER, at="before_answer")
        self._submit_all()
        self._show.act("kill -9 in the middle of a model call")
        self._kill(THINKER, Moment.MODEL_CALL)
        for run_id in PASSENGERS:
            self._models.release(run_id, tenant=TENANT, iteration=_gate(run_id))
        waiting = self._booked(booking)
        for run_id in PASSENGERS:
            if run_id != BOOKER:
                self._rests(run_id)
        self._show.act("kill -9 in the middle of a booking")
        self._show.say(f"{BOOKER}'s seat is booked, and the service's answer has not reached the worker yet.")
        self._kill(BOOKER, Moment.BOOKING, waiting)
        booking.release(then="drop")
        self._show.say("The connection is dropped: no worker has ever heard whether that seat is booked.")
        self._rests(BOOKER)
        return tuple(self._kills)

    def story(self, run_id: str) -> Story:
        """All that is on record of a run."""
        events = tuple(self._fleet.events(run_id, tenant=TENANT))
        claims = asyncio.run(self._fleet.stores.runs.claims(run_id, tenant=TENANT))
        return Story(self._run(run_id), events, tuple(claims))

    # --- the steps of it ----------------------------------------------------------------------------------------

    def _submit_all(self) -> None:
        self._show.begin(time.time())
        self._show.act("Six passengers want a seat")
        for run_id, passenger in PASSENGERS.items():
            self._models.hold(run_id, tenant=TENANT, iteration=_gate(run_id))
            metadata = {"passenger": passenger, "origin": "LIS", "destination": "BER"}
            self._fleet.submit("travel", "A seat to Berlin, please.", tenant=TENANT, run_id=run_id, metadata=metadata)
        self._show.happened(time.time(), f"submitted: {', '.join(PASSENGERS)}")
        for run_id in PASSENGERS:
            self._thinks(run_id)
        self._show.happened(time.time(), "every run is in the middle of a model call, and the model takes its time")

    def _thinks(self, run_id: str) -> None:
        """Wait until the model call has begun at which the run's gate is."""
        wanted = (run_id, _gate(run_id))

        def asked() -> bool:
            return wanted in {(call.run_id, call.iteration) for call in self._models.calls("began")}

        wait_for(asked, f"model call {wanted[1]} of run {run_id}")

    def _booked(self, booking: Made) -> Waiting:
        """Wait until the service has booked, and keeps its answer back."""

        def held() -> tuple[Waiting, ...]:
            self._tell_the_news()
            return self._control.waiting(rule=booking.number, within=0)

        return wait_for(held, f"the booking of run {BOOKER}")[0]

    def _rests(self, run_id: str) -> None:
        """Wait until nothing advances the run any more."""

        def resting() -> bool:
            self._tell_the_news()
            return self._run(run_id).status.resting

        wait_for(resting, f"run {run_id} to come to its end")
        self._tell_the_news()

    def _kill(self, run_id: str, moment: Moment, waiting: Waiting | None = None) -> None:
        """Kill the worker that holds the run; ``waiting`` is the call that it has in flight, if it has one."""
        run = self._run(run_id)
        if waiting is not None and waiting.fence != run.fence:
            raise StageError(
                f"run {run_id} went from fence {waiting.fence} to {run.fence} while its booking was held: this machine "
                "is too busy for leases as short as the demo's. Try again."
            )
        at = time.time()
        process = kill_holder(run.holder)
        self._kills.append(Kill(run_id, moment, process.pid, run.fence, at, waiting.key if waiting else None))
        self._show.happened(at, f"kill -9 {process.pid}, the worker that holds {run_id}", Tone.KILLED)

    def _tell_the_news(self) -> None:
        """Print which runs were taken up again, and what came to its end, since this looked last."""
        news: list[tuple[str, Event]] = []
        for run_id, seen in self._seen.items():
            new = list(self._fleet.events(run_id, tenant=TENANT, after=seen))
            self._seen[run_id] = max((event.id for event in new), default=seen)
            news += [(run_id, event) for event in new if event.kind in _NEWS]
        for run_id, event in sorted(news, key=lambda one: one[1].at):
            told, tone = _NEWS[event.kind]
            self._show.happened(event.at, told.format(run_id=run_id, fence=event.fence), tone)

    def _run(self, run_id: str) -> Run:
        run: Run = self._fleet.get(run_id, tenant=TENANT)
        return run


def _gate(run_id: str) -> int:
    """The number of the model call of the run that is kept from ending.

    Of the run whose worker dies in it, that is the one behind its booking, which must not be made again; the others
    have booked nothing then.
    """
    return _ASKS_TO_PAY if run_id == THINKER else _ASKS_TO_BOOK
