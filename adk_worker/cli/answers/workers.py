"""Answers about the fleet's processes."""

from __future__ import annotations

from adk_worker.cli.answers.model import Answer
from adk_worker.cli.checkup.finding import Level
from adk_worker.pulse import Phase, Sign


class AliveAnswer(Answer):
    """The signs of life of a worker here."""

    name: str
    sign: Sign
    alive: bool
    consuming: bool
    phase: Phase
    queues: list[str]
    slots: int
    running: int
    in_hand: int
    started: int
    waiting: int | None
    """Messages that wait on its queues; null unless the broker was asked."""
    seconds_since_started: float | None
    seconds_since_seen: float
    seconds_since_heard: float | None
    seconds_in_phase: float


class DoctorAnswer(Answer):
    """One thing that was looked at."""

    check: str
    level: Level
    found: str
    todo: str | None
    """What to do about it."""
