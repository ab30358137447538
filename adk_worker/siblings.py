"""The packages beside this one, ``stores`` and ``tasks``: names that an app may well use for modules of its own."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from adk_worker.errors import ConfigurationError

_HOME = Path(__file__).resolve().parents[1]
"""Where all of the distribution's packages are, installed or in a checkout."""


def require_ours(package: str) -> None:
    """See to it that ``import stores`` or ``import tasks`` gets ours, before it is done.

    Programs look for modules in their working folder first, so that an application's own ``tasks.py`` hides the whole
    package.

    :raises ConfigurationError: it would get another's; the message names the file.
    """
    found = find_spec(package)
    if found is not None and found.origin is not None and Path(found.origin).resolve().parents[1] == _HOME:
        return
    if found is None:
        raise ConfigurationError(f"adk-worker's package {package!r} is not installed: install adk-worker anew.")
    where = found.origin or ", ".join(found.submodule_search_locations or ())
    raise ConfigurationError(
        f"{where} hides adk-worker's own package {package!r}: rename it, or start from a folder that is not on "
        "Python's path together with it."
    )
