"""Answers about secrets: the keys that seal them. None has a secret in it, but for a key that is printed to be kept."""

from __future__ import annotations

from adk_worker.cli.answers.model import Answer


class SealKeysNewAnswer(Answer):
    """A key that was made."""

    id: str
    key: str | None
    """The key, as ``ADK_SEAL_KEYS`` takes it; null where it was put into a file."""
    file: str | None


class SealKeysListAnswer(Answer):
    """A key of this process."""

    id: str
    seals: bool
    """Whether it is the one that seals; all open."""


class SealRotateAnswer(Answer):
    """What ``adk seal rotate`` has done, in numbers of runs that hold something sealed and may still be carried on."""

    key: str
    """The key that seals."""
    tenant: str | None
    resealed: int
    current: int
    """Runs that held nothing under another key."""
    held: int
    """Runs that a worker has, which seals them anew at their next boundary."""
    moving: int
    """Runs that changed hands whenever they were looked at."""
    unopened: int
    """Runs that hold something that no key here opens."""
    unreadable: int
    """Runs whose frontier a newer version has written."""
    needed: dict[str, int]
    """How many runs still need a key other than the one that seals, by that key."""
    spare: list[str]
    """Keys of this process that no run needs."""


class ScanAnswer(Answer):
    """Something stored that looks like a secret."""

    tenant: str
    run_id: str
    place: str
    """Where it is in what is stored of the run."""
    kind: str
    """Which rule has found it; ``named``: it stands under a name for secrets, such as ``password``."""
