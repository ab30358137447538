"""Files of seal keys: one key to a line, nobody else's to read.

Empty lines, and those that begin with ``#``, count for nothing. The first key seals.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from adk_worker.errors import ConfigurationError
from adk_worker.sealing.keys import SealKey, SealKeys

_LARGEST: Final = 64 * 1024
_HEAD: Final = "# Seal keys of adk-worker, the first one seals. Whoever has this file can read what runs have sealed.\n"


def read_keys(file: Path) -> SealKeys:
    """The keys of a file.

    It may be read by its owner alone. One of root's may also be read by a group, as a platform mounts secrets for a
    process that is not root.

    :raises ConfigurationError: it cannot be read, others may read it, or it is no file of keys; says what to do.
    """
    return _parsed(file, _read(file))


def make_keys(file: Path, key: SealKey) -> bool:
    """Make a file with one key, unless there is a file; whether it was made. Only its owner may read it.

    :raises ConfigurationError: it cannot be made.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise ConfigurationError(f"the file of seal keys {file} cannot be made: {error.strerror}.") from error
    with os.fdopen(descriptor, "w") as writing:
        os.fchmod(descriptor, 0o600)
        writing.write(f"{_HEAD}{key.text}\n")
    return True


def add_key(file: Path, key: SealKey) -> SealKeys:
    """Put a key behind those of a file, which is made if there is none, and return what is in it now.

    :raises ConfigurationError: as for :func:`read_keys`, or there is a key of that id.
    """
    if make_keys(file, key):
        return SealKeys((key,))
    text = _read(file)
    keys = SealKeys((*_parsed(file, text).keys, key))
    ends = "" if not text or text.endswith("\n") else "\n"
    fresh = file.with_name(f"{file.name}.new")
    try:
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as writing:
            os.fchmod(writing.fileno(), 0o600)
            writing.write(f"{text}{ends}{key.text}\n")
        fresh.replace(file)
    except OSError as error:
        raise ConfigurationError(f"the file of seal keys {file} cannot be written: {error.strerror}.") from error
    return keys


def _parsed(file: Path, text: str) -> SealKeys:
    try:
        return SealKeys.parse("" if line.lstrip().startswith("#") else line for line in text.splitlines())
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None


def _read(file: Path) -> str:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK)) as reading:
            found = os.fstat(reading.fileno())
            _check(file, found)
            return reading.read()
    except FileNotFoundError:
        raise ConfigurationError(
            f"there is no file of seal keys {file} (ADK_SEAL_KEYS_FILE); `adk seal keys new --file {file}` makes one."
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{file} is no file of seal keys: it is not text.") from None
    except OSError as error:
        raise ConfigurationError(f"the file of seal keys {file} cannot be read: {error.strerror}.") from error


def _check(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{file} is no file of seal keys: it is a folder or a device.")
    if found.st_size > _LARGEST:
        raise ConfigurationError(f"{file} is no file of seal keys: it is larger than {_LARGEST} bytes.")
    mine = found.st_uid == os.getuid()
    by_group = stat.S_IRGRP if found.st_uid == 0 and not mine else 0
    shared = found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) & ~by_group
    if shared:
        raise ConfigurationError(
            f"the file of seal keys {file} may be read or written by others (its mode is "
            f"{stat.S_IMODE(found.st_mode):04o}), who could then read what runs have sealed: chmod 600 {file}. If "
            "somebody may have read it, rotate the keys (adk seal keys new)."
        )
