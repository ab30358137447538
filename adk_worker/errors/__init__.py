"""Every error that adk-worker raises on purpose.

::

    AdkError
    ├── ConfigurationError              the code or the settings are wrong; nobody's run is
    │   ├── AgentImportError            a module of ADK_AGENTS does not import
    │   ├── UnknownAgentError           no agent of that name is registered
    │   └── SchemaVersionError          the store's schema is another version's
    ├── InvalidNameError                a tenant, a run id, a reason … that cannot be one
    ├── NotJSONError                    a value that must be JSON is not
    ├── StoreUnavailableError           the store did not answer (retryable)
    │   ├── StoreRefusedError           … for it lets nobody in with these settings (not retryable)
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
    │   ├── HistoryUnavailableError     the transcript does not resolve (H2)
    │   └── SealKeyMissingError         what the run has sealed cannot be opened here (R2)
    ├── CallError
    │   ├── IndeterminateToolCallError  nobody knows whether these calls happened (I5)
    │   ├── CallKeyReusedError          a key came back with other arguments (I1)
    │   ├── ClaimOwnerError             a claim is another owner's (I3)
    │   ├── CallNotFoundError           a run has no such call
    │   ├── CallDecidedError            a call is settled already (I8)
    │   ├── CallStateError              a call is not one that a person has to settle
    │   ├── OwnerMayLiveError           something of a call may still be under way (I8)
    │   ├── NotApprovedError            nobody's approval stands for these calls (P1)
    │   ├── ResumeConflictError         another resume of this run is under way (I9)
    │   └── ToolArgumentsError          a call's arguments do not fit its tool; it was never started (I10)
    ├── ToolError                       raised by tools: says whether the effect happened (I10)
    ├── ModelError                      a model call failed
    │   └── ModelUnavailableError       … since its provider takes no calls for now
    ├── ApprovalRefusedError            a request, or a grant, that takes no such answer (P1)
    ├── NotAllowedError                 who asked may not do that (P5)
    ├── BudgetError                     a limit that cannot be one, or is to be raised and is not there (P3)
    └── WaitTimeoutError                nothing happened in the time that the caller gave

``retryable`` says whether the same call may succeed later without anyone changing anything. All errors survive
pickling with their fields, since Celery may carry them between processes.
"""

from __future__ import annotations

from adk_worker.errors.asking import (
    ApprovalRefusedError,
    BudgetError,
    NotAllowedError,
)
from adk_worker.errors.calling import (
    CallDecidedError,
    CallError,
    CallKeyReusedError,
    CallNotFoundError,
    CallStateError,
    ClaimOwnerError,
    IndeterminateToolCallError,
    ModelError,
    ModelUnavailableError,
    NotApprovedError,
    OwnerMayLiveError,
    ResumeConflictError,
    ToolArgumentsError,
    ToolError,
)
from adk_worker.errors.configuring import (
    AgentImportError,
    ConfigurationError,
    InvalidNameError,
    NotJSONError,
    SchemaVersionError,
    UnknownAgentError,
)
from adk_worker.errors.running import (
    CheckpointError,
    CheckpointFormatError,
    CheckpointTooLargeError,
    FrontierLostError,
    HistoryUnavailableError,
    LeaseError,
    LeaseLostError,
    NoCheckpointError,
    RevisionMismatchError,
    RunExistsError,
    RunLeaseError,
    RunNotFoundError,
    RunStateError,
    SealKeyMissingError,
    StaleFenceError,
    WaitTimeoutError,
)
from adk_worker.errors.storing import (
    BrokerUnavailableError,
    CommitUnknownError,
    StoreRefusedError,
    StoreUnavailableError,
    UnreadableMessageError,
    ValueTooLargeError,
)
from adk_worker.errors.tree import (
    AdkError,
)

__all__ = [
    "AdkError",
    "AgentImportError",
    "ApprovalRefusedError",
    "BrokerUnavailableError",
    "BudgetError",
    "CallDecidedError",
    "CallError",
    "CallKeyReusedError",
    "CallNotFoundError",
    "CallStateError",
    "CheckpointError",
    "CheckpointFormatError",
    "CheckpointTooLargeError",
    "ClaimOwnerError",
    "CommitUnknownError",
    "ConfigurationError",
    "FrontierLostError",
    "HistoryUnavailableError",
    "IndeterminateToolCallError",
    "InvalidNameError",
    "LeaseError",
    "LeaseLostError",
    "ModelError",
    "ModelUnavailableError",
    "NoCheckpointError",
    "NotAllowedError",
    "NotApprovedError",
    "NotJSONError",
    "OwnerMayLiveError",
    "ResumeConflictError",
    "RevisionMismatchError",
    "RunExistsError",
    "RunLeaseError",
    "RunNotFoundError",
    "RunStateError",
    "SchemaVersionError",
    "SealKeyMissingError",
    "StaleFenceError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "ToolArgumentsError",
    "ToolError",
    "UnknownAgentError",
    "UnreadableMessageError",
    "ValueTooLargeError",
    "WaitTimeoutError",
]
