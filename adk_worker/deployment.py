"""What a process can carry on, by its code alone: its agents, their revisions, and the formats that it reads (C4, C7).

A worker asks before it goes on with a run, one that starts asks about the runs that wait for it, and
``adk check-deploy`` asks on behalf of code that is not deployed yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from adk_worker.agent import Agent
from adk_worker.checkpoint import Checkpoint, decode_checkpoint
from adk_worker.errors import (
    AdkError,
    CallKeyReusedError,
    CheckpointFormatError,
    ResumeConflictError,
    RevisionMismatchError,
    SealKeyMissingError,
    UnknownAgentError,
)
from adk_worker.filters import RunFilter
from adk_worker.inspection import undecidable, with_probe
from adk_worker.registry import Registry
from adk_worker.resume import plan_resume
from adk_worker.runs import Run, RunStatus, Stores
from adk_worker.sealing.keys import SealKeys
from adk_worker.sealing.originals import Originals
from adk_worker.transitions.runs import Attention
from adk_worker.walk import each_run

CONFLICTS: Final[Mapping[type[Exception], Attention]] = MappingProxyType(
    {
        UnknownAgentError: Attention.AGENT_UNKNOWN,
        RevisionMismatchError: Attention.REVISION_MISMATCH,
        CheckpointFormatError: Attention.FORMAT_TOO_NEW,
        ResumeConflictError: Attention.RESUME_CONFLICT,
    }
)
"""What another worker, or the same one later, may be able to do: left for it, and counted as no crash (C4, C7, I9)."""

OF_OTHER_CODE: Final = frozenset({Attention.AGENT_UNKNOWN, Attention.REVISION_MISMATCH, Attention.FORMAT_TOO_NEW})
"""What a worker of other code may be able to do."""

GOING: Final = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING_APPROVAL)
"""Runs that the code of today will be asked to carry on, without anyone taking them up again."""


class Outlook(StrEnum):
    """What would become of a run on certain code."""

    ACCEPTED = "accepted"
    GIVEN_BACK = "given_back"
    """It would be left in the queue, for a worker of other code."""
    PARKED = "parked"
    FAILED = "failed"
    """It has had more iterations than its agent may have there."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A run, and what would become of it. ``attention`` and ``detail`` are what it would have then."""

    run: Run
    outlook: Outlook
    attention: Attention | None = None
    detail: str | None = None


def accepted(run: Run, payload: str | None, registry: Registry) -> tuple[Agent, Checkpoint | None]:
    """The agent that carries the run on, and the frontier from which it does; ``None`` before the first.

    :param payload: the run's stored checkpoint.
    :raises CheckpointFormatError: a newer format, or no checkpoint at all (C4).
    :raises UnknownAgentError: the registry has no agent of that name.
    :raises RevisionMismatchError: it has other revisions only (C7).
    """
    frontier = None if payload is None else decode_checkpoint(payload)
    pinned = frontier.revision if frontier else run.revision
    return registry.resolve(run.agent, pinned) if pinned else registry.get(run.agent), frontier


def refusal(run: Run, payload: str | None, registry: Registry) -> AdkError | None:
    """Why this code cannot carry the run on; ``None`` if it can."""
    try:
        accepted(run, payload, registry)
    except (CheckpointFormatError, UnknownAgentError, RevisionMismatchError) as error:
        return error
    return None


async def prospects(
    stores: Stores,
    registry: Registry,
    *,
    tenant: str | None = None,
    statuses: Sequence[RunStatus] = GOING,
    keys: SealKeys | None = None,
) -> AsyncIterator[Prospect]:
    """What would become of each run of these statuses, newest first, if ``registry`` and this code took over now.

    Only reads, page by page; runs that move meanwhile are judged once, as they were. Transcripts are not read.

    :param keys: the seal keys that it would have; without any, nothing is said of what runs have sealed.
    """
    async for run in each_run(stores.runs, statuses, where=RunFilter(tenant=tenant)):
        yield await _prospect(stores, run, registry, keys)


async def _prospect(stores: Stores, run: Run, registry: Registry, keys: SealKeys | None) -> Prospect:
    payload = await stores.runs.payload(run.run_id, tenant=run.tenant)
    if run.behind and run.status is RunStatus.QUEUED:
        detail = f"what ran is ahead of sequence {run.sequence}, the newest frontier that could be stored"
        return Prospect(run, Outlook.PARKED, Attention.FRONTIER_LOST, detail)
    try:
        agent, frontier = accepted(run, payload, registry)
    except (CheckpointFormatError, UnknownAgentError, RevisionMismatchError) as error:
        return Prospect(run, Outlook.GIVEN_BACK, CONFLICTS[type(error)], str(error))
    try:
        _check_seals(run, frontier, keys)
    except SealKeyMissingError as error:
        return Prospect(run, Outlook.PARKED, Attention.SEAL_KEY_MISSING, str(error))
    return Prospect(run, Outlook.ACCEPTED) if frontier is None else await _with_frontier(stores, run, agent, frontier)


async def _with_frontier(stores: Stores, run: Run, agent: Agent, frontier: Checkpoint) -> Prospect:
    if not frontier.calls:
        spent = frontier.iteration >= agent.max_iterations
        detail = f"{frontier.iteration} iterations are behind it, and max_iterations is {agent.max_iterations}"
        return Prospect(run, Outlook.FAILED, detail=detail) if spent else Prospect(run, Outlook.ACCEPTED)
    if run.status is RunStatus.RUNNING:
        # Its calls may well be in flight: the worker that made them waits for them before it leaves.
        return Prospect(run, Outlook.ACCEPTED)
    return await _with_calls(stores, run, agent, frontier)


def _check_seals(run: Run, frontier: Checkpoint | None, keys: SealKeys | None) -> None:
    masks = run.masks if frontier is None else frontier.masks
    if keys is not None:
        sealed: Any = masks.get("sealed") or {}
        Originals(keys.of_run(run.tenant, run.run_id), sealed).check()


async def _with_calls(stores: Stores, run: Run, agent: Agent, frontier: Checkpoint) -> Prospect:
    try:
        plan = await plan_resume(frontier, stores.idempotency)
    except CallKeyReusedError as error:
        return Prospect(run, Outlook.PARKED, Attention.KEY_REUSED, str(error))
    undecided = undecidable(plan, with_probe(plan, agent))
    if undecided is not None:
        return Prospect(run, Outlook.PARKED, Attention.UNDECIDED_CALL, str(undecided))
    return Prospect(run, Outlook.ACCEPTED)
