"""Agents that ask people: ``ADK_AGENTS=tests.acceptance.approving``. Nothing here knows of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adk_worker import Agent, Approval, ProposedCall
from adk_worker.messages import ToolResultPart
from adk_worker.model import ModelRequest
from examples.travel import tools


def of_others(call: ProposedCall) -> bool:
    """A person is asked about everybody's seat but Ada's."""
    return call.arguments["passenger"] != "Ada"


def trio(request: ModelRequest) -> Any:
    """Look for a flight, hold a seat on it for each of three passengers, and say what came of it."""
    parts = [part for message in request.messages for part in message.parts if isinstance(part, ToolResultPart)]
    if not parts:
        return "search_flights", {"origin": "LIS", "destination": "BER"}
    if len(parts) == 1:
        flight = parts[0].content["flights"][0]["flight"]
        return [("hold_seat", {"flight": flight, "passenger": name}) for name in ("Ada", "Bob", "Cyd")]
    return "; ".join("held" if not part.is_error else str(part.content) for part in parts[1:])


def _travel(name: str, **approval: Any) -> Agent:
    book = replace(tools.book_seat, requires_approval=Approval(**approval))
    return Agent(
        name=name,
        instructions="You book a seat for the passenger.",
        model="scripted:examples.travel.model:script",
        tools=[tools.search_flights, tools.hold_seat, book, tools.pay],
    )


careful = _travel("careful", approvers=["ana", "bob"])
hasty = _travel("hasty", expires_in=1)
three = Agent(
    name="three",
    instructions="You hold seats.",
    model="scripted:tests.acceptance.approving:trio",
    tools=[
        tools.search_flights,
        replace(tools.hold_seat, requires_approval=Approval(when=of_others)),
    ],
)
agents = [careful, hasty, three]
