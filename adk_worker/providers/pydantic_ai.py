"""Real models, through the model layer of pydantic-ai: :class:`PydanticAIProvider`. Needs the extra ``models``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, cast
from weakref import WeakKeyDictionary

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from adk_worker.errors import ConfigurationError, ModelError
from adk_worker.ledger.spending import OUTPUT_TOKENS, by_size
from adk_worker.model import Estimate, ModelAnswer, ModelRequest, ToolSpec
from adk_worker.providers.attempts import attempted
from adk_worker.providers.clients import close_clients, open_model
from adk_worker.providers.policy import ModelPolicy
from adk_worker.providers.prices import Prices
from adk_worker.providers.transcript import to_answer, to_messages


class PydanticAIProvider:
    """A :class:`ModelProvider` over a model of pydantic-ai.

    :param model: a name that pydantic-ai knows, such as ``openai:gpt-5`` or ``anthropic:claude-sonnet-5``, one whose
        prefix is in ``ADK_MODEL_ENDPOINTS``, or a ``pydantic_ai.models.Model``.
    :param name: the model's name in an agent's revision and in prices; by default what ``model`` says.
    :param settings: ``pydantic_ai.settings.ModelSettings``: ``temperature``, ``max_tokens``, ``thinking`` and so on.
    :param policy: how calls are made. Left out, it is the process's own (``ADK_MODEL_…``).

    A name's clients are opened by its first call, after any fork, and kept for each event loop until :meth:`close`. A
    ``Model`` brings its own, which serve one event loop at a time, as pydantic-ai's do.
    """

    def __init__(
        self,
        model: str | Model,
        *,
        name: str | None = None,
        settings: Mapping[str, Any] | None = None,
        policy: ModelPolicy | None = None,
    ) -> None:
        self._model = model
        self._name = name or (model if isinstance(model, str) else model.model_id)
        self._settings = dict(settings or {})
        self._given = policy
        self._policy = policy or ModelPolicy()
        self._prices = Prices(self._policy)
        self._opened: WeakKeyDictionary[asyncio.AbstractEventLoop, Model] = WeakKeyDictionary()
        self._opening: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    @property
    def name(self) -> str:
        """See :class:`ModelProvider`."""
        return self._name

    def __repr__(self) -> str:
        return f"PydanticAIProvider({self._name!r})"

    def under(self, policy: ModelPolicy) -> Self:
        """See :class:`KeepsClients`."""
        return type(self)(self._model, name=self._name, settings=self._settings, policy=self._given or policy)

    def check(self) -> None:
        """See :class:`KeepsClients`."""
        if isinstance(self._model, str):
            open_model(self._model, self._policy)

    async def close(self) -> None:
        """See :class:`KeepsClients`."""
        model = self._opened.pop(asyncio.get_running_loop(), None)
        if model is not None:
            await model.__aexit__(None, None, None)
            if model is not self._model:
                await close_clients(model)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """See :class:`ModelProvider`."""
        parameters = ModelRequestParameters(function_tools=[_definition(spec) for spec in request.tools])
        messages = to_messages(request.messages, instructions=request.instructions or None)
        model = await self.open()
        response = await self.ask(model.prepare_messages(messages), None, parameters)
        return to_answer(response, iteration=request.iteration, cost_micros=self.cost_micros(response))

    async def ask(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Make one call with prepared ``messages``, in as many attempts as the policy allows.

        :raises ModelError: it failed.
        """
        model = await self.open()
        layers = (self._defaults(model), model.settings or {}, self._settings, settings or {})
        merged = cast("ModelSettings", {key: value for layer in layers for key, value in layer.items()})

        async def call() -> ModelResponse:
            return await model.request(messages, merged, parameters)

        return await attempted(call, policy=self._policy, model=self._name)

    def estimate(self, request: ModelRequest) -> Estimate:
        """See :class:`~adk_worker.model.Estimates`: by the size of what is sent, and the longest answer allowed."""
        said = self._settings.get("max_tokens") or self._policy.max_tokens or OUTPUT_TOKENS
        found = by_size(request, output_tokens=int(said))
        return replace(found, cost_micros=self._prices.estimate_micros(found, model=self._name))

    def cost_micros(self, response: ModelResponse) -> int:
        """What an answer of this model cost."""
        return self._prices.cost_micros(response, model=self._name)

    def _defaults(self, model: Model) -> dict[str, Any]:
        # How often a call is made is the policy's decision alone: two layers that repeat would multiply.
        defaults: dict[str, Any] = {"timeout": self._policy.timeout, "max_retries": 0}
        if self._policy.max_tokens is not None:
            defaults["max_tokens"] = self._policy.max_tokens
        return {name: value for name, value in defaults.items() if name not in model.unsupported_settings}

    async def open(self) -> Model:
        """The model, with clients that are kept for the running event loop.

        :raises ModelError: it cannot be opened.
        """
        loop = asyncio.get_running_loop()
        model = self._opened.get(loop)
        if model is None:
            # One opens it and the others wait for that: what is not yet entered, or fails at it, is nobody's to use.
            async with self._opening.setdefault(loop, asyncio.Lock()):
                model = self._opened.get(loop)
                if model is None:
                    model = self._made()
                    await model.__aenter__()
                    self._opened[loop] = model
            self._opening.pop(loop, None)  # a lock that was waited for holds its loop
        return model

    def _made(self) -> Model:
        if not isinstance(self._model, str):
            return self._model
        try:
            return open_model(self._model, self._policy)
        except ConfigurationError as error:
            raise ModelError(str(error)) from error


def _definition(spec: ToolSpec) -> ToolDefinition:
    return ToolDefinition(
        name=spec.name, description=spec.description or None, parameters_json_schema=dict(spec.schema)
    )
