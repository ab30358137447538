"""What a check is given, and what it tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from adk_worker.cli.exits import ExitCode, code_of
from adk_worker.errors import AdkError

if TYPE_CHECKING:
    from adk_worker.settings import Settings


class Level(StrEnum):
    """How a finding is to be taken."""

    OK = "ok"
    WARNING = "warning"
    """It costs something, or may some day; nothing is lost or done twice by it."""
    FAIL = "fail"
    """It can lose work, repeat it, or have it stand still."""
    UNSEEN = "unseen"
    """It could not be looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. ``todo`` is what to do about it; empty where there is nothing to do."""

    check: str
    level: Level
    found: str
    todo: str = ""
    code: ExitCode = ExitCode.DONE
    """What the program ends with where this could not be looked at."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at. ``patience`` is for how long a check waits for an answer, in seconds."""

    settings: Settings
    celery_module: str | None
    """The deployment's own ``celeryconfig``, where it has one."""
    patience: float


Check: TypeAlias = Callable[[Subject], Iterator[Finding]]


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def warning(check: str, found: str, todo: str = "") -> Finding:
    """Somebody should know."""
    return Finding(check, Level.WARNING, found, todo)


def fail(check: str, found: str, todo: str = "") -> Finding:
    """Somebody should do something."""
    return Finding(check, Level.FAIL, found, todo)


def unseen(check: str, error: Exception, todo: str = "") -> Finding:
    """It could not be looked at, for this reason."""
    from adk_worker.results import text_of

    ours = isinstance(error, AdkError)
    code = code_of(error) if isinstance(error, AdkError) else ExitCode.SOFTWARE
    return Finding(check, Level.UNSEEN, str(error) if ours else text_of(error), todo, code)
