"""Answers as JSON: the objects that ``--json`` prints, one to a line.

Their keys are part of the program's face, and explained in :mod:`adk_worker.cli.answers`. What the masker keeps for
itself is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from adk_worker.adapters import adapter
from adk_worker.approvals.requests import ApprovalRequest, Grant
from adk_worker.cli.exits import ExitCode
from adk_worker.events import Event
from adk_worker.idempotency import Claim, Decision
from adk_worker.inspection import Inspection
from adk_worker.lease import RunLease
from adk_worker.ledger.booking import Refusal
from adk_worker.liveness import known_dead
from adk_worker.resume import PlannedCall
from adk_worker.runs import Run
from adk_worker.settling.evidence import declared_max_in_flight


def run_object(run: Run) -> dict[str, Any]:
    """A run."""
    return run.model_dump(mode="json", exclude={"masks"})


def event_object(event: Event) -> dict[str, Any]:
    """An event: ``id``, ``at``, ``kind``, ``fence``, ``data``."""
    return event.model_dump(mode="json")


def request_object(request: ApprovalRequest) -> dict[str, Any]:
    """A request: all its fields but ``answer_id``, which only says to whoever answered that this is their answer."""
    told = asdict(request)
    del told["answer_id"]
    return {**told, "approvers": list(request.approvers), "state": request.state.value}


def grant_object(grant: Grant) -> dict[str, Any]:
    """A grant: its fields."""
    return asdict(grant)


def inspection_object(found: Inspection, code: ExitCode, *, events: Sequence[Event] | None = None) -> dict[str, Any]:
    """What is known of a run; ``exit_code`` is what the program ends with."""
    frontier = found.frontier
    return {
        "tenant": found.tenant,
        "run_id": found.run_id,
        "run": run_object(found.run) if found.run else None,
        "lease": _lease(found.lease),
        "frontier": None
        if frontier is None
        else {
            "sequence": frontier.sequence,
            "boundary": frontier.boundary.value,
            "iteration": frontier.iteration,
            "execution": frontier.execution,
            "agent": frontier.agent,
            "revision": frontier.revision,
        },
        "calls": [_call(planned, found) for planned in (found.plan.calls if found.plan else ())],
        "adrift": [_adrift(claim) for claim in found.adrift],
        "requests": [request_object(request) for request in found.approvals.pending],
        "grants": [grant_object(grant) for grant in found.approvals.grants if grant.revoked_at is None],
        "obstacle": None
        if found.obstacle is None
        else {"error": type(found.obstacle).__name__, "message": str(found.obstacle)},
        "over_budget": None
        if found.afford is None or found.afford.refusal is None
        else adapter(Refusal).dump_python(found.afford.refusal, mode="json"),
        "exit_code": int(code),
        "events": None if events is None else [event_object(event) for event in events],
    }


def _lease(lease: RunLease | None) -> dict[str, Any] | None:
    if lease is None:
        return None
    return {"holder": lease.holder, "fence": lease.fence, "expires_at": lease.expires_at}


def _call(planned: PlannedCall, found: Inspection) -> dict[str, Any]:
    call, claim = planned.call, planned.claim
    return {
        "call_id": call.call_id,
        "tool": call.tool,
        "index": call.index,
        "key": call.key,
        "effect": call.effect.value,
        "disposition": planned.disposition.value,
        "repeatable": planned.repeatable,
        "probe": any(asked.call.index == call.index for asked in found.to_probe),
        "owner": claim.owner if claim else None,
        "began_at": claim.began_at if claim else None,
        "settled_by": claim.settled_by if claim else None,
        "outcome": planned.outcome.kind.value if planned.outcome else None,
        "arguments": dict(call.arguments),
        "fence": claim.fence if claim else None,
        "known_dead": claim is not None and (claim.dead_seen_at is not None or known_dead(claim.owner)),
        "dead_seen_at": claim.dead_seen_at if claim else None,
        "max_in_flight": declared_max_in_flight(planned, found),
        "decisions": [_decision(decision) for decision in (claim.decisions if claim else ())],
        "late": [outcome.kind.value for outcome in (claim.late if claim else ())],
        "contradicted": claim is not None and claim.contradicted,
    }


def _adrift(claim: Claim) -> dict[str, Any]:
    return {
        "key": claim.key,
        "tool": claim.tool,
        "owner": claim.owner,
        "fence": claim.fence,
        "began_at": claim.began_at,
        "known_dead": claim.dead_seen_at is not None or known_dead(claim.owner),
        "dead_seen_at": claim.dead_seen_at,
        "max_in_flight": claim.max_in_flight,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "by": decision.by,
        "os_user": decision.os_user,
        "at": decision.at,
        "why": decision.why,
        "how": "never_ran" if decision.outcome is None else "completed",
        "owner_may_live": decision.owner_may_live,
    }
