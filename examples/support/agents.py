"""The same agent on a fleet: ``ADK_AGENTS=examples.support.agents``, and ``SHOP`` in the environment names the folder.

What is said here is what pydantic-ai has no word for: what its tools do to the world, and how to find out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from adk_worker import Agent, Happened, NotYet, ProbeAnswer
from examples.support.agent import Desk, support
from examples.support.shop import Shop


def shop() -> Shop:
    """Return the shop, found when a call is made."""
    return Shop(Path(os.environ.get("SHOP") or "."))


def desk(metadata: Mapping[str, JsonValue]) -> Desk:
    """Make the agent's dependencies of what the run was submitted with, in whatever process carries it."""
    return Desk(shop(), str(metadata.get("customer", "somebody")))


def was_it_refunded(_key: str, arguments: Mapping[str, JsonValue]) -> ProbeAnswer:
    """Look the order up. That nothing is there yet proves nothing while a request may be under way."""
    found = shop().refunds(int(str(arguments["order"])))
    return Happened(f"{found[0].cents} cents of order {found[0].order} are refunded") if found else NotYet()


carried = Agent.from_pydantic_ai(
    support,
    deps=desk,
    tools={
        "orders": {"effect": "read_only"},
        "refund": {"probe": was_it_refunded, "max_in_flight": 5, "timeout": 60},
    },
)
