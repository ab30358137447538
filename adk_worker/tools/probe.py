"""Probes: asking the far side whether a call happened, before a person is asked (I7)."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from pydantic import JsonValue

from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.results import MAX_RESULT_BYTES, returned, shortened, text_of
from adk_worker.tools.bounded import NotStarted, Overran, Raised, Returned, is_async, run_bounded

PROBE_TIMEOUT: Final = 30.0
"""How long a probe may take by default, in seconds."""


@dataclass(frozen=True, slots=True)
class Happened:
    """The call happened. ``outcome`` is what it returned, as JSON or what pydantic makes JSON of."""

    outcome: object = None

    def settled(self, *, max_bytes: int = MAX_RESULT_BYTES) -> ToolOutcome:
        """The outcome to record, as if the call itself had returned it."""
        if not isinstance(self.outcome, ToolOutcome):
            return returned(self.outcome, max_bytes=max_bytes)
        # A probe's own outcome has to fit into the store as much as any other.
        checked = returned(self.outcome.content, max_bytes=max_bytes)
        return self.outcome if checked.kind is OutcomeKind.RETURNED else checked


@dataclass(frozen=True, slots=True)
class NeverWill:
    """It did not happen and never will: the far side refuses that key, or that fence, from now on."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class NotYet:
    """The far side has not seen it. A request may still be under way: see ``max_in_flight`` of :func:`tool`."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The far side cannot tell, or could not be asked."""

    why: str = ""


ProbeAnswer: TypeAlias = Happened | NeverWill | NotYet | Unknown

Probe: TypeAlias = Callable[[str, dict[str, JsonValue]], ProbeAnswer | Awaitable[ProbeAnswer]]
"""``probe(key, arguments)``, sync or async: the call's idempotency key, and its arguments as the tool was given them,
as JSON. It must not change anything, except that the far side may come to refuse the key."""


async def ask(
    probe: Probe,
    key: str,
    arguments: Mapping[str, JsonValue],
    *,
    executor: Executor,
    timeout: float | None = PROBE_TIMEOUT,
    max_result_bytes: int = MAX_RESULT_BYTES,
) -> ProbeAnswer:
    """Ask the far side. What raises, hangs past ``timeout`` seconds or answers anything else is :class:`Unknown`.

    The ``outcome`` of a :class:`Happened` is a settled :class:`ToolOutcome` already.

    :raises asyncio.CancelledError: this coroutine itself was cancelled; nothing else is ever raised.
    """

    def answered(value: object) -> ProbeAnswer:
        if isinstance(value, Happened):
            return Happened(value.settled(max_bytes=max_result_bytes))
        if isinstance(value, NeverWill | Unknown):
            return replace(value, why=shortened(str(value.why)))  # the model may be told of it (H2)
        if isinstance(value, NotYet):
            return value
        return Unknown(f"the probe answered with {type(value).__name__}, which is no answer")

    ended = await run_bounded(
        lambda: probe(key, copy.deepcopy(dict(arguments))),
        in_loop=is_async(probe),
        then=answered,
        executor=executor,
        timeout=timeout,
    )
    match ended:
        case Returned(answer):
            return answer
        case Raised(error):
            return Unknown(f"the probe raised {text_of(error)}")
        case NotStarted():
            return Unknown("no thread was free for the probe")
        case Overran():
            return Unknown(f"the probe did not answer within {timeout:g} s")
