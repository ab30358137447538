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
from stores.sql import open_sql


@pytest.fixture
async def bundle(sqlite_store_url):
    stores = open_sql(sqlite_store_url)
    yield stores
    await stores.lifecycle.close()


class TestSqliteLeases(LeaseStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.leases


class TestSqliteCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.checkpoints


class TestSqliteCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.checkpoints

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestSqliteClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.idempotency


class TestSqliteResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.idempotency


class TestSqliteHistory(HistoryStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.history


class TestSqliteHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.history

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestSqliteRuns(RunStoreConformance):
    @pytest.fixture
    def stores(self, bundle):
        return bundle
