"""Agents that handle what nobody else is to see: ``ADK_AGENTS=tests.acceptance.confidential``.

All of it contains :data:`WORD`, which looks like no secret, so that no masking helps.
"""

from __future__ import annotations

from adk_worker import Agent, ScriptedProvider, tool

WORD = "xyzzy"


@tool
async def whisper(what: str) -> str:
    """Do as it is told, in confidence."""
    return f"{WORD}-result of {what}"


@tool
async def blurt(what: str) -> str:
    """Fail, and say with what."""
    raise RuntimeError(f"{WORD}-tool-error with {what}")


def _agent(name: str, *turns: object) -> Agent:
    return Agent(
        name=name,
        instructions=f"Tell nobody of {WORD}-instructions.",
        model=ScriptedProvider(list(turns), name=name),  # type: ignore[arg-type]
        tools=[whisper, blurt],
    )


agents = [
    _agent("discreet", [("whisper", {"what": f"{WORD}-argument"})], f"{WORD}-output"),
    _agent("indiscreet", [("blurt", {"what": f"{WORD}-argument"})]),
    _agent("speechless", RuntimeError(f"{WORD}-model-error")),
]
