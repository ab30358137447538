"""Every key, explained once.

All that belongs to a run has its bucket's hash tag, ``{adk:000}`` to ``{adk:063}``: in a cluster it stands in one slot
with the bucket's indexes, so that one script writes a boundary whole. Nothing is found by going through the keyspace:
whatever is listed or swept is in an index. Names are percent-encoded, so that no name reaches another's key (T1).
Nothing here expires by Redis' own means.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from adk_worker.idempotency import run_part, run_part_of
from adk_worker.memory.data import ClaimKey, RunKey
from adk_worker.messages import canonical_json
from adk_worker.runs import RunStatus

BUCKETS: Final = 64
"""Part of the format: a run's bucket follows from its name, and is looked for there for ever.

So many that each master of a large cluster has some, and so few that a sweep asks each in turn within milliseconds.
"""

NUMBERS: Final = "{adk:000}:numbers"
"""String: the number of the run that was submitted last, which the order of a listing and its cursor come from."""
SWEPT: Final = "{adk:000}:swept"
"""String: when a reaper swept last, in seconds since the epoch."""


def bucket_of_run(run: RunKey) -> int:
    """Where a run is."""
    return int(run_part(*run), 16) % BUCKETS


def bucket_of_claim(claim: ClaimKey) -> int:
    """Where a claim is: with its run, if its key is a call's; and anywhere, but always there, if it is another."""
    tenant, key = claim
    part = run_part_of(key) or hashlib.sha256(canonical_json([tenant, key]).encode()).hexdigest()[:8]
    return int(part, 16) % BUCKETS


def bucket_of_tenant(tenant: str) -> int:
    """Where a tenant's account is: elsewhere, as a rule, than its runs."""
    return int(hashlib.sha256(canonical_json([tenant]).encode()).hexdigest()[:8], 16) % BUCKETS


def member(run: RunKey) -> str:
    """A run's name in an index, and in its keys."""
    return _joined(run)


def run_of(name: str) -> RunKey:
    """Read :func:`member` back."""
    tenant, run_id = name.split(":")
    return unquote(tenant), unquote(run_id)


def tenant_member(tenant: str) -> str:
    """A tenant's name in an index."""
    return _joined([tenant])


def tenant_of(name: str) -> str:
    """Read :func:`tenant_member` back."""
    return unquote(name)


class Keys:
    """The keys of one bucket."""

    def __init__(self, bucket: int) -> None:
        self._tag = f"{{adk:{bucket:03}}}"
        self.store = f"{self._tag}:store"
        """String, ``FORMAT:EPOCH``: which format the bucket's keys have, and the store's epoch (L2). It is compared in
        every write, so that nothing is written to a store that came back empty."""
        self.runs = f"{self._tag}:runs"
        """Sorted set: the bucket's runs, by number."""
        self.attention = f"{self._tag}:attention"
        """Sorted set: those that somebody has to look at, by number."""
        self.lapses = f"{self._tag}:lapses"
        """Sorted set: those that the queue or a worker holds, by the moment at which that lease lapses (L6)."""

        self.expiries = f"{self._tag}:expiries"
        """Sorted set: those that wait for an answer, by the moment at which the first of their requests is over."""

        self.due = f"{self._tag}:due"
        """Sorted set: the tenants whose runs wait for room on their account, and may fit now; all with the score 0."""

    def tenant(self, tenant: str) -> str:
        """Sorted set: a tenant's runs, by number."""
        return f"{self._tag}:tenant:{_joined([tenant])}"

    def named(self, run_id: str) -> str:
        """Sorted set: the bucket's runs of this id, by number: how one is found whose tenant is not known."""
        return f"{self._tag}:named:{_joined([run_id])}"

    def status(self, status: RunStatus) -> str:
        """Sorted set: the runs in a status, by number."""
        return f"{self._tag}:status:{status}"

    def run(self, run: RunKey) -> str:
        """Hash: a run's lease, its row once it was submitted, and the highest fence that came with a write.

        Its fields are those of :mod:`stores.redis.rows`. Every write of anything that belongs to the run, its claims'
        bodies apart, puts a new random ``stamp`` into it.
        """
        return f"{self._tag}:run:{_joined(run)}"

    def checkpoint(self, run: RunKey) -> str:
        """Hash: the frontier's ``payload``, its ``sequence`` and its ``agent``."""
        return f"{self._tag}:checkpoint:{_joined(run)}"

    def transcript(self, run: RunKey) -> str:
        """Hash: segments, and which one is the newest that ends at a message.

        ``COUNT.DIGEST`` says where the segment ends, and holds ``START.DIGEST``, a line feed and the messages;
        ``end:COUNT`` holds a digest. Segments are added and never changed (H1).
        """
        return f"{self._tag}:transcript:{_joined(run)}"

    def events(self, run: RunKey) -> str:
        """List: the run's events as JSON, the oldest first. An event's id is its place, from 1."""
        return f"{self._tag}:events:{_joined(run)}"

    def claims(self, run: RunKey) -> str:
        """Sorted set: the keys of the run's claims, in the order in which they began."""
        return f"{self._tag}:claims:{_joined(run)}"

    def claim(self, claim: ClaimKey) -> str:
        """Hash: a claim as JSON in ``body``, the ``run`` that it was begun for, if any, and a ``stamp`` of its own."""
        return f"{self._tag}:claim:{_joined(claim)}"

    def approvals(self, run: RunKey) -> str:
        """Hash: what the run's people were asked and granted, as JSON in ``body``, and a ``stamp`` of its own.

        ``due`` is when the first request that waits for an answer is over.
        """
        return f"{self._tag}:approvals:{_joined(run)}"

    def account(self, tenant: str) -> str:
        """Hash: what a tenant may spend and what its runs have, as JSON in ``body``, and a ``stamp`` of its own.

        Every write of the three that follow stamps it.
        """
        return f"{self._tag}:account:{_joined([tenant])}"

    def opened(self, tenant: str) -> str:
        """Hash: by run, what is reserved for it on the tenant's account, as JSON."""
        return f"{self._tag}:opened:{_joined([tenant])}"

    def waiting(self, tenant: str) -> str:
        """Sorted set: the runs that the tenant's account has turned away, by number."""
        return f"{self._tag}:waiting:{_joined([tenant])}"

    def wanted(self, tenant: str) -> str:
        """Hash: by run, for those that wait, what it asked for, and under which fence, as JSON."""
        return f"{self._tag}:wanted:{_joined([tenant])}"

    def resume(self, run: RunKey) -> str:
        """Hash: who resumes the run (I9), ``owner``, ``fence``, ``expires_at``, and a ``stamp`` of its own."""
        return f"{self._tag}:resume:{_joined(run)}"


def _joined(names: Iterable[str]) -> str:
    # What is no name at all may be asked for, and is not there.
    return ":".join(quote(name, safe="", errors="surrogatepass") for name in names)
