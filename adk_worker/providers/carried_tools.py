"""The function tools of a pydantic-ai agent as tools of ours; what cannot be one is refused with its reason."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_ai import Agent as TheirAgent
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolReturn
from pydantic_ai.tools import Tool as TheirTool
from pydantic_ai.toolsets import AbstractToolset, CombinedToolset, FunctionToolset, PrefixedToolset, RenamedToolset
from pydantic_ai.usage import RunUsage

from adk_worker.approvals.declaring import Approval
from adk_worker.errors import ConfigurationError, ToolArgumentsError, ToolError
from adk_worker.messages import canonical_json
from adk_worker.providers.pydantic_ai import PydanticAIProvider
from adk_worker.results import text_of
from adk_worker.tools.context import ToolContext, calling
from adk_worker.tools.declaring import EffectName, Tool, tool
from adk_worker.tools.probe import Probe
from adk_worker.tools.signature import ToolSignature, what_is_wrong

MakeDeps = Callable[[Mapping[str, JsonValue]], Any]
"""Makes an agent's dependencies of its run's metadata, sync or async."""


class ToolOptions(TypedDict, total=False):
    """What the author of a tool declares about it: the keyword arguments of :func:`adk_worker.tool`."""

    effect: EffectName
    timeout: float | None
    requires_approval: bool | Approval
    probe: Probe | None
    did_not_happen: Any
    max_in_flight: float | None
    retries: int
    max_result_bytes: int | None


_WHY_NOT: Final[Mapping[str, str]] = {
    "MCPToolset": "its tools are a server's, and known only while that runs",
    "DynamicToolset": "its tools are made anew for each run",
    "ExternalToolset": "its tools are called by somebody else",
    "FilteredToolset": "which of its tools there are is known only in a run",
    "PreparedToolset": "which of its tools there are is known only in a run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedSignature(ToolSignature):
    """The arguments of a tool of pydantic-ai, validated by its own schema."""

    theirs: TheirTool[Any]

    def validate(self, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """The validated arguments, under one name. See :meth:`ToolSignature.validate`."""
        try:
            text = json.dumps(dict(arguments), allow_nan=False)
            return {"arguments": self.theirs.function_schema.validator.validate_json(text)}
        except ValidationError as error:
            raise ToolArgumentsError(tool=self.tool, reason=what_is_wrong(error)) from None
        except Exception as error:  # a validator of the author's, or what json.dumps finds
            raise ToolArgumentsError(tool=self.tool, reason=text_of(error)) from error


@dataclass(slots=True)
class Around:
    """What stands around the calls of one carried agent, of its model and of its tools."""

    agent: TheirAgent[Any, Any]
    make_deps: MakeDeps
    asked: PydanticAIProvider
    """The process's own, once it is known: tools that ask their context's model use its clients."""

    async def deps(self, metadata: Mapping[str, JsonValue]) -> Any:
        """The agent's dependencies in a run."""
        made = self.make_deps(metadata)
        return await made if inspect.isawaitable(made) else made

    async def run_context(self, tool: str, context: ToolContext) -> RunContext[Any]:
        """What the tool's function is given. ``messages`` is empty: the transcript is not a tool's business here."""
        try:
            deps = await self.deps(context.metadata)
        except Exception as error:
            raise ToolError(
                f"The dependencies of the agent could not be made: {text_of(error)}", happened=False
            ) from error
        return RunContext(
            deps=deps,
            model=await self.asked.open(),
            usage=RunUsage(),
            agent=self.agent,
            tool_call_id=context.call_id,
            tool_name=tool,
            run_step=context.iteration,
            run_id=context.run_id,
            metadata=dict(context.metadata),
        )


@dataclass(frozen=True, slots=True)
class _Found:
    name: str
    """What the model calls it by."""
    tool: TheirTool[Any]
    timeout: float | None


def carried_tools(around: Around, options: Mapping[str, ToolOptions]) -> list[Tool]:
    """All function tools of an agent. ``options`` are by the name that the model calls the tool by.

    :raises ConfigurationError: one of its toolsets, or of its tools, cannot be carried; or an option is of no tool.
    """
    found = [tool for toolset in around.agent.toolsets for tool in _found_in(toolset)]
    unknown = sorted(set(options) - {tool.name for tool in found})
    if unknown:
        listed = ", ".join(tool.name for tool in found) or "none"
        raise ConfigurationError(
            f"tools={{{unknown[0]!r}: …}} declares something of a tool that the agent does not have. It has: {listed}."
        )
    for name, declared in options.items():
        odd = sorted(set(declared) - set(ToolOptions.__annotations__))
        if odd:
            known = ", ".join(sorted(ToolOptions.__annotations__))
            raise ConfigurationError(f"tools={{{name!r}: …}} declares {odd[0]!r}; what can be declared is {known}.")
    return [_carried(tool, around, options.get(tool.name, {})) for tool in found]


def _found_in(toolset: AbstractToolset[Any]) -> Iterator[_Found]:
    if isinstance(toolset, FunctionToolset) and type(toolset).call_tool is FunctionToolset.call_tool:
        for name, tool in toolset.tools.items():
            yield _Found(name, tool, toolset.timeout if tool.timeout is None else tool.timeout)
    elif type(toolset) is CombinedToolset:
        for inner in toolset.toolsets:
            yield from _found_in(inner)
    elif type(toolset) is PrefixedToolset:
        for found in _found_in(toolset.wrapped):
            yield replace(found, name=f"{toolset.prefix}_{found.name}")
    elif type(toolset) is RenamedToolset:
        new_names = {old: new for new, old in toolset.name_map.items()}
        for found in _found_in(toolset.wrapped):
            yield replace(found, name=new_names.get(found.name, found.name))
    else:
        kinds = [kind.__name__ for kind in type(toolset).__mro__]
        why = next((_WHY_NOT[kind] for kind in kinds if kind in _WHY_NOT), "it calls its tools in a way of its own")
        raise ConfigurationError(
            f"the toolset {kinds[0]} cannot be carried: {why}, and a run has to know its tools wherever it is carried "
            "on. Put the functions into a FunctionToolset."
        )


def _carried(found: _Found, around: Around, options: ToolOptions) -> Tool:
    theirs = found.tool
    for refused, why in (
        (theirs.sequential, "sequential=True, and the calls of one turn are made at once"),
        (theirs.defer_loading, "defer_loading=True, and a model is always shown all the tools of its agent"),
    ):
        if refused:
            raise ConfigurationError(f"the tool {found.name!r} cannot be carried: it has {why}. Take that out of it.")

    async def call(context: ToolContext, arguments: dict[str, Any]) -> Any:
        run_context = await around.run_context(found.name, context)
        with calling(context):
            return await _called(theirs, run_context, arguments)

    declared: dict[str, Any] = dict(options)
    if found.timeout is not None:
        declared.setdefault("timeout", found.timeout)
    if theirs.requires_approval:
        declared.setdefault("requires_approval", True)
    made = tool(name=found.name, description=theirs.description or "", **declared)(call)
    signature = CarriedSignature(
        tool=found.name,
        model=BaseModel,
        fields={},
        context_parameter="context",
        schema_json=canonical_json(theirs.function_schema.json_schema),
        theirs=theirs,
    )
    return replace(made, signature=signature)


async def _called(theirs: TheirTool[Any], run_context: RunContext[Any], arguments: dict[str, Any]) -> Any:
    """Call it, and say in our terms what its exceptions say in pydantic-ai's.

    ``ModelRetry`` and ``ToolFailed`` are its own word that it failed, and has to be called otherwise or not at all.
    """
    try:
        if theirs.args_validator is not None:
            checked = theirs.args_validator(run_context, **arguments)
            if inspect.isawaitable(checked):
                await checked
        returned = await theirs.function_schema.call(arguments, run_context)
    except (ModelRetry, ToolFailed) as error:
        raise ToolError(error.message, happened=False) from error
    except (ApprovalRequired, CallDeferred) as error:
        raise ToolError(
            f"The tool raised {type(error).__name__}, which cannot be decided in the middle of a call. Its author "
            "has to declare requires_approval=True instead.",
            happened=False,
        ) from error
    return _value(returned) if isinstance(returned, ToolReturn) else returned


def _value(returned: ToolReturn[Any]) -> Any:
    """The result as one value: what was to be said beside it stands in it."""
    if returned.content is None:
        return returned.return_value
    content = [returned.content] if isinstance(returned.content, str) else list(returned.content)
    said = [part if isinstance(part, str) else f"[{type(part).__name__}, not carried]" for part in content]
    return {"return_value": returned.return_value, "content": said}
