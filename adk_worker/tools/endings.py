"""How a call ends decides what is known (I10): the rule as a table, apart from everything that runs tools."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from adk_worker.errors import ToolError
from adk_worker.outcomes import Effect, OutcomeKind
from adk_worker.results import shortened, text_of


class How(StrEnum):
    """The ways in which a call that has a claim can end."""

    RETURNED = "returned"
    UNUSABLE = "unusable"
    """It returned what is not JSON, or too large."""
    DID_NOT_HAPPEN = "did_not_happen"
    """It raised ``ToolError(happened=False)`` or a type listed in the tool's ``did_not_happen``."""
    HAPPENED = "happened"
    """It raised ``ToolError(happened=True)``: the effect is there, and something failed afterwards."""
    RAISED = "raised"
    """It raised anything else."""
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    NOT_STARTED = "not_started"
    """No thread was free for it, and it was taken back before it began."""


class _Row(NamedTuple):
    effectful: OutcomeKind | None
    repeatable: OutcomeKind
    """For ``read_only`` and ``idempotent``: nothing is lost by saying that it failed."""


_TABLE: Final[Mapping[How, _Row]] = MappingProxyType(
    {
        How.RETURNED: _Row(OutcomeKind.RETURNED, OutcomeKind.RETURNED),
        How.UNUSABLE: _Row(OutcomeKind.UNUSABLE, OutcomeKind.UNUSABLE),
        How.DID_NOT_HAPPEN: _Row(OutcomeKind.FAILED, OutcomeKind.FAILED),
        How.HAPPENED: _Row(OutcomeKind.FAILED, OutcomeKind.FAILED),
        How.RAISED: _Row(None, OutcomeKind.FAILED),
        How.TIMED_OUT: _Row(None, OutcomeKind.FAILED),
        How.CANCELLED: _Row(None, OutcomeKind.FAILED),
        How.NOT_STARTED: _Row(OutcomeKind.FAILED, OutcomeKind.FAILED),
    }
)

WORTH_REPEATING: Final = frozenset({How.RAISED, How.TIMED_OUT})
"""Endings after which a tool's own retry policy calls it again, where its effect allows that."""


def ending(effect: Effect, how: How) -> OutcomeKind | None:
    """The kind of outcome that is recorded, or ``None``: nobody knows, and the claim stays in flight (I10)."""
    row = _TABLE[how]
    return row.effectful if effect is Effect.EFFECTFUL else row.repeatable


def how_raised(error: BaseException, did_not_happen: tuple[type[BaseException], ...]) -> How:
    """What an exception out of a tool says.

    Of a group of exceptions nothing is concluded: where one part did not happen, a part beside it may have.
    """
    if isinstance(error, ToolError) and error.happened is not None:
        return How.HAPPENED if error.happened else How.DID_NOT_HAPPEN
    return How.DID_NOT_HAPPEN if isinstance(error, did_not_happen) else How.RAISED


def told(error: BaseException, how: How) -> str:
    """What the model, or the person who has to decide, is told of an exception: short, and no traceback."""
    text = shortened(str(error)) if isinstance(error, ToolError) else text_of(error)
    if how is How.HAPPENED:
        return shortened(f"The effect of this call is there, but it failed afterwards: {text}")
    return text
