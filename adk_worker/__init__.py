"""adk-worker: agent runs that survive the death of the process that holds them."""

from __future__ import annotations

from adk_worker.agent import Agent
from adk_worker.context import ToolContext
from adk_worker.errors import ToolError
from adk_worker.probe import Happened, NeverWill, NotYet, ProbeAnswer, Unknown
from adk_worker.providers import ScriptedProvider
from adk_worker.tool import Tool, tool

__all__ = [
    "Agent",
    "Happened",
    "NeverWill",
    "NotYet",
    "ProbeAnswer",
    "ScriptedProvider",
    "Tool",
    "ToolContext",
    "ToolError",
    "Unknown",
    "tool",
]
