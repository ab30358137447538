"""The rows of claims, and what follows for a run once a call is decided.

Where a run is concerned, its lock comes first, then the claims' in the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, delete, exists, func, select, update

from adk_worker import events
from adk_worker.idempotency import Claim, ClaimState, Intent
from adk_worker.transitions import claims as claim_transitions
from adk_worker.transitions import runs as run_transitions
from adk_worker.transitions.runs import FleetPolicy, Phase, Verdict
from stores.sql import journal
from stores.sql.dialects import PerDialect
from stores.sql.locks import LockedRun
from stores.sql.rows import claim_columns, claim_of, is_name
from stores.sql.schema import checkpoints, claims

_KEYS: Final = (claims.c.tenant == bindparam("for_tenant")) & claims.c.key.in_(bindparam("for_keys", expanding=True))
_READ: Final = select(claims).where(_KEYS)
_LOCK: Final = _READ.order_by(claims.c.key).with_for_update()
_OF_RUN: Final = (claims.c.tenant == bindparam("for_tenant")) & (claims.c.run_id == bindparam("for_run"))
_READ_RUN: Final = select(claims).where(_OF_RUN).order_by(claims.c.number)
_IN_FLIGHT: Final = select(claims.c.key).where(_OF_RUN, claims.c.state == ClaimState.IN_FLIGHT.value)
_ANY_IN_FLIGHT: Final = select(
    exists().where(_OF_RUN, claims.c.state == ClaimState.IN_FLIGHT.value),
)
# The run's highest number so far, to which a claim's place in its batch is added. Without a run there is none: 0.
_NUMBER: Final = select(func.coalesce(func.max(claims.c.number), 0)).where(_OF_RUN).scalar_subquery() + bindparam(
    "place"
)
_INSERT: Final = PerDialect(
    lambda insert: (
        insert(claims)
        .values({**{column.name: bindparam(column.name) for column in claims.c}, "number": _NUMBER})
        .on_conflict_do_nothing()
        .returning(claims.c.key)
    )
)
_THIS = (claims.c.tenant == bindparam("for_tenant")) & (claims.c.key == bindparam("for_key"))
_SAVE: Final = update(claims).where(_THIS)
_ADOPT: Final = update(claims).where(_THIS).values(run_id=bindparam("for_run"), number=_NUMBER)
_REMOVE: Final = delete(claims).where(_THIS)
_FORGET: Final = delete(checkpoints).where(
    checkpoints.c.tenant == bindparam("for_tenant"), checkpoints.c.run_id == bindparam("for_run")
)


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """A claim's row: the claim, and the run that it was begun for, where one was named."""

    claim: Claim
    run_id: str | None


def read(tx: Connection, tenant: str, keys: Iterable[str]) -> dict[str, Claim]:
    """The claims that stand on ``keys``; only reads. No claim stands on what is no key."""
    possible = sorted(key for key in set(keys) if is_name(key))
    rows = tx.execute(_READ, {"for_tenant": tenant, "for_keys": possible}).mappings()
    return {row["key"]: claim_of(row) for row in rows}


def of_run(tx: Connection, tenant: str, run_id: str) -> Sequence[Claim]:
    """The run's claims in the order in which they began; only reads."""
    return [claim_of(row) for row in tx.execute(_READ_RUN, {"for_tenant": tenant, "for_run": run_id}).mappings()]


def undecided(tx: Connection, tenant: str, run_id: str) -> Sequence[str]:
    """The keys of the run's claims in flight."""
    return tx.execute(_IN_FLIGHT, {"for_tenant": tenant, "for_run": run_id}).scalars().all()


def lock(tx: Connection, tenant: str, keys: Iterable[str]) -> dict[str, StoredClaim]:
    """Lock the claims that stand on ``keys``."""
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    rows = tx.execute(_LOCK, {"for_tenant": tenant, "for_keys": wanted}).mappings()
    return {row["key"]: StoredClaim(claim_of(row), row["run_id"]) for row in rows}


def begin(
    tx: Connection,
    tenant: str,
    intents: Sequence[Intent],
    *,
    owner: str,
    now: float,
    fence: int | None = None,
    run_id: str | None = None,
) -> list[Claim]:
    """The claims that stand after ``intents``, in their order (I3).

    Whoever inserts a row is its owner. Whoever does not has waited until the other's fate is known, and then reads and
    locks that row by a statement of its own: the one that waited would not show it.

    :raises CallKeyReusedError: roll back (I1).
    """
    new = {
        intent.key: claim_transitions.begin(None, intent, tenant=tenant, owner=owner, now=now, fence=fence)
        for intent in reversed(intents)
    }
    order = {key: number for number, key in enumerate(dict.fromkeys(intent.key for intent in intents), 1)}
    stored: dict[str, StoredClaim] = {}
    missing = set(new)
    while missing:
        for key in _insert(tx, [new[key] for key in sorted(missing)], run_id, order):
            stored[key] = StoredClaim(new[key], run_id)
        # One that stood in the way may be abandoned by now, and is then neither inserted nor found.
        stored |= lock(tx, tenant, missing - stored.keys())
        missing -= stored.keys()
    stand = {key: row.claim for key, row in stored.items()}
    answers = []
    for intent in intents:
        stand[intent.key] = claim_transitions.begin(
            stand[intent.key], intent, tenant=tenant, owner=owner, now=now, fence=fence
        )
        answers.append(stand[intent.key])
    for key, row in stored.items():
        if stand[key] != row.claim:
            save(tx, stand[key])
        if row.run_id is None and run_id is not None:
            _adopt(tx, stand[key], run_id, order[key])
    return answers


def _insert(tx: Connection, new: Sequence[Claim], run_id: str | None, order: Mapping[str, int]) -> Sequence[str]:
    rows = [
        {
            **claim_columns(claim),
            "run_id": run_id,
            "for_tenant": claim.tenant,
            "for_run": run_id,
            "place": 0 if run_id is None else order[claim.key],
        }
        for claim in new
    ]
    return tx.execute(_INSERT.on(tx), rows).scalars().all()


def _adopt(tx: Connection, claim: Claim, run_id: str, place: int) -> None:
    """Note which run a claim belongs to that was begun by a store on its own, without a run."""
    tx.execute(_ADOPT, {"for_tenant": claim.tenant, "for_key": claim.key, "for_run": run_id, "place": place})


def save(tx: Connection, claim: Claim) -> None:
    """Write a claim that is locked."""
    columns = claim_columns(claim)
    this = {"for_tenant": columns.pop("tenant"), "for_key": columns.pop("key")}
    tx.execute(_SAVE, {**columns, **this})


def decide(tx: Connection, run: LockedRun | None, before: Claim | None, after: Claim) -> None:
    """Write a claim on which an outcome came in, and what follows for its run, all in one (F4, P2)."""
    if before == after:
        return
    save(tx, after)
    if run is None:
        return
    if after.state is ClaimState.SETTLED and (before is None or before.state is ClaimState.IN_FLIGHT):
        _follow(tx, run, after.key)
    elif after.late != (before.late if before else ()):
        journal.tell(tx, run, [events.late_outcome(after)], fence=run.state.lease.fence)


def give_back(tx: Connection, run: LockedRun | None, after: Claim) -> None:
    """Write a claim that its former owner has again, with what follows for its run if that is known not to have run."""
    save(tx, after)
    if run is not None and not after.in_flight:
        _follow(tx, run, after.key)


def remove(tx: Connection, run: LockedRun | None, claim: Claim) -> None:
    """Remove the claim of a call that never ran, with what follows for its run."""
    tx.execute(_REMOVE, {"for_tenant": claim.tenant, "for_key": claim.key})
    if run is not None:
        _follow(tx, run, claim.key)


def _follow(tx: Connection, run: LockedRun, key: str) -> None:
    """Do what follows once nothing is undecided about a call: queue the run that waits for it, let a frontier go."""
    moved = run_transitions.heal(run.state, key=key, at=run.at, policy=FleetPolicy())
    if moved.verdict is Verdict.DONE:
        journal.write(tx, run, moved.state, [events.healed(key)], detail=None)
    elif moved.verdict is Verdict.PARKED:
        detail = events.parked_detail(moved.state)
        journal.write(tx, run, moved.state, [events.parked(moved.state, detail)], detail=detail)
    if run.state.phase is Phase.CANCELLED:
        forget_if_decided(tx, run.tenant, run.run_id)


def forget_if_decided(tx: Connection, tenant: str, run_id: str) -> None:
    """Forget the frontier of a run that was cancelled, unless a call of its is still undecided (C5, P2)."""
    if not tx.execute(_ANY_IN_FLIGHT, {"for_tenant": tenant, "for_run": run_id}).scalar_one():
        tx.execute(_FORGET, {"for_tenant": tenant, "for_run": run_id})
