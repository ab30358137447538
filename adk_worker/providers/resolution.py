"""Who makes the model calls, by the name that an agent gives its model: :class:`Providers`."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol, runtime_checkable

from adk_worker.errors import ConfigurationError
from adk_worker.log import get_logger
from adk_worker.model import ModelProvider
from adk_worker.providers.policy import ModelPolicy
from adk_worker.providers.scripted import ScriptedProvider
from adk_worker.results import text_of

_SCRIPTED = "scripted:"

_log = get_logger(__name__)


@runtime_checkable
class KeepsClients(ModelProvider, Protocol):
    """A provider that is told how calls are made, and has connections to give back."""

    def under(self, policy: ModelPolicy) -> KeepsClients:
        """The same provider with clients of its own, under ``policy`` where it was given none."""
        ...

    def check(self) -> None:
        """Find out whether it can ever work, without a connection.

        :raises ConfigurationError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Give back what the running event loop has opened."""
        ...


class Providers:
    """The providers of one process: made when a run first asks for one, kept for its life, closed at its end.

    To be made after a fork. Several event loops may use it, each with clients of its own.
    """

    def __init__(self, policy: ModelPolicy | None = None) -> None:
        self._policy = policy or ModelPolicy()
        self._kept: dict[str | int, tuple[object, KeepsClients]] = {}

    def resolve(self, model: str | ModelProvider) -> ModelProvider:
        """The provider of an agent's model; one of one's own is its own.

        ``scripted:package.module:attribute`` imports the module; the attribute is a :class:`ScriptedProvider`, a list
        or tuple of turns, or a function of the request. Any other name is a real model's, and wants the extra
        ``models``.

        :raises ConfigurationError: no provider knows the name, or what it names is not there.
        """
        if isinstance(model, str) and model.startswith(_SCRIPTED):
            return _scripted(model)
        if not isinstance(model, str | KeepsClients):
            return model
        key = model if isinstance(model, str) else id(model)
        if key not in self._kept:
            made = real_provider(model) if isinstance(model, str) else model
            self._kept[key] = (model, made.under(self._policy))
        return self._kept[key][1]

    def check(self, model: str | ModelProvider) -> None:
        """Find out whether the provider of ``model`` can ever work in this process, without a connection.

        A script is imported for that.

        :raises ConfigurationError: it cannot; the message says what to do.
        """
        if isinstance(model, str):
            made = _scripted(model) if model.startswith(_SCRIPTED) else real_provider(model)
        else:
            made = model
        if isinstance(made, KeepsClients):
            made.under(self._policy).check()

    async def close(self) -> None:
        """Close what the running event loop has opened. The providers may be used again, and open anew.

        One that cannot be closed is logged; the others are closed all the same.
        """
        for _, provider in self._kept.values():
            try:
                await provider.close()
            except Exception as error:  # noqa: BLE001 - a library's; it must not keep a process from ending as it should
                _log.warning("model_not_closed", model=provider.name, error=text_of(error))


def resolve_provider(model: str | ModelProvider) -> ModelProvider:
    """The provider of one model, for oneself: see :meth:`Providers.resolve`."""
    return Providers().resolve(model)


def real_provider(model: str) -> KeepsClients:
    """The adapter of a real model.

    :raises ConfigurationError: the extra ``models`` is not installed.
    """
    try:
        from adk_worker.providers.pydantic_ai import PydanticAIProvider  # noqa: PLC0415 - an extra, and slow to import
    except ModuleNotFoundError as error:
        raise missing_extra(f"the model {model!r}", error) from error
    return PydanticAIProvider(model)


def missing_extra(what: str, error: ImportError) -> ConfigurationError:
    """What is said where the extra ``models`` is needed and not there."""
    return ConfigurationError(
        f"{what} needs the extra 'models', of which {error.name or 'a part'} is not installed. Run: "
        "pip install 'adk-worker[models]'. (A model without it is scripted:package.module:attribute, or a "
        "ModelProvider of your own.)"
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
