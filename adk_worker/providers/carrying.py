"""Making an agent of ours of a pydantic-ai agent, unchanged; or refusing it, with the reason."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic_ai import Agent as TheirAgent
from pydantic_ai.capabilities import (
    AbstractCapability,
    Instrumentation,
    ProcessHistory,
    ReinjectSystemPrompt,
    SetToolMetadata,
    Thinking,
)
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel
from pydantic_ai.output import NativeOutput, PromptedOutput, TextOutput, ToolOutput
from pydantic_ai.tools import DeferredToolRequests

from adk_worker.agent import DEFAULT_MAX_ITERATIONS, Agent, digest_of
from adk_worker.errors import ConfigurationError
from adk_worker.messages import canonical_json
from adk_worker.providers.carried import CarriedProvider
from adk_worker.providers.carried_tools import Around, MakeDeps, ToolOptions, carried_tools
from adk_worker.providers.pydantic_ai import PydanticAIProvider

_CARRIED: Final = (Instrumentation, ProcessHistory, ReinjectSystemPrompt, SetToolMetadata, Thinking)
"""Capabilities that shape a request and call nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrying:
    """How a pydantic-ai agent is to be taken over; see :meth:`adk_worker.Agent.from_pydantic_ai`."""

    name: str | None
    model: str | Model | None
    deps: MakeDeps | None
    tools: Mapping[str, ToolOptions]
    max_iterations: int | None
    revision: str | None


def carry(agent: Any, how: Carrying) -> Agent:
    """The agent of ours.

    :raises ConfigurationError: something of it cannot be carried; the message says what, why, and the way out.
    """
    if not isinstance(agent, TheirAgent):
        raise ConfigurationError(f"from_pydantic_ai takes a pydantic_ai.Agent, not {type(agent).__name__}.")
    name = how.name or agent.name
    if name is None:
        raise ConfigurationError("this pydantic-ai agent has no name, by which runs are submitted; give name=….")
    try:
        return _carry(name, agent, how)
    except ConfigurationError as error:
        raise ConfigurationError(f"the pydantic-ai agent {name!r} cannot be carried: {error}") from error


def _carry(name: str, agent: TheirAgent[Any, Any], how: Carrying) -> Agent:
    asked = PydanticAIProvider(_model(agent, how.model))
    make_deps = _make_deps(agent, how.deps)
    _check_output(agent.output_type)
    _check_capabilities(agent)
    if agent.validation_context is not None:
        raise ConfigurationError("it has a validation_context, and arguments are validated before there is one.")
    around = Around(agent, make_deps, asked)
    tools = carried_tools(around, how.tools)
    instructions = _instructions(agent)
    provider = CarriedProvider(around, asked)
    revision = how.revision
    if revision is None:
        # What decides how a run goes on, and stands in no field of ours.
        digest = [digest_of(name, instructions, provider, tools), agent.output_json_schema()]
        revision = hashlib.sha256(canonical_json(["adk-pydantic-ai-1", *digest]).encode()).hexdigest()[:16]
    return Agent(
        name=name,
        instructions=instructions,
        model=provider,
        tools=tools,
        max_iterations=how.max_iterations or DEFAULT_MAX_ITERATIONS,
        revision=revision,
    )


def _model(agent: TheirAgent[Any, Any], given: str | Model | None) -> str | Model:
    model = agent.model if given is None else given
    if model is None:
        raise ConfigurationError("it has no model; give model=….")
    return model


def _make_deps(agent: TheirAgent[Any, Any], given: MakeDeps | None) -> MakeDeps:
    if given is not None:
        if not callable(given):
            raise ConfigurationError(
                f"deps={given!r} is one value for all runs; give a function that makes it of a run's metadata."
            )
        return given
    if agent.deps_type not in {object, type(None)}:
        wanted = getattr(agent.deps_type, "__name__", repr(agent.deps_type))
        raise ConfigurationError(
            f"it takes dependencies ({wanted}), which live in one process; give deps=…, a function that makes them of "
            "a run's metadata wherever the run is carried on."
        )
    return lambda _: None


def _check_output(output_type: Any) -> None:
    for kind in _outputs(output_type):
        if kind is DeferredToolRequests:
            raise ConfigurationError(
                "its output type has DeferredToolRequests; a call that waits for a person is the fleet's "
                "(requires_approval=True), and takes no output."
            )
        if isinstance(kind, TextOutput) or _is_function(kind):
            named = getattr(kind, "__qualname__", type(kind).__name__)
            raise ConfigurationError(
                f"its output type has the function {named}, which would be called without a claim, and called again "
                "after a crash. Make it a tool, or an output validator if it only looks."
            )


def _outputs(output_type: Any) -> Iterator[Any]:
    match output_type:
        case ToolOutput():
            yield from _outputs(output_type.output)
        case NativeOutput() | PromptedOutput():
            yield from _outputs(output_type.outputs)
        case list() | tuple():
            for inner in output_type:
                yield from _outputs(inner)
        case _ if get_origin(output_type) in {Union, UnionType}:
            for inner in get_args(output_type):
                yield from _outputs(inner)
        case _:
            yield output_type


def _is_function(kind: Any) -> bool:
    """Whether it is called with an output, rather than describing one as types and type forms do."""
    return callable(kind) and not isinstance(kind, type) and type(kind).__module__ not in {"types", "typing"}


def _check_capabilities(agent: TheirAgent[Any, Any]) -> None:
    # Every agent has a few, of pydantic-ai's own.
    everyones = {type(capability) for capability in TheirAgent(TestModel()).root_capability.capabilities}
    for capability in _leaves(agent.root_capability.capabilities):
        if type(capability) not in everyones and not isinstance(capability, _CARRIED):
            raise ConfigurationError(
                f"it has the capability {type(capability).__name__}, which may bring tools of its own or come between "
                f"a call and its claim. Carried are {', '.join(kind.__name__ for kind in _CARRIED)}; take it out, or "
                "write what it does as tools."
            )


def _leaves(capabilities: Sequence[AbstractCapability[Any]]) -> Iterator[AbstractCapability[Any]]:
    found: list[AbstractCapability[Any]] = []
    for capability in capabilities:
        capability.apply(found.append)
    yield from found


def _instructions(agent: TheirAgent[Any, Any]) -> str:
    """Its instructions as far as they are text, and the names of the functions that make the rest, for its revision.

    pydantic-ai gives no way to read them, so this reads what it keeps; a name of theirs that is gone raises here.
    """
    written = [entry.instruction for entry in agent._instructions]  # noqa: SLF001 - see above
    written += [*agent._system_prompts, *(runner.function for runner in agent._system_prompt_functions)]  # noqa: SLF001
    return "\n\n".join(_words(entry) for entry in written)


def _words(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    content = getattr(entry, "content", None)
    return content if isinstance(content, str) else f"[{getattr(entry, '__qualname__', type(entry).__name__)}()]"
