"""A worker's signs of life, and what they mean: whether it goes on consuming, or only looks alive.

A worker keeps one small file while it runs. The loop in which it consumes writes that itself, every few seconds, so a
file that grows old tells of a loop that stands still, whatever the reason. With each writing it says when the broker
was last heard, which an idle broker too is every few seconds: so silence and the want of work are told apart.

Whoever asks reads the file, and needs neither broker nor store. Where the signs leave open whether the worker or its
broker is at fault, asking the broker decides (:func:`in_doubt`). Times are of the system's monotonic clock, which all
processes of a machine share.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from adk_worker.liveness import Holder, ProcessIdentity
from adk_worker.own_files import make_folder, write_file

SUFFIX: Final = ".worker.json"


class Phase(StrEnum):
    """What a worker is doing."""

    STARTING = "starting"
    """It has not consumed yet: it loads its agents, or waits for the store."""
    CONNECTING = "connecting"
    """It has no connection to the broker and tries to get one."""
    CONSUMING = "consuming"
    LEAVING = "leaving"
    """It was told to end, and hands over what it has."""


class Sign(StrEnum):
    """What the signs of a worker come to."""

    STARTING = "starting"
    LEAVING = "leaving"
    IDLE = "idle"
    """It consumes, and carries nothing out."""
    WORKING = "working"
    """It consumes, and could carry out more."""
    BUSY = "busy"
    """It consumes, and all its slots are taken."""
    AWAY = "broker away"
    """It does not consume, and the broker answers nobody here: it goes on by itself once that is back."""
    DEAF = "not consuming"
    """The broker answers, and the worker does not consume, or starts nothing of what waits."""
    STOPPED = "stopped"
    """Its loop stands still: the process is suspended, or hangs."""

    @property
    def consumes(self) -> bool:
        """Whether messages reach it."""
        return self in {Sign.IDLE, Sign.WORKING, Sign.BUSY}

    @property
    def alive(self) -> bool:
        """Whether there is nothing that a restart of the worker would mend."""
        return self not in {Sign.DEAF, Sign.STOPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What a worker says of itself. ``process`` is its :class:`~adk_worker.liveness.Holder`, as text."""

    name: str
    process: str
    queues: tuple[str, ...]
    slots: int
    """How many tasks it carries out at once."""
    beat_within: float
    """While it consumes it says so at least as often; s."""
    heard_within: float
    """While it consumes it hears from its broker at least as often, or gives the connection up; s."""
    at: float
    """When it said this."""
    phase: Phase = Phase.STARTING
    since: float
    """Since when it is in this phase."""
    heard_at: float | None = None
    """When the broker was last heard."""
    started: int = 0
    """How many tasks it has begun in all."""
    started_at: float | None = None
    """When it was last seen to have begun another."""
    running: int = 0
    in_hand: int = 0
    """Messages that it has taken in advance and not begun."""

    def entering(self, phase: Phase, *, now: float) -> Pulse:
        """The same worker in another phase. Whatever it hears of the broker from now on is by a new connection."""
        return replace(self, at=now, phase=phase, since=now, heard_at=now if phase is Phase.CONSUMING else None)

    def beating(self, *, now: float, heard_at: float, started: int, running: int, in_hand: int) -> Pulse:
        """The same worker, a moment later."""
        begun = now if started > self.started else self.started_at
        return replace(
            self, at=now, heard_at=heard_at, started=started, started_at=begun, running=running, in_hand=in_hand
        )


def in_doubt(pulse: Pulse, *, now: float) -> bool:
    """Whether only the broker can tell what is the matter."""
    if pulse.phase is Phase.CONNECTING:
        return now - pulse.since > pulse.heard_within
    return pulse.phase is Phase.CONSUMING and _silent(pulse, now)


def judge(pulse: Pulse, *, now: float, waiting: int | None = None, reached: bool | None = None) -> Sign:
    """What the signs of a worker mean.

    :param waiting: how many messages wait on its queues, if that was asked.
    :param reached: whether the broker answered, if it was asked.
    """
    if pulse.phase in {Phase.STARTING, Phase.LEAVING}:
        return Sign(pulse.phase.value)
    if pulse.phase is Phase.CONSUMING and now - pulse.at > pulse.beat_within:
        return Sign.STOPPED
    if pulse.phase is Phase.CONNECTING or _silent(pulse, now):
        return Sign.DEAF if reached and in_doubt(pulse, now=now) else Sign.AWAY
    if waiting and _passes_over(pulse, now):
        return Sign.DEAF
    if not pulse.running:
        return Sign.IDLE
    return Sign.BUSY if pulse.running >= pulse.slots else Sign.WORKING


def _silent(pulse: Pulse, now: float) -> bool:
    return pulse.heard_at is None or now - pulse.heard_at > pulse.heard_within


def _passes_over(pulse: Pulse, now: float) -> bool:
    """Whether something that waits should have been begun long ago."""
    latest = max(pulse.since, pulse.started_at or pulse.since)
    return pulse.running < pulse.slots and now - latest > pulse.heard_within


class PulseFile:
    """The file that one worker keeps."""

    def __init__(self, folder: Path, *, pid: int) -> None:
        self._file = folder / f"{pid}{SUFFIX}"

    def write(self, pulse: Pulse) -> None:
        """Say this.

        :raises ConfigurationError: the folder is another's.
        :raises OSError: it cannot be written.
        """
        make_folder(self._file.parent)
        write_file(self._file, json.dumps(asdict(pulse)))

    def remove(self) -> None:
        """Say nothing any more: the worker ends."""
        self._file.unlink(missing_ok=True)


def pulses(folder: Path) -> list[Pulse]:
    """What the workers here say of themselves, by their names.

    Here is this boot of this machine, and this container: of processes in another pid namespace nothing can be told,
    and they have a command of their own that asks. What a worker that was killed has left is removed.
    """
    here = ProcessIdentity.current()
    found = []
    for file in sorted(folder.glob(f"*{SUFFIX}")):
        pulse = _read(file)
        holder = pulse and Holder.parse(pulse.process)
        if not (pulse and holder):
            continue
        of = holder.process
        if of.known_dead():
            file.unlink(missing_ok=True)
        elif (of.boot, of.pid_namespace) == (here.boot, here.pid_namespace):
            found.append(pulse)
    return sorted(found, key=lambda pulse: pulse.name)


def _read(file: Path) -> Pulse | None:
    """``None`` for one that was removed meanwhile, or is of another version."""
    try:
        said: dict[str, Any] = json.loads(file.read_text())
        if set(said) != {field.name for field in fields(Pulse)}:
            return None
        return Pulse(**{**said, "phase": Phase(said["phase"]), "queues": tuple(said["queues"])})
    except (OSError, ValueError, TypeError):
        return None
