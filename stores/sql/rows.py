"""Between the rows of the tables and the values of the kit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from adk_worker.adapters import adapter
from adk_worker.errors import InvalidNameError
from adk_worker.events import Event
from adk_worker.idempotency import Claim, ClaimState, Decision
from adk_worker.lease import QUEUE, RunLease
from adk_worker.ledger.booking import Ledger
from adk_worker.messages import Usage
from adk_worker.names import check_name
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.leases import Holding, LeaseState
from adk_worker.transitions.runs import Attention, Phase, State

HIGHEST: Final = 2**63 - 1
"""The highest number that a column holds."""

Columns = Mapping[Any, Any]
"""A row, by the names of its columns."""


def is_name(value: str) -> bool:
    """Whether a row may be named so. What is not, a NUL in it above all, must not even be asked for."""
    try:
        check_name(value, what="name")
    except InvalidNameError:
        return False
    return True


def lease_state(row: Columns) -> LeaseState:
    """The lease in a row that has the columns of ``adk_run_leases``."""
    return LeaseState(row["fence"], Holding(row["holding"]), row["holder"], row["expires_at"], row["wait"])


def lease_columns(lease: LeaseState) -> dict[str, Any]:
    """The columns of ``adk_run_leases`` that hold the lease."""
    return {
        "fence": lease.fence,
        "holding": lease.holding.value,
        "holder": lease.holder,
        "expires_at": lease.expires_at,
        "wait": lease.wait,
    }


def run_lease(tenant: str, run_id: str, lease: LeaseState) -> RunLease:
    """The lease as callers see it."""
    holder = lease.holder if lease.holding is Holding.WORKER and lease.holder is not None else QUEUE
    return RunLease(tenant, run_id, holder, lease.fence, lease.expires_at)


def run_state(row: Columns) -> State:
    """The state in a row that has the columns of ``adk_runs`` and of ``adk_run_leases``."""
    return State(
        lease=lease_state(row),
        phase=Phase(row["phase"]),
        sequence=row["sequence"],
        committed_by=row["committed_by"],
        crashes=row["crashes"],
        tries=row["tries"],
        cancel_requested=row["cancel_requested"],
        behind=row["behind"],
        attention=None if row["attention"] is None else Attention(row["attention"]),
        parked_on=tuple(row["parked_on"]),
    )


def state_columns(state: State) -> dict[str, Any]:
    """The columns of ``adk_runs`` that hold the state, all but the lease."""
    return {
        "phase": state.phase.value,
        "sequence": state.sequence,
        "committed_by": state.committed_by,
        "crashes": state.crashes,
        "tries": state.tries,
        "cancel_requested": state.cancel_requested,
        "behind": state.behind,
        "attention": None if state.attention is None else state.attention.value,
        "parked_on": list(state.parked_on),
    }


def run_of(row: Columns, state: State | None = None, **changed: Any) -> Run:
    """The run in a row as for :func:`run_state`, in ``state`` if that has changed since, as other columns have."""
    state = run_state(row) if state is None else state
    held = state.lease.holding is not Holding.FREE
    columns = {**row, **changed}
    return Run(
        tenant=columns["tenant"],
        run_id=columns["run_id"],
        agent=columns["agent"],
        revision=columns["revision"],
        input=columns["input"],
        metadata=columns["metadata"],
        masks=columns["masks"],
        status=RunStatus.of(state.phase, state.lease.holding),
        attention=state.attention,
        detail=columns["detail"],
        parked_on=state.parked_on,
        sequence=state.sequence,
        iteration=columns["iteration"],
        execution=columns["execution"],
        usage=Usage.model_validate(columns["usage"]),
        cost_micros=columns["cost_micros"],
        ledger=ledger_of(columns),
        output=columns["output"],
        crashes=state.crashes,
        tries=state.tries,
        cancel_requested=state.cancel_requested,
        behind=state.behind,
        holder=(state.lease.holder or QUEUE) if held else None,
        fence=state.lease.fence,
        expires_at=state.lease.expires_at if held else None,
        created_at=columns["created_at"],
        updated_at=columns["updated_at"],
    )


def ledger_of(row: Columns) -> Ledger:
    """The ledger in a row of ``adk_runs``."""
    ledger: Ledger = adapter(Ledger).validate_python(row["ledger"])
    return ledger


def ledger_column(ledger: Ledger) -> Any:
    """The column of ``adk_runs`` that holds the ledger; what is as in a new one is left out."""
    return adapter(Ledger).dump_python(ledger, mode="json", exclude_defaults=True)


def event_of(row: Columns) -> Event:
    """The event in a row of ``adk_events``."""
    return Event(id=row["id"], at=row["at"], kind=row["kind"], fence=row["fence"], data=row["data"])


def claim_of(row: Columns) -> Claim:
    """The claim in a row of ``adk_claims``."""
    return Claim(
        tenant=row["tenant"],
        key=row["key"],
        owner=row["owner"],
        digest=row["digest"],
        state=ClaimState(row["state"]),
        outcome=None if row["outcome"] is None else ToolOutcome.model_validate(row["outcome"]),
        fence=row["fence"],
        began_at=row["began_at"],
        settled_by=row["settled_by"],
        dead_seen_at=row["dead_seen_at"],
        tool=row["tool"],
        former=tuple(row["former"]),
        late=tuple(ToolOutcome.model_validate(outcome) for outcome in row["late"]),
        max_in_flight=row["max_in_flight"],
        decisions=adapter(tuple[Decision, ...]).validate_python(row["decisions"]),
    )


def claim_columns(claim: Claim) -> dict[str, Any]:
    """The columns of ``adk_claims`` that hold the claim, all but those that say which run it belongs to."""
    return {
        "tenant": claim.tenant,
        "key": claim.key,
        "tool": claim.tool,
        "owner": claim.owner,
        "former": list(claim.former),
        "digest": claim.digest,
        "state": claim.state.value,
        "outcome": None if claim.outcome is None else claim.outcome.model_dump(mode="json"),
        "settled_by": claim.settled_by,
        "late": [outcome.model_dump(mode="json") for outcome in claim.late],
        "fence": claim.fence,
        "began_at": claim.began_at,
        "dead_seen_at": claim.dead_seen_at,
        "max_in_flight": claim.max_in_flight,
        "decisions": adapter(tuple[Decision, ...]).dump_python(claim.decisions, mode="json"),
    }
