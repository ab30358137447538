"""The travel agent with a model that costs something: ``ADK_AGENTS=tests.acceptance.spenders``."""

from __future__ import annotations

from adk_worker import Agent, Estimate, ModelAnswer, ModelRequest, ScriptedProvider, Usage
from examples.travel.agents import travel
from examples.travel.model import script

AT_MOST = 1_000
"""Tokens that a call may take, and so many it is made to reserve."""
TAKES = 100
"""Tokens that it does take, in and out."""


class Costly:
    """Says what the travel agent's model says, and what that took."""

    name = "costly"

    def __init__(self) -> None:
        self._said = ScriptedProvider(script, name=self.name)

    def estimate(self, _: ModelRequest) -> Estimate:
        """More than it will take, as estimates are."""
        return Estimate(AT_MOST - 400, 400, 10_000)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """One call."""
        answer = await self._said.complete(request)
        usage = Usage(input_tokens=TAKES - 20, output_tokens=20)
        return answer.model_copy(update={"usage": usage, "cost_micros": 1_000})


spender = Agent(name="spender", instructions="You book a seat.", model=Costly(), tools=travel.tools)

agents = [spender]
