"""Agents with tools that misbehave: ``ADK_AGENTS=tests.acceptance.awkward``. Each calls its tool once and then ends."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from adk_worker import Agent, ScriptedProvider, Tool, tool


@tool
async def raises() -> None:
    """Fail without saying whether it happened."""
    raise RuntimeError("the line went dead")


@tool
async def exits() -> None:
    """Try to end the worker."""
    sys.exit("enough")


@tool
async def not_json() -> object:
    """Return what nobody can store."""
    return object()


@tool
async def five_megabytes() -> str:
    """Return more than anybody wants to store."""
    return "x" * 5_000_000


@tool(timeout=0.5)
async def hangs() -> None:
    """Never answer."""
    await asyncio.Event().wait()


@tool(effect="read_only", timeout=None)
async def blocks_the_loop() -> str:
    """Keep the event loop busy for longer than a lease lives, and look at the clock."""
    time.sleep(float(os.environ["ADK_LEASE_TTL"]) + 2)  # noqa: ASYNC251, TID251 - this is what it is about
    return "done"


@tool
async def strict(seats: int) -> int:
    """Take a number."""
    return seats


def _agent(named: Tool, *call: object) -> Agent:
    turns = [list(call) if call else [(named.name, {})], "I am done."]
    return Agent(
        name=named.name, instructions="Call it.", model=ScriptedProvider(turns, name=named.name), tools=[named]
    )


agents = [
    *(_agent(named) for named in (raises, exits, not_json, five_megabytes, hangs, blocks_the_loop)),
    _agent(strict, ("strict", {"seats": "many"})),
    Agent(
        name="unknown",
        instructions="Call what is not there.",
        model=ScriptedProvider([[("fly", {})], "I am done."], name="unknown"),
        tools=[strict],
    ),
]
