"""Every real store does as the store in memory does, whatever is asked of it and in whatever order."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

import tests.redis_stores
from adk_worker.memory import MemoryData, memory_stores
from stores.sql import migrate
from tests.conformance.emptying import opened
from tests.conformance.in_step import InStep
from tests.conformance.liars import runs as liars

_SETTINGS = settings(
    max_examples=20,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def sqlite(migrated_sqlite_file, tmp_path_factory):
    file = shutil.copy(migrated_sqlite_file, tmp_path_factory.mktemp("in-step") / "store.db")
    with opened(f"sqlite:///{file}") as emptied:
        yield emptied


@pytest.fixture(scope="module")
def postgres(postgres_server):
    postgres_server.start()
    template = postgres_server.template("adk_migrated", migrate.upgrade)
    with postgres_server.database(template=template) as url, opened(url) as emptied:
        yield emptied


@pytest.fixture(scope="module")
def redis(redis_server):
    redis_server.start()
    with tests.redis_stores.opened(redis_server.fresh_database()) as emptied:
        yield emptied


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "redis"])
def test_a_real_store_answers_as_the_store_in_memory(request, store):
    """F1-F5, C3, C5, I1-I4, I7, I9, L2-L7, P2, T1: the reference is what the suites hold it to be."""
    emptied = request.getfixturevalue(store)

    run_state_machine_as_test(lambda: InStep(emptied.stores()), settings=_SETTINGS)


def test_two_stores_in_memory_keep_step():
    """Where there is nothing to find, nothing is found."""
    run_state_machine_as_test(lambda: InStep(memory_stores()), settings=_SETTINGS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("liar", [liars.Counting, liars.GivenUp, liars.Markless, liars.Tireless])
def test_a_store_that_lies_falls_out_of_step(liar):
    """F1, C3, L9: the machine gets to where it matters, and looks."""

    def lying():
        data = MemoryData()
        return InStep(replace(memory_stores(data), runs=liar(data)))

    looking = settings(_SETTINGS, max_examples=300, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(lying, settings=looking)
