"""The out-of-line transcript: append-only, in segments, behind handles (H1-H3).

A handle names the run, how many messages it covers, and a digest over exactly those. Digests are chained segment by
segment, so a writer extends a handle knowing its new messages alone, and a step's cost does not grow with the run (H1).
Segments are stored under (tenant, run, end, digest) and link to the segment before. Whatever a superseded worker has
appended hangs on a link that no handle of the run's frontier reaches: it is never seen (H3), and nothing that it
appends can displace what is seen.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import ValidationError

from adk_worker.errors import HistoryUnavailableError
from adk_worker.messages import Message, dump_messages, load_messages

_SCHEME = "h1"
_HANDLE = re.compile(_SCHEME + r"\.([A-Za-z0-9_-]+)\.(0|[1-9][0-9]{0,8})\.([0-9a-f]{32})")
_NO_HANDLE = "it is not a transcript's handle"


@dataclass(frozen=True, slots=True)
class Handle:
    """Which run, how many messages, and the digest over them. ``str`` is the stored form."""

    run_id: str
    count: int
    digest: str

    def __str__(self) -> str:
        run = base64.urlsafe_b64encode(self.run_id.encode()).decode().rstrip("=")
        return f"{_SCHEME}.{run}.{self.count}.{self.digest}"

    @classmethod
    def parse(cls, handle: str) -> Handle:
        """Read a handle.

        :raises HistoryUnavailableError: no history store of ours gave it.
        """
        found = _HANDLE.fullmatch(handle)
        if found is not None:
            run, count, digest = found.groups()
            try:
                run_id = base64.urlsafe_b64decode(run + "=" * (-len(run) % 4)).decode()
            except (ValueError, binascii.Error) as error:
                raise HistoryUnavailableError(handle=handle, reason=_NO_HANDLE) from error
            parsed = cls(run_id, int(count), digest)
            if str(parsed) == handle:  # one transcript has one handle
                return parsed
        raise HistoryUnavailableError(handle=handle, reason=_NO_HANDLE)

    @classmethod
    def empty(cls, run_id: str) -> Handle:
        """The transcript of a run that has said nothing yet."""
        return cls(run_id, 0, hashlib.sha256(run_id.encode()).hexdigest()[:32])


@dataclass(frozen=True, slots=True)
class Segment:
    """What one boundary adds to a transcript, ready to be stored: ``payload`` is the messages' stored form."""

    after: Handle
    handle: Handle
    payload: str

    @classmethod
    def extend(cls, after: Handle, messages: Sequence[Message]) -> Segment:
        """The segment that adds ``messages`` (at least one) behind ``after``."""
        if not messages:
            raise ValueError("a segment has at least one message")
        payload = dump_messages(messages)
        return cls(after, Handle(after.run_id, after.count + len(messages), _chain(after.digest, payload)), payload)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment as a store keeps it: from message ``start`` (with the digest before it) to its payload's end."""

    start: int
    start_digest: str
    payload: str


def assemble(handle: Handle, segments: Mapping[tuple[int, str], StoredSegment]) -> tuple[Message, ...]:
    """Follow the links back from ``handle``; ``segments`` is keyed by (end, digest) and may hold strangers' too.

    :raises HistoryUnavailableError: a link is missing, or a payload is not what its digest says (H2).
    """
    chain: list[tuple[Message, ...]] = []
    count, digest = handle.count, handle.digest
    while count > 0:
        segment = segments.get((count, digest))
        if segment is None:
            raise HistoryUnavailableError(
                handle=str(handle), reason=f"the segment that ends at message {count} is gone"
            )
        if _chain(segment.start_digest, segment.payload) != digest:
            raise HistoryUnavailableError(handle=str(handle), reason=f"its digest at message {count} differs")
        try:
            messages = load_messages(segment.payload)
        except ValidationError as error:
            raise HistoryUnavailableError(handle=str(handle), reason="a message cannot be read") from error
        if segment.start + len(messages) != count:
            raise HistoryUnavailableError(handle=str(handle), reason=f"messages are missing before {count}")
        chain.append(messages)
        count, digest = segment.start, segment.start_digest
    if Handle(handle.run_id, 0, digest) != Handle.empty(handle.run_id):
        raise HistoryUnavailableError(handle=str(handle), reason="it does not begin with this run")
    return tuple(message for messages in reversed(chain) for message in messages)


def _chain(before: str, payload: str) -> str:
    return hashlib.sha256(before.encode() + b"\n" + payload.encode()).hexdigest()[:32]


class HistoryStore(Protocol):
    """Keeps transcripts. Append-only: no method changes or removes a message that a handle covers."""

    async def append(
        self,
        run_id: str,
        *,
        tenant: str,
        start: int,
        messages: Sequence[Message],
        fence: int | None = None,
        after: str | None = None,
    ) -> str:
        """Append ``messages`` behind the first ``start`` ones and return the new handle.

        ``after`` is the handle to extend; without it, the newest segment that ends at ``start``. Appending the same
        messages at the same place again returns the same handle and stores nothing.

        :raises ValueError: there are no messages.
        :raises HistoryUnavailableError: there is nothing that ends at ``start``, or ``after`` does not.
        :raises StaleFenceError: ``fence`` was given and may not write (F1).
        """
        ...

    async def fetch(self, handle: str, *, tenant: str) -> tuple[Message, ...] | None:
        """All messages that the handle covers, in order; ``None`` if that tenant's run has no such transcript.

        :raises HistoryUnavailableError: it is there in part, or its digest differs (H2).
        """
        ...


@runtime_checkable
class ReadsSegments(Protocol):
    """A history store that shows all that it keeps of a run without a handle: a run that is over has none."""

    async def segments(self, run_id: str, *, tenant: str) -> Sequence[str]:
        """The payloads of its segments, each a JSON array of messages, those included that no handle covers.

        In no certain order; empty if there are none. Only reads.
        """
        ...
