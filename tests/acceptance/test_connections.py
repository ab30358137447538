"""What a fleet asks of PostgreSQL in connections: how many for a worker process, and whether a pooler may lend them."""

from __future__ import annotations

from contextlib import closing
from urllib.parse import urlsplit

import psycopg2
import pytest

from tests.acceptance import scenarios
from tests.acceptance.fleet import LONG, PATIENCE
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

POOL, KEEPER, PARENT = 3, 2, 1


# Eight runs in one process, or one in each of two.
@pytest.mark.parametrize(
    ("pool", "slots", "processes", "busy"), [("threads", 8, 1, POOL + 1), ("prefork", 2, 2, 2 * (1 + 1))]
)
def test_a_worker_opens_no_more_connections_than_its_pools(make_fleet, postgres_server, pool, slots, processes, busy):
    """Steps and renewals are made to wait all at once, and more of them than may have a connection.

    ``busy`` connections it needs then at the very least: the threads worker all of its pool, and one to renew.
    """
    # A connection that is given up stays the server's for a while, and would be counted.
    patient = {**LONG, "ADK_SOCKET_TIMEOUT": str(4 * PATIENCE)}
    fleet = make_fleet(times={**patient, "ADK_LEASE_RENEW_WITHIN": "0.5", "ADK_STORE_POOL": str(POOL)}, reaped=False)
    names = [f"run-{number}" for number in range(slots)]
    for name in names:
        fleet.models.hold(name, tenant="acme", iteration=1)
    # By this name, to tell its connections from those of this test's own client.
    fleet.worker("worker", pool=pool, slots=slots, ADK_STORE_URL=f"{fleet.store_url}?application_name=counted")
    for name in names:
        fleet.submit(name)
        fleet.asked(name, iteration=1)
    counts = []

    def count():
        rows = postgres_server.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'counted'")
        counts.append(rows[0][0])
        return counts[-1]

    def all_rest():
        count()
        return all(fleet.run(name).status.resting for name in names)

    with closing(psycopg2.connect(fleet.store_url)) as blocking, blocking.cursor() as cursor:
        cursor.execute("LOCK TABLE adk_run_leases")
        for name in names:
            fleet.models.release(name, tenant="acme", iteration=1)
        wait_until(lambda: count() >= busy, within=PATIENCE, what=f"{busy} connections")
    wait_until(all_rest, within=PATIENCE, what=f"all runs to rest\n{fleet.logs()}")

    assert max(counts) <= processes * (POOL + KEEPER) + (PARENT if pool == "prefork" else 0)
    fleet.done_once(*names)


def test_a_fleet_behind_a_pooler_carries_on_after_a_kill(make_fleet, pgbouncer, postgres_server):
    """I2, I7, through PgBouncer in transaction mode, which has fewer connections than the fleet has clients."""
    fleet = make_fleet(way=lambda url: f"{pgbouncer.url(url)}?pooler=transaction")

    scenarios.killed_between_effect_and_record(fleet, pool="threads")

    # What the pooler is allowed in tests/servers/pgbouncer.py.
    assert 0 < postgres_server.connections(f"//{urlsplit(fleet.store_url).path}") <= 4
