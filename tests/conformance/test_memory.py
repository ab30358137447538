from __future__ import annotations

import time

import pytest

from adk_worker.conformance import (
    CheckpointStoreConformance,
    DecisionsConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    ResumeClaimsConformance,
    RunStoreConformance,
)
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryData,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    memory_stores,
)


class Clock:
    """The time, until somebody sets it."""

    def __init__(self):
        self._now = None
        self._time = time.time

    def set(self, now):
        self._now = now

    def __call__(self):
        return self._time() if self._now is None else self._now


class TestMemoryLeases(LeaseStoreConformance):
    @pytest.fixture
    def clock(self):
        return Clock()

    @pytest.fixture
    def set_clock(self, clock):
        return clock.set

    @pytest.fixture
    def make_store(self, clock):
        return lambda: MemoryLeaseStore(MemoryData(clock))


class TestMemoryCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryCheckpointStore


class TestMemoryCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def data(self):
        return MemoryData()

    @pytest.fixture
    def make_store(self, data):
        return lambda: MemoryCheckpointStore(data)

    @pytest.fixture
    def leases(self, data):
        return MemoryLeaseStore(data)


class TestMemoryClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryIdempotencyStore


class TestMemoryResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryIdempotencyStore


class TestMemoryDecisions(DecisionsConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryIdempotencyStore


class TestMemoryHistory(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self):
        return MemoryHistoryStore


class TestMemoryHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def data(self):
        return MemoryData()

    @pytest.fixture
    def make_store(self, data):
        return lambda: MemoryHistoryStore(data)

    @pytest.fixture
    def leases(self, data):
        return MemoryLeaseStore(data)


class TestMemoryRuns(RunStoreConformance):
    @pytest.fixture
    def make_store(self):
        return memory_stores
