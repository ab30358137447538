"""An agent whose input names the tools that it calls, one an iteration; what they did is in files of the test's folder.

``ADK_AGENTS=tests.integration.agents``, and ``ADK_TEST_FOLDER`` names the folder.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

from adk_worker import Agent, ScriptedProvider, ToolContext, tool
from tests.waiting import eventually


def _write(name: str, line: str) -> None:
    with (Path(os.environ["ADK_TEST_FOLDER"]) / name).open("a") as file:
        file.write(line + "\n")


def _released() -> bool:
    return (Path(os.environ["ADK_TEST_FOLDER"]) / "release").exists()


@tool
async def book(ctx: ToolContext) -> str:
    """Book."""
    _write("booked", ctx.run_id)
    return "booked"


@tool(timeout=60)
async def hold(ctx: ToolContext) -> str:
    """Book, and return when the test says so."""
    _write("begun", ctx.run_id)
    await eventually(_released, within=60)
    _write("booked", ctx.run_id)
    return "booked"


@tool(effect="read_only", timeout=60)
async def look(ctx: ToolContext) -> str:
    """Look, until the test says so."""
    _write("begun", ctx.run_id)
    await eventually(_released, within=60)
    return "looked"


@tool(effect="read_only")
async def die(ctx: ToolContext) -> str:
    """Take the whole process along."""
    _write("begun", ctx.run_id)
    os.kill(os.getpid(), signal.SIGKILL)
    return "dead"


@tool(effect="read_only", timeout=None)
async def block(ctx: ToolContext) -> str:
    """Block the event loop for good, the first time."""
    _write("begun", ctx.run_id)
    if not _released():
        threading.Event().wait()
    return "ok"


def script(request):
    """The n-th word of the input is the tool of iteration n."""
    named = request.messages[0].text.split()
    if request.iteration > len(named):
        return "Done."
    return [(named[request.iteration - 1], {})]


walker = Agent(
    name="walker",
    instructions="Do as you are told.",
    model=ScriptedProvider(script),
    tools=[book, hold, look, die, block],
)
