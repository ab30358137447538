from __future__ import annotations

import pytest

from adk_worker.conformance import LeaseStoreConformance
from adk_worker.memory import MemoryLeaseStore


class TestMemoryLeases(LeaseStoreConformance):
    @pytest.fixture
    def store(self):
        return MemoryLeaseStore()
