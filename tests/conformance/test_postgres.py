from __future__ import annotations

import pytest
from sqlalchemy import make_url

from adk_worker.conformance import (
    CheckpointStoreConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    ResumeClaimsConformance,
    RunStoreConformance,
)
from stores.sql import migrate, open_sql
from stores.sql.schema import metadata

# One database for all tests here, emptied before each: making one takes longer than most tests do.
_EMPTY = "".join(f"DELETE FROM {table.name};" for table in metadata.sorted_tables if table.name != "adk_schema")
_FORGET = "UPDATE adk_schema SET epoch = 0, last_sweep = NULL"


@pytest.fixture(scope="module")
def database(postgres_server):
    postgres_server.start()
    with postgres_server.database(template=postgres_server.template("adk_migrated", migrate.upgrade)) as url:
        yield url


@pytest.fixture
async def bundle(postgres_server, database):
    postgres_server.execute(_EMPTY + _FORGET, database=make_url(database).database)
    stores = open_sql(database)
    yield stores
    await stores.lifecycle.close()


class TestPostgresLeases(LeaseStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.leases


class TestPostgresCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.checkpoints


class TestPostgresCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.checkpoints

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestPostgresClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.idempotency


class TestPostgresResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.idempotency


class TestPostgresHistory(HistoryStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.history


class TestPostgresHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def store(self, bundle):
        return bundle.history

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestPostgresRuns(RunStoreConformance):
    @pytest.fixture
    def stores(self, bundle):
        return bundle
