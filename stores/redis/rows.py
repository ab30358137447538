"""Between the hashes of Redis and the rows of :mod:`adk_worker.memory.data`.

Every value is a text: numbers as Python writes them, so that a float reads back as the very same one; what a person or
a model may have written, or what may be ``None``, as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from adk_worker.adapters import adapter
from adk_worker.events import Event
from adk_worker.history import StoredSegment
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import Amount
from adk_worker.ledger.booking import Ledger, Reservation
from adk_worker.memory.data import (
    StoredApprovals,
    StoredCheckpoint,
    StoredClaim,
    StoredEvent,
    StoredRun,
    StoredWait,
)
from adk_worker.messages import canonical_json
from adk_worker.transitions.claims import ResumeClaim
from adk_worker.transitions.leases import Holding, LeaseState
from adk_worker.transitions.runs import Attention, Phase, State
from stores.redis.keys import member, run_of

Fields = Mapping[str, str | None]
"""The fields of a hash that were asked for; ``None`` for one that is not there."""

STAMP: Final = "stamp"
"""The field that is written anew, at random, with every write of the row that it stands in."""

_LEASE: Final = ("fence", "holding", "holder", "expires_at", "wait")
_STATE: Final = (
    "phase",
    "sequence",
    "committed_by",
    "crashes",
    "tries",
    "cancel_requested",
    "behind",
    "attention",
    "parked_on",
)
_SAID: Final = (
    "number",
    "revision",
    "created_at",
    "updated_at",
    "detail",
    "iteration",
    "execution",
    "input_tokens",
    "output_tokens",
    "cost_micros",
    "output",
    "ledger",
)

RUN: Final = (STAMP, *_LEASE, *_STATE, *_SAID, "seen", "begun")
"""The fields of a run's row, without what was submitted.

A lease's fields are there once it was granted, the run's once it was submitted. ``seen`` is the highest fence that came
with a write (F1), ``begun`` how many claims the run has had.
"""
SUBMITTED: Final = "submitted"
"""What was submitted: it may be large, and most operations do without."""
SUBMITTED_RUN: Final = (*_STATE, *_SAID, SUBMITTED)
"""What of a run's row is there once it was submitted, and not before."""
CLAIM: Final = (STAMP, "body", "run")
CHECKPOINT: Final = ("payload", "sequence", "agent")
APPROVALS: Final = (STAMP, "body", "due")
ACCOUNT_ROW: Final = (STAMP, "body")
RESUME: Final = (STAMP, "owner", "fence", "expires_at")


def lease_of(row: Fields) -> LeaseState | None:
    """The lease in a run's row; ``None`` if none was ever granted."""
    if row["fence"] is None:
        return None
    return LeaseState(
        fence=int(row["fence"]),
        holding=Holding(_text(row, "holding")),
        holder=_json(row, "holder"),
        expires_at=float(_text(row, "expires_at")),
        wait=float(_text(row, "wait")),
    )


def lease_fields(lease: LeaseState) -> dict[str, str]:
    """The fields of a run's row that hold the lease."""
    return {
        "fence": str(lease.fence),
        "holding": lease.holding.value,
        "holder": canonical_json(lease.holder),
        "expires_at": repr(lease.expires_at),
        "wait": repr(lease.wait),
    }


def seen_of(row: Fields) -> int | None:
    """The highest fence that came with a write; ``None`` if none did."""
    return None if row["seen"] is None else int(row["seen"])


def run_row(row: Fields) -> StoredRun | None:
    """The run in its row; ``None`` before it was submitted. What was submitted is empty unless it was read with it."""
    if row["phase"] is None:
        return None
    attention = _json(row, "attention")
    state = State(
        lease=lease_of(row) or LeaseState(),
        phase=Phase(row["phase"]),
        sequence=_number(row, "sequence"),
        committed_by=_number(row, "committed_by"),
        crashes=_number(row, "crashes"),
        tries=_number(row, "tries"),
        cancel_requested=_json(row, "cancel_requested"),
        behind=_json(row, "behind"),
        attention=None if attention is None else Attention(attention),
        parked_on=tuple(_json(row, "parked_on")),
    )
    return StoredRun(
        submitted=row.get(SUBMITTED) or "",
        state=state,
        number=_number(row, "number"),
        revision=_json(row, "revision"),
        created_at=float(_text(row, "created_at")),
        updated_at=float(_text(row, "updated_at")),
        detail=_json(row, "detail"),
        iteration=_number(row, "iteration"),
        execution=_number(row, "execution"),
        input_tokens=_number(row, "input_tokens"),
        output_tokens=_number(row, "output_tokens"),
        cost_micros=_number(row, "cost_micros"),
        output=_json(row, "output"),
        ledger=adapter(Ledger).validate_json(_text(row, "ledger")),
    )


def run_fields(run: StoredRun) -> dict[str, str]:
    """The fields of a run's row that hold the run, all but the lease and what was submitted."""
    state = run.state
    return {
        "phase": state.phase.value,
        "sequence": str(state.sequence),
        "committed_by": str(state.committed_by),
        "crashes": str(state.crashes),
        "tries": str(state.tries),
        "cancel_requested": canonical_json(state.cancel_requested),
        "behind": canonical_json(state.behind),
        "attention": canonical_json(state.attention and state.attention.value),
        "parked_on": canonical_json(state.parked_on),
        "number": str(run.number),
        "revision": canonical_json(run.revision),
        "created_at": repr(run.created_at),
        "updated_at": repr(run.updated_at),
        "detail": canonical_json(run.detail),
        "iteration": str(run.iteration),
        "execution": str(run.execution),
        "input_tokens": str(run.input_tokens),
        "output_tokens": str(run.output_tokens),
        "cost_micros": str(run.cost_micros),
        "output": canonical_json(run.output),
        "ledger": canonical_json(adapter(Ledger).dump_python(run.ledger, mode="json", exclude_defaults=True)),
    }


def checkpoint_of(row: Fields) -> StoredCheckpoint | None:
    """The frontier in its hash."""
    if row["payload"] is None:
        return None
    return StoredCheckpoint(row["payload"], _number(row, "sequence"), _json(row, "agent"))


def checkpoint_fields(frontier: StoredCheckpoint) -> dict[str, str]:
    """The fields of a frontier's hash."""
    sequence, agent = str(frontier.sequence), canonical_json(frontier.agent)
    return {"payload": frontier.payload, "sequence": sequence, "agent": agent}


def claim_of(row: Fields) -> StoredClaim | None:
    """The claim in its hash."""
    return None if row["body"] is None else StoredClaim(row["body"], run_of(row["run"]) if row["run"] else None)


def claim_fields(claim: StoredClaim) -> dict[str, str]:
    """The fields of a claim's hash."""
    return {"body": claim.text, "run": "" if claim.run is None else member(claim.run)}


def approvals_of(row: Fields) -> StoredApprovals | None:
    """What a run's people were asked, in its hash."""
    if row["body"] is None:
        return None
    return StoredApprovals(row["body"], _json(row, "due"))


def approvals_fields(approvals: StoredApprovals) -> dict[str, str]:
    """The fields of the hash of what a run's people were asked."""
    return {"body": approvals.text, "due": canonical_json(approvals.due)}


def resume_of(row: Fields) -> ResumeClaim | None:
    """The resume's claim in its hash."""
    if row["owner"] is None:
        return None
    return ResumeClaim(_json(row, "owner"), _json(row, "fence"), float(_text(row, "expires_at")))


def resume_fields(claim: ResumeClaim) -> dict[str, str]:
    """The fields of the hash of a resume's claim."""
    owner, fence = canonical_json(claim.owner), canonical_json(claim.fence)
    return {"owner": owner, "fence": fence, "expires_at": repr(claim.expires_at)}


def account_of(row: Fields) -> Account | None:
    """The account in its hash."""
    return None if row["body"] is None else adapter(Account).validate_json(row["body"])


def account_fields(account: Account) -> dict[str, str]:
    """The fields of an account's hash."""
    return {"body": canonical_json(adapter(Account).dump_python(account, mode="json", exclude_defaults=True))}


def reservation_text(reservation: Reservation) -> str:
    """A reservation on an account, as its field holds it."""
    return canonical_json(adapter(Reservation).dump_python(reservation, mode="json", exclude_defaults=True))


def reservation_of(text: str | None) -> Reservation | None:
    """Read :func:`reservation_text` back."""
    return None if text is None else adapter(Reservation).validate_json(text)


def wait_text(wait: StoredWait) -> str:
    """What a run that waits asked for, as its field holds it."""
    return canonical_json([wait.number, wait.fence, wait.wanted.tokens, wait.wanted.cost_micros])


def wait_of(text: str | None) -> StoredWait | None:
    """Read :func:`wait_text` back."""
    if text is None:
        return None
    number, fence, tokens, cost_micros = json.loads(text)
    return StoredWait(number, fence, Amount(tokens, cost_micros))


def segment_field(end: tuple[int, str]) -> str:
    """The field of a segment that ends at ``end``: so many messages, and their digest."""
    count, digest = end
    return f"{count}.{digest}"


def end_field(count: int) -> str:
    """The field that says which segment is the newest that ends at message ``count``."""
    return f"end:{count}"


def segment_value(segment: StoredSegment) -> str:
    """A segment as its field holds it."""
    return f"{segment.start}.{segment.start_digest}\n{segment.payload}"


def segment_of(value: str) -> StoredSegment:
    """Read :func:`segment_value` back."""
    start, _, payload = value.partition("\n")
    count, _, digest = start.partition(".")
    return StoredSegment(int(count), digest, payload)


def transcript_of(fields: Mapping[str, str]) -> dict[tuple[int, str], StoredSegment]:
    """All segments of a transcript's hash, by where they end."""
    found = {}
    for field, value in fields.items():
        count, _, digest = field.partition(".")
        if digest:
            found[int(count), digest] = segment_of(value)
    return found


def event_text(event: StoredEvent) -> str:
    """An event as the run's list holds it."""
    return canonical_json([event.at, event.kind, event.fence, event.data])


def event_of(text: str, *, number: int) -> Event:
    """Read :func:`event_text` back."""
    at, kind, fence, data = json.loads(text)
    return Event(id=number, at=at, kind=kind, fence=fence, data=json.loads(data))


def _text(row: Fields, field: str) -> str:
    text = row[field]
    if text is None:
        # No KeyError, which a mapping takes for a row that is not there.
        raise ValueError(f"the row has no {field}")
    return text


def _number(row: Fields, field: str) -> int:
    return int(_text(row, field))


def _json(row: Fields, field: str) -> Any:
    return json.loads(_text(row, field))
