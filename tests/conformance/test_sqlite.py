from __future__ import annotations

import shutil

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
from tests.conformance.emptying import opened


@pytest.fixture(scope="module")
def shared(migrated_sqlite_file, tmp_path_factory):
    file = shutil.copy(migrated_sqlite_file, tmp_path_factory.mktemp("conformance") / "store.db")
    with opened(f"sqlite:///{file}") as emptied:
        yield emptied


@pytest.fixture
def bundle(shared):
    return shared.stores()


class TestSqliteLeases(LeaseStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.leases


class TestSqliteCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints


class TestSqliteCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestSqliteClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestSqliteResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestSqliteDecisions(DecisionsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestSqliteHistory(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history


class TestSqliteHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestSqliteRuns(RunStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle
