"""The composition root: from settings to parts. The one module of the kit that knows stores and tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adk_worker.actors import Verifier
from adk_worker.client import Fleet
from adk_worker.runs import Stores
from adk_worker.settings import Settings
from adk_worker.siblings import require_ours

if TYPE_CHECKING:
    from adk_worker.registry import Registry
    from tasks.dispatch import CeleryDispatcher


def make_stores(settings: Settings) -> Stores:
    """The stores that the settings name. Nothing is connected yet.

    :raises ConfigurationError: the URL cannot be used.
    """
    require_ours("stores")
    from stores import open_stores  # noqa: PLC0415 - not before it is known to be ours

    return open_stores(
        settings.store_url,
        pool_size=settings.store_pool,
        socket_timeout=settings.socket_timeout,
        checkpoint_max_bytes=settings.checkpoint_max_bytes,
    )


def make_dispatcher(settings: Settings) -> CeleryDispatcher:
    """What publishes on the broker that the settings name. Nothing is connected yet.

    :raises ConfigurationError: no broker is set.
    """
    require_ours("tasks")
    from tasks.dispatch import CeleryDispatcher  # noqa: PLC0415 - what only looks at runs does not wait for Celery

    return CeleryDispatcher.from_settings(settings)


def make_registry(settings: Settings) -> Registry | None:
    """The agents of the modules that the settings name, imported now; ``None`` where they name none.

    :raises AgentImportError: a module does not import.
    """
    if not settings.agents:
        return None
    from adk_worker.registry import Registry  # noqa: PLC0415 - where there are any

    return Registry.load(settings.agents)


def make_verifier(settings: Settings) -> Verifier | None:
    """What says who may do what, if the settings name it; imported once somebody acts."""
    if settings.verifier is None:
        return None
    from adk_worker.rights import NamedVerifier  # noqa: PLC0415 - where there is one

    return NamedVerifier(settings.verifier)


def make_fleet(settings: Settings, *, verifier: Verifier | None = None) -> Fleet:
    """The client of the fleet that the settings name. A ``verifier`` comes before the one that they name.

    :raises ConfigurationError: the store's URL, the broker's, or the agents' modules cannot be used.
    """
    return Fleet(
        make_stores(settings),
        make_dispatcher(settings),
        policy=settings.fleet_policy,
        registry=make_registry(settings),
        redactor=settings.redactor,
        verifier=make_verifier(settings) if verifier is None else verifier,
        budget=settings.run_budget,
    )
