"""The model calls of a pydantic-ai agent: it prepares each itself and reads the answer, and calls no tool.

One call is the beginning of a run of that agent over the transcript so far, left as soon as the model asks for function
tools. Those are then the fleet's: planned, claimed and called one boundary later. What is left to the agent is what
repeats without harm: its instructions, its settings, and the validation of its output, for which it may ask the model
again within the same call.
"""

from __future__ import annotations

from typing import Any, Final, Self

from pydantic_ai import Agent as TheirAgent
from pydantic_ai.exceptions import AgentRunError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python
from pydantic_graph import End

from adk_worker import model as ours
from adk_worker.errors import ModelError
from adk_worker.messages import Usage, canonical_json
from adk_worker.providers.carried_tools import Around
from adk_worker.providers.policy import ModelPolicy
from adk_worker.providers.pydantic_ai import PydanticAIProvider
from adk_worker.providers.transcript import to_answer, to_messages
from adk_worker.results import shortened

_NOT_YET: Final = (
    "The final result was not taken, since other calls were asked for beside it. Give it alone, once you have their "
    "results."
)


class CarriedProvider:
    """A :class:`ModelProvider` that asks on behalf of a pydantic-ai agent."""

    def __init__(self, around: Around, asked: PydanticAIProvider) -> None:
        self._around = around
        self._asked = asked

    @property
    def name(self) -> str:
        """See :class:`ModelProvider`."""
        return self._asked.name

    def __repr__(self) -> str:
        return f"CarriedProvider({self.name!r})"

    def under(self, policy: ModelPolicy) -> Self:
        """See :class:`KeepsClients`."""
        self._around.asked = self._asked.under(policy)
        return type(self)(self._around, self._around.asked)

    def check(self) -> None:
        """See :class:`KeepsClients`."""
        self._asked.check()

    async def close(self) -> None:
        """See :class:`KeepsClients`."""
        await self._asked.close()

    def estimate(self, request: ours.ModelRequest) -> ours.Estimate:
        """See :class:`~adk_worker.model.Estimates`. Of one request: an output that does not fit is asked for again."""
        return self._asked.estimate(request)

    async def complete(self, request: ours.ModelRequest) -> ours.ModelAnswer:
        """See :class:`ModelProvider`."""
        model = _Asking(await self._asked.open(), self._asked)
        deps = await self._around.deps(request.metadata)
        history = to_messages(request.messages, instructions=None)
        history[0] = await self._with_system_prompts(history[0], model, deps)
        try:
            return await self._asked_for(request, history, model, deps)
        except ModelError:
            raise
        except UnexpectedModelBehavior as error:
            raise ModelError(
                f"{self.name} gave no output that the agent takes: {shortened(error.message)} Raise its retries, or "
                "make its output type simpler; then resume the run."
            ) from error
        except AgentRunError as error:
            raise ModelError(f"the agent's own run ended: {shortened(error.message)}") from error

    async def _asked_for(
        self, request: ours.ModelRequest, history: list[ModelMessage], model: _Asking, deps: Any
    ) -> ours.ModelAnswer:
        async with self._around.agent.iter(
            message_history=history, model=model, deps=deps, metadata=dict(request.metadata), infer_name=False
        ) as run:
            node = run.next_node
            while not isinstance(node, End):
                if TheirAgent.is_call_tools_node(node) and model.asks_for_functions(node.model_response):
                    return self._calls(node.model_response, request.iteration, model)
                node = await run.next(node)
            return ours.ModelAnswer(text=_text(node.data.output), usage=model.usage, cost_micros=model.cost_micros)

    def _calls(self, response: ModelResponse, iteration: int, model: _Asking) -> ours.ModelAnswer:
        answer = to_answer(response, iteration=iteration, cost_micros=model.cost_micros)
        refused = {call.id: _NOT_YET for call in answer.calls if call.name in model.output_tools}
        return answer.model_copy(update={"usage": model.usage, "refused": {**answer.refused, **refused}})

    async def _with_system_prompts(self, first: ModelMessage, model: Model, deps: Any) -> ModelMessage:
        """The agent adds these to a run that it begins; ours is begun anew at every call, with a transcript."""
        parts = await self._around.agent.system_prompt_parts(model=model, deps=deps)
        return ModelRequest(parts=[*parts, *first.parts]) if parts and isinstance(first, ModelRequest) else first


class _Asking(WrapperModel):
    """The model for one call: in as many attempts as the policy allows, and with a sum of what they cost."""

    def __init__(self, wrapped: Model, asked: PydanticAIProvider) -> None:
        super().__init__(wrapped)
        self._asked = asked
        self.usage = Usage()
        self.cost_micros = 0
        self.output_tools: frozenset[str] = frozenset()

    async def __aenter__(self) -> Self:
        """Open nothing: the clients are the process's, and outlive the call."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask, as the agent has prepared it."""
        self.output_tools = frozenset(tool.name for tool in model_request_parameters.output_tools)
        response = await self._asked.ask(messages, model_settings, model_request_parameters)
        self.usage += Usage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens)
        self.cost_micros += self._asked.cost_micros(response)
        return response

    def asks_for_functions(self, response: ModelResponse) -> bool:
        """Whether the answer asks for any call but those that give the final result."""
        return any(call.tool_name not in self.output_tools for call in response.tool_calls)


def _text(output: Any) -> str:
    return output if isinstance(output, str) else canonical_json(to_jsonable_python(output))
