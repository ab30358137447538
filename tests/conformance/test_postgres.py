"""All suites on PostgreSQL, and the same through a PgBouncer that pools transactions."""

from __future__ import annotations

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
from stores.sql import migrate
from tests.conformance.emptying import opened


@pytest.fixture(scope="module", params=["direct", "pooled"])
def shared(request, postgres_server):
    postgres_server.start()
    template = postgres_server.template("adk_migrated", migrate.upgrade)
    with postgres_server.database(template=template) as url:
        through = None
        if request.param == "pooled":
            through = request.getfixturevalue("pgbouncer").url(f"{url}?pooler=transaction")
        with opened(url, through=through) as emptied:
            yield emptied


@pytest.fixture
def bundle(shared):
    return shared.stores()


class TestPostgresLeases(LeaseStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.leases


class TestPostgresCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints


class TestPostgresCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestPostgresClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestPostgresResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestPostgresDecisions(DecisionsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestPostgresHistory(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history


class TestPostgresHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestPostgresRuns(RunStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle
