"""Agents with real models: ``ADK_AGENTS=tests.acceptance.modelled``, their providers wherever the environment says."""

from __future__ import annotations

from adk_worker import Agent
from examples.travel.tools import book_seat, hold_seat, pay, search_flights

_TOOLS = [search_flights, hold_seat, book_seat, pay]

agents = [
    Agent(name=name, instructions="Book a seat.", model=model, tools=_TOOLS)
    for name, model in {
        "openai": "openai:gpt-4o",
        "anthropic": "anthropic:claude-sonnet-5",
    }.items()
]
