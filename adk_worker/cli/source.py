"""Where a command gets its stores, its broker and its agents from: the settings, or a product that embeds it."""

from __future__ import annotations

import inspect
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from adk_worker.actors import Actor, Verifier, os_user
from adk_worker.cli.output import aside, note
from adk_worker.client import Fleet
from adk_worker.errors import AdkError, ConfigurationError
from adk_worker.lease import LeasePolicy
from adk_worker.runs import Dispatch, Stores
from adk_worker.transitions.runs import FleetPolicy

if TYPE_CHECKING:
    from adk_worker.redaction.masking import Redactor
    from adk_worker.registry import Registry
    from adk_worker.settings import Settings
    from adk_worker.steps import Dispatcher


@dataclass(frozen=True, slots=True)
class Access:
    """What a command works with. ``by`` names who acts, for the record.

    ``settings`` are ``None`` where a product has given the parts.
    """

    fleet: Fleet
    stores: Stores
    dispatcher: Dispatcher
    policy: FleetPolicy
    lease_policy: LeasePolicy
    by: str
    settings: Settings | None = None
    verifier: Verifier | None = None

    @classmethod
    def of(
        cls,
        stores: Stores,
        *,
        dispatcher: Dispatcher | None = None,
        registry: Registry | None = None,
        policy: FleetPolicy | None = None,
        lease_policy: LeasePolicy | None = None,
        redactor: Redactor | None = None,
        verifier: Verifier | None = None,
        settings: Settings | None = None,
    ) -> Access:
        """Access through these parts; without ``dispatcher`` to what needs no broker."""
        publisher = Telling(dispatcher) if dispatcher is not None else _Nothing()
        verifier = _Aside(verifier) if verifier is not None else None
        policy = policy or FleetPolicy()
        fleet = Fleet(
            stores,
            publisher,
            policy=policy,
            registry=registry,
            redactor=redactor,
            verifier=verifier,
            budget=settings.run_budget if settings is not None else None,
        )
        return cls(fleet, stores, publisher, policy, lease_policy or LeasePolicy(), operator(), settings, verifier)


class Telling:
    """Tells the operator what could not be published, and passes the error on to those who log it."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def dispatch(self, message: Dispatch) -> None:
        """See :class:`Dispatcher`."""
        try:
            await self._dispatcher.dispatch(message)
        except Exception as error:
            note(f"note: run {message.run_id!r} is queued, and its message is not on its way yet: {error}")
            raise


class _Aside:
    """A verifier that prints nothing into the answer of a command, nor as it is imported."""

    def __init__(self, verifier: Verifier) -> None:
        self._verifier = verifier

    async def __call__(self, actor: Actor, action: str, *, tenant: str | None, run_id: str | None) -> object:
        """See :class:`Verifier`."""
        with aside():
            answer = self._verifier(actor, action, tenant=tenant, run_id=run_id)
            return await answer if inspect.isawaitable(answer) else answer


class _Nothing:
    """Stands where there is no broker."""

    async def dispatch(self, message: Dispatch) -> None:
        """See :class:`Dispatcher`."""
        raise ConfigurationError("a message has to be published, and this program was given nothing to publish with.")


class Source(Protocol):
    """Gives a command its :class:`Access`, for as long as it runs."""

    def open(self, *, publishes: bool = False, agents: bool = False) -> AbstractAsyncContextManager[Access]:
        """Open it. ``publishes`` asks for a broker; ``agents`` says that their names matter, so they must import.

        :raises ConfigurationError: something is not set, or not usable.
        :raises StoreUnavailableError: the store does not answer.
        """
        ...


class Given:
    """Parts that somebody else has made, and will close."""

    def __init__(
        self,
        stores: Stores,
        *,
        dispatcher: Dispatcher | None = None,
        registry: Registry | None = None,
        policy: FleetPolicy | None = None,
        lease_policy: LeasePolicy | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self._access = Access.of(
            stores,
            dispatcher=dispatcher,
            registry=registry,
            policy=policy,
            lease_policy=lease_policy,
            verifier=verifier,
        )

    @asynccontextmanager
    async def open(self, *, publishes: bool = False, agents: bool = False) -> AsyncIterator[Access]:
        """See :class:`Source`."""
        yield self._access


class FromSettings:
    """Parts that ``ADK_*`` in the environment name; without ``ADK_STORE_URL``, those of an ``adk dev`` that runs."""

    @asynccontextmanager
    async def open(self, *, publishes: bool = False, agents: bool = False) -> AsyncIterator[Access]:
        """See :class:`Source`."""
        from adk_worker.wiring import make_dispatcher, make_registry, make_stores, make_verifier

        settings, from_dev = self.settings()
        # Before the store, so that what is not set is told even while that is away.
        redactor = settings.redactor if publishes else None
        dispatcher = make_dispatcher(settings) if publishes else None
        registry = _registry(lambda: make_registry(settings), strictly=agents and not from_dev)
        stores = make_stores(settings)
        try:
            await stores.lifecycle.verify()
            yield Access.of(
                stores,
                dispatcher=dispatcher,
                registry=registry,
                policy=settings.fleet_policy,
                lease_policy=settings.lease_policy,
                redactor=redactor,
                verifier=make_verifier(settings),
                settings=settings,
            )
        finally:
            if dispatcher is not None:
                await dispatcher.close()
            await stores.lifecycle.close()

    @staticmethod
    def settings(*, tell: bool = True, store: bool = True) -> tuple[Settings, bool]:
        """The settings, and whether they are an ``adk dev``'s.

        ``tell`` says of names that nobody reads. Without ``store`` they need not name one: nobody is going to ask it.
        """
        from adk_worker.settings import PREFIX, Settings

        given: dict[str, Any] = {}
        if not os.environ.get(f"{PREFIX}STORE_URL", "").strip():
            from adk_worker.cli.rendezvous import find

            fleet = find()
            if fleet is None and store:
                note("note: ADK_STORE_URL names no store, and no adk dev of yours runs on this machine.")
            elif fleet is not None:
                note(f"using the fleet of adk dev in {fleet.folder} (pid {fleet.pid})")
                told = {name.removeprefix(PREFIX).lower(): value for name, value in fleet.environment.items()}
                # The environment comes first, as anywhere. Empty values count for nothing, and neither do other names.
                given = {
                    name: told[name]
                    for name in Settings.model_fields
                    if told.get(name) and not os.environ.get(f"{PREFIX}{name.upper()}")
                }
                if os.environ.get(f"{PREFIX}SEAL_KEYS"):
                    given.pop("seal_keys_file", None)  # it says the same otherwise
        from_dev = bool(given)
        if not store:
            given["store_url"] = "memory://"
        settings = load_settings(**given) if tell else Settings.load(**given)
        if store and settings.store_url.startswith("memory:"):
            raise ConfigurationError(
                "a store in memory is shared with no other process: nothing of it can be seen from here. Set "
                "ADK_STORE_URL to postgresql://…, redis://… or sqlite:///…"
            )
        return settings, from_dev


def load_settings(**given: Any) -> Settings:
    """The settings, as :meth:`Settings.load` reads them; names in the environment that nobody reads are told.

    :raises ConfigurationError: they are not usable.
    """
    from adk_worker.settings import Settings

    settings = Settings.load(**given)
    for line in Settings.unread():
        note(f"warning: {line}")
    return settings


def operator() -> str:
    """Who acts, as far as the operating system knows: user and host."""
    return f"cli:{os_user()}@{socket.gethostname()}"


def _registry(load: Callable[[], Registry | None], *, strictly: bool) -> Registry | None:
    """The agents, where their modules are named. To look at a run one can do without them, and less is known then."""
    try:
        with aside():
            return load()
    except AdkError as error:
        if strictly:
            raise
        note(f"note: {error} So it is not known here which tools have a probe.")
        return None
