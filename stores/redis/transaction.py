"""Optimistic transactions: rows are read, the rules decide in Python, and one script writes if no row has moved since.

Why that is the same as holding a lock, so that every rule of :mod:`adk_worker.transitions` is kept:

1. *What was read is what is written over.* Each row (a run with its lease, a claim, a resume's claim) has a stamp,
   which is random, and new with every write of it. A transaction reads rows with their stamps, and the script compares
   all of them, and the store's format and epoch, before it writes anything. Redis runs scripts one at a time; all keys
   of a transaction are in one slot. So nothing of what the decision rests on has changed by the moment of the write,
   and it is as if both had happened at that moment (L7, F1, I3). A stamp never comes twice, so a row that was removed
   and made anew, or rolled back by a failover, is not taken for the one that was read.
2. *What has no stamp belongs to a row that has one.* A frontier, a transcript, events, and the list of a run's claims
   are written together with a new stamp of their run, unless somebody writes without a fence (F2), whose last write
   wins.
3. *Time only makes things later.* ``now`` is the server's clock (L1), read together with the rows. Between that and the
   write some time passes, and every decision that depends on time stays right in it: a lease that had lapsed still has,
   for a renewal would have moved its row, and so with a resume's claim. What had *not* lapsed refuses somebody, and a
   refusal writes nothing: it is the answer of the moment at which the rows were read. Leases expire, and waits end,
   counted from the read: a little early, never late.
4. *A write lands once.* The new stamp names the very request: one that comes again finds it in place. Whoever lost an
   answer (F5) repeats the operation as a whole, and finds it done in the rows. A request that is still on its way
   cannot land after that: it compares stamps that the repetition has replaced.

Someone always gets on: a transaction starts over only because another one has succeeded.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol

from stores.redis.keys import Keys
from stores.redis.rows import STAMP, Fields

_SECONDS: Final = 1_000_000


class Applied(Enum):
    """What became of a transaction."""

    DONE = "done"
    MOVED = "moved"
    """A row that it had read has been written since. Nothing was written."""


class Connected(Protocol):
    """What a transaction needs of the server's part in this process."""

    def call(self, script: str, keys: Sequence[str], arguments: Sequence[str | int | float] = ()) -> Any:
        """Run a script."""
        ...

    def names(self, key: str) -> Sequence[str]:
        """The names in a sorted set, in order."""
        ...

    def check(self, found: str | None) -> int:
        """The epoch that a bucket's ``store`` key says."""
        ...


def server_time(seconds: str, microseconds: str) -> float:
    """``TIME`` in seconds, with fractions (L1)."""
    return int(seconds) + int(microseconds) / _SECONDS


class Transaction:
    """One attempt. Rows are read when they are first asked for, or together (:meth:`look`), and once."""

    def __init__(self, process: Connected, bucket: int) -> None:
        self.bucket = bucket
        self.keys = Keys(bucket)
        self.stamp = secrets.token_hex(8)
        """What it writes into every row."""
        self._process = process
        self._read: dict[str, dict[str, str | None]] = {}
        self._store: str | None = None
        self._now = 0.0
        self._epoch = 0
        self._adding: list[tuple[str, str, tuple[str, ...]]] = []
        self._removing: list[tuple[str, str, tuple[str, ...]]] = []

    @property
    def now(self) -> float:
        """The server's clock as rows were read last (L1)."""
        if self._store is None:
            self.look({})
        return self._now

    @property
    def epoch(self) -> int:
        """The store's epoch (L2)."""
        if self._store is None:
            self.look({})
        return self._epoch

    def look(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Read rows at one moment: which fields of which keys. What was read before is not read again."""
        missing = {
            key: [name for name in names if name not in self._read.get(key, ())] for key, names in wanted.items()
        }
        wanted = {key: names for key, names in missing.items() if names}
        arguments: list[str | int] = []
        for fields in wanted.values():
            arguments += [len(fields), *fields]
        seconds, microseconds, store, *rows = self._process.call("look", [self.keys.store, *wanted], arguments)
        epoch = self._process.check(store)
        if self._store is None:
            self._store, self._epoch = store, epoch
        self._now = server_time(seconds, microseconds)
        for (key, fields), values in zip(wanted.items(), rows, strict=True):
            self._read.setdefault(key, {}).update(zip(fields, values, strict=True))

    def row(self, key: str, fields: Sequence[str]) -> Fields:
        """The row under ``key``, read now unless it was read before."""
        if any(name not in self._read.get(key, ()) for name in fields):
            self.look({key: fields})
        return self._read[key]

    def names(self, key: str) -> Sequence[str]:
        """The names in a sorted set, in order. Only what is written with a row's stamp may be read so, and after it."""
        return self._process.names(key)

    def add(self, command: str, key: str, *arguments: str) -> None:
        """Have the write carry out a command that adds something."""
        self._adding.append((command, key, arguments))

    def remove(self, command: str, key: str, *arguments: str) -> None:
        """Have the write carry out a command that removes something."""
        self._removing.append((command, key, arguments))

    def commit(self) -> Applied:
        """Write, if no row that was read has moved. Without anything to write there is nothing to compare."""
        commands = [*self._adding, *self._removing]
        if not commands:
            return Applied.DONE
        if self._store is None:
            self.look({})
        written = {key for command, key, arguments in commands if command == "HSET" and STAMP in arguments}
        stamped = [key for key, fields in self._read.items() if STAMP in fields]
        # The one by which a request that comes again is recognised stands first.
        stamped.sort(key=lambda key: key not in written)
        numbers: dict[str, int] = {key: number for number, key in enumerate([self.keys.store, *stamped], 1)}
        arguments: list[str | int] = [self._store or "", self.stamp, len(stamped)]
        arguments += [self._read[key][STAMP] or "" for key in stamped]
        for command, key, words in commands:
            number = numbers.setdefault(key, len(numbers) + 1)
            arguments += [len(words), command, number, *words]
        match self._process.call("apply", list(numbers), arguments):
            case 1:
                return Applied.DONE
            case _:
                # Of the store too: whoever starts over reads what it says now.
                return Applied.MOVED
