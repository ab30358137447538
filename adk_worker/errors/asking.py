"""Errors about what people ask for."""

from __future__ import annotations

from adk_worker.errors.tree import AdkError


class NotAllowedError(AdkError):
    """``actor`` may not do this; nothing was written (P5). ``reason`` is what whoever refused says of it."""

    def __init__(self, *, actor: str, action: str, reason: str) -> None:
        super().__init__(f"{actor!r} may not {action}: {reason.rstrip('.')}. Ask somebody who may, or have it allowed.")
        self.actor = actor
        self.action = action
        self.reason = reason
