"""Checkpoint and history stores that lie."""

from __future__ import annotations

import fnmatch
import time

from adk_worker.checkpoint import encode_checkpoint
from adk_worker.conformance import CheckpointStoreConformance, HistoryStoreConformance
from adk_worker.errors import HistoryUnavailableError
from adk_worker.history import Handle
from adk_worker.memory import MemoryCheckpointStore, MemoryData, MemoryHistoryStore, MemoryLeaseStore
from tests.conformance.liars.lie import Lie


class Unfenced(MemoryCheckpointStore):
    """Puts whatever the fence (F1)."""

    async def put(self, checkpoint, *, fence=None):
        await super().put(checkpoint)


class UnfencedForget(MemoryCheckpointStore):
    """Forgets whatever the fence (F1)."""

    async def forget(self, run_id, *, tenant, fence=None):
        await super().forget(run_id, tenant=tenant)


class FenceForgetting(MemoryCheckpointStore):
    """Forgets the fence with the frontier, as one who keeps it in the same row (F1)."""

    async def forget(self, run_id, *, tenant, fence=None):
        await super().forget(run_id, tenant=tenant, fence=fence)
        self._data.fences_seen.pop((tenant, run_id), None)


class Guarded(MemoryCheckpointStore):
    """Compares the fence first, and writes a moment later (F1)."""

    async def put(self, checkpoint, *, fence=None):
        key = (checkpoint.tenant, checkpoint.run_id)
        if fence is None or fence < self._data.fences_seen.get(key, 0):
            await super().put(checkpoint, fence=fence)
            return
        time.sleep(0.002)  # noqa: ASYNC251, TID251 - the moment in which another one compares too
        await super().put(checkpoint)
        self._data.fences_seen[key] = max(fence, self._data.fences_seen.get(key, 0))


class Capped(MemoryCheckpointStore):
    """Has a cap of its own, below the policy's, and says nothing (C2)."""

    async def put(self, checkpoint, *, fence=None):
        if len(encode_checkpoint(checkpoint)) <= 512 * 1024:
            await super().put(checkpoint, fence=fence)


class Live(MemoryCheckpointStore):
    """Keeps the object that it was given (T2)."""

    def __init__(self):
        super().__init__()
        self._kept = {}

    async def put(self, checkpoint, *, fence=None):
        self._kept[checkpoint.tenant, checkpoint.run_id] = checkpoint

    async def latest(self, run_id, *, tenant):
        return self._kept.get((tenant, run_id))


class Rising(MemoryCheckpointStore):
    """Keeps the highest sequence, though without a fence the last write wins (F2)."""

    async def put(self, checkpoint, *, fence=None):
        stored = await self.latest(checkpoint.run_id, tenant=checkpoint.tenant)
        if stored is None or stored.sequence <= checkpoint.sequence:
            await super().put(checkpoint, fence=fence)


class Globbing(MemoryCheckpointStore):
    """Forgets by a pattern, so that one tenant's `*` erases everyone's (T1)."""

    async def forget(self, run_id, *, tenant, fence=None):
        for kept in list(self._data.checkpoints):
            if fnmatch.fnmatchcase("/".join(kept), f"{tenant}/{run_id}"):
                self._data.checkpoints.pop(kept)


class Colon(MemoryCheckpointStore):
    """Joins tenant and run with a colon (T1)."""

    async def put(self, checkpoint, *, fence=None):
        await super().put(checkpoint, fence=fence)
        self._data.checkpoints["joined", f"{checkpoint.tenant}:{checkpoint.run_id}"] = self._data.checkpoints.pop(
            (checkpoint.tenant, checkpoint.run_id)
        )

    async def latest(self, run_id, *, tenant):
        return await super().latest(f"{tenant}:{run_id}", tenant="joined")


class Equal(MemoryData):
    """Compares fences alone, and not whether the lease is still held (F1)."""

    def accept_fence(self, key, fence):
        if fence != self.lease(key).fence:
            super().accept_fence(key, fence)


def equal_checkpoints():
    """Checkpoints in such a store, beside its leases."""
    data = Equal()
    return MemoryCheckpointStore(data), MemoryLeaseStore(data)


def equal_history():
    """Transcripts in such a store, beside its leases."""
    data = Equal()
    return MemoryHistoryStore(data), MemoryLeaseStore(data)


class Linear(MemoryHistoryStore):
    """Keeps one list per run, so that whoever appended last is seen (H3)."""

    def __init__(self):
        super().__init__()
        self._kept = {}

    async def append(self, run_id, *, tenant, start, messages, fence=None, after=None):
        self._kept[tenant, run_id] = [*self._kept.get((tenant, run_id), [])[:start], *messages]
        return await super().append(run_id, tenant=tenant, start=start, messages=messages, fence=fence, after=after)

    async def fetch(self, handle, *, tenant):
        fetched = await super().fetch(handle, tenant=tenant)
        return None if fetched is None else tuple(self._kept[tenant, "run"][: len(fetched)])


class Growing(MemoryHistoryStore):
    """Gives all that there is, whatever length the handle has (H3)."""

    async def fetch(self, handle, *, tenant):
        wanted = Handle.parse(handle)
        ends = [Handle(wanted.run_id, *end) for end in self._data.segments.get((tenant, wanted.run_id), {})]
        longest = max(ends, key=lambda end: end.count, default=wanted)
        return await super().fetch(str(longest), tenant=tenant)


class Digestless(MemoryHistoryStore):
    """Finds a transcript by its length, and does not compare its digest (H2)."""

    async def fetch(self, handle, *, tenant):
        wanted = Handle.parse(handle)
        for end in self._data.segments.get((tenant, wanted.run_id), {}):
            if end[0] == wanted.count:
                return await super().fetch(str(Handle(wanted.run_id, *end)), tenant=tenant)
        return await super().fetch(handle, tenant=tenant)


class Holed(MemoryHistoryStore):
    """Appends behind a gap (H2)."""

    async def append(self, run_id, *, tenant, start, messages, fence=None, after=None):
        try:
            return await super().append(run_id, tenant=tenant, start=start, messages=messages, fence=fence, after=after)
        except HistoryUnavailableError:
            return await super().append(run_id, tenant=tenant, start=0, messages=messages, fence=fence)


class UnfencedAppend(MemoryHistoryStore):
    """Appends whatever the fence (F1)."""

    async def append(self, run_id, *, tenant, start, messages, fence=None, after=None):
        return await super().append(run_id, tenant=tenant, start=start, messages=messages, after=after)


LIES = (
    Lie(CheckpointStoreConformance, Unfenced, "test_a_stale_fence_writes_nothing"),
    Lie(CheckpointStoreConformance, UnfencedForget, "test_a_stale_fence_writes_nothing"),
    Lie(CheckpointStoreConformance, FenceForgetting, "test_forgetting_a_frontier_does_not_forget_its_fence"),
    Lie(CheckpointStoreConformance, Guarded, "test_stale_fences_that_race_never_displace_the_newest"),
    Lie(CheckpointStoreConformance, Capped, "test_a_store_has_no_cap_below_the_policys"),
    Lie(CheckpointStoreConformance, Live, "test_what_is_stored_is_no_live_object"),
    Lie(CheckpointStoreConformance, Rising, "test_there_is_one_frontier_and_the_last_write_wins"),
    Lie(CheckpointStoreConformance, Globbing, "test_no_name_reaches_anothers_frontier"),
    Lie(CheckpointStoreConformance, equal_checkpoints, "test_a_fence_that_was_given_up_writes_nothing", True),
    Lie(CheckpointStoreConformance, Colon, "test_no_name_reaches_anothers_frontier"),
    Lie(HistoryStoreConformance, Linear, "test_what_a_superseded_worker_appends_is_never_seen"),
    Lie(HistoryStoreConformance, Growing, "test_a_handle_pins_the_length"),
    Lie(HistoryStoreConformance, Digestless, "test_a_handle_with_another_digest_does_not_resolve"),
    Lie(HistoryStoreConformance, Holed, "test_nothing_is_appended_behind_a_gap"),
    Lie(HistoryStoreConformance, equal_history, "test_a_fence_that_was_given_up_appends_nothing", True),
    Lie(HistoryStoreConformance, UnfencedAppend, "test_a_stale_fence_appends_nothing"),
)
