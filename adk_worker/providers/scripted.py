"""A model that follows a script: deterministic, offline, and as strict about transcripts as real ones.

The turn is chosen by the transcript alone, so that a run that another process carries on gets the turn that is due.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from pydantic import JsonValue, ValidationError

from adk_worker.errors import ConfigurationError, ModelError
from adk_worker.ledger.spending import by_size
from adk_worker.messages import Message, ToolCallPart, ToolResultPart
from adk_worker.model import Estimate, ModelAnswer, ModelRequest

Call: TypeAlias = ToolCallPart | tuple[str, dict[str, JsonValue]]
"""A call as a part, or as (tool, arguments); the latter gets the id ``call_ITERATION_NUMBER``."""

Turn: TypeAlias = str | Call | list[Call] | ModelAnswer | Exception
"""A final answer, a call, several, an answer in full, or an exception to raise."""

Script: TypeAlias = Callable[[ModelRequest], Turn | Awaitable[Turn]]


_REQUESTS_KEPT: Final = 50
"""A worker that follows a script for days must not keep every transcript that it saw."""


class ScriptedProvider:
    """Answers with the turn that is due: the first to a transcript without an answer, the second after one, and so on.

    :param turns: the turns, or a function of the request, sync or async, that gives one.
    :param name: the model's name, in an agent's revision (C7).
    :param delay: seconds that each call takes, to be interrupted in.
    :param estimate: what each call may take, for budgets; by default the size of what is sent, at no known price.

    An exception is a turn that never passes: the transcript is the same when the call is made again. A function can
    tell otherwise.
    """

    def __init__(
        self,
        turns: Sequence[Turn] | Script,
        *,
        name: str = "scripted",
        delay: float = 0,
        estimate: Estimate | None = None,
    ) -> None:
        if isinstance(turns, str) or not (callable(turns) or isinstance(turns, Sequence)):
            raise ConfigurationError(
                f"the script of model {name!r} is {type(turns).__name__}; it has to be a list of turns or a function."
            )
        self._turns: tuple[Turn, ...] | Script = turns if callable(turns) else tuple(turns)
        self._name = name
        self._delay = delay
        self._estimate = estimate
        self.requests: deque[ModelRequest] = deque(maxlen=_REQUESTS_KEPT)
        """The newest requests of this process, oldest first, refused ones included. For tests."""

    @property
    def name(self) -> str:
        """See :class:`ModelProvider`."""
        return self._name

    def __repr__(self) -> str:
        return f"ScriptedProvider(name={self._name!r})"

    def estimate(self, request: ModelRequest) -> Estimate:
        """See :class:`~adk_worker.model.Estimates`."""
        return self._estimate or by_size(request)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """See :class:`ModelProvider`.

        :raises ModelError: no real provider would take the transcript, the script is over, or a turn of it is no turn.
        """
        self.requests.append(request)
        _verify(request.messages)
        if self._delay:
            await asyncio.sleep(self._delay)
        turn = await self._due(request)
        if isinstance(turn, Exception):
            raise turn
        try:
            return _answer(turn, request.iteration)
        except (ValidationError, TypeError, ValueError) as error:
            raise ModelError(f"the script {self._name!r} has a turn that cannot be used: {error}") from error

    async def _due(self, request: ModelRequest) -> Any:
        if callable(self._turns):
            turn = self._turns(request)
            return await turn if inspect.isawaitable(turn) else turn
        due = sum(message.role == "assistant" for message in request.messages)
        if due >= len(self._turns):
            raise ModelError(
                f"the script {self._name!r} is over: it has {len(self._turns)} turns, and the transcript asks for turn "
                f"{due + 1}. Let the last turn be a text, which ends the run."
            )
        return self._turns[due]


def _answer(turn: object, iteration: int) -> ModelAnswer:
    match turn:
        case ModelAnswer():
            return turn
        case str():
            return ModelAnswer(text=turn)
        case list():
            return ModelAnswer(calls=tuple(_call(call, iteration, n) for n, call in enumerate(turn)))
        case _:
            return ModelAnswer(calls=(_call(turn, iteration, 0),))


def _call(call: object, iteration: int, number: int) -> ToolCallPart:
    match call:
        case ToolCallPart():
            return call
        case (str() as tool, dict() as arguments):
            return ToolCallPart(id=f"call_{iteration}_{number}", name=tool, arguments=arguments)
        case _:
            raise TypeError(f"{call!r} is neither a ToolCallPart nor (tool, arguments)")


def _verify(messages: tuple[Message, ...]) -> None:
    """Refuse what real providers refuse: calls without results, results without calls, results out of order."""
    if not messages or messages[0].role != "user":
        raise ModelError("the transcript has to begin with what the user said.")
    following: Iterator[Message | None] = iter((*messages[1:], None))
    for message, after in zip(messages, following, strict=True):
        asked = [call.id for call in message.calls]
        if asked and message.role != "assistant":
            raise ModelError(f"a message of role {message.role} asks for calls.")
        given = _results(after)
        if asked != given:
            raise ModelError(
                f"the transcript asks for the calls {asked} and goes on with the results {given}: every call needs its "
                "result before the next model call, in call order."
            )
    if messages[-1].role == "assistant":
        raise ModelError("the transcript ends with an answer: there is nothing to be said to it.")


def _results(message: Message | None) -> list[str]:
    return [] if message is None else [part.call_id for part in message.parts if isinstance(part, ToolResultPart)]
