"""What is known of a tool call once it has ended: the outcome that a claim keeps and that the model is told."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from adk_worker.messages import ToolResultPart


class Effect(StrEnum):
    """What a tool does to the world, as its author declares it (I7)."""

    EFFECTFUL = "effectful"
    """Repeating it may do it twice. Never guessed at. The default."""
    IDEMPOTENT = "idempotent"
    """The far side honours the idempotency key: the call may be sent again under the same key."""
    READ_ONLY = "read_only"
    """It changes nothing: it may be run again."""


class OutcomeKind(StrEnum):
    """How a call ended (I10)."""

    RETURNED = "returned"
    """It returned JSON."""
    UNUSABLE = "unusable"
    """It completed, but what it returned is not JSON or is too large; the content says so."""
    FAILED = "failed"
    """It failed in a way that leaves nothing unknown; the content says how."""
    REFUSED = "refused"
    """It was never started: unknown tool, invalid arguments, refused by policy."""


class ToolOutcome(BaseModel):
    """The settled end of one call: its kind and the JSON that the model is told.

    ``sealed`` are the originals of what was masked in it first, by number and encrypted, for whoever carries the run on
    (R2). A tool's author leaves it alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: OutcomeKind
    content: JsonValue = None
    sealed: dict[str, str] = Field(default_factory=dict, repr=False, exclude_if=lambda sealed: not sealed)

    def result(self, *, call_id: str, name: str) -> ToolResultPart:
        """The part of the transcript that tells the model."""
        is_error = self.kind is not OutcomeKind.RETURNED
        return ToolResultPart(call_id=call_id, name=name, content=self.content, is_error=is_error)
