"""Replacing the seals of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, bindparam, update

from adk_worker.sealing.resealing import Reseal
from stores.sql import checkpoints, claim_rows
from stores.sql.locks import lock_run
from stores.sql.schema import checkpoints as frontiers
from stores.sql.schema import runs

_MASKS: Final = (
    update(runs)
    .where(runs.c.tenant == bindparam("for_tenant"), runs.c.run_id == bindparam("for_run"))
    .values(masks=bindparam("sealed_anew"))
)
_PAYLOAD: Final = (
    update(frontiers)
    .where(frontiers.c.tenant == bindparam("for_tenant"), frontiers.c.run_id == bindparam("for_run"))
    .values(payload=bindparam("sealed_anew"))
)


def reseal(tx: Connection, tenant: str, run_id: str, change: Reseal) -> bool:
    """See :meth:`adk_worker.sealing.resealing.Reseals.reseal`."""
    run = lock_run(tx, tenant, run_id)
    if run is None:
        return False
    stored = claim_rows.lock(tx, tenant, change.outcomes)
    outcomes = {key: row.claim.outcome for key, row in stored.items()}
    payload = checkpoints.payload_of(tx, tenant, run_id)
    if not change.fits(run.state, masks=run.row["masks"], payload=payload, outcomes=outcomes):
        return False
    this = {"for_tenant": tenant, "for_run": run_id}
    if change.masks[1] != change.masks[0]:
        tx.execute(_MASKS, {**this, "sealed_anew": dict(change.masks[1])})
    if change.payload[1] is not None and change.payload[1] != payload:
        tx.execute(_PAYLOAD, {**this, "sealed_anew": change.payload[1]})
    for key, row in stored.items():
        claim_rows.save(tx, replace(row.claim, outcome=change.outcomes[key][1]))
    return True
