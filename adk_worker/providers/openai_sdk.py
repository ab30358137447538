"""OpenAI's models, and those of any server that speaks its protocol, through OpenAI's own SDK."""

from __future__ import annotations

import os
from typing import Final

from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from adk_worker.providers.policy import Endpoint

_NO_KEY: Final = "none"
"""A server of one's own often wants no key, and the SDK always wants one."""


def openai_provider() -> OpenAIProvider:
    """What ``OPENAI_API_KEY`` and, for another server, ``OPENAI_BASE_URL`` name."""
    key = None if "OPENAI_BASE_URL" not in os.environ else os.environ.get("OPENAI_API_KEY", _NO_KEY)
    return OpenAIProvider(openai_client=AsyncOpenAI(api_key=key))


def compatible_model(endpoint: Endpoint, name: str) -> OpenAIChatModel:
    """A model behind a server of one's own, by chat completions, which they all speak."""
    key = _NO_KEY if endpoint.api_key is None else endpoint.api_key.get_secret_value()
    client = AsyncOpenAI(base_url=endpoint.base_url, api_key=key)
    return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
