"""Errors about calls of tools and of models."""

from __future__ import annotations

from adk_worker.errors.tree import AdkError
from adk_worker.liveness import short_name
from adk_worker.printable import time_of


class CallError(AdkError):
    """About tool calls and their claims."""


class IndeterminateToolCallError(CallError):
    """Nobody knows whether these calls happened; ``calls`` holds (call id, tool, key or None) of each (I5)."""

    def __init__(self, *, tenant: str, run_id: str, calls: tuple[tuple[str, str, str | None], ...]) -> None:
        named = "; ".join(f"{tool} ({call_id}, key {key or 'none'})" for call_id, tool, key in calls)
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r} cannot be carried on: it is not known whether these calls "
            f"happened: {named}. Ask the far side what became of each, by its key, and settle it (adk settle; in "
            "process AgentRunner.settle)."
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


class CallNotFoundError(CallError):
    """The run has no such call, or several that are called so; ``known`` lists those that can be named."""

    def __init__(self, *, tenant: str, run_id: str, call: str, known: tuple[str, ...], ambiguous: bool = False) -> None:
        what = f"several calls named {call!r}" if ambiguous else f"no call {call!r} that is outstanding"
        listed = "; ".join(known) or "it has none"
        super().__init__(f"run {run_id!r} of tenant {tenant!r} has {what}. Name one by its id or its key: {listed}.")
        self.tenant = tenant
        self.run_id = run_id
        self.call = call
        self.known = known
        self.ambiguous = ambiguous


class CallDecidedError(CallError):
    """The call is settled already, and stays so: ``how`` it ended, ``by`` whom (``owner``, ``probe``, ``person:NAME``).

    ``at`` is when a person decided it, in seconds since the epoch by the store's clock; ``None`` if none did.
    """

    def __init__(self, *, key: str, tool: str | None, how: str, by: str, at: float | None) -> None:
        when = f" at {time_of(at)}" if at is not None else ""
        super().__init__(
            f"the call of {tool or 'a tool'} (key {key}) is settled already: {how}, by {by}{when}. Nothing was changed."
        )
        self.key = key
        self.tool = tool
        self.how = how
        self.by = by
        self.at = at


class CallStateError(CallError):
    """The call is not one that a person has to settle; ``state`` is what stands, ``wanted`` what to do instead."""

    def __init__(self, *, key: str | None, tool: str | None, state: str, wanted: str) -> None:
        super().__init__(f"the call of {tool or 'a tool'} (key {key or 'none'}) is {state}: {wanted}.")
        self.key = key
        self.tool = tool
        self.state = state
        self.wanted = wanted


class OwnerMayLiveError(CallError):
    """It cannot be said that a call never ran while something of it may be under way; ``reason`` says what (I8)."""

    def __init__(self, *, key: str, tool: str | None, owner: str, reason: str) -> None:
        super().__init__(
            f"the call of {tool or 'a tool'} (key {key}), begun by {short_name(owner)}, cannot be settled as never run "
            f"yet: {reason}. See to it that nothing of it is under way, and say so: --owner-may-live "
            "(owner_may_live=True)."
        )
        self.key = key
        self.tool = tool
        self.owner = owner
        self.reason = reason


class NotApprovedError(CallError):
    """No person's approval, and no grant, stands for these calls: nothing was begun (P1). ``keys`` are theirs."""

    def __init__(self, *, keys: tuple[str, ...]) -> None:
        super().__init__(
            f"no approval stands for {', '.join(keys)}: nothing was begun. An answer holds for one call with its "
            "arguments, and a grant until it is revoked or over: ask again."
        )
        self.keys = keys


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
