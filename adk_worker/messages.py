"""What passes between a run and its model: messages, their parts, and usage.

All are frozen pydantic models whose JSON is the stored form, so that a transcript written by one version is validated
when another reads it. Text is masked before it becomes a message (R1).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

Role = Literal["user", "assistant", "tool"]


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        ser_json_bytes="base64",
        val_json_bytes="base64",
        # Not every program that knows the types reads a transcript.
        defer_build=True,
    )


class TextPart(_Frozen):
    """Plain text."""

    kind: Literal["text"] = "text"
    text: str


class BinaryPart(_Frozen):
    """Bytes with their media type, stored as base64. Never masked (R1)."""

    kind: Literal["binary"] = "binary"
    media_type: str
    data: bytes


class ToolCallPart(_Frozen):
    """A call that the model asks for; ``id`` is the provider's and unique within its message."""

    kind: Literal["tool_call"] = "tool_call"
    id: str
    name: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)


class ToolResultPart(_Frozen):
    """The answer to one call. ``is_error`` marks a refusal or a failure that the model is told about."""

    kind: Literal["tool_result"] = "tool_result"
    call_id: str
    name: str
    content: JsonValue = None
    is_error: bool = False


class OpaquePart(_Frozen):
    """What a provider wants to be given back unread with its answer: a signature of its reasoning, an item's id.

    ``provider`` says whose it is; every other provider leaves it out.
    """

    kind: Literal["opaque"] = "opaque"
    provider: str
    data: JsonValue


Part = Annotated[TextPart | BinaryPart | ToolCallPart | ToolResultPart | OpaquePart, Field(discriminator="kind")]


class Message(_Frozen):
    """One entry of the transcript."""

    role: Role
    parts: tuple[Part, ...]

    @classmethod
    def user(cls, text: str) -> Message:
        """What the submitter said."""
        return cls(role="user", parts=(TextPart(text=text),))

    @classmethod
    def assistant(
        cls, text: str | None = None, calls: Iterable[ToolCallPart] = (), *, opaque: Iterable[OpaquePart] = ()
    ) -> Message:
        """What the model said and the calls that it asks for, behind what its provider wants back."""
        said = (TextPart(text=text),) if text is not None else ()
        return cls(role="assistant", parts=(*opaque, *said, *calls))

    @classmethod
    def tool(cls, results: Iterable[ToolResultPart]) -> Message:
        """The results of one turn's calls, in call order."""
        return cls(role="tool", parts=tuple(results))

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[ToolCallPart, ...]:
        """The calls that this message asks for, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCallPart))


class Usage(_Frozen):
    """Tokens of one model call, or summed over a run. Reported, never spent from (C6)."""

    input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
        )


_MESSAGES: TypeAdapter[tuple[Message, ...]] = TypeAdapter(tuple[Message, ...], config=ConfigDict(defer_build=True))


def dump_messages(messages: Sequence[Message]) -> str:
    """The stored form: a JSON array in ASCII with sorted keys, so that equal messages have equal bytes."""
    return canonical_json([message.model_dump(mode="json") for message in messages])


def load_messages(text: str) -> tuple[Message, ...]:
    """Read :func:`dump_messages` back; raises ``pydantic.ValidationError`` on anything else."""
    return _MESSAGES.validate_json(text)


def canonical_json(value: Any) -> str:
    """JSON in ASCII, keys sorted, no spaces: one text per value, safe in every store (no raw NUL, no surrogate)."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False)
