"""The suites see a script that compares less than it should: on a real server, by racing."""

from __future__ import annotations

import shutil
from importlib.resources import files
from pathlib import Path

import pytest

from adk_worker.conformance import IdempotencyStoreConformance, LeaseStoreConformance, RunStoreConformance
from stores.redis import open_redis, server
from tests.redis_stores import made

SEEN = (AssertionError, pytest.fail.Exception)
COMPARES_ROWS = "if (redis.call('HGET', KEYS[number + 1], 'stamp') or '') ~= ARGV[number + 3] then"


@pytest.fixture
async def mutant(redis_url, tmp_path, monkeypatch):
    """Opens a bundle whose writing script has a condition that never holds."""
    url = made(redis_url)
    opened = []

    def mutate(condition):
        for script in Path(str(files("stores.redis"))).glob("*.lua"):
            shutil.copy(script, tmp_path)
        text = (tmp_path / "apply.lua").read_text()
        assert text.count(condition) == 1
        (tmp_path / "apply.lua").write_text(text.replace(condition, "if false then"))
        monkeypatch.setattr(server, "files", lambda _: tmp_path)
        opened.append(open_redis(url))
        return opened[-1]

    yield mutate
    for stores in opened:
        await stores.lifecycle.close()


@pytest.mark.parametrize(
    ("suite", "part", "seen_by"),
    [
        (LeaseStoreConformance, "leases", "test_of_many_acquirers_in_threads_exactly_one_wins"),
        (IdempotencyStoreConformance, "idempotency", "test_of_many_that_begin_in_threads_exactly_one_owns"),
        (RunStoreConformance, None, "test_of_many_copies_of_a_message_in_threads_one_takes"),
        (RunStoreConformance, None, "test_of_a_commit_that_is_repeated_at_once_one_is_written"),
    ],
)
async def test_a_write_that_does_not_compare_its_rows_is_seen(mutant, suite, part, seen_by):
    """L7, I3, F5: two that have read the same both win."""
    stores = mutant(COMPARES_ROWS)

    with pytest.raises((*SEEN, ValueError)):
        await getattr(suite(), seen_by)(stores if part is None else getattr(stores, part))
