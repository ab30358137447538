from __future__ import annotations

import pytest

from adk_worker.conformance import IdempotencyStoreConformance, LeaseStoreConformance, ResumeClaimsConformance
from adk_worker.memory import MemoryIdempotencyStore, MemoryLeaseStore


class TestMemoryLeases(LeaseStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryLeaseStore()


class TestMemoryClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryIdempotencyStore()


class TestMemoryResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def store(self):
        return MemoryIdempotencyStore()
