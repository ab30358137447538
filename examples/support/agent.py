"""The agent, as somebody wrote it who had only pydantic-ai in mind.

Its model is a script, so that the example runs offline; ``SUPPORT_MODEL=openai:gpt-5`` in the environment takes a real
one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pydantic import BaseModel
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_core import to_jsonable_python

from examples.support.shop import Order, Shop


@dataclass
class Desk:
    """What the tools work with: the shop, and whose complaint it is."""

    shop: Shop
    customer: str


class Settlement(BaseModel):
    """How a complaint ended."""

    refunded_cents: int
    message: str


def script(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Look at the orders, refund the newest in full, and say so."""
    results = {
        part.tool_name: to_jsonable_python(part.content)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    if "orders" not in results:
        return ModelResponse(parts=[ToolCallPart("orders", {})])
    newest = max(results["orders"], key=lambda order: order["number"])
    if "refund" not in results:
        asked = {"order": newest["number"], "cents": newest["price_cents"], "reason": "it arrived broken"}
        return ModelResponse(parts=[ToolCallPart("refund", asked)])
    said = {"refunded_cents": newest["price_cents"], "message": f"Order {newest['number']} is refunded."}
    return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, said)])


support = Agent(
    os.environ.get("SUPPORT_MODEL") or FunctionModel(script),
    name="support",
    deps_type=Desk,
    output_type=Settlement,
    instructions="You settle complaints. Refund what was broken, once and never more than its price.",
)


@support.instructions
def who_complains(ctx: RunContext[Desk]) -> str:
    """Name the customer."""
    return f"The customer is {ctx.deps.customer}."


@support.tool
async def orders(ctx: RunContext[Desk]) -> list[Order]:
    """List the customer's orders."""
    return ctx.deps.shop.orders(ctx.deps.customer)


@support.tool
def refund(ctx: RunContext[Desk], order: int, cents: int, reason: str) -> str:
    """Refund an order, or a part of it."""
    price = {found.number: found.price_cents for found in ctx.deps.shop.orders(ctx.deps.customer)}.get(order)
    if price is None or cents > price:
        raise ModelRetry(f"Order {order} cost {price} cents: refund no more than that.")
    return ctx.deps.shop.refund(order, cents, reason)


@support.output_validator
def no_more_than_was_asked(ctx: RunContext[Desk], settlement: Settlement) -> Settlement:
    """Refuse a settlement that promises what was not refunded."""
    if settlement.refunded_cents > ctx.deps.shop.refunded_cents():
        raise ModelRetry("That much was not refunded. Refund it first, or promise less.")
    return settlement
