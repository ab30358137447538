"""How ``adk`` in one terminal finds the ``adk dev`` of another: by a small file for as long as that runs.

The file is in the user's own folder for such things, not in the project, and no other user can write or read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from adk_worker.errors import ConfigurationError
from adk_worker.liveness import Holder, known_dead
from adk_worker.own_files import is_ours, make_folder, own_folder, write_file

_SUFFIX: Final = ".dev.json"


_ENDPOINTS: Final = "ADK_MODEL_ENDPOINTS"
_UNTOLD: Final = ("ADK_SEAL_KEYS",)
"""What is written nowhere."""


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


def told(environment: Mapping[str, str]) -> dict[str, str]:
    """What other terminals are given of a fleet's environment, whose settings have been checked: ours, without keys.

    A server of models is told without its ``api_key``, which only those who call it need.
    """
    ours = {name: value for name, value in environment.items() if name.startswith("ADK_") and name not in _UNTOLD}
    if ours.get(_ENDPOINTS):
        named = json.loads(ours[_ENDPOINTS])
        keyless = {
            prefix: {field: said for field, said in endpoint.items() if field != "api_key"}
            for prefix, endpoint in named.items()
        }
        ours[_ENDPOINTS] = json.dumps(keyless)
    return ours


@contextmanager
def announced(fleet: DevFleet) -> Iterator[Path]:
    """Have ``fleet`` found for the length of the block.

    :raises ConfigurationError: there is no folder of the user's own for it.
    """
    folder = own_folder()
    make_folder(folder)
    file = folder / f"{fleet.pid}{_SUFFIX}"
    write_file(file, json.dumps(asdict(fleet)))
    try:
        yield file
    finally:
        file.unlink(missing_ok=True)


def running() -> list[DevFleet]:
    """The fleets of this user that run. What a killed one has left behind is removed."""
    folder = own_folder()
    if not folder.is_dir() or not is_ours(folder):
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
