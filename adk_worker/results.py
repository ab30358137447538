"""What a tool returned, as the JSON that is recorded and that the model is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from adk_worker.messages import canonical_json
from adk_worker.outcomes import OutcomeKind, ToolOutcome

MAX_RESULT_BYTES: Final = 256 * 1024
"""Largest result in bytes of its stored form, unless a tool or the caller says otherwise."""

MAX_TEXT: Final = 2_000
"""Longest text that is told about an error, in characters."""

_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue, config=ConfigDict(defer_build=True))

_ENVELOPE_DEPTH: Final = 16
"""How deep results stand inside the messages and checkpoints that carry them, at most."""


def returned(value: object, *, max_bytes: int = MAX_RESULT_BYTES) -> ToolOutcome:
    """The outcome of a call that returned ``value``. Never raises: a call that completed is recorded as such (I10).

    Models, dataclasses, dates, sets and the like become JSON as pydantic sees them. The content is what reading the
    stored form gives back, so that the live run and a resumed one are told the same. What has no JSON, or has more
    than ``max_bytes`` bytes of it, gives :attr:`OutcomeKind.UNUSABLE` with a sentence that says so.
    """
    if isinstance(value, Iterator):  # pydantic would run a generator until its end, which need not exist
        return _unusable(f"it is not JSON ({type(value).__name__} is an iterator)")
    try:
        text = canonical_json(to_jsonable_python(value))
    except Exception as error:  # noqa: BLE001 - serializers are the tool author's code and may raise anything
        return _unusable(f"it is not JSON ({shortened(text_of(error).partition(chr(10))[0], 200)})")
    if len(text) > max_bytes:
        return _unusable(f"it has {len(text):,} bytes, over the limit of {max_bytes:,}")
    try:
        check_readable(text)
    except ValidationError:
        return _unusable("it is not JSON (a text in it has a lone surrogate, or it is nested too deeply)")
    return ToolOutcome(kind=OutcomeKind.RETURNED, content=_JSON.validate_json(text))


def check_readable(text: str) -> None:
    """Let JSON pass that can be read wherever it will stand. Nothing may get in that cannot come out.

    Readers of transcripts, checkpoints and claims refuse a lone surrogate, and what is nested too deeply together with
    what it stands in.

    :raises ValidationError: it cannot.
    """
    _JSON.validate_json("[" * _ENVELOPE_DEPTH + text + "]" * _ENVELOPE_DEPTH)


def _unusable(reason: str) -> ToolOutcome:
    content = f"The call completed, but its result was not kept: {reason}."
    return ToolOutcome(kind=OutcomeKind.UNUSABLE, content=content)


def text_of(error: BaseException) -> str:
    """``Type: message`` of an error, without a traceback, in characters that every store and terminal can carry."""
    name = type(error).__name__
    try:
        message = str(error).strip()
    except Exception:  # noqa: BLE001 - __str__ of somebody else's error
        message = ""
    return shortened(f"{name}: {message}" if message else name)


def whole(text: str) -> str:
    """``text`` with lone surrogates replaced: models leave them that were cut off, terminals for bytes of no text."""
    return text.encode("utf-8", "replace").decode("utf-8")


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """``text`` in at most ``limit`` characters, lone surrogates replaced, cut with an ellipsis."""
    clean = whole(text)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
