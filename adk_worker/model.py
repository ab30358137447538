"""What passes between a run and its model's provider: :class:`ModelProvider` and the types that it is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from adk_worker.errors import ConfigurationError
from adk_worker.ledger.amounts import HIGHEST
from adk_worker.messages import Message, OpaquePart, ToolCallPart, Usage


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model is shown it. ``schema`` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call."""

    tenant: str
    run_id: str
    agent: str
    iteration: int
    """Which model call of the run this is, counted from 1."""
    model: str
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


class ModelAnswer(BaseModel):
    """What the model said, and the calls that it asks for. Without calls it is the run's final answer.

    Making one raises ``pydantic.ValidationError`` where two calls have one id, since a call's result is found by it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str | None = None
    calls: tuple[ToolCallPart, ...] = ()
    refused: Mapping[str, str] = Field(default_factory=dict)
    """Calls that are not to be made, by their ids, with what the model is told instead: their arguments were no JSON
    object, for one. There is no claim on them (I10)."""
    opaque: tuple[OpaquePart, ...] = ()
    """What the provider wants back with this answer. Kept only where nothing in it has to be masked (R1)."""
    usage: Usage = Usage()
    cost_micros: int = Field(default=0, ge=0)
    """What the call cost, in millionths of a currency unit."""

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        ids = [call.id for call in self.calls]
        if len(ids) != len(set(ids)):
            raise ValueError("two calls of one answer have the same id")
        return self

    @property
    def message(self) -> Message:
        """The transcript's entry of this answer."""
        return Message.assistant(self.text, self.calls, opaque=self.opaque)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a model call may take at most. ``cost_micros`` is ``None`` where nobody knows the model's price.

    :raises ConfigurationError: one is no whole number from 0 up: no limit could be held by it, nor could it be stored.
    """

    input_tokens: int
    output_tokens: int
    cost_micros: int | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "cost_micros"):
            number = getattr(self, name)
            if number is None and name == "cost_micros":
                continue
            if type(number) is not int or not 0 <= number <= HIGHEST:
                raise ConfigurationError(
                    f"an estimate of {number!r} {name} is none; have the model's provider give a whole number from 0 "
                    f"to {HIGHEST}."
                )


@runtime_checkable
class Estimates(Protocol):
    """A provider that knows what its calls may take. Of any other's, the size of what is sent is measured."""

    def estimate(self, request: ModelRequest) -> Estimate:
        """What the call may take at most: rather too much than too little, for that is what limits are held by (P3)."""
        ...


@runtime_checkable
class ModelProvider(Protocol):
    """Makes model calls. One object serves all runs of a process, from its event loop, several at once."""

    @property
    def name(self) -> str:
        """Names the model in an agent's revision (C7): it differs where the model does, and never holds a secret."""
        ...

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Make one model call.

        Must be cancellable: the caller's cancellation aborts the call. Keeps nothing of a run from one call to the
        next, for the next one may be made by another process.

        :raises ModelError: the call failed; ``transient`` says that it may be made again, and anything else ends the
            run, so that the message has to say what to do.
        :raises ModelUnavailableError: the provider takes no calls for now.
        """
        ...
