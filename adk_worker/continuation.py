"""Continuation: a run that has grown long crosses into a new execution at a boundary (K1).

A run that never rests grows: each boundary leaves an event, each call a claim, each message a piece of the transcript.
An *execution* is a stretch of a run whose journal, the record of its steps, has an end: once the policy says that it is
due, the run goes on in the next one. What crosses is what carries the run on: the transcript as a handle; tokens,
cost and the count of iterations as numbers; the calls that are outstanding, with their approvals; the grant. The
journal stays behind, and the next one begins empty. Events and claims of earlier executions are left where they are,
for people and for late outcomes (F4), until the run is pruned (I2); nothing that carries the run on reads them.

It is the same run all the way: one id, one lease, one sequence. Iterations are counted across, so that
``max_iterations`` is no less a limit, and no call of a later execution has the key of an earlier one's (I1).
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import InitVar, dataclass

from adk_worker.checkpoint import Checkpoint, CheckpointBoundary, Journal
from adk_worker.errors import ConfigurationError
from adk_worker.messages import Usage


@dataclass(frozen=True, slots=True)
class ContinuationPolicy:
    """When an execution has gone on for long enough: by its steps, or by what it has added to the transcript, in bytes.

    A step is a boundary: an iteration has two, or one if it asks for no call.

    :raises ConfigurationError: a limit below 1.
    """

    max_steps: int = 1_000
    max_history_bytes: int = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_history_bytes"):
            if getattr(self, name) < 1:
                raise ConfigurationError(
                    f"ContinuationPolicy.{name} is {getattr(self, name)}; it has to be at least 1."
                )

    def due(self, journal: Sized, *, history_bytes: int) -> bool:
        """Whether the run is to cross. ``journal`` has an entry for each step of this execution."""
        return len(journal) >= self.max_steps or history_bytes >= self.max_history_bytes


DEFAULT_CONTINUATION = ContinuationPolicy()


@dataclass(frozen=True, slots=True)
class Continuation:
    """A crossing: ``frontier`` is where the next execution begins, and ``state`` where the one before has come to.

    :raises ConfigurationError: it drops what the run was acting under, its grant or the approval of a call or the wait
        for one; or it is no next execution of the same run: another name, transcript, place, or numbers.
    """

    frontier: Checkpoint
    state: InitVar[Checkpoint]

    def __post_init__(self, state: Checkpoint) -> None:
        _keeps_authority(state, self.frontier)
        _goes_on(state, self.frontier)

    @property
    def tenant(self) -> str:
        """Whose run it is."""
        return self.frontier.tenant

    @property
    def run_id(self) -> str:
        """Which run it is: the same one as before."""
        return self.frontier.run_id

    @property
    def agent_name(self) -> str:
        """Its agent."""
        return self.frontier.agent

    @property
    def execution(self) -> int:
        """The number of the execution that begins."""
        return self.frontier.execution

    @property
    def history_handle(self) -> str | None:
        """The transcript; ``None`` in process without a :class:`HistoryStore`, where the frontier has it in line."""
        return self.frontier.history_handle

    @property
    def grant_id(self) -> str | None:
        """The grant that the run goes on acting under."""
        return self.frontier.grant_id

    @property
    def iteration(self) -> int:
        """Model calls so far, of all executions."""
        return self.frontier.iteration

    @property
    def usage(self) -> Usage:
        """Tokens so far, of all executions."""
        return self.frontier.usage

    @property
    def cost_micros(self) -> int:
        """Cost so far, of all executions."""
        return self.frontier.cost_micros


def continued(state: Checkpoint, *, tenant: str, agent_name: str) -> Continuation:
    """The crossing of a run that stands at ``state`` into its next execution.

    :raises ConfigurationError: the state is another tenant's or another agent's.
    """
    for what, said, stands in (("tenant", tenant, state.tenant), ("agent", agent_name, state.agent)):
        if said != stands:
            raise ConfigurationError(f"the run {state.run_id!r} is of the {what} {stands!r}, and not of {said!r}.")
    return Continuation(state.updated(execution=state.execution + 1, journal=Journal()), state)


def _keeps_authority(state: Checkpoint, frontier: Checkpoint) -> None:
    """Nobody goes on by themselves beyond what a person has allowed, and nobody is asked twice."""
    if state.grant_id is not None and frontier.grant_id != state.grant_id:
        raise ConfigurationError(
            f"the continuation of {state.run_id!r} drops the grant {state.grant_id!r}, under which the run was acting: "
            "carry its grant_id on."
        )
    asks = state.boundary is CheckpointBoundary.BEFORE_APPROVAL
    if frontier.calls != state.calls or (asks and frontier.boundary is not state.boundary):
        raise ConfigurationError(
            f"the continuation of {state.run_id!r} drops an approval, or the call that it is about: carry the "
            "outstanding calls and their boundary on as they are."
        )


def _goes_on(state: Checkpoint, frontier: Checkpoint) -> None:
    wanted = state.updated(execution=state.execution + 1, journal=frontier.journal)
    if frontier != wanted:
        differs = [name for name in Checkpoint.model_fields if getattr(frontier, name) != getattr(wanted, name)]
        raise ConfigurationError(
            f"the continuation of {state.run_id!r} is not the next execution of the same run; it differs in "
            f"{', '.join(differs)}."
        )
    if len(frontier.journal) or frontier.journal.history_bytes:
        raise ConfigurationError(f"the continuation of {state.run_id!r} carries a journal: the next one begins empty.")
