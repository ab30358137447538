"""Bedrock's models, through boto3."""

from __future__ import annotations

from typing import Final

import boto3
from botocore.config import Config
from pydantic_ai.providers.bedrock import BedrockProvider

_CONNECTIONS: Final = 50
"""boto3 blocks a thread for each call, and keeps ten connections unless told otherwise."""


def bedrock_provider(timeout: float) -> BedrockProvider:
    """What AWS's own variables and files name. ``timeout`` in seconds ends a thread that nobody waits for any more."""
    config = Config(read_timeout=timeout, retries={"total_max_attempts": 1}, max_pool_connections=_CONNECTIONS)
    return BedrockProvider(bedrock_client=boto3.Session().client("bedrock-runtime", config=config))
