"""How ``adk`` in one terminal finds the ``adk dev`` of another: by a small file for as long as that runs.

The file is in the user's own folder for such things, not in the project, and no other user can write or read it.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from adk_worker.errors import ConfigurationError
from adk_worker.liveness import Holder, known_dead

_SUFFIX: Final = ".dev.json"


@dataclass(frozen=True, slots=True)
class DevFleet:
    """A fleet that ``adk dev`` runs: in which folder, under which name of its process, and with which settings."""

    folder: str
    holder: str
    environment: Mapping[str, str]

    @property
    def pid(self) -> int:
        """The process id of ``adk dev``."""
        holder = Holder.parse(self.holder)
        return holder.process.pid if holder else 0


@contextmanager
def announced(fleet: DevFleet) -> Iterator[Path]:
    """Have ``fleet`` found for the length of the block.

    :raises ConfigurationError: there is no folder of the user's own for it.
    """
    folder = _folder()
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_ours(folder):
        raise ConfigurationError(f"{folder} is somebody else's, or others may write to it; remove it, or set TMPDIR.")
    file = folder / f"{fleet.pid}{_SUFFIX}"
    fresh = file.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as writing:  # noqa: PTH123
        json.dump(asdict(fleet), writing)
    fresh.replace(file)
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def running() -> list[DevFleet]:
    """The fleets of this user that run. What a killed one has left behind is removed."""
    folder = _folder()
    if not folder.is_dir() or not _is_ours(folder):
        return []
    found: list[DevFleet] = []
    for file in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            fleet = DevFleet(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):  # removed meanwhile, or another version's
            continue
        if known_dead(fleet.holder):
            file.unlink(missing_ok=True)
        else:
            found.append(fleet)
    return found


def find(folder: Path | None = None) -> DevFleet | None:
    """The fleet that somebody in ``folder`` means, by default the working folder: the one that was started there.

    Elsewhere it is the only one that runs.

    :raises ConfigurationError: there are several.
    """
    here = str((folder or Path.cwd()).resolve())
    fleets = running()
    candidates = [fleet for fleet in fleets if fleet.folder == here] or fleets
    if len(candidates) > 1:
        listed = "".join(f"\n  pid {fleet.pid} in {fleet.folder}" for fleet in candidates)
        raise ConfigurationError(
            f"several fleets of adk dev run:{listed}\nSet ADK_STORE_URL and ADK_BROKER_URL as the one you mean has "
            "printed them."
        )
    return candidates[0] if candidates else None


def _folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "adk-worker"
    return Path(tempfile.gettempdir()) / f"adk-worker-{os.getuid()}"


def _is_ours(folder: Path) -> bool:
    found = folder.lstat()
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not others_write
