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
    """What a rotation came to: numbers of runs that hold something sealed and may be carried on."""

    key: str
    """The key that seals."""
    tenant: str | None
    resealed: int
    current: int
    """Held nothing under another key."""
    held: int
    """A worker has them, and seals anew itself."""
    moving: int
    unopened: int
    """Hold what no key here opens."""
    unreadable: int
    """Have a frontier of a newer version."""
    needed: dict[str, int]
    """Keys that are needed still, besides the one that seals, and by how many runs."""
    spare: list[str]
    """Keys of this process that no run needs."""


class ScanAnswer(Answer):
    """Something stored that looks like a secret."""

    tenant: str
    run_id: str
    place: str
    """Where in what is stored of the run."""
    kind: str
    """Which rule says so; ``named`` is what stands under a name for secrets."""
