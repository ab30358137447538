"""The demo: ``python -m examples.travel.demo``, or ``scripts/demo``, which installs what that needs.

Six passengers want a seat each. A fleet of two workers books for them at a service that honours no idempotency key:
whatever it is asked for twice, it does twice. One worker is killed in the middle of a model call, and another in the
middle of a booking, after the seat was booked and before the worker heard of it. What the next worker, the reaper and
the tool's probe make of that is read from the store's events, and judged by the service's own journal.

Exits 0 if every run completed, every seat was booked once and paid once, both kills were recovered from, and the
booking that was in flight was settled by the tool's probe; else 1, and says what was wrong.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from adk_worker.errors import AdkError
from examples.travel.client import TravelError
from examples.travel.control import Control
from examples.travel.journal import JournalError, RunName, judge, read_journal
from examples.travel.model import ModelSide
from examples.travel.performance import BOOKER, PASSENGERS, TENANT, Performance
from examples.travel.proof import Evidence, shortfalls
from examples.travel.show import Show
from examples.travel.stage import ROOT, TIMES, BookingService, EmbeddedFleet, StageError
from examples.travel.story import Tone

_INTERRUPTED: Final = 128 + signal.SIGINT


def main(argv: list[str] | None = None) -> int:
    """Perform, judge, and say how to go on. 0 if all was shown, 1 if not, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.travel.demo", description="Workers are killed; seats are booked once."
    )
    parser.add_argument("--folder", type=Path, help="where store, journal and logs go; a new temporary one by default")
    options = parser.parse_args(argv)
    _set_the_scene()
    show = Show()
    try:
        folder = _folder(options.folder)
    except OSError as error:
        parser.error(f"--folder {options.folder}: {error.strerror}")
    try:
        evidence = _performed(show, folder)
    except KeyboardInterrupt:
        show.say("\nStopped, all of it.", Tone.WRONG)
        return _INTERRUPTED
    except (StageError, TravelError, JournalError, AdkError) as error:
        return _failed(show, folder, [str(error)])
    return judged(show, folder, evidence)


def judged(show: Show, folder: Path, evidence: Evidence) -> int:
    """Print what happened, and return the exit code that it deserves."""
    show.act("What happened to each run, by the store's own record")
    show.timelines(evidence.stories.values(), evidence.kills)
    show.act("What was booked, by the booking service's own journal")
    show.count(evidence.verdict, _runs())
    wrong = shortfalls(evidence)
    if wrong:
        return _failed(show, folder, wrong)
    show.say("Two workers killed, both recovered from; the call in flight was settled by its tool's probe.", Tone.DONE)
    _how_to_go_on(show, folder)
    return 0


def _performed(show: Show, folder: Path) -> Evidence:
    models = ModelSide(folder)
    with ExitStack() as stage:
        show.act("A booking service, and a fleet to book at it")
        service = stage.enter_context(BookingService(folder))
        url = service.url()
        show.say(f"booking service   pid {service.pid} at {url}; its own journal; it honours no idempotency key")
        fleet = stage.enter_context(EmbeddedFleet(folder, travel_url=url))
        client = fleet.client()
        show.say(f"embedded fleet    pid {fleet.pid}: {fleet.WORKERS} workers, a reaper, beat, a broker; SQLite")
        performance = Performance(show, client, Control(url), models)
        kills = performance.perform()
        stories = {run_id: performance.story(run_id) for run_id in PASSENGERS}
    # Read once all has ended, so that nothing can come to it any more.
    verdict = judge(read_journal(service.journal), runs=_runs())
    return Evidence(stories, kills, models.calls(), verdict)


def _failed(show: Show, folder: Path, wrong: Iterable[str]) -> int:
    show.act("This is not what should have happened")
    for line in wrong:
        show.say(line, Tone.WRONG)
    show.say(f"Store, journal and logs are in {folder}")
    return 1


def _how_to_go_on(show: Show, folder: Path) -> None:
    python = sys.executable
    installed = Path(python).with_name("adk")
    adk = str(installed) if installed.exists() else f"{python} -m adk_worker.cli"
    show.act("How to go on")
    show.say("All is stopped. The runs are still in the store, and the logs beside it:")
    show.say(f"    export ADK_STORE_URL=sqlite:///{folder}/adk.db")
    show.say(f"    {adk} list")
    show.say(f"    {adk} inspect {BOOKER} --tenant {TENANT} --events")
    show.say(f"    rm -r {folder}")
    show.say(f"A fleet of your own to kill at will, from {ROOT}, in three terminals without the export above:")
    show.say(f"    {python} -m examples.travel.service --port 8410 --journal /tmp/travel.jsonl")
    show.say(f"    TRAVEL_URL=http://127.0.0.1:8410 {adk} dev --agents examples.travel.agents --db /tmp/travel.db")
    show.say(f'    {adk} run travel "A seat, please." --tenant acme --wait')
    show.say("Then an agent of your own: README.md says how to write one, examples/travel/ is one.")


def _set_the_scene() -> None:
    """What holds for this process and for all that it starts."""
    for name in [name for name in os.environ if name.startswith(("ADK_", "TRAVEL_"))]:
        del os.environ[name]  # of some other fleet
    os.environ.update(TIMES)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    # As an exception, so that every process of the stage is ended on the way out.
    raise SystemExit(128 + number)


def _folder(given: Path | None) -> Path:
    if given is None:
        return Path(tempfile.mkdtemp(prefix="adk-demo-"))
    given.mkdir(parents=True, exist_ok=True)
    return given.absolute()


def _runs() -> list[RunName]:
    return [RunName(TENANT, run_id) for run_id in PASSENGERS]


if __name__ == "__main__":
    sys.exit(main())
