"""What is known of an outstanding call, in words; and of one that may have happened, all that helps to find out (I8).

A person who has to decide about a call needs what its far side can be asked by (key, arguments, when), whether anything
of it may still be under way, and the command that says what they found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from adk_worker.idempotency import Claim, Decision
from adk_worker.inspection import Inspection
from adk_worker.liveness import known_dead, short_name
from adk_worker.messages import canonical_json
from adk_worker.printable import printable, quoted, time_of
from adk_worker.resume import PlannedCall, ToolDisposition

_MAX_ARGUMENTS: Final = 600
_MAX_WHY: Final = 300


def described(planned: PlannedCall, found: Inspection) -> Iterator[str]:
    """One call of a turn, in lines: the first says where it stands."""
    call = planned.call
    yield f"  {printable(call.tool)} ({printable(call.call_id)})  {_stands(planned, found)}  key {call.key or 'none'}"
    claim = planned.claim
    if claim is None:
        return
    yield from (f"      {_said(decision)}" for decision in claim.decisions)
    if claim.contradicted:
        kinds = ", ".join(outcome.kind.value for outcome in claim.late)
        yield f"      although it was said never to have run, an outcome came in afterwards: {kinds}"
    elif claim.late:
        yield f"      {len(claim.late)} outcome(s) came in after it was settled: kept as evidence"
    if planned in _to_decide(found):
        yield from _evidence(planned, claim, found)


def adrift(claim: Claim, found: Inspection) -> Iterator[str]:
    """A call in flight that the frontier does not show: its arguments are not kept, and its key is what there is."""
    yield f"  {printable(claim.tool or 'a tool')}  indeterminate{_began(claim)}  key {claim.key}"
    fence = f" under fence {claim.fence}" if claim.fence is not None else ""
    yield f"      sent{fence} by {printable(short_name(claim.owner))}, which {_life(claim)}"
    settle = f"adk settle {quoted(found.run_id)} {claim.key} --tenant {quoted(found.tenant)}"
    yield from _commands(settle, claim, claim.max_in_flight)


def declared_max_in_flight(planned: PlannedCall, found: Inspection) -> float | None:
    """How long a request may outlive its sender, in seconds: as it was declared when the call was begun, or is now."""
    if planned.claim is not None and planned.claim.max_in_flight is not None:
        return planned.claim.max_in_flight
    tool = found.agent.tool(planned.call.tool) if found.agent else None
    return None if tool is None else tool.max_in_flight


def _to_decide(found: Inspection) -> tuple[PlannedCall, ...]:
    """The calls that a person may decide now: of a run that rests, in nobody's hands."""
    run, plan = found.run, found.plan
    if plan is None or found.held_by_worker is not None or (run is not None and not run.status.resting):
        return ()
    return tuple(planned for planned in plan.calls if planned.claim is not None and planned.claim.in_flight)


def _stands(planned: PlannedCall, found: Inspection) -> str:
    claim = planned.claim
    if planned.disposition is ToolDisposition.COMPLETED:
        ended = planned.outcome.kind.value if planned.outcome else "settled"
        by = f" by {printable(claim.settled_by)}" if claim and claim.settled_by and claim.settled_by != "owner" else ""
        return f"completed: {ended}{'' if claim and claim.contradicted else by}"
    if planned.disposition is ToolDisposition.NEVER_RAN:
        return "never ran" if claim is None else f"never ran, says {printable(claim.settled_by or 'somebody')}"
    holder = found.held_by_worker
    if claim is not None and holder is not None and claim.owner == holder.holder:
        return f"in flight now{_began(claim)}"
    if planned.repeatable:
        return f"indeterminate{_began(claim)}: may be called again under its key ({planned.call.effect})"
    if any(asked.call.index == planned.call.index for asked in found.to_probe):
        return f"indeterminate{_began(claim)}: its tool's probe is asked by whoever carries the run on"
    return f"indeterminate{_began(claim)}"


def _began(claim: Claim | None) -> str:
    if claim is None:
        return ""
    at = f" at {time_of(claim.began_at)}" if claim.began_at is not None else ""
    dead = ", known dead" if claim.dead_seen_at is not None or known_dead(claim.owner) else ""
    return f", begun{at} by {printable(short_name(claim.owner))}{dead}"


def _said(decision: Decision) -> str:
    what = "never ran" if decision.outcome is None else "completed"
    user = f" (as {printable(decision.os_user)})" if decision.os_user else ""
    flag = ", although its owner might be alive" if decision.owner_may_live else ""
    why = printable(decision.why, limit=_MAX_WHY)
    return f"{printable(decision.by)}{user} said at {time_of(decision.at)}: {what}{flag}. Why: {why}"


def _evidence(planned: PlannedCall, claim: Claim, found: Inspection) -> Iterator[str]:
    call = planned.call
    fence = f" under fence {claim.fence}" if claim.fence is not None else ""
    yield f"      sent{fence} by {printable(short_name(claim.owner))}, which {_life(claim)}"
    yield f"      arguments {printable(canonical_json(dict(call.arguments)), limit=_MAX_ARGUMENTS)}"
    yield f"      {_declared(planned, found)}"
    if found.run is None:
        yield "      once you know: AgentRunner.settle(…, completed=… or never_ran=True), then resume it"
        return
    settle = f"adk settle {quoted(found.run_id)} {quoted(_name(planned, found))} --tenant {quoted(found.tenant)}"
    yield from _commands(settle, claim, declared_max_in_flight(planned, found))


def _commands(settle: str, claim: Claim, longest: float | None) -> Iterator[str]:
    """What to type, by what was found out; ``settle`` is how it begins."""
    if claim.dead_seen_at is not None and longest is not None:
        flag, when = "", f"it never ran, from {time_of(claim.dead_seen_at + longest)} on"
    else:
        flag, when = " --owner-may-live", "it never ran, and you made sure that nothing of it is under way"
    yield "      it returned something:"
    yield f"        {settle} --completed 'JSON' --why 'TEXT' --by NAME"
    yield f"      {when}:"
    yield f"        {settle} --never-ran{flag} --why 'TEXT' --by NAME"


def _life(claim: Claim) -> str:
    if claim.dead_seen_at is not None:
        return f"is known dead since {time_of(claim.dead_seen_at)} at the latest"
    return (
        "is known dead, as seen from here now" if known_dead(claim.owner) else "may be alive, as far as is known here"
    )


def _declared(planned: PlannedCall, found: Inspection) -> str:
    tool = found.agent.tool(planned.call.tool) if found.agent else None
    probe = "is not known here" if tool is None else "has a probe" if tool.probe is not None else "has no probe"
    longest = declared_max_in_flight(planned, found)
    if longest is None:
        return f"its tool {probe}, and does not say how long a request may outlive its sender (max_in_flight)"
    return f"its tool {probe}; a request may outlive its sender for {longest:g} s (max_in_flight)"


def _name(planned: PlannedCall, found: Inspection) -> str:
    """What to call it by on a command line: its id, unless another has the same or a terminal would show it escaped."""
    call = planned.call
    same = [other for other in found.plan.calls if other.call.call_id == call.call_id] if found.plan else []
    plain = len(same) == 1 and printable(call.call_id) == call.call_id and not call.call_id.startswith("-")
    return call.call_id if plain else call.key or call.call_id
