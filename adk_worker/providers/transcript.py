"""A run's transcript as pydantic-ai's messages, and a model's answer as one of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_ai import messages as theirs
from pydantic_core import to_jsonable_python

from adk_worker.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCallPart, ToolResultPart, Usage
from adk_worker.model import ModelAnswer
from adk_worker.results import shortened

OPAQUE: Final = "pydantic-ai"
"""Whose opaque parts these are; each says in its data which provider's of pydantic-ai they are."""

INVALID_JSON: Final = "INVALID_JSON"
"""Under this name the model is shown what it sent where that was no JSON object, as pydantic-ai does."""

_THINKING: TypeAdapter[theirs.ThinkingPart] = TypeAdapter(theirs.ThinkingPart)
_ARGUMENTS: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


def to_messages(transcript: Sequence[Message], *, instructions: str | None) -> list[theirs.ModelMessage]:
    """The transcript for a model of pydantic-ai; ``instructions`` stand with every request, as it wants them."""
    return [
        _response(message) if message.role == "assistant" else _request(message, instructions) for message in transcript
    ]


def _request(message: Message, instructions: str | None) -> theirs.ModelRequest:
    parts: list[theirs.ModelRequestPart] = []
    for part in message.parts:
        match part:
            case TextPart():
                parts.append(theirs.UserPromptPart(part.text))
            case BinaryPart():
                parts.append(theirs.UserPromptPart([theirs.BinaryContent(part.data, media_type=part.media_type)]))
            case ToolResultPart():
                outcome: Any = "failed" if part.is_error else "success"
                parts.append(
                    theirs.ToolReturnPart(
                        tool_name=part.name, content=part.content, tool_call_id=part.call_id, outcome=outcome
                    )
                )
            case ToolCallPart() | OpaquePart():  # the model's own, which nobody says to it
                pass
    return theirs.ModelRequest(parts=parts, instructions=instructions)


def _response(message: Message) -> theirs.ModelResponse:
    opaque = [part.data for part in message.parts if isinstance(part, OpaquePart) and part.provider == OPAQUE]
    details: dict[str, Any] = {}
    parts: list[theirs.ModelResponsePart] = []
    for data in opaque:
        if isinstance(data, dict) and "thinking" in data:
            parts.extend(_thought(data["thinking"]))
        elif isinstance(data, dict) and isinstance(known := data.get("details"), dict):
            details.update(known)
    if message.text:
        parts.append(theirs.TextPart(message.text, **details.get("", {})))
    parts.extend(
        theirs.ToolCallPart(call.name, call.arguments, tool_call_id=call.id, **details.get(call.id, {}))
        for call in message.calls
    )
    return theirs.ModelResponse(parts=parts)


def _thought(data: JsonValue) -> Iterator[theirs.ThinkingPart]:
    try:
        yield _THINKING.validate_python(data)
    except ValidationError:  # of another version; without it the answer is still one
        return


def to_answer(response: theirs.ModelResponse, *, iteration: int, cost_micros: int) -> ModelAnswer:
    """The answer of a model of pydantic-ai."""
    texts = [part for part in response.parts if isinstance(part, theirs.TextPart)]
    asked = [part for part in response.parts if isinstance(part, theirs.ToolCallPart)]
    ids = _ids([part.tool_call_id for part in asked], iteration)
    calls: list[ToolCallPart] = []
    refused: dict[str, str] = {}
    for call_id, part in zip(ids, asked, strict=True):
        arguments, wrong = _arguments(part.args)
        calls.append(ToolCallPart(id=call_id, name=part.tool_name, arguments=arguments))
        if wrong:
            refused[call_id] = wrong
    return ModelAnswer(
        text="".join(part.content for part in texts) or None,
        calls=tuple(calls),
        refused=refused,
        opaque=tuple(_opaque(response, texts, dict(zip(ids, asked, strict=True)))),
        usage=Usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens),
        cost_micros=cost_micros,
    )


def _ids(given: Sequence[str], iteration: int) -> list[str]:
    """The calls' ids, made up where a server of one's own gives none, or one twice."""
    seen: set[str] = set()
    ids = []
    for number, call_id in enumerate(given):
        unique = call_id if call_id and call_id not in seen else f"call_{iteration}_{number}"
        seen.add(unique)
        ids.append(unique)
    return ids


def _arguments(given: str | Mapping[str, Any] | None) -> tuple[dict[str, JsonValue], str | None]:
    """The arguments of a call, and what is wrong with them if they are no JSON object."""
    if given is None or given == "":
        return {}, None
    try:
        if isinstance(given, str):
            return _ARGUMENTS.validate_json(given), None
        return _ARGUMENTS.validate_python(dict(given)), None
    except (ValidationError, ValueError, TypeError):
        sent = shortened(given if isinstance(given, str) else repr(given))
        said = "The call was not made: its arguments are no JSON object. Call again with a JSON object of arguments."
        return {INVALID_JSON: sent}, said


def _opaque(
    response: theirs.ModelResponse, texts: Sequence[theirs.TextPart], calls: Mapping[str, theirs.ToolCallPart]
) -> Iterator[OpaquePart]:
    for part in response.parts:
        if isinstance(part, theirs.ThinkingPart):
            yield OpaquePart(provider=OPAQUE, data={"thinking": _THINKING.dump_python(part, mode="json")})
    named: dict[str, theirs.TextPart | theirs.ToolCallPart] = dict(calls)
    if len(texts) == 1:
        named[""] = texts[0]
    details: dict[str, JsonValue] = {key: found for key, part in named.items() if (found := _details(part))}
    if details:
        yield OpaquePart(provider=OPAQUE, data={"details": details})


def _details(part: theirs.TextPart | theirs.ToolCallPart) -> dict[str, JsonValue]:
    if not (part.id or part.provider_details):
        return {}
    found = {"id": part.id, "provider_name": part.provider_name, "provider_details": part.provider_details}
    return {key: to_jsonable_python(value) for key, value in found.items() if value}
