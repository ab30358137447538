"""Tools: functions that a model may call, and what their authors declare about them."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeAlias, overload

from pydantic import JsonValue
from typing_extensions import ParamSpec, TypeVar

from adk_worker.approvals.declaring import Approval, approval_of
from adk_worker.errors import ConfigurationError
from adk_worker.outcomes import Effect
from adk_worker.tools.bounded import is_async
from adk_worker.tools.context import ToolContext
from adk_worker.tools.probe import Probe
from adk_worker.tools.signature import ToolSignature

DEFAULT_TIMEOUT: Final = 60.0
"""How long a call may take unless its tool says otherwise, in seconds."""

P = ParamSpec("P", default=...)
R = TypeVar("R", default=Any)

EffectName: TypeAlias = Effect | Literal["effectful", "idempotent", "read_only"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Tool(Generic[P, R]):
    """A function with what its author declares about it. Made by :func:`tool`; calling it calls the function."""

    function: Callable[P, R] = field(repr=False)
    name: str
    description: str = field(repr=False)
    signature: ToolSignature = field(repr=False)
    effect: Effect = Effect.EFFECTFUL
    timeout: float | None = DEFAULT_TIMEOUT
    requires_approval: bool | Approval = False
    probe: Probe | None = field(default=None, repr=False)
    did_not_happen: tuple[type[Exception], ...] = ()
    max_in_flight: float | None = None
    retries: int = 0
    max_result_bytes: int | None = None

    def __post_init__(self) -> None:
        # What functools.update_wrapper would set, so that help(), inspect.signature() and doctest see the function.
        self.__dict__["__wrapped__"] = self.function
        self.__dict__["__doc__"] = self.function.__doc__

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: no validation, no time-out, no claim. For the author's own tests."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the function runs in the event loop; any other runs in a thread."""
        return is_async(self.function)

    @property
    def approval(self) -> Approval | None:
        """What is declared of approvals; ``None`` where none is required."""
        return approval_of(self.requires_approval, of=f"tool {self.name!r}")

    @property
    def schema(self) -> dict[str, JsonValue]:
        """The JSON schema of the arguments; a copy of its own each time."""
        found: dict[str, JsonValue] = json.loads(self.signature.schema_json)
        return found

    def validate(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """The Python values of the arguments, by parameter, defaults included and the context left out.

        :raises ToolArgumentsError: they do not fit the signature.
        """
        return self.signature.validate(arguments)

    def bound(self, context: ToolContext, values: Mapping[str, Any]) -> functools.partial[R]:
        """The call with what :meth:`validate` gave, and the context where the function wants it."""
        parameter = self.signature.context_parameter
        injected: dict[str, Any] = {} if parameter is None else {parameter: context}
        bound: functools.partial[R] = functools.partial(self.function, **values, **injected)
        return bound


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: EffectName = ...,
    timeout: float | None = ...,
    requires_approval: bool | Approval = ...,
    probe: Probe | None = ...,
    did_not_happen: type[Exception] | Iterable[type[Exception]] = ...,
    max_in_flight: float | None = ...,
    retries: int = ...,
    name: str | None = ...,
    description: str | None = ...,
    max_result_bytes: int | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(  # noqa: PLR0913 - the decorator is where an author declares all that there is to declare
    function: Callable[..., Any] | None = None,
    /,
    *,
    effect: EffectName = Effect.EFFECTFUL,
    timeout: float | None = DEFAULT_TIMEOUT,
    requires_approval: bool | Approval = False,
    probe: Probe | None = None,
    did_not_happen: type[Exception] | Iterable[type[Exception]] = (),
    max_in_flight: float | None = None,
    retries: int = 0,
    name: str | None = None,
    description: str | None = None,
    max_result_bytes: int | None = None,
) -> Any:
    """Make a tool of a function, sync or async. Parameters become the schema that the model is shown.

    The parameter annotated :class:`ToolContext`, if there is one, is filled in and not shown.

    :param effect: ``effectful`` (the default: a call whose end is unknown is never repeated and never guessed at),
        ``idempotent`` (it may be sent again under the same key) or ``read_only`` (it may be run again) (I7).
    :param timeout: seconds, or ``None`` for as long as the iteration may take. A sync function cannot be stopped.
    :param requires_approval: a person has to approve each call before it is made; with :class:`Approval`, who may, in
        what time, and of which calls (P1).
    :param probe: asks the far side whether a call happened (I7).
    :param did_not_happen: exceptions that prove that there was no effect: a rejection, a refused connection (I10).
    :param max_in_flight: how many seconds a request may go on after the process that sent it died. Without it, the
        answer "not yet" of a probe permits nothing (I7).
    :param retries: how often a failed call is repeated within itself. Not for effectful tools.
    :param name: what the model calls it; the function's name by default.
    :param description: what the model is told; the docstring by default.
    :param max_result_bytes: largest result in bytes of JSON; a larger one is dropped and the model told so (I10).
    :raises ConfigurationError: any of this contradicts itself, or the signature cannot be shown to a model.
    """

    def made(function: Callable[..., Any]) -> Tool:
        named = _checked_name(function, name)
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"tool {named!r} is a generator; a tool returns one value.")
        checked = _checked_effect(effect, named)
        if retries and checked is Effect.EFFECTFUL:
            raise ConfigurationError(
                f"tool {named!r} is effectful and has retries={retries}: repeating it might do it twice. If the far "
                "side honours the idempotency key, declare effect='idempotent'."
            )
        return Tool(
            function=function,
            name=named,
            description=inspect.getdoc(function) or "" if description is None else description,
            signature=ToolSignature.of(function, tool=named),
            effect=checked,
            timeout=_checked_number(timeout, "timeout", named, "seconds above 0, or None", above=0),
            requires_approval=_checked_approval(requires_approval, named),
            probe=_checked_probe(probe, named),
            did_not_happen=_checked_exceptions(did_not_happen, named),
            max_in_flight=_checked_number(max_in_flight, "max_in_flight", named, "0 seconds or more, or None", least=0),
            retries=_checked_count(retries, "retries", named, least=0) or 0,
            max_result_bytes=_checked_count(max_result_bytes, "max_result_bytes", named, least=1),
        )

    return made if function is None else made(function)


def _checked_name(function: Callable[..., object], name: str | None) -> str:
    found = getattr(function, "__name__", None) if name is None else name
    if not isinstance(found, str) or not _NAME.fullmatch(found):
        raise ConfigurationError(
            f"{found!r} cannot name a tool: model providers take 1 to 64 letters of ASCII, digits, '_' and '-'. Give "
            "name=… to @tool."
        )
    return found


def _checked_effect(effect: str, tool: str) -> Effect:
    try:
        return Effect(effect)
    except ValueError:
        known = ", ".join(repr(str(known)) for known in Effect)
        raise ConfigurationError(f"tool {tool!r} has effect={effect!r}; it is one of {known}.") from None


def _checked_number(
    value: Any, what: str, tool: str, wanted: str, *, above: float = -math.inf, least: float = -math.inf
) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value <= above or value < least:
        raise ConfigurationError(f"tool {tool!r} has {what}={value!r}; it has to be {wanted}.")
    return float(value)


def _checked_count(value: Any, what: str, tool: str, *, least: int) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise ConfigurationError(f"tool {tool!r} has {what}={value!r}; it has to be a whole number from {least}.")
    return None if value is None else int(value)


def _checked_approval(declared: bool | Approval, tool: str) -> bool | Approval:  # noqa: FBT001 - what authors write
    approval_of(declared, of=f"tool {tool!r}")
    return declared


def _checked_probe(probe: Probe | None, tool: str) -> Probe | None:
    if probe is None:
        return None
    wanted = f"the probe of tool {tool!r} has to be a function that can be called as probe(key, arguments)"
    if not callable(probe):
        raise ConfigurationError(f"{wanted}, not {type(probe).__name__}.")
    try:
        inspect.signature(probe).bind("key", {})
    except TypeError as error:
        raise ConfigurationError(f"{wanted}: {error}.") from None
    except ValueError:  # a builtin without a signature: calling it will tell
        pass
    return probe


def _checked_exceptions(given: type[Exception] | Iterable[type[Exception]], tool: str) -> tuple[type[Exception], ...]:
    listed: tuple[Any, ...] = (given,) if isinstance(given, type) else tuple(given)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise ConfigurationError(f"did_not_happen of tool {tool!r} lists {kind!r}, which is no type of exception.")
        if kind is Exception:
            raise ConfigurationError(
                f"did_not_happen of tool {tool!r} lists Exception itself, which would say of every failure that it had "
                "no effect. List the types that prove it."
            )
    return listed
