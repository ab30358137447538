"""Model providers: who makes the model calls, by the name that an agent gives its model."""

from __future__ import annotations

from adk_worker.model import ModelAnswer, ModelProvider, ModelRequest, ToolSpec
from adk_worker.providers.policy import Endpoint, ModelPolicy, Price
from adk_worker.providers.resolution import KeepsClients, Providers, resolve_provider
from adk_worker.providers.scripted import ScriptedProvider

__all__ = [
    "Endpoint",
    "KeepsClients",
    "ModelAnswer",
    "ModelPolicy",
    "ModelProvider",
    "ModelRequest",
    "Price",
    "Providers",
    "ScriptedProvider",
    "ToolSpec",
    "resolve_provider",
]
