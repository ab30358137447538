"""What a run store checks of a submit, and how it tells the same request from another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from pydantic import ConfigDict, JsonValue, TypeAdapter, ValidationError

from adk_worker.errors import NotJSONError
from adk_worker.messages import canonical_json
from adk_worker.names import check_name, check_run
from adk_worker.results import check_readable, shortened
from adk_worker.runs import NewRun, Run

_LATER: Final = ConfigDict(defer_build=True)  # by the first submit
_OBJECT: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue], config=_LATER)
_TEXT: TypeAdapter[str] = TypeAdapter(str, config=_LATER)

T = TypeVar("T")


def checked(new: NewRun) -> NewRun:
    """Return the submit with JSON of its own, or refuse it before anything is written.

    :raises InvalidNameError: the tenant, the run id or the agent's name cannot be one.
    :raises NotJSONError: the input is no text, or ``metadata`` or ``masks`` no JSON object.
    """
    check_run(new.tenant, new.run_id)
    check_name(new.agent, what="agent's name")
    if not isinstance(new.input, str):
        raise NotJSONError(
            what="the input",
            reason=f"it is {type(new.input).__name__}, not a text",
            use="a text (json.dumps makes one), or the metadata",
        )
    read_back(_TEXT, "the input", new.input)
    return replace(new, metadata=_object("metadata", new.metadata), masks=_object("masks", new.masks))


def same_request(run: Run, new: NewRun) -> bool:
    """Whether ``new`` asks for what ``run`` was submitted with: the same agent, input and metadata (F5).

    Not the revision: whoever asks again after a deployment asks for the same.
    """
    asked = [run.agent, run.input, run.metadata]
    return canonical_json(asked) == canonical_json([new.agent, new.input, dict(new.metadata)])


def _object(what: str, value: Mapping[str, Any]) -> dict[str, JsonValue]:
    try:
        checked_object = _OBJECT.validate_python(dict(value), strict=True)
    except (ValidationError, TypeError, ValueError) as error:
        raise NotJSONError(what=what, reason=_first(error)) from error
    return read_back(_OBJECT, what, checked_object)


def read_back(as_json: TypeAdapter[T], what: str, value: T) -> T:
    """What reading the stored form gives back, wherever it stands: nothing may get in that cannot come out."""
    try:
        text = canonical_json(value)
        check_readable(text)
        return as_json.validate_json(text)
    except ValidationError as error:
        reason = "a text in it has a lone surrogate, or it is nested too deeply"
        raise NotJSONError(what=what, reason=reason) from error
    except (TypeError, ValueError, RecursionError) as error:  # no JSON at all, NaN, infinity, or itself
        raise NotJSONError(what=what, reason=_first(error)) from error


def _first(error: Exception) -> str:
    """What is wrong and where, without the value: it may be a secret."""
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return shortened(f"{'.'.join(map(str, found['loc'])) or 'it'}: {found['msg']}", 200)
    return str(error)
