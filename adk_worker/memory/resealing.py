"""Replacing the seals of a run."""

from __future__ import annotations

import json
from dataclasses import replace

from adk_worker.memory import claims, journal
from adk_worker.memory.data import MemoryData, RunKey
from adk_worker.messages import canonical_json
from adk_worker.sealing.resealing import Reseal


def reseal(data: MemoryData, key: RunKey, change: Reseal) -> bool:
    """See :meth:`adk_worker.sealing.resealing.Reseals.reseal`."""
    if key not in data.runs:
        return False
    said, frontier = json.loads(data.submitted(key)), data.checkpoints.get(key)
    stored = {name: claims.load(data, (key[0], name)) for name in change.outcomes}
    outcomes = {name: None if claim is None else claim.outcome for name, claim in stored.items()}
    payload = None if frontier is None else frontier.payload
    if not change.fits(journal.state_of(data, key), masks=said["masks"], payload=payload, outcomes=outcomes):
        return False
    # The run's row in any case: whoever has read it meanwhile must not go on with what they have.
    data.runs[key] = replace(data.runs[key], submitted=canonical_json({**said, "masks": dict(change.masks[1])}))
    if frontier is not None and change.payload[1] is not None:
        data.checkpoints[key] = replace(frontier, payload=change.payload[1])
    for name, claim in stored.items():
        if claim is not None:
            claims.save(data, replace(claim, outcome=change.outcomes[name][1]))
    return True
