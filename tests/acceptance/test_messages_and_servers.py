"""Messages that are doubled, lost or very late; servers that restart; answers that never come."""

from __future__ import annotations

import pytest
import redis

from tests.acceptance import scenarios
from tests.acceptance.fleet import LONG, PATIENCE, POOLS
from tests.servers import PostgresServer, Proxy, RedisServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]


pools = pytest.mark.parametrize("pool", list(POOLS))


@pools
def test_a_worker_paused_past_its_lease_writes_no_state_and_its_late_outcome_heals(fleet, pool):
    """F1, F4: SIGSTOP past the TTL, SIGCONT afterwards; its outcome is evidence, and the run goes on by itself."""
    scenarios.paused_past_its_lease(fleet, pool=pool)


@pools
def test_a_commit_that_outlives_its_lease_is_refused(fleet, postgres_proxy: Proxy, pool):
    """F1, F4: held up in the network until the run is another's; nothing of it is written but the evidence."""
    scenarios.committing_past_its_lease(fleet, pool=pool, store=postgres_proxy)


@pools
def test_a_worker_paused_before_it_acts_dispatches_nothing_afterwards(fleet, pool):
    """F1: the intent of a stale fence is refused in the store, whatever the worker believes."""
    scenarios.paused_before_it_acts(fleet, pool=pool)


@pools
def test_the_next_message_comes_after_the_commit_however_slow_that_is(make_fleet, postgres_proxy: Proxy, pool):
    """Published only once the ticket stands in the store: a healthy run needs no reaper."""
    scenarios.slow_to_commit_its_hand_over(make_fleet(times=LONG), pool=pool, store=postgres_proxy)


@pools
def test_doubled_and_very_late_messages_change_nothing(fleet, pool):
    """A ticket is spent once: copies that come at once, and every ticket of a run that has ended, are refused."""
    scenarios.doubled_and_very_late(fleet, pool=pool)


@pools
def test_a_lost_message_is_published_again_under_its_ticket(fleet, pool):
    """The broker is emptied while runs are queued: nothing is lost but time."""
    scenarios.broker_emptied(fleet, pool=pool)


@pools
def test_a_broker_that_restarts_empty_loses_nothing_but_time(fleet, redis_server: RedisServer, pool):
    """Messages were in it; the store rebuilds them."""
    names = [f"broker-{number}" for number in range(3)]
    worker = fleet.worker("worker", pool=pool, slots=len(names))
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    for name in names:
        fleet.submit(name)
    held.wait(at_least=len(names), within=PATIENCE)
    redis_server.kill()
    redis_server.start()
    with redis.Redis.from_url(fleet.broker_url) as client:
        client.flushdb()
    held.release()
    fleet.done_once(*names)
    assert worker.log()


def test_a_worker_outlives_a_broker_that_goes_away_while_messages_are_in_hand(fleet, redis_server: RedisServer):
    """All slots are busy and more messages are reserved: the worker reconnects, and its runs go on."""
    held = fleet.travel.hold("hold", at="before_answer", times=None)
    worker = fleet.worker("worker", slots=4)
    names = [f"in-hand-{number}" for number in range(6)]
    for name in names:
        fleet.submit(name)
    held.wait(at_least=4, within=PATIENCE)
    redis_server.stop()
    wait_until(lambda: worker.says("onnection to broker lost"), within=PATIENCE, what="the worker to notice")
    redis_server.start()
    held.release()
    fleet.done_once(*names)
    assert worker.says("ready")


@pools
def test_a_database_that_restarts_in_mid_run_is_waited_for(fleet, postgres_server: PostgresServer, pool):
    """C3, F5: workers, reaper and client go on by themselves, and nothing is made twice."""
    fleet.worker("worker", pool=pool)
    held = fleet.travel.hold("book", run_id="restarted", at="before_answer")
    fleet.submit("restarted")
    held.wait(within=PATIENCE)
    postgres_server.kill()
    postgres_server.start()
    held.release()
    fleet.done_once("restarted")


@pools
def test_an_answer_lost_in_commit_doubles_nothing(fleet, postgres_proxy: Proxy, pool):
    """F5: every seventh COMMIT is answered into the void; it is read again and found done."""
    seen = 0

    def seventh(request: bytes) -> bool:
        nonlocal seen
        if b"COMMIT" not in request:
            return False
        seen += 1
        return seen % 7 == 0

    fault = postgres_proxy.lose_answer(to=seventh, times=6)
    fleet.worker("worker", pool=pool, ADK_STORE_URL=postgres_proxy.url(fleet.store_url))
    names = [f"unsure-{number}" for number in range(4)]
    for name in names:
        fleet.submit(name)
    fleet.done_once(*names)
    assert fault.count > 0
