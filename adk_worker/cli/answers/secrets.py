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
