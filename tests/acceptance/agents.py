"""The agents of the acceptance tests: ``ADK_AGENTS=tests.acceptance.agents``."""

from __future__ import annotations

from typing import Any

from adk_worker import Agent, ToolContext, tool
from examples.travel import tools
from examples.travel.agents import travel


@tool(name="book_seat", timeout=60)
async def book_blindly(ctx: ToolContext, hold: str) -> dict[str, Any]:
    """Book the seat that is held; nobody can be asked whether it was."""
    booked: dict[str, Any] = await tools.book_seat(ctx, hold)
    return booked


blind = Agent(
    name="blind",
    instructions="You book a seat for the passenger.",
    model="scripted:examples.travel.model:script",
    tools=[tools.search_flights, tools.hold_seat, book_blindly, tools.pay],
)

agents = [travel, blind]
