"""The travel agent: ``ADK_AGENTS=examples.travel.agents``."""

from __future__ import annotations

from adk_worker import Agent
from examples.travel.tools import book_seat, hold_seat, pay, search_flights

travel = Agent(
    name="travel",
    instructions="You book a seat for the passenger: search, hold, book, pay, and say which seat it is.",
    model="scripted:examples.travel.model:script",
    tools=[search_flights, hold_seat, book_seat, pay],
    max_iterations=16,
)
