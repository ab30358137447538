"""Checkpoints: a run's frontier, as it is stored at a boundary.

There is one per run, and its ``sequence`` rises by one each time (C5). It is written only while nothing is in flight
(C1), it is never trimmed (C2), and a reader refuses a format that is newer than itself (C4).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from adk_worker.errors import CheckpointFormatError, CheckpointTooLargeError, ConfigurationError
from adk_worker.messages import Message, Usage, canonical_json, dump_messages
from adk_worker.outcomes import Effect, ToolOutcome

CHECKPOINT_FORMAT = 1
"""Version of the payload that this code writes; it reads this one and all before it (C4)."""


class CheckpointBoundary(StrEnum):
    """The moments at which nothing is in flight (C1)."""

    AFTER_MODEL_CALL = "after_model_call"
    """The answer is in, with every call that it asks for; none has been dispatched."""
    AFTER_TOOL_RESULT = "after_tool_result"
    """Every call of the turn has its outcome in the transcript."""
    BEFORE_APPROVAL = "before_approval"
    """As after the model call, and a call waits for a person."""


class OutstandingCall(BaseModel):
    """A call that the model asked for and that has no result in the transcript yet."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    call_id: str
    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    index: int = Field(ge=0)
    """Position within its turn."""
    effect: Effect = Effect.EFFECTFUL
    key: str | None = None
    """Its idempotency key; ``None`` where no idempotency store was there to record an intent (I6)."""
    needs_approval: bool = False
    """Whether a person has to approve it, as its tool or a policy said when it was asked for (P1)."""
    grant_id: str | None = None
    """The grant under which it is made without being asked about (P1)."""
    outcome: ToolOutcome | None = None
    """Set for a call that was refused before it was ever started: there is nothing to dispatch."""


class Journal(BaseModel):
    """What a frontier knows of its execution's journal: numbers. Its length is that of the journal, in steps (K1)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int = Field(default=0, ge=0)
    """Boundaries of this execution."""
    history_bytes: int = Field(default=0, ge=0)
    """By how many bytes the transcript has grown in it."""

    def __len__(self) -> int:
        return self.steps

    def with_step(self, *messages: Message) -> Journal:
        """The journal after another boundary, which adds ``messages`` to the transcript."""
        return Journal(steps=self.steps + 1, history_bytes=self.history_bytes + len(dump_messages(messages)))


class Checkpoint(BaseModel):
    """A frontier. With a ``history_handle`` the transcript is out of line and ``messages`` is empty (H1)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: int = CHECKPOINT_FORMAT
    tenant: str
    run_id: str
    agent: str
    revision: str
    sequence: int = Field(default=0, ge=0)
    boundary: CheckpointBoundary = CheckpointBoundary.AFTER_MODEL_CALL
    iteration: int = Field(default=0, ge=0)
    """Model calls whose answers are in."""
    messages: tuple[Message, ...] = ()
    history_handle: str | None = None
    calls: tuple[OutstandingCall, ...] = ()
    usage: Usage = Usage()
    cost_micros: int = Field(default=0, ge=0)
    """Cost so far in millionths of a currency unit, for reporting; the ledger says what may be spent (C6)."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    masks: dict[str, JsonValue] = Field(default_factory=dict)
    """State of the run's masker, so that placeholders go on where they stopped (R2)."""
    grant_id: str | None = None
    """The grant under which the run acted last without asking; each call of a turn has its own (P1)."""
    execution: int = Field(default=1, ge=1)
    """Which execution of the run this is; rises by one each time that the run crosses (K1)."""
    journal: Journal = Journal()
    output: str | None = None

    def updated(self, **fields: Any) -> Checkpoint:
        """A copy with other fields. The fields are trusted: they come from validated parts."""
        return self.model_copy(update=fields)


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Which boundaries are stored in process, and how large a checkpoint may be. The fleet stores them all (C1, C2)."""

    boundaries: frozenset[CheckpointBoundary] = frozenset(CheckpointBoundary)
    max_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        if self.max_bytes < 1:
            raise ConfigurationError(f"CheckpointPolicy.max_bytes is {self.max_bytes}; it has to be at least 1.")


def check_caps(*, policy: int, store: int) -> None:
    """Refuse a store that could not hold what the policy allows. Both are caps in bytes (C2).

    :raises ConfigurationError: the store's is below the policy's.
    """
    if store < policy:
        raise ConfigurationError(
            f"the store takes values of at most {store} bytes (its max_value_bytes), and the policy allows checkpoints "
            f"of {policy} (ADK_CHECKPOINT_MAX_BYTES, CheckpointPolicy.max_bytes): raise the first, or lower the second."
        )


def encode_checkpoint(checkpoint: Checkpoint, *, max_bytes: int | None = None) -> str:
    """The payload: JSON in ASCII.

    :raises CheckpointTooLargeError: it has more than ``max_bytes`` bytes (C2).
    """
    payload = canonical_json(checkpoint.model_dump(mode="json"))
    if max_bytes is not None and len(payload) > max_bytes:
        raise CheckpointTooLargeError(size=len(payload), max_bytes=max_bytes)
    return payload


class _Header(BaseModel):
    format: int


def decode_checkpoint(payload: str) -> Checkpoint:
    """Read a payload.

    :raises CheckpointFormatError: a newer format, or no checkpoint at all (C4).
    """
    try:
        found = _Header.model_validate_json(payload).format
    except ValidationError as error:
        raise CheckpointFormatError(found="none", supported=CHECKPOINT_FORMAT) from error
    if found > CHECKPOINT_FORMAT:
        raise CheckpointFormatError(found=found, supported=CHECKPOINT_FORMAT)
    try:
        # As this version writes it from now on: what it adds must not go out under the number of an older one.
        return Checkpoint.model_validate_json(payload).updated(format=CHECKPOINT_FORMAT)
    except ValidationError as error:
        raise CheckpointFormatError(found=f"{found}, damaged", supported=CHECKPOINT_FORMAT) from error


class CheckpointStore(Protocol):
    """One frontier per run. Nothing expires (C5)."""

    async def put(self, checkpoint: Checkpoint, *, fence: int | None = None) -> None:
        """Store the frontier in place of the one before. Without ``fence`` the last write wins (F2).

        :raises StaleFenceError: ``fence`` may not write, checked in the same atomic operation (F1).
        """
        ...

    async def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        """The stored frontier, or ``None``.

        :raises CheckpointFormatError: it cannot be read by this version; it is left where it is (C4).
        :raises FrontierLostError: the fleet has marked the run: what ran is ahead of it (C3).
        """
        ...

    async def forget(self, run_id: str, *, tenant: str, fence: int | None = None) -> None:
        """Remove the frontier; harmless if there is none.

        :raises StaleFenceError: as for :meth:`put`.
        """
        ...


class Checkpointer:
    """Writes checkpoints in process: a failure is kept in :attr:`last_error` and never reaches the run (C3)."""

    def __init__(self, store: CheckpointStore, policy: CheckpointPolicy | None = None) -> None:
        self.store = store
        self.policy = policy or CheckpointPolicy()
        self.last_error: Exception | None = None

    async def write(self, checkpoint: Checkpoint, *, fence: int | None = None) -> bool:
        """Store the checkpoint if the policy wants its boundary; whether the stored frontier is current now.

        ``False`` says that memory is ahead of what is stored, whatever the reason: a boundary that the policy leaves
        out, the cap, or a store that failed.
        """
        if checkpoint.boundary not in self.policy.boundaries:
            return False
        try:
            encode_checkpoint(checkpoint, max_bytes=self.policy.max_bytes)
            await self.store.put(checkpoint, fence=fence)
        except Exception as error:  # noqa: BLE001 - whatever a store does must not fail the live run (C3)
            self.last_error = error
            return False
        self.last_error = None
        return True

    async def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        """The stored frontier. Reading is not writing: errors are the caller's."""
        return await self.store.latest(run_id, tenant=tenant)

    async def forget(self, run_id: str, *, tenant: str, fence: int | None = None) -> bool:
        """Remove the frontier of a run that ended; whether it is gone. A failure is kept in :attr:`last_error` (C3)."""
        try:
            await self.store.forget(run_id, tenant=tenant, fence=fence)
        except Exception as error:  # noqa: BLE001 - as for a write
            self.last_error = error
            return False
        return True
