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


class ApprovalRefusedError(AdkError):
    """``name``, a request or a grant of a run, takes no such answer; ``stands`` says what does (P1)."""

    def __init__(self, *, tenant: str, run_id: str, name: str, stands: str) -> None:
        super().__init__(f"{name} of run {run_id!r} of tenant {tenant!r}: {stands}. Nothing was changed.")
        self.tenant = tenant
        self.run_id = run_id
        self.name = name
        self.stands = stands


class BudgetError(AdkError, ValueError):
    """A limit that cannot be one, or one that is to be raised and is not there; the message says which (P3)."""
