"""Small files by which processes of one user on one machine find each other, in a folder of that user alone."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from adk_worker.errors import ConfigurationError


def own_folder() -> Path:
    """The user's folder for them; it need not be there yet."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime and Path(runtime).is_dir() and os.access(runtime, os.W_OK):
        return Path(runtime) / "adk-worker"
    return Path(tempfile.gettempdir()) / f"adk-worker-{os.getuid()}"


def is_ours(folder: Path) -> bool:
    """Whether it is this user's folder, and nobody else's to write to."""
    found = folder.lstat()
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not others_write


def make_folder(folder: Path) -> None:
    """Make the folder if there is none.

    :raises ConfigurationError: it is another's.
    :raises OSError: it cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_ours(folder):
        raise ConfigurationError(f"{folder} is somebody else's, or others may write to it; remove it, or set TMPDIR.")


def write_file(file: Path, text: str) -> None:
    """Write the file so that a reader finds all of it, or what was there before, and nobody else can read it."""
    fresh = file.with_suffix(".new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as writing:  # noqa: PTH123
        writing.write(text)
    fresh.replace(file)
