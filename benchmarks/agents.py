"""The agent of the benchmarks, ``ADK_AGENTS=benchmarks.agents``: one call a turn, and a model that takes no time."""

from __future__ import annotations

import asyncio

from adk_worker import Agent, tool
from adk_worker.model import ModelRequest

Turn = str | tuple[str, dict[str, int]]


@tool(effect="read_only")
async def look(turn: int) -> int:
    """Look at something."""
    return turn


@tool(effect="effectful")
async def act(turn: int) -> int:
    """Do something."""
    return turn


async def script(request: ModelRequest) -> Turn:
    """Ask for ``metadata["tool"]`` for ``metadata["steps"]`` turns, then end; each after ``metadata["think"]`` s."""
    think = float(str(request.metadata.get("think", 0)))
    if think:
        await asyncio.sleep(think)
    if request.iteration > int(str(request.metadata["steps"])):
        return "Done."
    return str(request.metadata["tool"]), {"turn": request.iteration}


bench = Agent(
    "bench",
    instructions="Be measured.",
    model="scripted:benchmarks.agents:script",
    tools=[look, act],
    max_iterations=1_000_000,
)
