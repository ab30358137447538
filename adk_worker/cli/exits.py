"""What the exit codes mean: 0 to 4 are answers about a run, 64 and above anything else, as in sysexits(3)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from adk_worker.errors import (
    AdkError,
    ApprovalRefusedError,
    BrokerUnavailableError,
    BudgetError,
    CallDecidedError,
    CallKeyReusedError,
    CallNotFoundError,
    CallStateError,
    CheckpointError,
    ConfigurationError,
    IndeterminateToolCallError,
    InvalidNameError,
    LeaseError,
    NotAllowedError,
    NotJSONError,
    OwnerMayLiveError,
    RunExistsError,
    RunLeaseError,
    RunNotFoundError,
    RunStateError,
    StoreRefusedError,
    StoreUnavailableError,
    UnknownAgentError,
    ValueTooLargeError,
    WaitTimeoutError,
)
from adk_worker.transitions.runs import Attention

if TYPE_CHECKING:
    from adk_worker.inspection import Inspection


class ExitCode(IntEnum):
    """The codes of ``adk``."""

    DONE = 0
    """Done; of ``run --resume``: carried on. Of ``inspect``: nothing is in the run's way."""
    NOTHING = 1
    """Nothing is checkpointed, or known, under that id; of ``alive``: there is no worker."""
    UNREADABLE = 2
    """The command line could not be read, a name in it included."""
    HELD = 3
    """Another worker holds it, and is named."""
    REFUSED = 4
    """It must not be carried on: an undecidable call, an evicted transcript, a frontier that cannot be read, … Of
    ``check-deploy``: some run would not be; of ``prune``: some run does not load; of ``scan``: something looks like a
    secret; of ``seal rotate``: another key is still needed; of ``doctor``: something can lose work, or repeat it; of
    ``settle``: something of the call may be under way."""
    NOT_ASKED_FOR = 64
    """What was asked for does not exist, such as an agent."""
    NOT_COMPLETED = 65
    """The run rests without having completed, or its state does not allow what was asked."""
    UNAVAILABLE = 69
    """The store or the broker did not answer; of ``alive --consuming``: a worker has no broker yet, or no more."""
    SOFTWARE = 70
    """Something that should not happen; ``--debug`` shows where."""
    TIMED_OUT = 75
    """What was waited for did not happen in time; it may still. Of ``alive``: a worker does not go on."""
    NOT_ALLOWED = 77
    """Whoever acts may not do this."""
    CONFIGURATION = 78
    """The settings, the agents' modules or the store's schema are not usable."""
    INTERRUPTED = 130
    """Ctrl-C."""
    NOBODY_READS = 141
    """The other end of the pipe was closed."""


_CODES: tuple[tuple[type[AdkError] | tuple[type[AdkError], ...], ExitCode], ...] = (
    ((InvalidNameError, NotJSONError, ValueTooLargeError), ExitCode.UNREADABLE),
    (BudgetError, ExitCode.NOT_COMPLETED),
    (RunNotFoundError, ExitCode.NOTHING),
    (RunLeaseError, ExitCode.HELD),
    ((CheckpointError, IndeterminateToolCallError, CallKeyReusedError), ExitCode.REFUSED),
    (UnknownAgentError, ExitCode.NOT_ASKED_FOR),
    (CallNotFoundError, ExitCode.NOT_ASKED_FOR),
    (OwnerMayLiveError, ExitCode.REFUSED),
    (
        (RunExistsError, RunStateError, CallDecidedError, CallStateError, ApprovalRefusedError),
        ExitCode.NOT_COMPLETED,
    ),
    (StoreRefusedError, ExitCode.CONFIGURATION),
    ((StoreUnavailableError, BrokerUnavailableError), ExitCode.UNAVAILABLE),
    ((WaitTimeoutError, LeaseError), ExitCode.TIMED_OUT),
    (NotAllowedError, ExitCode.NOT_ALLOWED),
    (ConfigurationError, ExitCode.CONFIGURATION),
)

_MUST_NOT_GO_ON = frozenset(
    {
        Attention.APPROVAL,
        Attention.UNDECIDED_CALL,
        Attention.KEY_REUSED,
        Attention.FRONTIER_LOST,
        Attention.HISTORY_UNAVAILABLE,
        Attention.SEAL_KEY_MISSING,
    }
)


def code_of(error: AdkError) -> ExitCode:
    """The exit code for an error of ours; the first kind that fits decides."""
    return next((code for kinds, code in _CODES if isinstance(error, kinds)), ExitCode.SOFTWARE)


def code_of_inspection(found: Inspection) -> ExitCode:
    """What ``run --resume`` would come to now. A run that is over has nothing in its way."""
    if found.over:
        return ExitCode.DONE
    if found.lease is not None:
        return ExitCode.HELD
    if found.obstacle is not None:
        return ExitCode.REFUSED
    short = found.afford is not None and found.afford.refusal is not None
    return ExitCode.NOT_COMPLETED if short else ExitCode.DONE


def code_of_parking(attention: Attention | None) -> ExitCode:
    """What it means that a run was parked again as soon as it was carried on."""
    return ExitCode.REFUSED if attention in _MUST_NOT_GO_ON else ExitCode.NOT_COMPLETED
