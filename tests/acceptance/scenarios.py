"""What may happen to a fleet, as functions of one: each injures it from outside and ends with the verdict.

The booking service is held at a place, the store or the broker stand behind a proxy, and processes get signals. Nothing
in the runtime knows of it. The same functions run on builds with a rule taken out, where they have to fail.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass

from adk_worker.ledger.amounts import BudgetChange, Kind
from adk_worker.runs import Dispatch, RunStatus
from adk_worker.transitions.runs import Attention
from tests.acceptance import broker
from tests.acceptance.fleet import FleetUnderTest
from tests.acceptance.write_lock import WriteLock
from tests.servers import Proxy
from tests.waiting import wait_until

BOOKS = 3
"""The iteration in which the travel agent's model asks for the booking, after a search and a hold."""


@dataclass(frozen=True, slots=True)
class Campaign:
    """Kills at random: how many, and the lot they are drawn from; the same ones each time unless told otherwise."""

    seed: int = 1
    kills: int = 4

    @classmethod
    def asked_for(cls) -> Campaign:
        """What ``ADK_CAMPAIGN=seed:kills`` in the environment asks for, for longer ones at a desk."""
        seed, _, kills = os.environ.get("ADK_CAMPAIGN", f"{cls().seed}:{cls().kills}").partition(":")
        return cls(int(seed), int(kills))


def killed_in_a_model_call(fleet: FleetUnderTest, *, pool: str, run_id: str = "in-model") -> None:
    """Iteration 3 is the model's; the worker dies in it, and another asks the model again, from that boundary."""
    fleet.models.hold(run_id, tenant="acme", iteration=3)
    victim = fleet.worker("victim", pool=pool)
    fleet.submit(run_id)
    fleet.asked(run_id, iteration=3)
    victim.kill()
    fleet.models.release(run_id, tenant="acme", iteration=3)
    fleet.worker("heir", pool=pool)
    fleet.done_once(run_id)
    asked = [call.iteration for call in fleet.models.calls("began") if call.run_id == run_id]
    assert asked == [1, 2, 3, 3, 4, 5], asked


def killed_before_the_intent(
    fleet: FleetUnderTest, *, pool: str, store: WriteLock, run_id: str = "before-intent"
) -> None:
    """SQLite: the claim is being written and the worker dies in it; the call never ran, so the heir makes it."""
    victim = fleet.worker("victim", pool=pool)
    with store.kept_by_an_insert("adk_claims", when="NEW.tool = 'book_seat'", within=fleet.patience):
        fleet.submit(run_id)
        answered = f"SELECT 1 FROM adk_runs WHERE run_id = '{run_id}' AND iteration = {BOOKS}"
        store.await_taken(after=answered, within=fleet.patience)
        victim.kill()
    assert not store.rows("SELECT key FROM adk_claims WHERE tool = 'book_seat'")
    fleet.worker("heir", pool=pool)
    fleet.done_once(run_id)
    assert fleet.events(run_id, "recovered")


def killed_between_intent_and_effect(fleet: FleetUnderTest, *, pool: str, run_id: str = "before-effect") -> None:
    """The request has arrived and nothing is booked; the probe bars its key, and the model asks for a new booking."""
    held = fleet.travel.hold("book", run_id=run_id, at="before_effect")
    victim = fleet.worker("victim", pool=pool)
    fleet.submit(run_id)
    held.wait(within=fleet.patience)
    victim.kill()
    fleet.worker("heir", pool=pool)
    fleet.rests(run_id)
    # The dead worker's request is still inside the service: it must find its key barred.
    held.release(then="go_on")
    fleet.done_once(run_id)


def killed_between_effect_and_record(fleet: FleetUnderTest, *, pool: str, run_id: str = "after-effect") -> None:
    """The seat is booked and the worker does not know; the probe does."""
    held = fleet.travel.hold("book", run_id=run_id, at="before_answer")
    victim = fleet.worker("victim", pool=pool)
    fleet.submit(run_id)
    held.wait(within=fleet.patience)
    victim.kill()
    held.release(then="drop")
    fleet.worker("heir", pool=pool)
    fleet.done_once(run_id)


def killed_at_random(fleet: FleetUnderTest, *, pool: str, campaign: Campaign) -> None:
    """Workers die one after the other while runs come in, each after so many further steps of theirs, drawn by lot.

    What a worker is doing when it dies is nobody's choice: whatever it is, every seat is booked once and paid once.
    """
    lot = random.Random(campaign.seed)
    workers = [fleet.worker(f"worker-{number}", pool=pool) for number in range(2)]
    names: list[str] = []

    def steps() -> int:
        return len(fleet.models.calls()) + len(fleet.travel.entries())

    for number in range(campaign.kills):
        for _ in range(4):
            names.append(f"campaign-{len(names)}")
            fleet.submit(names[-1], model_delay=lot.choice([0, 0.1, 0.5]))
        # Of the forty or so that these runs take, so that some are in hand.
        due = steps() + lot.randint(1, 25)
        what = f"step {due} of the runs (seed {campaign.seed})\n{fleet.logs()}"
        wait_until(lambda due=due: steps() >= due, within=fleet.patience, what=what)
        victim = lot.randrange(len(workers))
        workers[victim].kill()
        workers[victim] = fleet.worker(f"heir-{number}", pool=pool)
    fleet.done_once(*names)
    assert any(fleet.events(name, "recovered") for name in names), "nobody died with a run in hand"


def killed_in_a_booking_nobody_can_ask_about(fleet: FleetUnderTest, *, pool: str, run_id: str = "blind-death") -> None:
    """Without a probe the run parks, names the call, and is not booked twice however long it rests."""
    held = fleet.travel.hold("book", run_id=run_id, at="before_answer")
    victim = fleet.worker("victim", pool=pool)
    fleet.submit(run_id, agent="blind")
    held.wait(within=fleet.patience)
    victim.kill()
    held.release(then="drop")
    fleet.worker("heir", pool=pool)
    run = fleet.rests(run_id, RunStatus.PARKED)
    assert run.attention is Attention.UNDECIDED_CALL, run
    assert "book_seat" in (run.detail or ""), run
    verdict = fleet.travel.verdict(runs=[("acme", run_id)], each={"book": 1})
    assert verdict.ok, str(verdict)


def paused_past_its_lease(
    fleet: FleetUnderTest, *, pool: str, store: WriteLock | None = None, run_id: str = "paused"
) -> None:
    """SIGSTOP in a booking, past the TTL; the heir must park. SIGCONT: the late outcome heals the run (F4).

    On SQLite nobody could write while a worker is stopped in a renewal, so there it is stopped between two.
    """
    held = fleet.travel.hold("book", run_id=run_id, at="before_answer")
    sleeper = fleet.worker("sleeper", pool=pool)
    fleet.submit(run_id, agent="blind")
    held.wait(within=fleet.patience)
    sleeper.pause()
    while store is not None and store.is_taken():
        sleeper.go_on()
        sleeper.pause()
    fleet.worker("heir", pool=pool)
    parked = fleet.rests(run_id, RunStatus.PARKED)
    assert parked.attention is Attention.UNDECIDED_CALL, parked
    held.release(then="go_on")
    sleeper.go_on()
    wait_until(
        lambda: fleet.run(run_id).status is not RunStatus.PARKED, within=fleet.patience, what="the run to be healed"
    )
    fleet.done_once(run_id)
    assert fleet.events(run_id, "healed"), fleet.events(run_id)


def paused_before_it_acts(fleet: FleetUnderTest, *, pool: str, run_id: str = "stale") -> None:
    """SIGSTOP in a model call, past the TTL; the heir ends the run. SIGCONT: the old worker's answer changes nothing.

    Its intent is refused for its fence, so it dispatches nothing (F1): without that check it books a second seat.
    """
    fleet.models.hold(run_id, tenant="acme", iteration=BOOKS)
    sleeper = fleet.worker("sleeper", pool=pool)
    fleet.submit(run_id)
    fleet.asked(run_id, iteration=BOOKS)
    sleeper.pause()
    fleet.models.release(run_id, tenant="acme", iteration=BOOKS)
    fleet.worker("heir", pool=pool)
    fleet.rests(run_id)
    ended = fleet.run(run_id)
    sleeper.go_on()
    wait_until(
        lambda: sleeper.says("superseded"), within=fleet.patience, what="the old worker to see that it was superseded"
    )
    assert fleet.run(run_id) == ended
    fleet.done_once(run_id)


def killed_between_commit_and_publish(fleet: FleetUnderTest, *, pool: str, behind: Proxy, run_id: str = "gap") -> None:
    """The broker is out of the worker's reach at its commit, and then the worker dies; the reaper publishes."""
    held = fleet.travel.hold("hold", run_id=run_id, at="before_answer")
    victim = fleet.worker("victim", pool=pool, ADK_BROKER_URL=behind.url(fleet.broker_url))
    fleet.submit(run_id)
    held.wait(within=fleet.patience)
    behind.refuse()
    behind.cut()
    before = fleet.run(run_id).sequence
    held.release()
    wait_until(lambda: fleet.run(run_id).sequence > before, within=fleet.patience, what="the boundary to be committed")
    victim.kill()
    fleet.worker("heir", pool=pool)
    fleet.done_once(run_id)
    assert fleet.events(run_id, "published_again"), fleet.events(run_id)


def killed_in_a_raise(fleet: FleetUnderTest, *, store: Proxy, at: bytes) -> None:
    """Whoever raises a tenant's limit dies once it is written, as they ask for the runs that it lets go on (``at``).

    The fleet is not reaped until then, so that nobody else sees to these.
    """
    names = [f"raised-{number}" for number in range(3)]
    fleet.worker("worker", ADK_AGENTS="tests.acceptance.spenders")
    fleet.sync.change_account("acme", change=BudgetChange(to={Kind.TOKENS: 1}), by="ann")
    for name in names:
        fleet.sync.submit("spender", "a seat to Berlin, please", tenant="acme", run_id=name)
    parked = [fleet.rests(name, RunStatus.PARKED) for name in names]
    reached = store.hold_request(at)
    said = ("budget", "raise", "--tenant", "acme", "--tokens", "1000000")
    victim = fleet.adk("victim", *said, ADK_STORE_URL=store.url(fleet.store_url))
    reached.wait(within=fleet.patience)
    victim.kill()
    reached.release()
    limit, left = fleet.sync.account("acme").limits, [fleet.run(name) for name in names]
    fleet.backstage()
    for name in names:
        fleet.ends(name)
    fleet.done_once(*names)
    assert (limit.tokens, left) == (1_000_001, parked)
    for name in names:
        (event,) = fleet.events(name, "requeued")
        assert event.data["by"] == "system:budget"


def locking(run_id: str) -> Callable[[bytes], bool]:
    """What tells the statement with which a transaction on the run begins on PostgreSQL; renewals skip what is locked.

    Once a tool has been answered, the first such transaction is that of the boundary after it.
    """
    name = f"'{run_id}'".encode()
    return lambda request: name in request and b"FOR UPDATE" in request and b"SKIP LOCKED" not in request


def committing_past_its_lease(fleet: FleetUnderTest, *, pool: str, store: Proxy, run_id: str = "late-commit") -> None:
    """A commit that is on its way to the store for longer than its lease lives; the run is another's by then.

    No clock of the worker's can help: when it sent the commit, its lease was good. The store refuses it (F1), and the
    outcome that it was to record comes as evidence and heals the run (F4).
    """
    held = fleet.travel.hold("book", run_id=run_id, at="before_answer")
    # It waits for its answer however long the heir takes.
    silent = {"ADK_SOCKET_TIMEOUT": str(4 * fleet.patience)}
    fleet.worker("late", pool=pool, slots=1, ADK_STORE_URL=store.url(fleet.store_url), **silent)
    fleet.submit(run_id, agent="blind")
    held.wait(within=fleet.patience)
    # Whatever else it would take in advance would wait for its store, and so would the heir for the next copy of it.
    fleet.submit(f"{run_id}-reserved")
    wait_until(lambda: fleet.backlog() == 0, within=fleet.patience, what="the message to be reserved")
    fleet.worker("heir", pool=pool)
    commit = store.hold_request(to=locking(run_id))
    held.release(then="go_on")
    commit.wait(within=fleet.patience)
    # No renewal either from here on.
    store.pause()
    parked = fleet.rests(run_id, RunStatus.PARKED)
    assert parked.attention is Attention.UNDECIDED_CALL, parked
    store.resume()
    commit.release()
    wait_until(lambda: fleet.run(run_id).status is not RunStatus.PARKED, within=fleet.patience, what="it to be healed")
    fleet.done_once(run_id, f"{run_id}-reserved")


def slow_to_commit_its_hand_over(
    fleet: FleetUnderTest, *, pool: str, store: Proxy, run_id: str = "slow-commit"
) -> None:
    """A transaction at a boundary stalls while another worker is idle; the next message must come after the commit.

    Times are long: a message that came before its commit would be refused as a duplicate, and nobody would publish it
    again for minutes. The idle worker does one thing after the other, so a run that is submitted once the transaction
    has begun, and has been carried, shows that such a message has had its chance.
    """
    held = fleet.travel.hold("hold", run_id=run_id, at="before_answer")
    fleet.worker("slow", pool=pool, slots=1, ADK_STORE_URL=store.url(fleet.store_url))
    fleet.submit(run_id)
    held.wait(within=fleet.patience)
    # The one message that it takes in advance: whatever comes from now on is the idle worker's.
    fleet.submit(f"{run_id}-reserved")
    wait_until(lambda: fleet.backlog() == 0, within=fleet.patience, what="the message to be reserved")
    fleet.worker("idle", pool=pool, slots=1)
    # It has nothing locked yet when it stalls, so whoever asks for the run gets an answer.
    stalled = store.hold_request(to=locking(run_id), times=-1)
    held.release()
    stalled.wait(within=fleet.patience)
    fleet.submit(f"{run_id}-canary")
    fleet.rests(f"{run_id}-canary")
    early = fleet.printed(f"event=step_duplicate tenant=acme run_id={run_id} ")
    stalled.release()
    assert not early, f"{run_id}'s message came before its commit\n{fleet.logs()}"
    fleet.done_once(run_id, f"{run_id}-canary", f"{run_id}-reserved")
    assert not fleet.printed("step_duplicate"), fleet.logs()


def doubled_and_very_late(fleet: FleetUnderTest, *, pool: str, run_id: str = "doubled") -> None:
    """Copies of a message that come at once, and every ticket that an ended run has had: all are refused."""
    fleet.submit(run_id)
    first = fleet.events(run_id, "submitted")[0].fence
    for _ in range(5):
        fleet.publish(Dispatch("acme", run_id, first))
    worker = fleet.worker("worker", pool=pool)
    fleet.done_once(run_id)
    ended = fleet.run(run_id)
    for ticket in range(1, ended.fence + 2):
        fleet.publish(Dispatch("acme", run_id, ticket))
    expected = 5 + ended.fence + 1
    wait_until(
        lambda: worker.log().count("step_duplicate") >= expected, within=fleet.patience, what="the copies to be refused"
    )
    assert fleet.run(run_id) == ended
    fleet.done_once(run_id)


def broker_emptied(fleet: FleetUnderTest, *, pool: str) -> None:
    """Five runs are queued, and then their messages are gone: the reaper publishes them again, under their tickets."""
    names = [f"lost-{number}" for number in range(5)]
    for name in names:
        fleet.submit(name)
    broker.empty(fleet.broker_url)
    fleet.worker("worker", pool=pool)
    fleet.done_once(*names)
    assert all(fleet.events(name, "published_again") for name in names)
