"""Model providers: who makes the model calls, by the name that an agent gives its model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from adk_worker.exports import exported

if TYPE_CHECKING:
    from adk_worker.providers.policy import Endpoint, ModelPolicy, Price
    from adk_worker.providers.resolution import KeepsClients, Providers, resolve_provider
    from adk_worker.providers.scripted import ScriptedProvider

__all__ = [
    "Endpoint",
    "KeepsClients",
    "ModelPolicy",
    "Price",
    "Providers",
    "ScriptedProvider",
    "resolve_provider",
]

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "policy": "Endpoint ModelPolicy Price",
        "resolution": "KeepsClients Providers resolve_provider",
        "scripted": "ScriptedProvider",
    }
)
"""The public names, by the module that defines them."""

__getattr__, __dir__ = exported(__name__, NAMES)
