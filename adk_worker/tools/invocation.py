"""Making one call of a tool: bounded in time and size, and ended by the table of :mod:`~adk_worker.tools.endings`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from adk_worker.errors import ToolArgumentsError
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.results import MAX_RESULT_BYTES, returned, shortened
from adk_worker.tools.bounded import CANCEL_GRACE, Ending, NotStarted, Overran, Raised, Returned, derived, run_bounded
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import Tool
from adk_worker.tools.endings import WORTH_REPEATING, How, ending, how_raised, told

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class Unresolved:
    """Nobody knows whether the call had its effect: its claim stays in flight (I10)."""

    reason: How
    error_text: str
    """For the person who has to find out what happened. Not masked yet (R1)."""
    late: asyncio.Future[ToolOutcome | Unresolved] | None = None
    """Set if the call goes on: its end, whenever it comes. The outcome is evidence that the claim's owner may record
    (F4). Cancelling the future leaves the call alone."""


@dataclass(frozen=True, slots=True)
class _End:
    how: How
    content: JsonValue


async def invoke(
    tool: Tool,
    context: ToolContext,
    arguments: Mapping[str, Any],
    *,
    executor: Executor,
    max_result_bytes: int = MAX_RESULT_BYTES,
    grace: float = CANCEL_GRACE,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    left: Callable[[asyncio.Future[ToolOutcome | Unresolved]], None] | None = None,
) -> ToolOutcome | Unresolved:
    """Make a call whose intent is on record, and say how it ended.

    ``arguments`` are the values that :meth:`Tool.validate` gave. Sync tools run in ``executor``, in a copy of the
    current context variables, and go on past their time-out, for a thread cannot be stopped; async ones are cancelled
    and given ``grace`` seconds to end. A tool's own ``max_result_bytes`` comes before the one given here. Between the
    attempts of a tool with ``retries``, ``pause`` is awaited with 0.2 s, doubled up to 5 s.

    A cancellation reaches an async tool at once. A call that goes on in spite of it is told to ``left``, with the
    future of its end as in :class:`Unresolved`. To see an effectful call through one's own cancellation, run this in a
    task of its own and shield that.

    :raises asyncio.CancelledError: this coroutine was cancelled, so that nothing is known of the call
        (:attr:`How.CANCELLED`). Nothing else is ever raised, whatever the tool does.
    """
    limit = max_result_bytes if tool.max_result_bytes is None else tool.max_result_bytes
    attempts = 0
    while True:
        ended = await run_bounded(
            tool.bound(context, arguments),
            in_loop=tool.is_async,
            then=lambda value: returned(value, max_bytes=limit),
            executor=executor,
            timeout=tool.timeout,
            grace=grace,
            left=None if left is None else lambda late: left(_late(tool, late)),
        )
        end = _end(tool, ended)
        attempts += 1
        if end.how not in WORTH_REPEATING or attempts > tool.retries:
            return _settled(tool, end, ended.late if isinstance(ended, Overran) else None)
        await pause(min(_FIRST_PAUSE * 2 ** (attempts - 1), _LONGEST_PAUSE))


def _end(tool: Tool, ended: Ending[ToolOutcome] | Overran[ToolOutcome]) -> _End:
    match ended:
        case Returned(outcome):
            how = How.RETURNED if outcome.kind is OutcomeKind.RETURNED else How.UNUSABLE
            return _End(how, outcome.content)
        case Raised(error):
            return _raised(tool, error)
        case NotStarted():
            return _End(How.NOT_STARTED, "The call was not made: no thread of the worker was free for it in time.")
        case Overran(error):
            # Cancelled past its time, it may still have said for certain what happened.
            if error is not None and (end := _raised(tool, error)).how is not How.RAISED:
                return end
            return _End(How.TIMED_OUT, f"The call did not end within its {tool.timeout:g} s.")


def _raised(tool: Tool, error: BaseException) -> _End:
    how = how_raised(error, tool.did_not_happen)
    return _End(how, told(error, how))


def _settled(
    tool: Tool, end: _End, late: asyncio.Future[Ending[ToolOutcome]] | None = None
) -> ToolOutcome | Unresolved:
    kind = ending(tool.effect, end.how)
    if kind is not None:
        return ToolOutcome(kind=kind, content=end.content)
    settled = None if late is None else _late(tool, late)
    return Unresolved(reason=end.how, error_text=str(end.content), late=settled)


def _late(tool: Tool, ended: asyncio.Future[Ending[ToolOutcome]]) -> asyncio.Future[ToolOutcome | Unresolved]:
    return derived(ended, lambda end: _settled(tool, _end(tool, end)))


def refuse_unknown(name: str, known: Iterable[str]) -> ToolOutcome:
    """What the model is told that asked for a tool which its agent does not have. There is no claim (I10)."""
    listed = ", ".join(sorted(known)) or "none"
    return ToolOutcome(
        kind=OutcomeKind.REFUSED, content=f"There is no tool named {shortened(name, 100)!r}. The tools are: {listed}."
    )


def refuse_invalid(error: ToolArgumentsError) -> ToolOutcome:
    """What the model is told whose arguments do not fit. There is no claim (I10)."""
    return ToolOutcome(kind=OutcomeKind.REFUSED, content=shortened(str(error)))


def refuse_masked(without: Sequence[str], *, kept: bool) -> ToolOutcome:
    """What the model is told whose arguments have placeholders that stand for nothing here (R2). There is no claim.

    ``kept`` says that originals are kept: those placeholders are not among them.
    """
    if kept:
        said = (
            f"The call was not made: {shortened(', '.join(without), 200)} in its arguments stands for no secret that "
            "is kept for this run. Use placeholders as they were given, or make the call without."
        )
    else:
        said = (
            "The call was not made: its arguments contain a masked secret ([secret:…]), and the original is not "
            "kept. Make the call without it, or say that it cannot be made."
        )
    return ToolOutcome(kind=OutcomeKind.REFUSED, content=said)
