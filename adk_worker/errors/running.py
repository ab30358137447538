"""Errors about runs, leases and frontiers."""

from __future__ import annotations

from typing import Self

from adk_worker.errors.tree import AdkError
from adk_worker.liveness import short_name
from adk_worker.printable import time_of


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
            f"nothing is checkpointed for run {run_id!r} of tenant {tenant!r}: it was never run, or is over, "
            "and there is nothing to resume."
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


class SealKeyMissingError(CheckpointError):
    """What the run has sealed cannot be opened here; ``key_id`` names the key that it was sealed under (R2).

    ``known`` are the ids of the keys that this process has. ``does_not_open`` says that the key of that id is among
    them and is another one, or that what is stored was moved or damaged.
    """

    def __init__(
        self, *, tenant: str, run_id: str, key_id: str, known: tuple[str, ...] = (), does_not_open: bool = False
    ) -> None:
        if does_not_open:
            why = "and the key of that id here does not open it: it is another key, or the seal was moved or damaged"
        else:
            why = f"which this process does not have (it has: {', '.join(known) or 'none'})"
        super().__init__(
            f"run {run_id!r} of tenant {tenant!r} holds secrets sealed under the key {key_id!r}, {why}. Put that key "
            "back into ADK_SEAL_KEYS or ADK_SEAL_KEYS_FILE of the workers, restart them, then resume the run."
        )
        self.tenant = tenant
        self.run_id = run_id
        self.key_id = key_id
        self.known = known
        self.does_not_open = does_not_open
