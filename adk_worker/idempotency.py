"""What ran: keys, claims, and the store that keeps them.

A *claim* is the record of one call. It is absent before the intent is recorded, in flight (with its owner) from just
before the dispatch, and settled once an outcome is known (I2), or once a person says that it never ran (I8). Its key is
made of the call's position in the run, so it is the same across retry, redelivery and resume, and differs for every
other call (I1). A claim in flight never turns into permission by growing old (I4): only its owner's record, a probe, or
a person settles it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from adk_worker.messages import canonical_json
from adk_worker.names import check_name
from adk_worker.outcomes import ToolOutcome

RESUME_CLAIM_SECONDS = 300.0
"""How long the claim of a resume without a lease lives at most (I9)."""


_KEY = re.compile(r"adk1-([0-9a-f]{8})[0-9a-f]{32}")


def call_key(*, tenant: str, run_id: str, iteration: int, index: int) -> str:
    """The key of the call at position ``index`` of the turn asked for in ``iteration`` (I1).

    It is a digest of an unambiguous encoding, so that it says nothing of the names, fits every header, and cannot be
    forged by a name with separators in it (T1). It begins with the run's part (:func:`run_part`).
    """
    position = canonical_json([tenant, run_id, iteration, index])
    return f"adk1-{run_part(tenant, run_id)}{hashlib.sha256(position.encode()).hexdigest()[:32]}"


def mark_key(*, tenant: str, run_id: str) -> str:
    """The key of the claim that stands while what ran in process is ahead of the stored frontier (C3)."""
    return "adk1-mark-" + hashlib.sha256(canonical_json([tenant, run_id]).encode()).hexdigest()[:40]


def run_part(tenant: str, run_id: str) -> str:
    """What the keys of all calls of a run have in common: 8 hex digits.

    A store that spreads over machines finds the run's place by it when it is given a key alone.
    """
    return hashlib.sha256(canonical_json([tenant, run_id]).encode()).hexdigest()[:8]


def run_part_of(key: str) -> str | None:
    """The run's part of a key that :func:`call_key` made; ``None`` for any other key."""
    made = _KEY.fullmatch(key)
    return None if made is None else made[1]


def call_digest(key: str, *, tool: str, arguments: Mapping[str, Any]) -> str:
    """What a claim remembers of tool and arguments: an HMAC under the call's key, 64 hex digits (I1).

    Keyed, so that equal arguments of different calls, or of different tenants, do not show as equal.
    """
    said = canonical_json([tool, dict(arguments)])
    return hmac.new(key.encode(), said.encode(), hashlib.sha256).hexdigest()


def check_claim(tenant: object, key: object, owner: object) -> None:
    """Raise ``InvalidNameError`` unless all three can stand in a claim: key and owner have to be names, as run ids are.

    :func:`call_key` makes keys, and :class:`~adk_worker.liveness.Holder` owners, that are.
    """
    check_name(tenant, what="tenant")
    check_name(key, what="idempotency key")
    check_name(owner, what="owner")


BY_OWNER = "owner"
"""``settled_by`` of an outcome that the call's own owner recorded."""


class ClaimState(StrEnum):
    """Where a claim stands. Absent is no claim at all."""

    IN_FLIGHT = "in_flight"
    SETTLED = "settled"
    NEVER_RAN = "never_ran"
    """A person has decided that it never ran and never will (I8): it may be begun under the same key."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about a call, as it is kept with the claim (I8)."""

    by: str
    os_user: str | None
    at: float
    why: str
    owner: str
    """Whose dispatch they decided about: the claim's owner then."""
    outcome: ToolOutcome | None = None
    """``None``: it never ran."""
    owner_may_live: bool = False
    """They said so although that owner was not known to be dead, or had just died."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The record of one call, as a store answered it. Times are in seconds since the epoch, by the store's clock."""

    tenant: str
    key: str
    owner: str
    digest: str
    state: ClaimState
    outcome: ToolOutcome | None = None
    fence: int | None = None
    began_at: float | None = None
    settled_by: str | None = None
    """Who settled it last: :data:`BY_OWNER`, ``probe`` or ``person:NAME``; ``None`` if nobody has."""
    dead_seen_at: float | None = None
    """When the owner was first known to be dead (I11); ``None`` if it never was."""
    tool: str | None = None
    former: tuple[str, ...] = ()
    """Owners before this one, oldest first (:meth:`IdempotencyStore.take_over`)."""
    late: tuple[ToolOutcome, ...] = ()
    """Outcomes that came after the settlement: evidence that overwrote nothing (F4)."""
    max_in_flight: float | None = None
    """How long a request may outlive its sender, in seconds, as the tool declared it when the call was begun."""
    decisions: tuple[Decision, ...] = ()
    """What people decided about it, oldest first (I8)."""

    @property
    def in_flight(self) -> bool:
        """Whether it may have happened or not, and nobody has decided."""
        return self.state is ClaimState.IN_FLIGHT

    @property
    def known(self) -> ToolOutcome | None:
        """The outcome to go on with, if there is one.

        Of a call that somebody has said never ran, it is the first that came in all the same: what is known to have
        happened is not made again.
        """
        if self.state is ClaimState.NEVER_RAN:
            return self.late[0] if self.late else None
        return self.outcome if self.state is ClaimState.SETTLED else None

    @property
    def contradicted(self) -> bool:
        """Whether an outcome came in for a call although a person had said that it never ran."""
        return bool(self.late) and any(decision.outcome is None for decision in self.decisions)

    def owned_in_flight_by(self, owner: str) -> bool:
        """Whether ``owner`` may dispatch the call: the claim is in flight and its own."""
        return self.in_flight and self.owner == owner

    def open_after(self, owner: str) -> bool:
        """Whether the call may be begun in place of ``owner``: in flight under it, or known not to have run."""
        never_ran = self.state is ClaimState.NEVER_RAN and self.known is None
        return self.owner == owner and (self.in_flight or never_ran)


@dataclass(frozen=True, slots=True)
class Intent:
    """A claim to begin. The digest is that of :func:`call_digest`.

    ``take_over`` is the owner whose claim this one replaces, in flight or decided never to have run, as the plan has
    seen it. ``max_in_flight`` is what the tool declares, in seconds. ``permit`` is what lets a call be made that a
    person has to approve: the id of a request that was approved, or of a grant (P1).
    """

    key: str
    digest: str
    tool: str | None = None
    take_over: str | None = None
    max_in_flight: float | None = None
    permit: str | None = None


class IdempotencyStore(Protocol):
    """Keeps claims. Each method is one atomic operation; nothing here expires (I2, I4)."""

    async def begin(self, key: str, *, tenant: str, owner: str, digest: str) -> Claim:
        """Record the intent to make a call, and return the claim that stands now.

        Of N concurrent callers exactly one finds itself as the owner (I3): compare with
        :meth:`Claim.owned_in_flight_by`. Asking again under the same ``owner`` finds the same claim.

        :raises CallKeyReusedError: the key is on record with another digest; nothing was written (I1).
        """
        ...

    async def peek(self, keys: Sequence[str], *, tenant: str) -> Mapping[str, Claim | None]:
        """The claims on ``keys``, ``None`` for an absent one. Only reads (I5)."""
        ...

    async def record(self, claim: Claim, outcome: ToolOutcome) -> None:
        """Settle the claim with its outcome. ``claim.owner`` must own it; its lease is not asked for (F4).

        A former owner's outcome (after a take-over), or one that comes after somebody else's settlement, is kept in
        ``late`` and changes nothing. Recording the same outcome again is harmless. In the fleet's store the same write
        queues the run again if it was parked on this call.

        :raises ClaimOwnerError: ``claim.owner`` never owned it, or there is no such claim: its owner took it back, the
            call never being dispatched, or it was pruned with its run. An outcome under such a key may be taken for one
            of another run of the same name; it is for the caller's log.
        """
        ...

    async def abandon(self, claim: Claim) -> None:
        """Take the intent back: the owner knows that it never dispatched the call.

        A claim that was taken over goes back to the owner before, and to what a person had decided about that one; any
        other becomes absent. In the fleet's store the same write queues the run again if it was parked on a call that
        thereby is known not to have run.

        :raises ClaimOwnerError: not in flight under ``claim.owner``.
        """
        ...

    async def take_over(self, claim: Claim, owner: str) -> Claim:
        """Make ``owner`` the owner of a claim, in flight, if it still is as ``claim`` shows it (compare-and-set).

        For idempotent tools, and for calls that are known not to have happened. The former owner is remembered. A call
        that was decided never to have run, and of which an outcome came in since, cannot be taken over.

        :raises ClaimOwnerError: it is settled, absent, or another's by now; nothing was written.
        """
        ...


@runtime_checkable
class ResumeClaims(Protocol):
    """At most one resume of a run at a time (I9). The idempotency stores here implement it too."""

    async def claim_resume(
        self,
        run_id: str,
        *,
        tenant: str,
        owner: str,
        fence: int | None = None,
        ttl_seconds: float = RESUME_CLAIM_SECONDS,
    ) -> None:
        """Claim the resume of a run until :meth:`end_resume`, or for ``ttl_seconds`` by the store's clock.

        A claim with a ``fence`` replaces a claim with a lower one; one without waits for any other to end or expire.

        :raises ResumeConflictError: another resume is under way.
        """
        ...

    async def end_resume(self, run_id: str, *, tenant: str, owner: str) -> None:
        """End ``owner``'s claim; somebody else's is left alone."""
        ...


def resume_claims(store: object) -> ResumeClaims | None:
    """The store as one that keeps claims of resumes, if it is one (I9)."""
    return store if isinstance(store, ResumeClaims) else None
