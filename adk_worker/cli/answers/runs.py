"""Answers about runs. Times are in seconds since the epoch, by the store's clock."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from adk_worker.bulk import BulkResult
from adk_worker.checkpoint import CheckpointBoundary
from adk_worker.cli.answers.asked import GrantAnswer, RequestAnswer
from adk_worker.cli.answers.model import Answer
from adk_worker.deployment import Outlook
from adk_worker.events import Event
from adk_worker.ledger.accounts import AccountChange
from adk_worker.ledger.amounts import Amount, Budget, Unaccounted
from adk_worker.ledger.booking import Ledger, Refusal
from adk_worker.outcomes import Effect, OutcomeKind
from adk_worker.resume import ToolDisposition
from adk_worker.runs import Run, RunStatus
from adk_worker.transitions.runs import Attention


class RunAnswer(Run):
    """A run as it stands."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)

    masks: dict[str, JsonValue] = Field(default_factory=dict, exclude=True)


class EventAnswer(Event):
    """Something that happened to a run."""

    model_config = ConfigDict(extra="forbid", json_schema_serialization_defaults_required=True)


class LeaseAnswer(Answer):
    """Who may advance a run now; a lapsed lease is nobody's."""

    holder: str
    """The worker's name; the queue's is ``queue``."""
    fence: int
    expires_at: float


class FrontierAnswer(Answer):
    """Where a run stands at its newest boundary."""

    sequence: int
    boundary: CheckpointBoundary
    iteration: int
    execution: int
    agent: str
    revision: str


class DecisionAnswer(Answer):
    """What a person decided about a call."""

    by: str
    os_user: str | None
    at: float
    why: str
    how: Literal["completed", "never_ran"]
    owner_may_live: bool
    """Whether they said so although the worker that began the call was not known to be dead, or had just died."""


class CallAnswer(Answer):
    """A call that was outstanding at the newest boundary, and what is known of it."""

    call_id: str
    tool: str
    index: int
    key: str | None
    """The idempotency key under which it was made, or would be."""
    effect: Effect
    disposition: ToolDisposition
    repeatable: bool
    probe: bool
    """Whether whoever carries the run on asks the tool's probe about it."""
    owner: str | None
    began_at: float | None
    settled_by: str | None
    """Who settled it last: ``owner``, ``probe``, or ``person:NAME``."""
    outcome: OutcomeKind | None
    arguments: dict[str, JsonValue]
    """As the model gave them, masked."""
    fence: int | None
    """The fence under which it was begun."""
    known_dead: bool
    """Whether the worker that began it is known to be dead."""
    dead_seen_at: float | None
    """When that was first on record."""
    max_in_flight: float | None
    """How long a request may outlive its sender, in seconds, as its tool declares."""
    decisions: list[DecisionAnswer]
    """What people decided about it, the oldest first."""
    late: list[OutcomeKind]
    """Outcomes that came in after it was settled."""
    contradicted: bool
    """Whether one of them came in although a person had said that the call never ran."""


class AdriftAnswer(Answer):
    """A call in flight of a resting run, which its frontier does not show."""

    key: str
    tool: str | None
    owner: str
    fence: int | None
    began_at: float | None
    known_dead: bool
    """Whether the worker that began it is known to be dead."""
    dead_seen_at: float | None
    max_in_flight: float | None


class ObstacleAnswer(Answer):
    """Why a run must not be carried on."""

    error: str
    """The error's class, such as ``IndeterminateToolCallError``."""
    message: str


class InspectAnswer(Answer):
    """All that is known of a run."""

    tenant: str
    run_id: str
    run: RunAnswer | None
    """Null for a run that is not of the fleet (one process carries it out by itself), and for an unknown run."""
    lease: LeaseAnswer | None
    frontier: FrontierAnswer | None
    calls: list[CallAnswer]
    adrift: list[AdriftAnswer]
    """Calls in flight that the frontier does not show: it is behind what ran, or cannot be read."""
    requests: list[RequestAnswer]
    """What waits for a person's answer."""
    grants: list[GrantAnswer]
    """What lets calls pass without an answer, or did until it expired or was revoked."""
    obstacle: ObstacleAnswer | None
    over_budget: Refusal | None
    """What stands against the next model call of a run that is parked over budget, now. Null if nothing does."""
    exit_code: int
    events: list[EventAnswer] | None
    """Everything that happened to it, the oldest first; null without ``--events``."""


class ResumeAnswer(Answer):
    """What became of ``adk run --resume``."""

    tenant: str
    run_id: str
    outcome: Literal[
        "carried_on", "queued", "over", "nothing", "not_of_the_fleet", "held", "refused", "rests", "timed_out"
    ]
    fence: int | None
    """The fence under which the command held the run's lease."""
    holder: str | None
    """Who holds the run's lease, if that stood in the way."""
    before: InspectAnswer | None
    """As it stood before."""
    run: RunAnswer | None
    """As it stood in the end."""
    exit_code: int


class ErrorAnswer(Answer):
    """Why something was not done."""

    error: str
    """The error's class, such as ``FrontierLostError``."""
    message: str


class ManyAnswer(Answer):
    """What came of one of many runs."""

    outcome: BulkResult
    """``due`` is a dry run's: it would be done."""
    error: ErrorAnswer | None
    run: RunAnswer
    """The run after it was done; if it was not done, as it was seen."""


class CheckDeployAnswer(Answer):
    """What the installed code would do with a run."""

    tenant: str
    run_id: str
    agent: str
    revision: str
    status: RunStatus
    outlook: Outlook
    attention: Attention | None
    """The attention that it would have then."""
    detail: str | None


class UnloadableAnswer(Answer):
    """A run that does not load."""

    tenant: str
    run_id: str
    error: str


class PruneAnswer(Answer):
    """What ``adk prune`` has done."""

    removed: int
    undecided: int
    """Runs that were kept for a call that nobody has decided."""
    examined: int
    """Runs that were loaded afterwards, to see that they still can be."""
    unloadable: list[UnloadableAnswer]


class AccountAnswer(Answer):
    """What a tenant may spend, and its runs have, from the moment at which it was first given limits."""

    limits: Budget
    spent: Amount
    reserved: Amount
    unaccounted: Unaccounted
    changes: list[AccountChange]
    """The newest changes of its limits, the newest last."""


class BudgetAnswer(Answer):
    """What a run or a tenant may spend, and has. Costs are in millionths of a currency unit; no limit is null."""

    tenant: str
    run_id: str | None
    """Null where the answer is about a tenant."""
    ledger: Ledger | None
    """A run's ledger; null for a tenant."""
    account: AccountAnswer | None
    """A tenant's account; null for a run, and for a tenant that was never given limits."""
    queued: int
    """How many runs that were parked on these limits are queued again."""


class WatchAnswer(Answer):
    """Something that was seen: an event or a run; the other one is null."""

    event: EventAnswer | None
    """With RUN_ID: what happened to that run."""
    run: RunAnswer | None
    """With RUN_ID: the run as it ended. Without: a run that is new, or has changed."""
