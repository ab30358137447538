"""The published JSON schemas of what ``--json`` prints, a file for each command; ``scripts/schemas`` makes them."""

from __future__ import annotations

from importlib.resources import files

_SUFFIX = ".json"


def file_name(command: str) -> str:
    """The file of a command as it is typed: ``db upgrade`` has ``db-upgrade.json``."""
    return command.replace(" ", "-") + _SUFFIX


def published() -> list[str]:
    """The names of the files, without their suffix."""
    names = (entry.name for entry in files(__package__).iterdir())
    return sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))


def read(command: str) -> str:
    """The schema of a line of the command's output, as JSON.

    :raises KeyError: there is none.
    """
    if file_name(command).removesuffix(_SUFFIX) not in published():
        raise KeyError(command)
    return files(__package__).joinpath(file_name(command)).read_text(encoding="utf-8")
