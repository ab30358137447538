"""Agents that share a worker and get in each other's way: ``ADK_AGENTS=tests.acceptance.neighbours``.

What waits or blocks here does so until the file ``released`` is in the folder that ``ADK_TEST_FOLDER`` names; before it
does, it leaves its run's name in ``blocking``.
"""

from __future__ import annotations

import os
from pathlib import Path

from adk_worker import Agent, ScriptedProvider, ToolContext, tool
from adk_worker.model import ModelRequest
from tests.waiting import eventually, wait_until

_LONG = 120.0


def _folder() -> Path:
    return Path(os.environ["ADK_TEST_FOLDER"])


def _released() -> bool:
    return (_folder() / "released").exists()


def _leave_word(run_id: str) -> None:
    with (_folder() / "blocking").open("a") as file:
        file.write(run_id + "\n")


@tool(effect="read_only", timeout=None)
async def block_the_loop(ctx: ToolContext) -> str:
    """Let nothing else happen in the event loop."""
    _leave_word(ctx.run_id)
    wait_until(_released, within=_LONG)
    return "done"


@tool(timeout=None)
def block_a_thread(ctx: ToolContext) -> str:
    """Occupy a thread."""
    _leave_word(ctx.run_id)
    wait_until(_released, within=_LONG)
    return "done"


@tool
async def act(ctx: ToolContext) -> str:
    """Do something at once."""
    return "done"


async def _think_for_long(request: ModelRequest) -> str:
    _leave_word(request.run_id)
    await eventually(_released, within=_LONG)
    return "I am done."


def _agent(name: str, *calls: str) -> Agent:
    turns = [*((call, {}) for call in calls), "I am done."]
    return Agent(
        name=name,
        instructions="Live and let live.",
        model=ScriptedProvider(turns, name=name),
        tools=[block_the_loop, block_a_thread, act],
    )


agents = [
    _agent("blocks_the_loop", "block_the_loop"),
    _agent("blocks_a_thread", "block_a_thread"),
    _agent("acts", "act", "act", "act"),
    Agent(
        name="thinks",
        instructions="Live and let live.",
        model=ScriptedProvider(_think_for_long, name="thinks"),
    ),
]
