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
from tests.redis_stores import faked, opened


@pytest.fixture(scope="module")
def real(redis_server):
    """One server."""
    redis_server.start()
    with opened(redis_server.fresh_database()) as emptied:
        yield emptied


@pytest.fixture(scope="module")
def cluster(redis_cluster):
    """Three nodes, which refuse a command whose keys are in two slots."""
    with opened(redis_cluster.url) as emptied:
        yield emptied


@pytest.fixture(scope="module")
def fake():
    """What runs these scripts in a test of somebody else's."""
    with faked() as emptied:
        yield emptied


@pytest.fixture(scope="module", params=["real", "cluster", "fake"])
def shared(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def bundle(shared):
    return shared.stores()


class TestRedisLeases(LeaseStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.leases


class TestRedisCheckpoints(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints


class TestRedisCheckpointsBesideLeases(CheckpointStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.checkpoints

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestRedisClaims(IdempotencyStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestRedisResumeClaims(ResumeClaimsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestRedisDecisions(DecisionsConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.idempotency


class TestRedisHistory(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history


class TestRedisHistoryBesideLeases(HistoryStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle.history

    @pytest.fixture
    def leases(self, bundle):
        return bundle.leases


class TestRedisRuns(RunStoreConformance):
    @pytest.fixture
    def make_store(self, bundle):
        return lambda: bundle
