"""From a store's URL to its bundle: our schemes first, then whatever other packages register as entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from adk_worker.checkpoint import check_caps
from adk_worker.errors import ConfigurationError
from adk_worker.runs import Stores
from adk_worker.urls import without_secrets

ENTRY_POINTS: Final = "adk_worker.stores"
"""The group of entry points that name a scheme's opener: ``opener(url, **options) -> Stores``."""

_OURS: Final[Mapping[str, str]] = {
    "memory": "stores.memory:open_memory",
    "postgres": "stores.sql:open_sql",
    "postgresql": "stores.sql:open_sql",
    "redis": "stores.redis:open_redis",
    "rediss": "stores.redis:open_redis",
    "sqlite": "stores.sql:open_sql",
}
"""Nobody else is asked for these: no package that happens to be installed can put itself in such a store's place."""


def open_stores(url: str, *, checkpoint_max_bytes: int | None = None, **options: Any) -> Stores:
    """The bundle behind ``url``: ``postgresql://…``, ``redis://…``, ``sqlite:///…``, ``memory://``, or somebody else's.

    A scheme may name its driver, ``postgresql+psycopg2://``. Nothing is connected yet: ask
    :meth:`~adk_worker.lifecycle.Lifecycle.verify`.

    :param checkpoint_max_bytes: the policy's cap on checkpoints, which the store has to be able to hold (C2).
    :param options: the opener's own; ours all take ``pool_size`` (connections of this process) and ``socket_timeout``
        (seconds).
    :raises ConfigurationError: the URL has no scheme, or one that nobody has registered; its plugin cannot be
        imported, or opens something else; the store's cap is below the policy's; or the store itself refuses the URL.
        No message shows a password.
    """
    scheme, separator, rest = url.strip().partition("://")
    if not separator or not scheme:
        # The value stays out of the message: without a scheme nothing tells where a password stands in it.
        raise ConfigurationError(f"the store's URL has no scheme; {_listed()} (ADK_STORE_URL).")
    scheme = scheme.lower()
    stores = _opener(scheme, url)(f"{scheme}://{rest}", **options)
    if not isinstance(stores, Stores):
        raise ConfigurationError(
            f"the plugin for {scheme}:// opened a {type(stores).__name__}; it has to return adk_worker.runs.Stores."
        )
    if checkpoint_max_bytes is not None and stores.max_value_bytes is not None:
        check_caps(policy=checkpoint_max_bytes, store=stores.max_value_bytes)
    return stores


def known_schemes() -> tuple[str, ...]:
    """The schemes that can be opened here, in alphabetical order."""
    return tuple(sorted({*_OURS, *(point.name for point in entry_points(group=ENTRY_POINTS))}))


def _opener(scheme: str, url: str) -> Callable[..., Any]:
    if scheme.partition("+")[0] in _OURS:
        scheme = scheme.partition("+")[0]
        return _load(EntryPoint(name=scheme, value=_OURS[scheme], group=ENTRY_POINTS))
    for name in (scheme, scheme.partition("+")[0]):
        # The same one may be there twice, installed and on the path.
        targets = {point.value: point for point in entry_points(group=ENTRY_POINTS, name=name)}
        if len(targets) > 1:
            raise ConfigurationError(
                f"the store scheme {name}:// is registered more than once: {', '.join(sorted(targets))}. Uninstall "
                "all but one of the packages that bring these entry points."
            )
        for point in targets.values():
            return _load(point)
    raise ConfigurationError(
        f"no store is registered for {without_secrets(url)!r}; {_listed()}. A package adds a scheme by an entry point "
        f"{ENTRY_POINTS!r} of that name, which names its function from the URL to adk_worker.runs.Stores."
    )


def _load(point: EntryPoint) -> Callable[..., Any]:
    try:
        opener: Callable[..., Any] = point.load()
    except (Exception, SystemExit) as error:
        raise ConfigurationError(
            f"the store plugin {point.value} for {point.name}:// cannot be imported: {type(error).__name__}: {error}. "
            "Mend or uninstall the package that brings it."
        ) from error
    if not callable(opener):
        raise ConfigurationError(f"the store plugin {point.value} for {point.name}:// is not a function.")
    return opener


def _listed() -> str:
    return "known are " + ", ".join(f"{scheme}://" for scheme in known_schemes())
