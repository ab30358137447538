"""What the demo prints: plain lines, with colour where there is a terminal that wants it (``NO_COLOR`` is honoured)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from adk_worker.printable import printable
from examples.travel.journal import RunName, Verdict
from examples.travel.story import Kill, Line, Story, Tone, timeline

_STYLES: Final[Mapping[Tone, str]] = MappingProxyType(
    {
        Tone.PLAIN: "",
        Tone.KILLED: "bold red",
        Tone.MENDED: "yellow",
        Tone.DONE: "green",
        Tone.WRONG: "bold red",
    }
)


class Show:
    """Prints to ``file``, standard output by default. Times are told from :meth:`begin` on."""

    def __init__(self, file: TextIO | None = None) -> None:
        # What tools and models say is never read as markup.
        self._console = Console(file=file or sys.stdout, markup=False, highlight=False, emoji=False)
        self._began = 0.0

    def begin(self, at: float) -> None:
        """Tell times in seconds since ``at``, which is in seconds since the epoch."""
        self._began = at

    def act(self, title: str) -> None:
        """Begin a part of the show."""
        self._print(Text())
        self._print(Text(f"== {title}", "bold"))

    def say(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Print a line."""
        self._print(Text(text, _STYLES[tone]))

    def happened(self, at: float, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Print a line with the time of what it tells."""
        self._print(self._time(at).append(text, _STYLES[tone]))

    def timelines(self, stories: Iterable[Story], kills: Sequence[Kill]) -> None:
        """Print each run's timeline."""
        for story in stories:
            run = story.run
            self._print(Text())
            self._print(Text().append(run.run_id, "bold").append(f"   {run.status.value} at iteration {run.iteration}"))
            lines = timeline(story, kills)
            who = max((len(line.who) for line in lines), default=0)
            fence = max((len(_fence(line)) for line in lines), default=0)
            for line in lines:
                style = _STYLES[line.tone]
                row = (
                    self._time(line.at).append(f"{line.who:{who}}  ", style).append(f"{_fence(line):{fence}}  ", "dim")
                )
                self._print(row.append(printable(line.what), style))

    def count(self, verdict: Verdict, runs: Iterable[RunName]) -> None:
        """Print what the booking service's own journal says."""
        rows = [("run", "seat", "booked", "paid")]
        for run in runs:
            counts = verdict.by_run.get(run, {})
            seats = ", ".join(verdict.seats.get(run, ())) or "none"
            rows.append((run.run_id, seats, _times(counts.get("book", 0)), _times(counts.get("pay", 0))))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for number, row in enumerate(rows):
            cells = "   ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            self._print(Text(cells.rstrip(), "dim" if number == 0 else ""))
        self._print(Text())
        self.say(str(verdict), Tone.DONE if verdict.ok else Tone.WRONG)

    def _time(self, at: float) -> Text:
        return Text().append(f"{at - self._began:+8.2f} s  ", "dim")

    def _print(self, line: Text) -> None:
        # Where a line is too long, wrapping it is the terminal's business: a log keeps it whole.
        self._console.print(line, soft_wrap=True)


def _fence(line: Line) -> str:
    return "" if line.fence is None else f"fence {line.fence}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
