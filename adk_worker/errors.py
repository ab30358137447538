"""Every error that adk-worker raises on purpose.

::

    AdkError
    ├── ConfigurationError              the code or the settings are wrong; nobody's run is
    │   ├── AgentImportError            a module of ADK_AGENTS does not import
    │   ├── UnknownAgentError           no agent of that name is registered
    │   └── SchemaVersionError          the store's schema is another version's
    ├── InvalidNameError                a tenant or run id that cannot be one
    ├── NotJSONError                    a value that must be JSON is not
    ├── StoreUnavailableError           the store did not answer (retryable)
    │   └── CommitUnknownError          … in COMMIT: it may have happened (read again, F5)
    ├── ValueTooLargeError              a value is larger than the store takes at once
    ├── BrokerUnavailableError          the broker did not take a message (retryable)
    ├── UnreadableMessageError          a message of another version, or none of ours
    ├── RunNotFoundError · RunExistsError · RunStateError
    ├── LeaseError
    │   ├── RunLeaseError               somebody else holds the lease (L5)
    │   ├── StaleFenceError             the fence presented is not the one that may write (F1)
    │   └── LeaseLostError              this worker's own lease is gone or may be
    ├── CheckpointError
    │   ├── NoCheckpointError           nothing is stored under that name
    │   ├── CheckpointTooLargeError     over the cap (C2)
    │   ├── CheckpointFormatError       written by a newer version (C4)
    │   ├── RevisionMismatchError       the agent is another revision (C7)
    │   ├── FrontierLostError           the stored frontier is older than what ran (C3)
    │   └── HistoryUnavailableError     the transcript does not resolve (H2)
    ├── CallError
    │   ├── IndeterminateToolCallError  nobody knows whether these calls happened (I5)
    │   ├── CallKeyReusedError          a key came back with other arguments (I1)
    │   ├── ClaimOwnerError             a claim is another owner's (I3)
    │   ├── ResumeConflictError         another resume of this run is under way (I9)
    │   └── ToolArgumentsError          a call's arguments do not fit its tool; it was never started (I10)
    ├── ToolError                       raised by tools: says whether the effect happened (I10)
    ├── ModelError                      a model call failed
    │   └── ModelUnavailableError       … since its provider takes no calls for now
    └── WaitTimeoutError                nothing happened in the time that the caller gave

``retryable`` says whether the same call may succeed later without anyone changing anything. All errors survive
pickling with their fields, since Celery may carry them between processes.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

from adk_worker.liveness import short_name
from adk_worker.printable import time_of


def _rebuild(cls: type[AdkError], args: tuple[Any, ...], fields: dict[str, Any]) -> AdkError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(fields)
    return error


class AdkError(Exception):
    """Root of the tree. Fields are attributes; the message says what to do next."""

    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


class ConfigurationError(AdkError):
    """The code or the settings contradict themselves; the message names the setting and what it should be."""


class AgentImportError(ConfigurationError):
    """A module listed in ``ADK_AGENTS`` cannot be imported."""

    def __init__(self, *, module: str, reason: str) -> None:
        super().__init__(f"agents' module {module!r} does not import: {reason}. Check ADK_AGENTS and Python's path.")
        self.module = module
        self.reason = reason


class UnknownAgentError(ConfigurationError):
    """No agent of that name is registered in this process."""

    def __init__(self, *, agent: str, known: tuple[str, ...]) -> None:
        listed = ", ".join(known) or "none"
        super().__init__(f"no agent named {agent!r} is registered (known: {listed}); add its module to ADK_AGENTS.")
        self.agent = agent
        self.known = known


class SchemaVersionError(ConfigurationError):
    """The store's schema is not the one that this version reads and writes."""

    def __init__(self, *, found: str | None, wanted: str, command: str = "adk db upgrade") -> None:
        state = f"is at version {found}" if found else "has no adk-worker schema"
        super().__init__(f"the store {state}, this adk-worker needs {wanted}. Run: {command}")
        self.found = found
        self.wanted = wanted
        self.command = command


class InvalidNameError(AdkError, ValueError):
    """A tenant or run id that cannot be one; ``what`` names which, ``reason`` says why."""

    def __init__(self, *, what: str, reason: str) -> None:
        super().__init__(f"not a {what}: {reason}.")
        self.what = what
        self.reason = reason


class NotJSONError(AdkError, ValueError):
    """A value that has to be stored as JSON is not JSON."""

    def __init__(self, *, what: str, reason: str) -> None:
        super().__init__(f"{what} is not JSON: {reason}. Use strings, numbers, booleans, null, lists and dicts.")
        self.what = what
        self.reason = reason


class StoreUnavailableError(AdkError):
    """The store did not answer. Nothing was written, unless it is a :class:`CommitUnknownError`."""

    retryable = True

    def __init__(self, *, store: str, reason: str) -> None:
        super().__init__(f"the store {store} is not answering: {reason}. Check ADK_STORE_URL and that it is up.")
        self.store = store
        self.reason = reason


class CommitUnknownError(StoreUnavailableError):
    """The connection was lost in COMMIT: the write may have happened. Read before anything is repeated (F5)."""


class ValueTooLargeError(AdkError):
    """A value is larger than the store takes at once; nothing was written. ``what`` says which value."""

    def __init__(self, *, what: str, size: int, max_bytes: int) -> None:
        super().__init__(
            f"{what} has {size} bytes, the store takes at most {max_bytes} (its max_value_bytes); store less, or raise "
            "that cap."
        )
        self.what = what
        self.size = size
        self.max_bytes = max_bytes


class BrokerUnavailableError(AdkError):
    """The broker did not take a message. Its ticket is in the store: the reaper publishes it once its lease lapses."""

    retryable = True

    def __init__(self, *, broker: str, reason: str) -> None:
        super().__init__(
            f"the broker {broker} did not take the message: {reason.rstrip('.')}. Check ADK_BROKER_URL and that it is "
            "up; the reaper will publish the message again."
        )
        self.broker = broker
        self.reason = reason


class UnreadableMessageError(AdkError):
    """A message of another version, or none of ours. ``reason`` repeats nothing of its contents but names."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(f"the message cannot be read: {reason}. It is dropped; the reaper will publish its run again.")
        self.reason = reason


class RunNotFoundError(AdkError):
    """No run of that name for that tenant. Says the same whether another tenant has one (T1)."""

    def __init__(self, *, tenant: str, run_id: str) -> None:
        super().__init__(f"tenant {tenant!r} has no run {run_id!r}.")
        self.tenant = tenant
        self.run_id = run_id


class RunExistsError(AdkError):
    """The run id is taken by a run with another agent or input."""

    def __init__(self, *, tenant: str, run_id: str, agent: str) -> None:
        super().__init__(
            f"tenant {tenant!r} has a run {run_id!r} already, of agent {agent!r} and with another request; choose "
            "another run id, or submit exactly the same request to get the run that is there."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.agent = agent


class RunStateError(AdkError):
    """The run's status does not allow what was asked; ``status`` is what stands."""

    def __init__(self, *, tenant: str, run_id: str, status: str, wanted: str) -> None:
        super().__init__(f"run {run_id!r} of tenant {tenant!r} is {status}: {wanted}.")
        self.tenant = tenant
        self.run_id = run_id
        self.status = status
        self.wanted = wanted


class LeaseError(AdkError):
    """About who may advance a run."""


class RunLeaseError(LeaseError):
    """The lease is held by ``holder`` (a worker's name, or ``queue``) under ``fence`` until ``expires_at`` (L5).

    ``expires_at`` is in seconds since the epoch by the store's clock.
    """

    retryable = True

    def __init__(self, *, tenant: str, run_id: str, holder: str, fence: int, expires_at: float) -> None:
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r} is held by {short_name(holder)} under fence {fence} until "
            f"{time_of(expires_at)} by the store's clock; wait for it to end or to lapse."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.holder = holder
        self.fence = fence
        self.expires_at = expires_at


class StaleFenceError(LeaseError):
    """A write was refused: ``presented`` may not write; ``current`` is the lease's fence now (F1).

    The two are equal when that acquisition has handed over, released, parked or ended the run already.
    """

    def __init__(self, *, tenant: str, run_id: str, presented: int, current: int) -> None:
        what = "gave up its lease already" if presented == current else f"was superseded by fence {current}"
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r}: fence {presented} {what}; nothing was written. Stop this work: "
            "another worker carries the run on."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.presented = presented
        self.current = current


class LeaseLostError(LeaseError):
    """This worker could not renew in time, or saw itself superseded; it must stop (L9)."""

    def __init__(self, *, tenant: str, run_id: str, fence: int, reason: str) -> None:
        super().__init__(f"run {run_id!r} of tenant {tenant!r}: the lease under fence {fence} is lost: {reason}.")
        self.tenant = tenant
        self.run_id = run_id
        self.fence = fence
        self.reason = reason


class CheckpointError(AdkError):
    """About a stored frontier."""


class NoCheckpointError(CheckpointError):
    """Nothing is checkpointed under that name, so there is nothing to resume."""

    def __init__(self, *, tenant: str, run_id: str) -> None:
        super().__init__(
            f"nothing is checkpointed for run {run_id!r} of tenant {tenant!r}; it has to be run, not resumed."
        )
        self.tenant = tenant
        self.run_id = run_id


class CheckpointTooLargeError(CheckpointError):
    """The payload is over the cap; nothing was trimmed and nothing was written (C2).

    ``max_bytes`` is the policy's cap, ``store_max_bytes`` the store's own where it is that one which refused.
    """

    def __init__(self, *, size: int, max_bytes: int, store_max_bytes: int | None = None) -> None:
        if store_max_bytes is None:
            over = f"the cap is {max_bytes}; let tools return less, or raise CheckpointPolicy.max_bytes."
        else:
            over = (
                f"the store takes at most {store_max_bytes} (its max_value_bytes), while CheckpointPolicy.max_bytes is "
                f"{max_bytes}; let tools return less, or raise the store's cap, which has to be no lower than the "
                "policy's."
            )
        super().__init__(f"the checkpoint has {size} bytes, {over}")
        self.size = size
        self.max_bytes = max_bytes
        self.store_max_bytes = store_max_bytes


class CheckpointFormatError(CheckpointError):
    """The payload's format is newer than this version reads, or is not a checkpoint at all (C4)."""

    def __init__(self, *, found: object, supported: int) -> None:
        super().__init__(
            f"the checkpoint has format {found!r}, this version reads up to {supported}; a newer adk-worker has to "
            "carry this run on."
        )
        self.found = found
        self.supported = supported


class RevisionMismatchError(CheckpointError):
    """The run was started by another revision of its agent (C7)."""

    def __init__(self, *, agent: str, pinned: str, registered: tuple[str, ...]) -> None:
        listed = ", ".join(registered) or "none"
        super().__init__(
            f"the run is pinned to revision {pinned} of agent {agent!r}, registered here: {listed}; a worker that "
            "has that revision has to carry it on."
        )
        self.agent = agent
        self.pinned = pinned
        self.registered = registered


class FrontierLostError(CheckpointError):
    """What ran is ahead of the newest stored frontier, so that one must not be resumed from (C3)."""

    def __init__(self, *, tenant: str, run_id: str, sequence: int) -> None:
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r} went on after sequence {sequence} without a stored frontier and "
            "cannot be resumed from there; start it again under a new run id once its calls are looked at."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.sequence = sequence


class HistoryUnavailableError(CheckpointError):
    """The transcript's handle does not resolve, or resolves to something else (H2)."""

    def __init__(self, *, handle: str, reason: str) -> None:
        super().__init__(
            f"the transcript behind handle {handle!r} is unavailable: {reason}. The run is not carried on with a "
            "hole; restore the transcript, then resume the run."
        )
        self.handle = handle
        self.reason = reason


class CallError(AdkError):
    """About tool calls and their claims."""


class IndeterminateToolCallError(CallError):
    """Nobody knows whether these calls happened; ``calls`` holds (call id, tool, key or None) of each (I5)."""

    def __init__(self, *, tenant: str, run_id: str, calls: tuple[tuple[str, str, str | None], ...]) -> None:
        named = "; ".join(f"{tool} ({call_id}, key {key or 'none'})" for call_id, tool, key in calls)
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r} cannot be carried on: it is not known whether these calls "
            f"happened: {named}. Ask the far side what became of each, by its key."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.calls = calls


class CallKeyReusedError(CallError):
    """A key is on record for another tool or other arguments; its outcome is not this call's (I1)."""

    def __init__(self, *, key: str) -> None:
        super().__init__(
            f"idempotency key {key} is on record with another tool or other arguments; the outcome was not reused "
            "and the call was not made."
        )
        self.key = key


class ClaimOwnerError(CallError):
    """Only the owner of a claim in flight may record or abandon it (I3)."""

    def __init__(self, *, key: str) -> None:
        super().__init__(f"the claim on key {key} belongs to another owner, or is not in flight.")
        self.key = key


class ResumeConflictError(CallError):
    """Another resume of the run is under way; it expires by itself within five minutes (I9)."""

    retryable = True

    def __init__(self, *, tenant: str, run_id: str) -> None:
        super().__init__(f"run {run_id!r} of tenant {tenant!r} is being resumed by somebody else; try again later.")
        self.tenant = tenant
        self.run_id = run_id


class ToolArgumentsError(CallError):
    """The arguments of a call do not fit its tool. The call was never started, and the model is told (I10).

    ``reason`` names the arguments that are wrong and repeats no more of them than their names.
    """

    def __init__(self, *, tool: str, reason: str) -> None:
        super().__init__(f"the arguments of {tool!r} are not valid: {reason}. Correct them and call again.")
        self.tool = tool
        self.reason = reason


class ToolError(AdkError):
    """Raised by a tool. ``happened=False`` says for certain that there was no effect (I10).

    ``happened=True`` says that the effect is there although the tool failed afterwards; ``None``, the default, that
    the tool does not know, which for an effectful tool leaves the call in flight. The message is told to the model.
    """

    def __init__(self, message: str, *, happened: bool | None = None) -> None:
        super().__init__(message)
        self.happened = happened


class ModelError(AdkError):
    """A model call failed. ``transient`` says that the same call may succeed later."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class ModelUnavailableError(ModelError):
    """The model's provider takes no calls for now: it is over a limit, has a fault of its own, or cannot be reached.

    Always transient, and nobody's fault: on the fleet the run waits in the queue, and no crash is counted.
    ``retry_after`` is for how many seconds the provider asked to be left alone, if it did.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message, transient=True)
        self.retry_after = retry_after


class WaitTimeoutError(AdkError, TimeoutError):
    """What was waited for did not happen within ``seconds``; the run goes on regardless."""

    retryable = True

    def __init__(self, *, what: str, seconds: float) -> None:
        super().__init__(f"{what} did not happen within {seconds:g} s; the run itself goes on.")
        self.what = what
        self.seconds = seconds

    @classmethod
    def of_run(cls, run_id: str, seconds: float) -> Self:
        """The error of a wait for a run to rest."""
        return cls(what=f"the end of run {run_id!r}", seconds=seconds)
