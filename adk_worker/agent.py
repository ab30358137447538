"""Agents, and the revision that pins a run to one of them (C7)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import JsonValue

from adk_worker.approvals.declaring import Approval, approval_of
from adk_worker.errors import ConfigurationError
from adk_worker.messages import canonical_json
from adk_worker.model import ModelProvider, ToolSpec
from adk_worker.tools.declaring import Tool

DEFAULT_MAX_ITERATIONS: Final = 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True, init=False, eq=False)
class Agent:
    """Instructions, a model, and the tools that it may call. Frozen; two agents are equal only if they are one object.

    :param name: 1 to 100 letters of ASCII, digits, ``.``, ``_`` and ``-``, beginning with a letter or digit.
    :param instructions: what the model is told before everything else.
    :param model: a model's name, such as ``scripted:myshop.scripts:booking``, or a :class:`ModelProvider`.
    :param tools: made by :func:`tool`; their names differ.
    :param max_iterations: how many model calls a run may make.
    :param requires_approval: a person has to approve each call of every tool that declares nothing of its own; with
        :class:`Approval`, who may, in what time, and of which calls (P1).
    :param revision: is kept with the runs that this agent begins: only an agent of the same revision carries them on.
        By default :func:`digest_of`. Give one where you know that runs of an older agent can go on with this one, and
        change it where the digest would not notice a change (the source of tools is not in it).
    :raises ConfigurationError: an argument is not as described here.
    """

    name: str
    instructions: str = field(repr=False)
    model: str | ModelProvider
    tools: tuple[Tool, ...] = field(repr=False)
    max_iterations: int
    requires_approval: bool | Approval
    revision: str

    def __init__(
        self,
        name: str,
        instructions: str,
        model: str | ModelProvider,
        tools: Sequence[Tool] = (),
        max_iterations: int = DEFAULT_MAX_ITERATIONS,
        revision: str | None = None,
        *,
        requires_approval: bool | Approval = False,
    ) -> None:
        _check(name, instructions, model, max_iterations)
        checked = _checked_tools(name, tools)
        approval = approval_of(requires_approval, of=f"agent {name!r}")
        if revision is None:
            revision = digest_of(name, instructions, model, checked, approval)
        elif not _REVISION.fullmatch(revision):
            raise ConfigurationError(
                f"agent {name!r} has revision={revision!r}; it has to be 1 to 100 letters of ASCII, digits, '.', '_', "
                "'+' and '-', beginning with a letter or digit."
            )
        fields: dict[str, Any] = {
            "name": name,
            "instructions": instructions,
            "model": model,
            "tools": checked,
            "max_iterations": max_iterations,
            "requires_approval": requires_approval,
            "revision": revision,
        }
        self.__dict__.update(fields)

    @classmethod
    def from_pydantic_ai(
        cls,
        agent: Any,
        *,
        name: str | None = None,
        model: Any = None,
        deps: Callable[[Mapping[str, JsonValue]], Any] | None = None,
        tools: Mapping[str, Any] | None = None,
        max_iterations: int | None = None,
        revision: str | None = None,
    ) -> Agent:
        """Carry a ``pydantic_ai.Agent``, unchanged: its instructions, settings, function tools and output type.

        Its tools are ``effectful`` unless told otherwise, and find the idempotency key of their call with
        :func:`adk_worker.current_call`. An output that is no text is the run's output as JSON. Wants the extra
        ``models``.

        :param name: by which runs are submitted; the agent's own by default.
        :param model: in place of the agent's: a name, whose clients are then the process's own, or a
            ``pydantic_ai.models.Model``.
        :param deps: makes the agent's dependencies of a run's metadata, sync or async: for each model call and each
            tool call anew, in whatever process makes it.
        :param tools: what :func:`tool` declares of a tool, by its name: ``{"search": {"effect": "read_only"}}``.
        :param max_iterations: see :class:`Agent`.
        :param revision: see :class:`Agent`. By default it covers the output type too, and the names of functions that
            make instructions, not what they say.
        :raises ConfigurationError: something of it cannot be carried: the message says what, why, and the way out.
        """
        try:
            from adk_worker.providers.carrying import Carrying, carry  # noqa: PLC0415 - an extra, and slow to import
        except ModuleNotFoundError as error:
            from adk_worker.providers.resolution import missing_extra  # noqa: PLC0415 - which imports this module

            raise missing_extra("Agent.from_pydantic_ai", error) from error
        how = Carrying(
            name=name, model=model, deps=deps, tools=tools or {}, max_iterations=max_iterations, revision=revision
        )
        return carry(agent, how)

    @property
    def approval(self) -> Approval | None:
        """What is declared of approvals for all tools; ``None`` where none is required."""
        return approval_of(self.requires_approval, of=f"agent {self.name!r}")

    @property
    def model_name(self) -> str:
        """The model's name, whether a name or a provider was given."""
        return _model_name(self.model)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model is shown them."""
        return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in self.tools)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools' names, in the order in which they were given."""
        return tuple(tool.name for tool in self.tools)

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, or ``None``: models ask for tools that are not there."""
        return next((tool for tool in self.tools if tool.name == name), None)


def digest_of(
    name: str,
    instructions: str,
    model: str | ModelProvider,
    tools: Sequence[Tool],
    approval: Approval | None = None,
) -> str:
    """The revision of an agent that was given none: 16 hex digits, the same in every process (C7).

    It covers what decides how a run goes on: name, instructions, the model's name, each tool's name, description,
    schema, effect and approval, and the agent's own approval; a policy counts by its name. The order of tools is not in
    it, nor is any source. A schema is pydantic's: a pydantic that words it differently is another revision.
    """
    described = [
        {
            "name": tool.name,
            "description": tool.description,
            "schema": tool.schema,
            "effect": str(tool.effect),
            "requires_approval": _described(tool.approval),
        }
        for tool in sorted(tools, key=lambda tool: tool.name)
    ]
    said: list[Any] = ["adk-agent-1", name, instructions, _model_name(model), described]
    if approval is not None:  # an agent without one has the revision that it had before there was any
        said.append(_described(approval))
    text = canonical_json(said)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _described(approval: Approval | None) -> dict[str, JsonValue] | bool:
    if approval is None:
        return False
    return True if approval == Approval() else approval.described()


def _model_name(model: str | ModelProvider) -> str:
    return model if isinstance(model, str) else model.name


def _check(name: Any, instructions: Any, model: Any, max_iterations: Any) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} cannot name an agent: it has to be 1 to 100 letters of ASCII, digits, '.', '_' and '-', "
            "beginning with a letter or digit."
        )
    if not isinstance(instructions, str):
        raise ConfigurationError(f"the instructions of agent {name!r} have to be a string.")
    if not (isinstance(model, str) and model.strip()) and not (
        isinstance(model, ModelProvider) and not isinstance(model, type)
    ):
        raise ConfigurationError(
            f"agent {name!r} has model={model!r}; it has to be the name of a model or a ModelProvider (a name and an "
            "async complete())."
        )
    if not isinstance(max_iterations, int) or isinstance(max_iterations, bool) or max_iterations < 1:
        raise ConfigurationError(
            f"agent {name!r} has max_iterations={max_iterations!r}; it has to be a whole number from 1."
        )


def _checked_tools(agent: str, tools: Sequence[Any]) -> tuple[Tool, ...]:
    seen: set[str] = set()
    for tool in tools:
        if not isinstance(tool, Tool):
            named = getattr(tool, "__qualname__", type(tool).__name__)
            raise ConfigurationError(f"agent {agent!r} lists {named}, which is no tool; decorate it with @tool.")
        if tool.name in seen:
            raise ConfigurationError(
                f"agent {agent!r} has two tools named {tool.name!r}; give one of them another name: @tool(name=…)."
            )
        seen.add(tool.name)
    return tuple(tools)
