"""The booking service's journal, and the verdict that is read from it.

A journal is a file of JSON lines that is only ever appended to: one ``write`` and one ``fsync`` a line. A line counts
once its newline is there; what stands behind the last newline was torn by the death of the service, was never
acknowledged to anyone, and did not happen. Any other line that cannot be read is damage, and said so.

The journal is written by the service alone and knows nothing of the fleet. That is what makes it a judge.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

Event = Literal["opened", "arrived", "effect", "repeated", "refused", "barred", "fault"]
Kind = Literal["search", "hold", "book", "pay", "lookup", "refuse"]

TRIP: Mapping[str, int] = MappingProxyType({"book": 1, "pay": 1})
"""What a run of the travel agent does, in effects of each kind, when it does everything exactly once."""

_COUNTED = ("book", "pay")
"""Kinds whose second effect is a fault. A hold is not among them: repeating it under its key is its contract."""


class JournalError(Exception):
    """The journal cannot be used; the message says which file, and why."""


class RunName(NamedTuple):
    """Whose request it was. Both are empty where the request did not say."""

    tenant: str
    run_id: str


class Entry(BaseModel):
    """One line.

    ========  ==========================================================================================
    event     meaning
    ========  ==========================================================================================
    opened    a service process opened the journal
    arrived   a request was received, whole
    effect    it was done; ``outcome`` is what was, or would have been, answered
    repeated  its key had been honoured before; ``outcome`` is the earlier one, and nothing was done
    refused   it was not done, and never will be; ``note`` says why
    barred    ``key`` is refused from now on: to everyone, or to fences below ``fence`` if that is given
    fault     a fault that had been asked for was played on it; ``note`` says which
    ========  ==========================================================================================
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    """The line's number, from 1."""
    at: str
    """The service's clock, ISO 8601 in UTC: for people. Order is that of the lines."""
    event: Event
    request: int | None = None
    """Which request, from 1, counted over the life of the journal."""
    kind: Kind | None = None
    tenant: str = ""
    run_id: str = ""
    key: str | None = None
    fence: int | None = None
    body: dict[str, Any] | None = None
    outcome: dict[str, Any] | None = None
    note: str | None = None

    @property
    def run(self) -> RunName:
        """Whose request it was."""
        return RunName(self.tenant, self.run_id)


def read_journal(path: Path) -> tuple[Entry, ...]:
    """All whole lines of the journal at ``path``, while its service writes or after it died.

    Raises :class:`JournalError` if there is no such file, or if a line before the last newline cannot be read.
    """
    try:
        return _parse(path.read_bytes(), path)
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be read: {error.strerror}") from error


def _parse(content: bytes, path: Path) -> tuple[Entry, ...]:
    entries = []
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            entry = Entry.model_validate(json.loads(line))
        except (ValueError, ValidationError) as error:
            raise JournalError(f"line {number} of the journal {path} cannot be read: {error}") from error
        if entry.n != number:
            raise JournalError(f"line {number} of the journal {path} says that it is line {entry.n}")
        entries.append(entry)
    return tuple(entries)


class Journal:
    """The writer's side: one process at a time, which the lock on the file holds to.

    Opening cuts a torn line off the end, so that the next line does not grow out of it. ``entries`` are those found.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise JournalError(f"the journal {path} cannot be opened: {error.strerror}") from error
        try:
            self.entries = self._recover()
        except BaseException:
            os.close(self._file)
            raise

    def _recover(self) -> tuple[Entry, ...]:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise JournalError(f"another service has the journal {self._path} open; stop it first") from error
        content = self._path.read_bytes()
        entries = _parse(content, self._path)
        os.ftruncate(self._file, content.rfind(b"\n") + 1)
        os.fsync(self._file)
        # A new file survives a crash of the machine once its folder does.
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return entries

    def append(self, entry: Entry) -> None:
        """Write ``entry`` and wait until it is on the disk; raises ``OSError`` if it may not be."""
        line = json.dumps(entry.model_dump(exclude_defaults=True)).encode() + b"\n"
        if os.write(self._file, line) != len(line):
            raise OSError(f"the journal {self._path} took only a part of a line: is the disk full?")
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file, and let another process have it."""
        os.close(self._file)


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Something that was done more often than once."""

    run: RunName
    kind: str
    what: str
    """What repeats: ``key`` (one call made twice), ``seat`` or ``booking`` (paid twice), or ``run``."""
    name: str
    times: int

    def __str__(self) -> str:
        return f"{self.kind} happened {self.times} times for {self.what} {self.name} ({_said(self.run)})"


@dataclass(frozen=True, slots=True)
class Lost:
    """An effect that should be in the journal and is not."""

    run: RunName
    kind: str

    def __str__(self) -> str:
        return f"no {self.kind} in the journal for {_said(self.run)}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a journal says of the runs in it."""

    effects: Mapping[tuple[RunName, str, str], int]
    """How often each (run, kind, key) was done: every kind that has effects, holds among them."""
    by_run: Mapping[RunName, Mapping[str, int]]
    """How many effects of each kind each run had."""
    seats: Mapping[RunName, tuple[str, ...]]
    """The seats that each run has booked, as ``FLIGHT SEAT``, in the order of the bookings."""
    duplicates: tuple[Duplicate, ...]
    lost: tuple[Lost, ...]

    @property
    def ok(self) -> bool:
        """Every seat booked once, every booking paid once, nothing that was expected missing."""
        return not self.duplicates and not self.lost

    def __str__(self) -> str:
        lines = [str(fault) for fault in (*self.duplicates, *self.lost)]
        booked = sum(counts.get("book", 0) for counts in self.by_run.values())
        return "\n".join(lines) or f"{booked} seats booked, each of them once"


def judge(entries: Iterable[Entry], *, runs: Iterable[tuple[str, str]] = (), each: Mapping[str, int] = TRIP) -> Verdict:
    """Count the effects in ``entries`` and say whether each was done once.

    ``runs`` are the (tenant, run id) pairs that should have come to their end; each of them should have exactly the
    effects that ``each`` counts per kind. Of other runs in the journal only repetitions are judged, since nobody said
    how far they should have come.
    """
    done = [entry for entry in entries if entry.event == "effect"]
    effects = Counter((entry.run, str(entry.kind), entry.key or "") for entry in done)
    by_run: dict[RunName, Counter[str]] = {}
    seats: dict[RunName, tuple[str, ...]] = {}
    things: Counter[tuple[str, str, str]] = Counter()
    owners: dict[tuple[str, str, str], RunName] = {}
    for entry in done:
        by_run.setdefault(entry.run, Counter())[str(entry.kind)] += 1
        if entry.kind == "book":
            seats[entry.run] = (*seats.get(entry.run, ()), _seat(entry))
        if entry.kind in _COUNTED:
            what, name = ("seat", _seat(entry)) if entry.kind == "book" else ("booking", _booking(entry))
            things[entry.kind, what, name] += 1
            owners[entry.kind, what, name] = entry.run

    duplicates = [
        Duplicate(run, kind, "key", key, times)
        for (run, kind, key), times in effects.items()
        if times > 1 and kind in _COUNTED
    ]
    duplicates += [Duplicate(owners[thing], *thing, times) for thing, times in things.items() if times > 1]
    lost = []
    for tenant, run_id in runs:
        run = RunName(tenant, run_id)
        for kind, wanted in each.items():
            found = by_run.get(run, Counter())[kind]
            lost += [Lost(run, kind)] * (wanted - found)
            if found > wanted:
                duplicates.append(Duplicate(run, kind, "run", run.run_id, found))
    return Verdict(
        effects=MappingProxyType(effects),
        by_run=MappingProxyType(by_run),
        seats=MappingProxyType(seats),
        duplicates=tuple(duplicates),
        lost=tuple(lost),
    )


def _seat(entry: Entry) -> str:
    outcome = entry.outcome or {}
    return f"{outcome.get('flight')} {outcome.get('seat')}"


def _booking(entry: Entry) -> str:
    return str((entry.outcome or {}).get("booking"))


def _said(run: RunName) -> str:
    return f"run {run.run_id}, tenant {run.tenant}" if run.run_id else "no run"
