"""Model providers: who makes the model calls, by the name that an agent gives its model."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from operator import attrgetter

from adk_worker.errors import ConfigurationError
from adk_worker.model import ModelAnswer, ModelProvider, ModelRequest, ToolSpec
from adk_worker.providers.scripted import ScriptedProvider
from adk_worker.results import text_of

__all__ = ["ModelAnswer", "ModelProvider", "ModelRequest", "ScriptedProvider", "ToolSpec", "resolve_provider"]

_SCRIPTED = "scripted:"


def resolve_provider(model: str | ModelProvider) -> ModelProvider:
    """The provider of an agent's model. A provider is its own.

    ``scripted:package.module:attribute`` imports the module; the attribute is a :class:`ScriptedProvider`, a list or
    tuple of turns, or a function of the request.

    :raises ConfigurationError: no provider knows the name, or what it names is not there.
    """
    if not isinstance(model, str):
        return model
    if model.startswith(_SCRIPTED):
        return _scripted(model)
    raise ConfigurationError(
        f"no provider knows the model {model!r}. This adk-worker has scripted:package.module:attribute and takes a "
        "ModelProvider of your own; the adapters of real models come with the extra 'models', which is not there yet."
    )


def _scripted(model: str) -> ModelProvider:
    module, separator, attribute = model.removeprefix(_SCRIPTED).partition(":")
    if not (module and separator and attribute):
        raise ConfigurationError(f"the model {model!r} has to be written scripted:package.module:attribute.")
    try:
        found = attrgetter(attribute)(importlib.import_module(module))
    except (Exception, SystemExit) as error:
        raise ConfigurationError(f"the script of model {model!r} cannot be imported: {text_of(error)}.") from error
    if isinstance(found, ScriptedProvider):
        return found
    if isinstance(found, Sequence) and not isinstance(found, str | bytes):
        return ScriptedProvider(found, name=model)
    if callable(found) and not isinstance(found, type):
        return ScriptedProvider(found, name=model)
    raise ConfigurationError(
        f"the script of model {model!r} is {type(found).__name__}; it has to be a ScriptedProvider, a list of turns, "
        "or a function of the request."
    )
