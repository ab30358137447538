"""A far side in memory: tools with effects, and what really happened, as the tests' verdict."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from adk_worker.agent import Agent
from adk_worker.providers import ScriptedProvider
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import Tool, tool
from adk_worker.tools.probe import Happened, NeverWill, NotYet, ProbeAnswer, Unknown


class Crash(BaseException):
    """Stands for the death of a process: nothing may catch it, and nothing after it runs."""


@dataclass
class FarSide:
    """Counts effects by key. A test sets what the next call does, and what a probe answers."""

    effects: list[tuple[str | None, str]] = field(default_factory=list)
    before: object = None
    """Raised before the effect, if it is an exception; awaited, if it is an event."""
    after: object = None
    """The same, after the effect and before the answer."""
    answer: object = None
    """What the tool returns instead of the seat."""
    probed: list[str] = field(default_factory=list)
    probe_says: ProbeAnswer | None = None
    entered: asyncio.Event = field(default_factory=asyncio.Event)
    fences: list[int | None] = field(default_factory=list)

    async def act(self, context: ToolContext, seat: str) -> object:
        self.entered.set()
        self.fences.append(context.fence)
        await _do(self.before)
        self.effects.append((context.idempotency_key, seat))
        await _do(self.after)
        return {"seat": seat} if self.answer is None else self.answer

    def probe(self, key: str, arguments: dict) -> ProbeAnswer:
        self.probed.append(key)
        if self.probe_says is not None:
            return self.probe_says
        happened = [seat for found, seat in self.effects if found == key]
        return Happened({"seat": happened[0]}) if happened else NotYet()

    def tool(self, **declared) -> Tool:
        far_side = self

        @tool(**{"name": "book", "timeout": None, **declared})
        async def book(ctx: ToolContext, seat: str) -> object:
            """Book a seat."""
            return await far_side.act(ctx, seat)

        return book


async def _do(what: object) -> None:
    if isinstance(what, asyncio.Event):
        await what.wait()
    elif isinstance(what, BaseException):
        raise what


def agent_with(*tools: Tool, turns=None, **fields) -> Agent:
    """An agent that books seat 12A once and then says so, unless told otherwise."""
    script = turns if turns is not None else [[("book", {"seat": "12A"})], "Booked 12A."]
    provider = script if callable(getattr(script, "complete", None)) else ScriptedProvider(script)
    return Agent(name="booking", instructions="Book.", model=provider, tools=tools, **fields)


__all__ = ["Crash", "FarSide", "Happened", "NeverWill", "NotYet", "Unknown", "agent_with"]
