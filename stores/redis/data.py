"""One transaction's rows, in the shape in which the store in memory keeps all of its rows.

So the operations of :mod:`adk_worker.memory`, which are the reference of every rule, are this store's too: they find
here what was read from Redis, and what they change is written back as one (:mod:`stores.redis.transaction`). There is
no second copy of them that could say something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from adk_worker.errors import CheckpointTooLargeError, ValueTooLargeError
from adk_worker.history import StoredSegment
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.booking import Reservation
from adk_worker.memory.data import (
    ClaimKey,
    MemoryData,
    RunKey,
    StoredApprovals,
    StoredCheckpoint,
    StoredClaim,
    StoredEvent,
    StoredRun,
    StoredWait,
)
from adk_worker.transitions.claims import ResumeClaim
from adk_worker.transitions.leases import LeaseState, StoreTime
from stores.redis import rows
from stores.redis.indexes import expire, index, mark, unindex
from stores.redis.keys import bucket_of_claim, bucket_of_run, bucket_of_tenant, member, run_of
from stores.redis.target import RedisOptions
from stores.redis.transaction import Applied, Transaction

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_ANOTHERS: Final = "the key is of another run than the lease: a run's calls have the keys that call_key makes"


class _Rows(MutableMapping[K, V], Generic[K, V]):
    """A table of which rows are read as they are asked for, and which knows those that were written."""

    def __init__(self, read: Callable[[K], V | None]) -> None:
        self._read = read
        self._before: dict[K, V | None] = {}
        self._now: dict[K, V | None] = {}

    def before(self, key: K) -> V | None:
        """The row as it was read."""
        if key not in self._before:
            self._before[key] = self._read(key)
        return self._before[key]

    def now(self, key: K) -> V | None:
        """The row as it stands in this transaction."""
        return self._now[key] if key in self._now else self.before(key)

    @property
    def written(self) -> Iterable[K]:
        """The keys that were written or removed, in that order."""
        return self._now

    def __getitem__(self, key: K) -> V:
        row = self.now(key)
        if row is None:
            raise KeyError(key)
        return row

    def __setitem__(self, key: K, row: V) -> None:
        self._now.pop(key, None)
        self._now[key] = row

    def __delitem__(self, key: K) -> None:
        self[key]
        self._now[key] = None

    def __iter__(self) -> Iterator[K]:
        raise TypeError("nothing goes through all rows of this store")

    def __len__(self) -> int:
        raise TypeError("nothing counts the rows of this store")


class _Told:
    """The events that a transaction adds to a run's. Those that are there already are not read."""

    def __init__(self) -> None:
        self.new: list[StoredEvent] = []

    def extend(self, events: Iterable[StoredEvent]) -> None:
        self.new.extend(events)


class _Lists(dict[RunKey, list[StoredEvent]]):
    def __missing__(self, key: RunKey) -> list[StoredEvent]:
        # What is added to it is all that the operations need of it, and all that it can do.
        self[key] = cast("list[StoredEvent]", _Told())
        return self[key]


class _Transcripts(dict[RunKey, MutableMapping[tuple[int, str], StoredSegment]]):
    def __init__(self, of: Callable[[RunKey], MutableMapping[tuple[int, str], StoredSegment]]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, key: RunKey) -> MutableMapping[tuple[int, str], StoredSegment]:
        self[key] = self._of(key)
        return self[key]

    def get(self, key: RunKey, default: Any = None) -> Any:
        return self[key]


class Around(Protocol):
    """What the rows of one transaction need of the server beside it."""

    def next_number(self) -> int:
        """The number of the next run."""
        ...

    def transact(self, bucket: int, work: Callable[[RunData], S]) -> S:
        """Carry out another transaction."""
        ...

    def numbered(self, key: str, *, above: int, limit: int) -> Sequence[tuple[str, int]]:
        """The names in a sorted set with a number above that, in order, and these numbers; up to ``limit``."""
        ...


class RunData(MemoryData):
    """The rows of one bucket, in one transaction."""

    def __init__(
        self,
        transaction: Transaction,
        options: RedisOptions,
        *,
        around: Around,
    ) -> None:
        super().__init__(clock=lambda: transaction.now)
        self._tx = transaction
        self._keys = transaction.keys
        self._options = options
        self._around = around
        self._then: list[tuple[RunKey, Callable[[MemoryData], object]]] = []
        self._touched: set[RunKey] = set()
        self._begun: dict[RunKey, int] = {}
        self.leases: _Rows[RunKey, LeaseState] = _Rows(lambda run: rows.lease_of(self._row(run)))
        self.runs: _Rows[RunKey, StoredRun] = _Rows(lambda run: rows.run_row(self._row(run)))
        self.fences_seen: _Rows[RunKey, int] = _Rows(lambda run: rows.seen_of(self._row(run)))
        self.checkpoints: _Rows[RunKey, StoredCheckpoint] = _Rows(self._checkpoint)
        self.claims: _Rows[ClaimKey, StoredClaim] = _Rows(self._claim)
        self.resumes: _Rows[RunKey, ResumeClaim] = _Rows(self._resume)
        self.approvals: _Rows[RunKey, StoredApprovals] = _Rows(self._approvals)
        self.segments = _Transcripts(lambda run: _Rows(lambda end: self._segment(run, end)))
        self.events = _Lists()
        self.accounts: _Rows[str, Account] = _Rows(self._account)
        self.opened: _Rows[RunKey, Reservation] = _Rows(self._opened)
        self.waiting: _Rows[RunKey, StoredWait] = _Rows(self._waiting)

    def at(self) -> StoreTime:
        return StoreTime(self._tx.now, self._tx.epoch)

    def submitted(self, key: RunKey) -> str:
        made = self.runs[key].submitted
        return made or self._tx.row(self._keys.run(key), [rows.SUBMITTED])[rows.SUBMITTED] or ""

    def next_number(self) -> int:
        return self._around.next_number()

    def claims_of(self, key: RunKey) -> Iterable[StoredClaim]:
        names = [(key[0], name) for name in self._tx.names(self._keys.claims(key))]
        self.look(claims=names)
        names += [claim for claim in self.claims.written if claim not in names]
        found = [self.claims.now(claim) for claim in names]
        return [claim for claim in found if claim is not None and claim.run == key]

    def ends_at(self, key: RunKey, count: int) -> list[str]:
        field = rows.end_field(count)
        digest = self._tx.row(self._keys.transcript(key), [field])[field]
        return [] if digest is None else [digest]

    def look(
        self,
        *,
        runs: Iterable[RunKey] = (),
        claims: Iterable[ClaimKey] = (),
        checkpoints: Iterable[RunKey] = (),
        submitted: Iterable[RunKey] = (),
    ) -> None:
        """Read together what an operation is about to ask for."""
        wanted: dict[str, Sequence[str]] = {self._keys.run(self._here(run)): rows.RUN for run in runs}
        wanted |= {self._keys.run(self._here(run)): (*rows.RUN, rows.SUBMITTED) for run in submitted}
        here = [claim for claim in claims if bucket_of_claim(claim) == self._tx.bucket]
        wanted |= {self._keys.claim(claim): rows.CLAIM for claim in here}
        wanted |= {self._keys.checkpoint(self._here(run)): rows.CHECKPOINT for run in checkpoints}
        self._tx.look(wanted)

    def on_account(self, run: RunKey, work: Callable[[MemoryData], S]) -> S:
        """See the base. It is a transaction of its own, which stands whatever becomes of this one."""
        return self._around.transact(bucket_of_tenant(run[0]), partial(_looking_at_account, run=run, work=work))

    def then_on_account(self, run: RunKey, work: Callable[[MemoryData], object]) -> None:
        self._then.append((run, work))

    def follow(self) -> None:
        """Book on accounts what this transaction, now committed, has changed. To be called again where it fails."""
        while self._then:
            self.on_account(*self._then[0])
            self._then.pop(0)

    def waiting_of(self, tenant: str, *, behind: int, limit: int) -> tuple[list[tuple[RunKey, StoredWait]], int | None]:
        """See the base. Those that have gone since their names were read are left out."""
        names = self._around.numbered(self._keys.waiting(tenant), above=behind, limit=limit + 1)
        here = [name for name, _ in names[:limit]]
        self._tx.look({self._keys.wanted(tenant): here})
        found = [(run, self.waiting.now(run)) for run in map(run_of, here)]
        waiting = [(run, wait) for run, wait in found if wait is not None]
        return waiting, names[limit - 1][1] if len(names) > limit else None

    def look_at_account(self, run: RunKey) -> None:
        """Read the account of a run's tenant together with what it has of the run."""
        keys, (tenant, _) = self._keys, run
        self._tx.look(
            {
                keys.account(tenant): rows.ACCOUNT_ROW,
                keys.opened(tenant): [member(run)],
                keys.wanted(tenant): [member(run)],
            }
        )

    def look_at_accounts(self, tenants: Iterable[str]) -> None:
        """Read several accounts together."""
        self._tx.look({self._keys.account(tenant): rows.ACCOUNT_ROW for tenant in tenants})

    def touch(self, run: RunKey) -> None:
        """Have the run's row stamped anew: nothing can be written any more that rests on how it was before."""
        self._touched.add(run)

    def forget(self, run: RunKey) -> None:
        """Have all that belongs to the run removed, but for the lease in its row (L2)."""
        keys, row = self._keys, self.runs[run]
        for name in self._tx.names(keys.claims(run)):
            self._tx.remove("DEL", keys.claim((run[0], name)))
        others = (keys.claims, keys.transcript, keys.events, keys.checkpoint, keys.resume, keys.approvals)
        for key_of in others:
            self._tx.remove("DEL", key_of(run))
        self._tx.remove("HDEL", keys.run(run), *rows.SUBMITTED_RUN)
        unindex(self._tx, run, row.state)
        self.touch(run)

    # --- writing ------------------------------------------------------------------------------------------------

    def flush(self) -> Applied:
        """Write all that has changed, or nothing.

        :raises CheckpointTooLargeError: a frontier is over the store's cap (C2).
        :raises ValueTooLargeError: another value is.
        """
        for claim in self.claims.written:
            self._write_claim(claim)
        told = {run: cast("_Told", events).new for run, events in self.events.items()}
        touched = [*self.leases.written, *self.runs.written, *self.fences_seen.written, *told]
        for run in dict.fromkeys([*touched, *self._touched]):
            self._write_run(run)
        for run, events in told.items():
            texts = [self._capped("an event", rows.event_text(event)) for event in events]
            if texts:
                self._tx.add("RPUSH", self._keys.events(run), *texts)
        for run in self.checkpoints.written:
            self._write_checkpoint(run)
        for run, segments in self.segments.items():
            self._write_segments(run, cast("_Rows[tuple[int, str], StoredSegment]", segments))
        for run in self.approvals.written:
            self._write_approvals(run)
        self._write_accounts()
        for run in self.resumes.written:
            self.resumes.before(run)
            claimed = self.resumes.now(run)
            self._replace(self._keys.resume(run), None if claimed is None else rows.resume_fields(claimed), row=True)
        return self._tx.commit()

    def _write_run(self, run: RunKey) -> None:
        fields = {rows.STAMP: self._tx.stamp}
        lease, seen, row = self.leases.now(run), self.fences_seen.now(run), self.runs.now(run)
        if lease is not None and lease != self.leases.before(run):
            fields |= rows.lease_fields(lease)
        if seen != self.fences_seen.before(run):
            fields["seen"] = str(seen)
        if run in self._begun:
            fields["begun"] = str(self._begun[run])
        before = self.runs.before(run)
        if row is not None:
            stood = {} if before is None else rows.run_fields(before)
            said = rows.run_fields(row).items()
            fields |= {
                name: self._capped(f"the run's {name}", value) for name, value in said if stood.get(name) != value
            }
            if before is None or row.submitted != before.submitted:
                fields[rows.SUBMITTED] = self._capped("what was submitted", row.submitted)
        self._tx.add("HSET", self._keys.run(run), *_flat(fields))
        if row is not None:
            index(
                self._tx,
                run,
                before=None if before is None else replace(before.state, lease=self.lease_before(run)),
                after=replace(row.state, lease=self.lease(run)),
                number=row.number,
            )

    def lease_before(self, run: RunKey) -> LeaseState:
        """The lease as it was read."""
        return self.leases.before(run) or LeaseState()

    def _write_claim(self, claim: ClaimKey) -> None:
        before, now = self.claims.before(claim), self.claims.now(claim)
        stood = None if before is None else before.run
        if now is None:
            self._replace(self._keys.claim(claim), None, row=True)
            if stood is not None:
                self._tx.remove("ZREM", self._keys.claims(stood), claim[1])
                self._touched.add(stood)
            return
        self._capped("a claim with its outcomes", now.text)
        self._replace(self._keys.claim(claim), rows.claim_fields(now), row=True)
        if now.run is not None and now.run != stood:
            begun = self._begun.get(now.run) or int(self._row(now.run)["begun"] or 0)
            self._begun[now.run] = begun + 1
            self._touched.add(now.run)
            self._tx.add("ZADD", self._keys.claims(now.run), str(begun + 1), claim[1])

    def _write_accounts(self) -> None:
        keys = self._keys
        noted = [tenant for tenant, _ in (*self.opened.written, *self.waiting.written)]
        for tenant in dict.fromkeys([*self.accounts.written, *noted]):
            account = self.accounts.now(tenant)
            if account is not None:
                self._replace(keys.account(tenant), rows.account_fields(account), row=True)
                mark(self._tx, tenant, before=self.accounts.before(tenant), after=account)
        for run in self.opened.written:
            opened = self.opened.now(run)
            self._set_field(keys.opened(run[0]), run, None if opened is None else rows.reservation_text(opened))
        for run in self.waiting.written:
            wait = self.waiting.now(run)
            self._set_field(keys.wanted(run[0]), run, None if wait is None else rows.wait_text(wait))
            if wait is None:
                self._tx.remove("ZREM", keys.waiting(run[0]), member(run))
            else:
                self._tx.add("ZADD", keys.waiting(run[0]), str(wait.number), member(run))

    def _set_field(self, key: str, run: RunKey, value: str | None) -> None:
        if value is None:
            self._tx.remove("HDEL", key, member(run))
        else:
            self._tx.add("HSET", key, member(run), value)

    def _write_checkpoint(self, run: RunKey) -> None:
        frontier = self.checkpoints.now(run)
        size = 0 if frontier is None else len(frontier.payload)
        if size > self._options.max_value_bytes:
            raise CheckpointTooLargeError(
                size=size,
                max_bytes=self._options.checkpoint_max_bytes,
                store_max_bytes=self._options.max_value_bytes,
            )
        self._replace(self._keys.checkpoint(run), None if frontier is None else rows.checkpoint_fields(frontier))

    def _write_approvals(self, run: RunKey) -> None:
        before, now = self.approvals.before(run), self.approvals[run]
        self._capped("what the run's people were asked", now.text)
        self._replace(self._keys.approvals(run), rows.approvals_fields(now), row=True)
        expire(self._tx, run, before=None if before is None else before.due, after=now.due)

    def _write_segments(self, run: RunKey, segments: _Rows[tuple[int, str], StoredSegment]) -> None:
        for end in segments.written:
            value = self._capped("a transcript's segment", rows.segment_value(segments[end]))
            count, digest = end
            place = (rows.segment_field(end), value, rows.end_field(count), digest)
            self._tx.add("SEGMENT", self._keys.transcript(run), *place)

    def _replace(self, key: str, fields: Mapping[str, str] | None, *, row: bool = False) -> None:
        """Have a hash hold ``fields``, which are always the same ones, or be gone. A row is stamped."""
        if fields is None:
            self._tx.remove("DEL", key)
        else:
            self._tx.add("HSET", key, *_flat({**fields, **({rows.STAMP: self._tx.stamp} if row else {})}))

    def _capped(self, what: str, value: str) -> str:
        size = len(value) if value.isascii() else len(value.encode())
        if size > self._options.max_value_bytes:
            raise ValueTooLargeError(what=what, size=size, max_bytes=self._options.max_value_bytes)
        return value

    # --- reading ------------------------------------------------------------------------------------------------

    def _row(self, run: RunKey) -> rows.Fields:
        return self._tx.row(self._keys.run(self._here(run)), rows.RUN)

    def _checkpoint(self, run: RunKey) -> StoredCheckpoint | None:
        return rows.checkpoint_of(self._tx.row(self._keys.checkpoint(self._here(run)), rows.CHECKPOINT))

    def _claim(self, claim: ClaimKey) -> StoredClaim | None:
        if bucket_of_claim(claim) != self._tx.bucket:
            raise ValueError(_ANOTHERS)
        return rows.claim_of(self._tx.row(self._keys.claim(claim), rows.CLAIM))

    def _approvals(self, run: RunKey) -> StoredApprovals | None:
        return rows.approvals_of(self._tx.row(self._keys.approvals(self._here(run)), rows.APPROVALS))

    def _resume(self, run: RunKey) -> ResumeClaim | None:
        return rows.resume_of(self._tx.row(self._keys.resume(self._here(run)), rows.RESUME))

    def _account(self, tenant: str) -> Account | None:
        return rows.account_of(self._tx.row(self._keys.account(tenant), rows.ACCOUNT_ROW))

    def _opened(self, run: RunKey) -> Reservation | None:
        field = member(run)
        return rows.reservation_of(self._tx.row(self._keys.opened(run[0]), [field])[field])

    def _waiting(self, run: RunKey) -> StoredWait | None:
        field = member(run)
        return rows.wait_of(self._tx.row(self._keys.wanted(run[0]), [field])[field])

    def _segment(self, run: RunKey, end: tuple[int, str]) -> StoredSegment | None:
        field = rows.segment_field(end)
        value = self._tx.row(self._keys.transcript(self._here(run)), [field])[field]
        return None if value is None else rows.segment_of(value)

    def _here(self, run: RunKey) -> RunKey:
        if bucket_of_run(run) != self._tx.bucket:
            raise AssertionError(f"bucket {self._tx.bucket} is asked for a run that is in {bucket_of_run(run)}")
        return run


def _looking_at_account(data: RunData, run: RunKey, work: Callable[[MemoryData], S]) -> S:
    data.look_at_account(run)
    return work(data)


def _flat(fields: Mapping[str, str]) -> list[str]:
    return [part for item in fields.items() for part in item]
