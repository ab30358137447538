"""adk-worker: agent runs that survive the death of the process that holds them.

Everything that an application needs is here, flat. The fleet's stores are opened by URL (``ADK_STORE_URL``,
``stores.open_stores``); the Celery application is ``tasks.app``.

A name's module is imported when the name is first asked for, so that a program pays for what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from adk_worker.exports import exported

if TYPE_CHECKING:
    from adk_worker.actors import Action, Actor, Verifier
    from adk_worker.agent import Agent
    from adk_worker.approvals.answers import Answered, ApprovalDecision, NewGrant
    from adk_worker.approvals.declaring import Approval, ProposedCall
    from adk_worker.approvals.requests import ApprovalRequest, Approvals, Grant, NewRequest, RequestState
    from adk_worker.bulk import BulkOutcome, BulkResult
    from adk_worker.checkpoint import (
        CHECKPOINT_FORMAT,
        Checkpoint,
        CheckpointBoundary,
        Checkpointer,
        CheckpointPolicy,
        CheckpointStore,
        OutstandingCall,
        decode_checkpoint,
        encode_checkpoint,
    )
    from adk_worker.client import Fleet
    from adk_worker.continuation import DEFAULT_CONTINUATION, Continuation, ContinuationPolicy, continued
    from adk_worker.errors import (
        AdkError,
        AgentImportError,
        ApprovalRefusedError,
        BudgetError,
        CallDecidedError,
        CallError,
        CallKeyReusedError,
        CallNotFoundError,
        CallStateError,
        CheckpointError,
        CheckpointFormatError,
        CheckpointTooLargeError,
        ClaimOwnerError,
        CommitUnknownError,
        ConfigurationError,
        FrontierLostError,
        HistoryUnavailableError,
        IndeterminateToolCallError,
        InvalidNameError,
        LeaseError,
        LeaseLostError,
        ModelError,
        ModelUnavailableError,
        NoCheckpointError,
        NotAllowedError,
        NotApprovedError,
        NotJSONError,
        OwnerMayLiveError,
        ResumeConflictError,
        RevisionMismatchError,
        RunExistsError,
        RunLeaseError,
        RunNotFoundError,
        RunStateError,
        SchemaVersionError,
        SealKeyMissingError,
        StaleFenceError,
        StoreRefusedError,
        StoreUnavailableError,
        ToolArgumentsError,
        ToolError,
        UnknownAgentError,
        ValueTooLargeError,
        WaitTimeoutError,
    )
    from adk_worker.events import Event, EventKind
    from adk_worker.filters import RunFilter
    from adk_worker.history import HistoryStore
    from adk_worker.idempotency import Claim, ClaimState, IdempotencyStore, Intent, ResumeClaims, call_digest, call_key
    from adk_worker.inspection import Inspection
    from adk_worker.keeping.leaseholder import Leaseholder
    from adk_worker.lease import LeasePolicy, LeaseStore, RunLease
    from adk_worker.ledger.accounts import Account
    from adk_worker.ledger.amounts import Amount, Budget, BudgetChange
    from adk_worker.ledger.booking import Ledger
    from adk_worker.liveness import Holder, ProcessIdentity, known_dead
    from adk_worker.memory import (
        MemoryCheckpointStore,
        MemoryHistoryStore,
        MemoryIdempotencyStore,
        MemoryLeaseStore,
        MemoryLedgers,
        MemoryRunStore,
        memory_stores,
    )
    from adk_worker.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCallPart, ToolResultPart, Usage
    from adk_worker.model import Estimate, ModelAnswer, ModelProvider, ModelRequest, ToolSpec
    from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
    from adk_worker.providers import ModelPolicy, ScriptedProvider
    from adk_worker.redaction.masking import Redactor
    from adk_worker.registry import Registry
    from adk_worker.resume import PlannedCall, ResumePlan, ToolDisposition, plan_resume
    from adk_worker.resumer import Carried, Resumer
    from adk_worker.runner import AgentRunner, RunResult
    from adk_worker.runs import Dispatch, Run, RunStatus, RunStore, Stores
    from adk_worker.sealing.keys import SealKey, SealKeys
    from adk_worker.settings import Settings
    from adk_worker.steps import Dispatcher
    from adk_worker.tools.context import ToolContext, current_call
    from adk_worker.tools.declaring import Tool, tool
    from adk_worker.tools.probe import Happened, NeverWill, NotYet, ProbeAnswer, Unknown
    from adk_worker.transitions.runs import Attention, FleetPolicy

__all__ = [
    "CHECKPOINT_FORMAT",
    "DEFAULT_CONTINUATION",
    "Account",
    "Action",
    "Actor",
    "AdkError",
    "Agent",
    "AgentImportError",
    "AgentRunner",
    "Amount",
    "Answered",
    "Approval",
    "ApprovalDecision",
    "ApprovalRefusedError",
    "ApprovalRequest",
    "Approvals",
    "Attention",
    "BinaryPart",
    "Budget",
    "BudgetChange",
    "BudgetError",
    "BulkOutcome",
    "BulkResult",
    "CallDecidedError",
    "CallError",
    "CallKeyReusedError",
    "CallNotFoundError",
    "CallStateError",
    "Carried",
    "Checkpoint",
    "CheckpointBoundary",
    "CheckpointError",
    "CheckpointFormatError",
    "CheckpointPolicy",
    "CheckpointStore",
    "CheckpointTooLargeError",
    "Checkpointer",
    "Claim",
    "ClaimOwnerError",
    "ClaimState",
    "CommitUnknownError",
    "ConfigurationError",
    "Continuation",
    "ContinuationPolicy",
    "Dispatch",
    "Dispatcher",
    "Effect",
    "Estimate",
    "Event",
    "EventKind",
    "Fleet",
    "FleetPolicy",
    "FrontierLostError",
    "Grant",
    "Happened",
    "HistoryStore",
    "HistoryUnavailableError",
    "Holder",
    "IdempotencyStore",
    "IndeterminateToolCallError",
    "Inspection",
    "Intent",
    "InvalidNameError",
    "LeaseError",
    "LeaseLostError",
    "LeasePolicy",
    "LeaseStore",
    "Leaseholder",
    "Ledger",
    "MemoryCheckpointStore",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
    "MemoryLedgers",
    "MemoryRunStore",
    "Message",
    "ModelAnswer",
    "ModelError",
    "ModelPolicy",
    "ModelProvider",
    "ModelRequest",
    "ModelUnavailableError",
    "NeverWill",
    "NewGrant",
    "NewRequest",
    "NoCheckpointError",
    "NotAllowedError",
    "NotApprovedError",
    "NotJSONError",
    "NotYet",
    "OpaquePart",
    "OutcomeKind",
    "OutstandingCall",
    "OwnerMayLiveError",
    "PlannedCall",
    "ProbeAnswer",
    "ProcessIdentity",
    "ProposedCall",
    "Redactor",
    "Registry",
    "RequestState",
    "ResumeClaims",
    "ResumeConflictError",
    "ResumePlan",
    "Resumer",
    "RevisionMismatchError",
    "Run",
    "RunExistsError",
    "RunFilter",
    "RunLease",
    "RunLeaseError",
    "RunNotFoundError",
    "RunResult",
    "RunStateError",
    "RunStatus",
    "RunStore",
    "SchemaVersionError",
    "ScriptedProvider",
    "SealKey",
    "SealKeyMissingError",
    "SealKeys",
    "Settings",
    "StaleFenceError",
    "StoreRefusedError",
    "StoreUnavailableError",
    "Stores",
    "TextPart",
    "Tool",
    "ToolArgumentsError",
    "ToolCallPart",
    "ToolContext",
    "ToolDisposition",
    "ToolError",
    "ToolOutcome",
    "ToolResultPart",
    "ToolSpec",
    "Unknown",
    "UnknownAgentError",
    "Usage",
    "ValueTooLargeError",
    "Verifier",
    "WaitTimeoutError",
    "call_digest",
    "call_key",
    "continued",
    "current_call",
    "decode_checkpoint",
    "encode_checkpoint",
    "known_dead",
    "memory_stores",
    "plan_resume",
    "tool",
]

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "actors": "Action Actor Verifier",
        "agent": "Agent",
        "approvals.answers": "Answered ApprovalDecision NewGrant",
        "approvals.declaring": "Approval ProposedCall",
        "approvals.requests": "ApprovalRequest Approvals Grant NewRequest RequestState",
        "bulk": "BulkOutcome BulkResult",
        "checkpoint": (
            "CHECKPOINT_FORMAT Checkpoint CheckpointBoundary Checkpointer CheckpointPolicy CheckpointStore "
            "OutstandingCall decode_checkpoint encode_checkpoint"
        ),
        "client": "Fleet",
        "continuation": "DEFAULT_CONTINUATION Continuation ContinuationPolicy continued",
        "errors": (
            "AdkError AgentImportError ApprovalRefusedError BudgetError CallDecidedError CallError "
            "CallKeyReusedError CallNotFoundError CallStateError CheckpointError CheckpointFormatError "
            "CheckpointTooLargeError ClaimOwnerError CommitUnknownError ConfigurationError FrontierLostError "
            "HistoryUnavailableError IndeterminateToolCallError InvalidNameError LeaseError LeaseLostError "
            "ModelError ModelUnavailableError NoCheckpointError NotAllowedError NotApprovedError NotJSONError "
            "OwnerMayLiveError ResumeConflictError RevisionMismatchError RunExistsError RunLeaseError "
            "RunNotFoundError RunStateError SchemaVersionError SealKeyMissingError StaleFenceError "
            "StoreRefusedError StoreUnavailableError ToolArgumentsError ToolError UnknownAgentError "
            "ValueTooLargeError WaitTimeoutError"
        ),
        "events": "Event EventKind",
        "filters": "RunFilter",
        "history": "HistoryStore",
        "idempotency": "Claim ClaimState IdempotencyStore Intent ResumeClaims call_digest call_key",
        "inspection": "Inspection",
        "keeping.leaseholder": "Leaseholder",
        "lease": "LeasePolicy LeaseStore RunLease",
        "ledger.accounts": "Account",
        "ledger.amounts": "Amount Budget BudgetChange",
        "ledger.booking": "Ledger",
        "liveness": "Holder ProcessIdentity known_dead",
        "memory": (
            "MemoryCheckpointStore MemoryHistoryStore MemoryIdempotencyStore MemoryLeaseStore MemoryLedgers "
            "MemoryRunStore memory_stores"
        ),
        "messages": "BinaryPart Message OpaquePart TextPart ToolCallPart ToolResultPart Usage",
        "model": "Estimate ModelAnswer ModelProvider ModelRequest ToolSpec",
        "outcomes": "Effect OutcomeKind ToolOutcome",
        "providers": "ModelPolicy ScriptedProvider",
        "redaction.masking": "Redactor",
        "registry": "Registry",
        "resume": "PlannedCall ResumePlan ToolDisposition plan_resume",
        "resumer": "Carried Resumer",
        "runner": "AgentRunner RunResult",
        "runs": "Dispatch Run RunStatus RunStore Stores",
        "sealing.keys": "SealKey SealKeys",
        "settings": "Settings",
        "steps": "Dispatcher",
        "tools.context": "ToolContext current_call",
        "tools.declaring": "Tool tool",
        "tools.probe": "Happened NeverWill NotYet ProbeAnswer Unknown",
        "transitions.runs": "Attention FleetPolicy",
    }
)
"""The public names, by the module that defines them."""

__getattr__, __dir__ = exported(__name__, NAMES)
