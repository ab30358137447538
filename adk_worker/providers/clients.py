"""A model of pydantic-ai by its name, with clients of its own.

OpenAI's and Anthropic's are their SDKs' own, which allow 1,000 connections at once; pydantic-ai's allow 100, fewer than
the calls that a worker of threads may have under way.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider

from adk_worker.errors import ConfigurationError
from adk_worker.providers.policy import Endpoint, ModelPolicy
from adk_worker.providers.resolution import missing_extra
from adk_worker.results import shortened, text_of


def open_model(name: str, policy: ModelPolicy) -> Model:
    """The model of that name, with clients of its own. Connects to nothing yet.

    :raises ConfigurationError: the name, its SDK or its key is missing; the message says which.
    """
    prefix, colon, rest = name.partition(":")
    if not (prefix and colon and rest):
        raise ConfigurationError(
            f"the model {name!r} has to be written provider:model, such as openai:gpt-5 or anthropic:claude-sonnet-5; "
            "or scripted:package.module:attribute."
        )
    try:
        if prefix in policy.endpoints:
            return _at(policy.endpoints[prefix], rest)
        return infer_model(name, functools.partial(_provider, policy=policy))
    except ImportError as error:
        if error.name is None or error.name.startswith(("adk_worker", "pydantic_ai")):
            raise ConfigurationError(f"the model {name!r} cannot be used: {shortened(str(error), 500)}") from error
        raise missing_extra(f"the model {name!r}", error) from error
    except (UserError, ValueError) as error:
        raise ConfigurationError(
            f"no provider knows the model {name!r}, or its key is missing: {shortened(str(error), 500)} (A server of "
            "your own is named in ADK_MODEL_ENDPOINTS.)"
        ) from error
    except Exception as error:
        # Each SDK has a type of its own for a key or a region that is not set.
        raise ConfigurationError(f"the model {name!r} cannot be used: {shortened(text_of(error), 500)}") from error


async def close_clients(model: Model) -> None:
    """Close clients that were made here; those that pydantic-ai makes for itself it closes as ``model`` is left."""
    provider = getattr(model, "provider", None)
    close = getattr(getattr(provider, "client", None), "close", None)
    closed = close() if callable(close) else None
    if inspect.isawaitable(closed):
        await closed


def _at(endpoint: Endpoint, name: str) -> Model:
    from adk_worker.providers.openai_sdk import compatible_model  # noqa: PLC0415 - an SDK that may not be installed

    return compatible_model(endpoint, name)


def _provider(prefix: str, *, policy: ModelPolicy) -> Provider[Any]:
    if prefix in {"openai", "openai-chat", "openai-responses"}:
        from adk_worker.providers.openai_sdk import openai_provider  # noqa: PLC0415 - the same

        return openai_provider()
    if prefix == "anthropic":
        from adk_worker.providers.anthropic_sdk import anthropic_provider  # noqa: PLC0415 - the same

        return anthropic_provider()
    if prefix == "bedrock":
        from adk_worker.providers.bedrock_sdk import bedrock_provider  # noqa: PLC0415 - the same

        return bedrock_provider(policy.timeout)
    return infer_provider(prefix)
