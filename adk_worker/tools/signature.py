"""A function's signature as the JSON schema that the model is shown, and the validation of what the model sends."""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

from adk_worker.errors import ConfigurationError, ToolArgumentsError
from adk_worker.messages import canonical_json
from adk_worker.results import shortened, text_of
from adk_worker.tools.context import ToolContext

_ERRORS_TOLD: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSignature:
    """What one tool takes. Made by :meth:`of`."""

    tool: str
    model: type[BaseModel]
    fields: Mapping[str, str]
    """Parameter by the model's field. Fields have names of their own, for a parameter may be called ``schema`` or
    ``_limit``, which pydantic keeps for itself."""
    context_parameter: str | None
    schema_json: str
    """The JSON schema of the arguments, as canonical JSON."""

    @classmethod
    def of(cls, function: Callable[..., object], *, tool: str) -> ToolSignature:
        """Read the signature of ``function``.

        :raises ConfigurationError: it cannot be shown to a model; the message names the parameter and the way out.
        """
        annotations = _annotations(function, tool)
        context = [name for name, annotation in annotations.items() if annotation is ToolContext]
        if len(context) > 1:
            raise ConfigurationError(f"tool {tool!r} takes ToolContext {len(context)} times; once is enough.")
        fields: dict[str, str] = {}
        definitions: dict[str, Any] = {}
        for name, parameter in inspect.signature(function).parameters.items():
            if name in context:
                continue
            field = f"p{len(fields)}"
            fields[field] = name
            definitions[field] = (annotations[name], _field(parameter, tool))
        model, schema_json = _model(tool, definitions)
        return cls(
            tool=tool,
            model=model,
            fields=fields,
            context_parameter=context[0] if context else None,
            schema_json=schema_json,
        )

    def validate(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """The Python value of each parameter but the context's, defaults included.

        Arguments are validated as the JSON that they came as: a date may be a string even where the type is strict.

        :raises ToolArgumentsError: they do not fit; its reason names them and does not repeat what was sent.
        """
        try:
            valid = self.model.model_validate_json(json.dumps(dict(arguments), allow_nan=False))
        except ValidationError as error:
            raise ToolArgumentsError(tool=self.tool, reason=what_is_wrong(error)) from None
        except Exception as error:  # a validator of the author's, or what json.dumps finds
            raise ToolArgumentsError(tool=self.tool, reason=shortened(text_of(error), 500)) from error
        return {name: getattr(valid, field) for field, name in self.fields.items()}


def _annotations(function: Callable[..., object], tool: str) -> dict[str, Any]:
    """The resolved annotation of each parameter. The return annotation is not looked at."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError, NameError) as error:
        raise ConfigurationError(f"the signature of tool {tool!r} cannot be read: {error}.") from error
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        _check_kind(parameter, tool)
        if parameter.annotation is inspect.Parameter.empty:
            raise ConfigurationError(
                f"parameter {name!r} of tool {tool!r} has no annotation, so that the model cannot be told what it is; "
                "annotate it. (A method is made a tool by tool(instance.method), without its self.)"
            )
        holder = SimpleNamespace(__annotations__={name: parameter.annotation})
        try:
            found |= typing.get_type_hints(holder, globalns=_globals(function), include_extras=True)
        except Exception as error:  # evaluating an annotation runs code of the author's
            raise ConfigurationError(
                f"the annotation of parameter {name!r} of tool {tool!r} cannot be resolved: {text_of(error)}. Its "
                "types have to be importable at run time and stand at module level (not under TYPE_CHECKING)."
            ) from error
        if ToolContext in typing.get_args(found[name]):
            raise ConfigurationError(f"annotate parameter {name!r} of tool {tool!r} as ToolContext, and nothing more.")
    return found


def _check_kind(parameter: inspect.Parameter, tool: str) -> None:
    match parameter.kind:
        case inspect.Parameter.VAR_POSITIONAL:
            refused = f"*{parameter.name}"
        case inspect.Parameter.VAR_KEYWORD:
            refused = f"**{parameter.name}"
        case inspect.Parameter.POSITIONAL_ONLY:
            refused = f"{parameter.name!r} by position only"
        case _:
            return
    raise ConfigurationError(
        f"tool {tool!r} takes {refused}; a model passes arguments by name, so declare each one by its name."
    )


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    """Where the function's annotations were written."""
    while True:
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__globals__"):
            return function.__globals__
        else:
            called = type(function).__call__
            if not hasattr(called, "__globals__"):
                return {}
            function = called


def _field(parameter: inspect.Parameter, tool: str) -> FieldInfo:
    name = parameter.name
    if isinstance(parameter.default, FieldInfo):
        raise ConfigurationError(
            f"the default of parameter {name!r} of tool {tool!r} is a Field(); write Annotated[type, Field(...)], so "
            "that the function still works when it is called directly."
        )
    names: dict[str, Any] = {"alias": name, "validation_alias": name, "serialization_alias": name}
    if parameter.default is inspect.Parameter.empty:
        return typing.cast("FieldInfo", Field(**names))
    return typing.cast("FieldInfo", Field(default=parameter.default, **names))


class _Schema(GenerateJsonSchema):
    """Without a title per property, quiet about a default that is no JSON, and the same in every process (C7)."""

    ignored_warning_kinds: typing.ClassVar[set[JsonSchemaWarningKind]] = {  # type: ignore[misc]
        "skipped-choice",
        "non-serializable-default",
    }

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(_ordered(dft))


def _ordered(value: Any) -> Any:
    """Sets iterate in an order that differs between processes."""
    if isinstance(value, set | frozenset):
        return sorted((_ordered(element) for element in value), key=repr)
    if isinstance(value, Mapping):
        return {key: _ordered(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return [_ordered(element) for element in value]
    return value


def _model(tool: str, definitions: dict[str, Any]) -> tuple[type[BaseModel], str]:
    config = ConfigDict(extra="forbid", hide_input_in_errors=True, arbitrary_types_allowed=False)
    try:
        model = create_model("Arguments", __config__=config, **definitions)
        schema = model.model_json_schema(by_alias=True, schema_generator=_Schema)
    except (PydanticUserError, TypeError, ValueError) as error:
        said = str(error).partition("\n")[0].strip()
        raise ConfigurationError(
            f"the parameters of tool {tool!r} have no JSON schema: {said} Use types that pydantic knows."
        ) from error
    del schema["title"]
    return model, canonical_json(schema)


def what_is_wrong(error: ValidationError) -> str:
    """What is wrong, in one line, without addresses of documentation and without the input."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = []
    for entry in found[:_ERRORS_TOLD]:
        where = ".".join(str(step) for step in entry["loc"])
        message = shortened(entry["msg"], 300)
        said.append(f"{shortened(where, 100)}: {message}" if where else message)
    if len(found) > _ERRORS_TOLD:
        said.append(f"and {len(found) - _ERRORS_TOLD} more")
    return shortened("; ".join(said))
