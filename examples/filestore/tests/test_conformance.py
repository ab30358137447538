"""The suites that every store of adk-worker passes, over the one in a file, opened as a fleet opens it."""

from __future__ import annotations

from pathlib import Path

import pytest

from adk_worker import Stores
from adk_worker.conformance import (
    CheckpointStoreConformance,
    DecisionsConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    ResumeClaimsConformance,
    RunStoreConformance,
)
from stores import open_stores


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return open_stores(f"file://{tmp_path / 'runs.json'}")


class TestFileLeases(LeaseStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.leases


class TestFileCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.checkpoints


class TestFileCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.checkpoints

    @pytest.fixture
    def leases(self, stores):
        return stores.leases


class TestFileClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.idempotency


class TestFileResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.idempotency


class TestFileDecisions(DecisionsConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.idempotency


class TestFileHistory(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.history


class TestFileHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores.history

    @pytest.fixture
    def leases(self, stores):
        return stores.leases


class TestFileRuns(RunStoreConformance):
    @pytest.fixture
    def make_store(self, stores):
        return lambda: stores
