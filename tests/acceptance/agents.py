"""The agents of the acceptance tests: ``ADK_AGENTS=tests.acceptance.agents``."""

from __future__ import annotations

import asyncio
from typing import Any

from adk_worker import Agent, NotYet, ProbeAnswer, ToolContext, tool
from adk_worker.tools.probe import Probe
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


async def never_answers(_key: str, _arguments: dict[str, Any]) -> ProbeAnswer:
    """A far side that takes the question and says nothing."""
    await asyncio.Event().wait()
    raise AssertionError


def breaks(_key: str, _arguments: dict[str, Any]) -> ProbeAnswer:
    """A far side whose answer nobody understands."""
    raise RuntimeError("its answer is not JSON")


def sees_nothing(_key: str, _arguments: dict[str, Any]) -> ProbeAnswer:
    """A far side that shows what has happened, and not what is under way."""
    return NotYet()


def asking(probe: Probe, name: str) -> Agent:
    """An agent whose booking has this probe, and may be under way for a tenth of a second."""
    book = tool(name="book_seat", timeout=60, probe=probe, max_in_flight=0.1)(book_blindly.function)
    return Agent(
        name=name,
        instructions="You book a seat for the passenger.",
        model="scripted:examples.travel.model:script",
        tools=[tools.search_flights, tools.hold_seat, book, tools.pay],
    )


hanging = asking(never_answers, "hanging")
breaking = asking(breaks, "breaking")
blinking = asking(sees_nothing, "blinking")

agents = [travel, blind, hanging, breaking, blinking]
