"""Rotating seal keys: everything that runs hold is sealed anew under the key that seals now, beside a live fleet (R2).

Whoever carries a run on seals anew what they can open. Runs that rest, or wait in the queue for long, are done here:
each in one write that is refused if the run has moved since it was read. What is left needs a key still: runs that a
worker holds at the moment, and seals that no key here opens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from adk_worker.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from adk_worker.errors import CheckpointFormatError
from adk_worker.filters import RunFilter
from adk_worker.outcomes import ToolOutcome
from adk_worker.runs import Run, RunStatus, Stores
from adk_worker.sealing.keys import RunSeals, SealKeys, key_of
from adk_worker.sealing.originals import Originals
from adk_worker.sealing.resealing import Reseal
from adk_worker.walk import each_run

HOLDING: Final = (
    RunStatus.QUEUED,
    RunStatus.RUNNING,
    RunStatus.WAITING_APPROVAL,
    RunStatus.PARKED,
    RunStatus.FAILED,
)
"""Runs that may be carried on, and so need what they have sealed. Of one that is over nobody opens it any more."""

_TRIES: Final = 5
"""How often a run is read again because it has moved meanwhile."""


class CameTo(StrEnum):
    """What became of a run."""

    RESEALED = "resealed"
    CURRENT = "current"
    """All that it holds is under the key that seals."""
    HELD = "held"
    """A worker has it, and seals it anew at its next boundary, if it has the key that seals."""
    MOVING = "moving"
    """It changed hands whenever it was looked at."""
    UNOPENED = "unopened"
    """Something of it no key here opens."""
    UNREADABLE = "unreadable"
    """Its frontier was written by a newer version."""


@dataclass(frozen=True, slots=True)
class Rotated:
    """A run that holds something sealed, and what became of it. ``needs`` are the ids of other keys that it needs."""

    run: Run
    came_to: CameTo
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Held:
    """What a run holds."""

    run: Run
    payload: str | None
    frontier: Checkpoint | None
    outcomes: Mapping[str, ToolOutcome]
    late: tuple[ToolOutcome, ...] = ()
    """Outcomes that came in after a person had said that there was none: the run goes on with them, as they are."""

    def seals(self) -> Iterator[str]:
        """All its seals."""
        for masks in (self.run.masks, self.frontier.masks if self.frontier else {}):
            yield from _sealed(masks).values()
        for outcome in (*self.outcomes.values(), *self.late):
            yield from outcome.sealed.values()


async def rotate(
    stores: Stores, keys: SealKeys, *, tenant: str | None = None, statuses: Sequence[RunStatus] = HOLDING
) -> AsyncIterator[Rotated]:
    """Seal anew, under the first of ``keys``, what runs hold; each run that holds anything, and what became of it.

    Page by page, and harmless beside workers. Runs that a worker has are left to it.
    """
    async for run in each_run(stores.runs, statuses, where=RunFilter(tenant=tenant)):
        rotated = await _rotated(stores, run, keys)
        if rotated is not None:
            yield rotated


async def _rotated(stores: Stores, run: Run, keys: SealKeys) -> Rotated | None:
    seals = keys.of_run(run.tenant, run.run_id)
    needs: tuple[str, ...] = ()
    for _ in range(_TRIES):
        now = await stores.runs.get(run.run_id, tenant=run.tenant)
        if now is None or now.status not in HOLDING:
            return None
        try:
            held = await _held(stores, now)
        except CheckpointFormatError:
            return Rotated(now, CameTo.UNREADABLE)
        found = list(held.seals())
        needs = _needs(found, seals)
        if not needs:
            return Rotated(now, CameTo.CURRENT) if found else None
        came_to = await _resealed(stores, held, seals)
        if came_to is not None:
            return came_to
    return Rotated(run, CameTo.MOVING, needs)


async def _resealed(stores: Stores, held: _Held, seals: RunSeals) -> Rotated | None:
    """What became of a run that holds what is not under the key that seals; ``None`` if it has moved meanwhile."""
    run = held.run
    if run.status is RunStatus.RUNNING:
        return Rotated(run, CameTo.HELD, _needs(held.seals(), seals))
    change, after = _change(held, seals)
    if after != held and not await stores.runs.reseal(run.run_id, tenant=run.tenant, change=change):
        return None
    left = _needs(after.seals(), seals)
    return Rotated(run, CameTo.UNOPENED if left else CameTo.RESEALED, left)


async def _held(stores: Stores, run: Run) -> _Held:
    payload = await stores.runs.payload(run.run_id, tenant=run.tenant)
    frontier = None if payload is None else decode_checkpoint(payload)
    calls = [call.key for call in frontier.calls if call.key is not None] if frontier else []
    claims = await stores.idempotency.peek(calls, tenant=run.tenant) if calls else {}
    known = {key: claim for key, claim in claims.items() if claim is not None and claim.known and claim.known.sealed}
    outcomes = {key: claim.outcome for key, claim in known.items() if claim.outcome and claim.known == claim.outcome}
    late = tuple(claim.known for key, claim in known.items() if claim.known and key not in outcomes)
    return _Held(run, payload, frontier, outcomes, late)


def _change(held: _Held, seals: RunSeals) -> tuple[Reseal, _Held]:
    """The change that seals anew what opens, and what the run holds after it."""
    masks = _anew(held.run.masks, seals)
    frontier, payload = held.frontier, held.payload
    if frontier is not None and (sealed := _anew(frontier.masks, seals)) != frontier.masks:
        frontier = frontier.updated(masks=sealed)
        payload = encode_checkpoint(frontier)
    outcomes = {
        key: outcome.model_copy(update={"sealed": Originals(seals, outcome.sealed).state()})
        for key, outcome in held.outcomes.items()
    }
    change = Reseal(
        held.run.fence,
        (held.run.masks, masks),
        (held.payload, payload),
        {key: (outcome, outcomes[key]) for key, outcome in held.outcomes.items()},
    )
    return change, _Held(held.run.model_copy(update={"masks": masks}), payload, frontier, outcomes, held.late)


def _anew(masks: Mapping[str, Any], seals: RunSeals) -> dict[str, Any]:
    sealed = _sealed(masks)
    return {**masks, "sealed": Originals(seals, sealed).state()} if sealed else dict(masks)


def _sealed(masks: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = masks.get("sealed") or {}
    return found


def _needs(found: Iterable[str], seals: RunSeals) -> tuple[str, ...]:
    return tuple(sorted({key_of(seal) or "unknown" for seal in found if not seals.current(seal)}))
