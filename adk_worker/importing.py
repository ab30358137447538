"""Modules of the application's own that a setting names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

from adk_worker.errors import ConfigurationError
from adk_worker.results import text_of


def imported(name: str, *, refused: Callable[[str], ConfigurationError]) -> ModuleType:
    """Import the module of that dotted name. ``refused`` makes the error of why it cannot be, whatever the reason."""
    if not all(step.isidentifier() for step in name.split(".")):
        raise refused("that is not the dotted name of a module")
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise refused(text_of(error)) from error
