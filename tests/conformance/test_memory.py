from __future__ import annotations

import pytest

from adk_worker.conformance import (
    CheckpointStoreConformance,
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


class TestMemoryLeases(LeaseStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryLeaseStore()


class TestMemoryCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryCheckpointStore()


class TestMemoryCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def data(self):
        return MemoryData()

    @pytest.fixture
    def store(self, data):
        return MemoryCheckpointStore(data)

    @pytest.fixture
    def leases(self, data):
        return MemoryLeaseStore(data)


class TestMemoryClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryIdempotencyStore()


class TestMemoryResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def store(self):
        return MemoryIdempotencyStore()


class TestMemoryHistory(HistoryStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryHistoryStore()


class TestMemoryHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def data(self):
        return MemoryData()

    @pytest.fixture
    def store(self, data):
        return MemoryHistoryStore(data)

    @pytest.fixture
    def leases(self, data):
        return MemoryLeaseStore(data)


class TestMemoryRuns(RunStoreConformance):
    @pytest.fixture
    def stores(self):
        return memory_stores()
