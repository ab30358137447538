"""Anthropic's models, through Anthropic's own SDK."""

from __future__ import annotations

from anthropic import AsyncAnthropic
from pydantic_ai.exceptions import UserError
from pydantic_ai.providers.anthropic import AnthropicProvider


def anthropic_provider() -> AnthropicProvider:
    """What ``ANTHROPIC_API_KEY`` and, for another server, ``ANTHROPIC_BASE_URL`` name."""
    client = AsyncAnthropic()
    if client.api_key is None and client.auth_token is None:
        raise UserError("set ANTHROPIC_API_KEY in the environment.")
    return AnthropicProvider(anthropic_client=client)
