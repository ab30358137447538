"""Runs that share a worker: what one of them does keeps no other from its lease, nor from the store."""

from __future__ import annotations

import psycopg2
import pytest

from tests.acceptance.fleet import PATIENCE, SHORT
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

TTL = 8.0
"""Seconds: longer than a busy machine keeps a worker from its renewals."""


@pytest.fixture
def fleet(make_fleet):
    return make_fleet(times={**SHORT, "ADK_LEASE_TTL": str(TTL)})


@pytest.fixture
def house(fleet):
    return House(fleet)


class House:
    """A worker, and what its tenants say and hold."""

    def __init__(self, fleet):
        self._fleet = fleet
        agents = {"ADK_AGENTS": "tests.acceptance.neighbours", "ADK_TEST_FOLDER": str(fleet.folder)}
        self._worker = fleet.worker("worker", **agents, ADK_TOOL_THREADS="2")

    def blocking(self):
        file = self._fleet.folder / "blocking"
        return file.read_text().split() if file.exists() else []

    def await_blocking(self, *run_ids):
        wait_until(lambda: set(run_ids) <= set(self.blocking()), within=PATIENCE, what=f"{run_ids} to be under way")

    def expiry(self, run_id):
        """When its lease would lapse."""
        with psycopg2.connect(self._fleet.store_url) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT expires_at FROM adk_run_leases WHERE run_id = %s", (run_id,))
            (found,) = cursor.fetchone()
        connection.close()
        return found

    def await_renewals(self, *run_ids):
        """Wait until each lease lives for more than a TTL longer than now: by one renewal alone none would."""
        before = {run_id: self.expiry(run_id) for run_id in run_ids}
        wait_until(
            lambda: all(self.expiry(run_id) > before[run_id] + TTL for run_id in run_ids),
            within=PATIENCE,
            what=f"the leases of {run_ids} to be renewed\n{self._fleet.logs()}",
        )

    def await_loss(self, run_id):
        wait_until(
            lambda: [line for line in self._worker.log().splitlines() if "lease_lost" in line and run_id in line],
            within=PATIENCE,
            what=f"the lease of {run_id} to be given up",
        )

    def release(self):
        (self._fleet.folder / "released").touch()

    def all_end_undisturbed(self, *run_ids):
        for run_id in run_ids:
            assert self._fleet.rests(run_id).output == "I am done."
            assert not self._fleet.events(run_id, "recovered")
        assert "lease_lost" not in self._worker.log()


def test_a_tool_that_blocks_the_loop_keeps_no_lease_from_being_renewed(fleet, house):
    """L8: its own and those of its neighbours, for longer than a lease lives, with nothing else moving."""
    fleet.submit("thinks", agent="thinks")
    house.await_blocking("thinks")
    fleet.submit("blocks", agent="blocks_the_loop")
    house.await_blocking("blocks")

    house.await_renewals("thinks", "blocks")

    house.release()
    house.all_end_undisturbed("thinks", "blocks")


def test_tools_that_occupy_all_threads_keep_no_run_from_the_store(fleet, house):
    """L8: a run with effectful calls goes from its first message to its end meanwhile; all leases are renewed."""
    hogs = ["one", "two"]
    for hog in hogs:
        fleet.submit(hog, agent="blocks_a_thread")
    house.await_blocking(*hogs)
    fleet.submit("queues", agent="blocks_a_thread")
    wait_until(
        lambda: fleet.run("queues").sequence == 1, within=PATIENCE, what="a third one to ask for a thread in vain"
    )

    fleet.submit("acts", agent="acts")
    house.all_end_undisturbed("acts")
    house.await_renewals(*hogs, "queues")

    assert set(house.blocking()) == set(hogs)
    house.release()
    house.all_end_undisturbed(*hogs, "queues")


def test_a_run_that_somebody_has_locked_keeps_no_other_from_being_renewed(fleet, house):
    """L8: a transaction that is stuck with one run, here one of a person's; its own lease lapses, as it must."""
    for run_id in ("locked", "thinks"):
        fleet.submit(run_id, agent="thinks")
    house.await_blocking("locked", "thinks")
    with psycopg2.connect(fleet.store_url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases WHERE run_id = 'locked' FOR UPDATE")
        house.await_loss("locked")
        house.await_renewals("thinks")
        fleet.submit("acts", agent="acts")
        assert fleet.rests("acts").output == "I am done."
    connection.close()

    house.release()
    for run_id in ("locked", "thinks"):
        assert fleet.rests(run_id).output == "I am done."
    assert fleet.events("locked", "recovered")
    assert not fleet.events("thinks", "recovered")
