"""The fleet's state in Redis, the broker in another: kills and pauses end as they do with a database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance import scenarios
from tests.acceptance.fleet import FleetUnderTest
from tests.redis_stores import made
from tests.servers import OrphanGuard, RedisServer
from tests.travel import TravelService

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def fleet(
    tmp_path: Path, redis_server: RedisServer, redis_url: str, travel: TravelService, orphan_guard: OrphanGuard
) -> Iterator[FleetUnderTest]:
    """A fleet on Redis alone, with short times, reaped."""
    fleet = FleetUnderTest(
        tmp_path,
        store_url=made(redis_server.fresh_database()),
        broker_url=redis_url,
        travel=travel,
        guard=orphan_guard,
    )
    try:
        fleet.backstage()
        yield fleet
    finally:
        fleet.close()


def test_a_worker_killed_in_a_model_call(fleet):
    """The frontier before it is carried on; no call of a tool is repeated."""
    scenarios.killed_in_a_model_call(fleet, pool="threads")


def test_a_worker_killed_between_effect_and_record(fleet):
    """I2, I7: the probe finds the booking; its outcome is recorded and the call not made again."""
    scenarios.killed_between_effect_and_record(fleet, pool="threads")


def test_a_worker_paused_past_its_lease_writes_no_state_and_its_late_outcome_heals(fleet):
    """F1, F4: SIGSTOP past the TTL, SIGCONT afterwards; its outcome is evidence, and the run goes on by itself."""
    scenarios.paused_past_its_lease(fleet, pool="threads")
