"""A user's own model of pydantic-ai, as it is entered."""

from __future__ import annotations

import asyncio

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from adk_worker.providers.pydantic_ai import PydanticAIProvider


class Opened(FunctionModel):
    """Is entered once it is let, and fails at that as often as it was told to."""

    def __init__(self, *, failing=0):
        super().__init__(lambda _, __: ModelResponse(parts=[TextPart("hello")]), model_name="own")
        self.failing = failing
        self.entering = asyncio.Event()
        self.may = asyncio.Event()
        self.entered = 0

    async def __aenter__(self):
        self.entering.set()
        await self.may.wait()
        if self.failing:
            self.failing -= 1
            raise OSError("no route to the model")
        self.entered += 1
        return self


async def test_a_model_that_failed_to_open_is_opened_anew():
    model = Opened(failing=1)
    model.may.set()
    provider = PydanticAIProvider(model)

    with pytest.raises(OSError, match="no route"):
        await provider.open()

    assert await provider.open() is model
    assert model.entered == 1


async def test_calls_wait_while_another_opens_the_model():
    model = Opened()
    provider = PydanticAIProvider(model)
    first = asyncio.create_task(provider.open())
    await model.entering.wait()
    second = asyncio.create_task(provider.open())
    await asyncio.sleep(0)

    assert not second.done()

    model.may.set()
    assert await asyncio.gather(first, second) == [model, model]
    assert model.entered == 1
