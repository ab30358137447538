"""The Celery app: ``celery -A tasks.app worker``, ``beat`` and ``flower``.

Importing this reads nothing. The settings are read from the environment when the app is first configured, which is what
Celery's programs do as they start. A web app does not need it: it publishes through
:class:`~tasks.dispatch.CeleryDispatcher`.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import click
from celery import Celery
from celery.loaders.app import AppLoader

from adk_worker.errors import ConfigurationError
from adk_worker.settings import Settings
from tasks.advance import add_advance
from tasks.config import celery_config
from tasks.host import Host
from tasks.observing import FleetEvents
from tasks.process import WorkerProcess
from tasks.reap import add_reap
from tasks.worker import NotUsableError


class FleetLoader(AppLoader):
    """Configures the app from the settings, or from the module that ``celery --config`` names."""

    def read_configuration(self, env: str = "CELERY_CONFIG_MODULE") -> Any:
        """The configuration, as Celery asks for it once."""
        try:
            given = super().read_configuration(env)
            return celery_config(self.app.settings) if given is None else given
        except ConfigurationError as error:
            raise NotUsableError(str(error)) from error
        except ImportError as error:
            # Also where the module is there and cannot import something itself: the error's own words say which.
            why = f"the configuration {os.environ.get(env, env)!r} (--config) does not import from here: {error}"
            raise NotUsableError(why) from error

    def import_default_modules(self) -> Any:
        """What a program imports as it starts. Flower asks for it once it has read its options, before it listens."""
        program = click.get_current_context(silent=True)
        if program is not None and program.info_name == "flower":
            self._settle_flower()
        return super().import_default_modules()

    def _settle_flower(self) -> None:
        from tasks.flower import settle_flower  # noqa: PLC0415 - an extra, and there if its own command runs

        try:
            settle_flower()
        except ConfigurationError as error:
            raise NotUsableError(str(error)) from error


class FleetApp(Celery):
    """A Celery app of the fleet. ``settings`` are read from the environment unless given."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__("adk", loader=FleetLoader, events=FleetEvents, set_as_current=False)
        if settings is not None:
            self.settings = settings
        add_advance(self, self._process)
        add_reap(self, self._process)

    @cached_property
    def settings(self) -> Settings:
        """The process's settings, read once."""
        return Settings.load()

    @cached_property
    def host(self) -> Host:
        """What this program has before it forks."""
        return Host(self, self.settings)

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        """The worker program."""
        return self.subclass_with_self("tasks.worker:FleetWorker")

    def _process(self) -> WorkerProcess:
        return self.host.process()


app = FleetApp()
