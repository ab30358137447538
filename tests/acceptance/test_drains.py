"""Workers that are told to leave, and workers that were killed and start again: runs go on at once, by no clock.

Leases live for minutes here, and nothing reaps: a run that waited for a lease to lapse would wait for ever.
"""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from adk_worker.liveness import Holder
from adk_worker.runs import RunStatus
from tests.acceptance.fleet import LONG, PATIENCE, POOLS, FleetUnderTest, Process
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

pools = pytest.mark.parametrize("pool", list(POOLS))

FULL = {"threads": 12, "prefork": 3}
OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


@pytest.fixture
def fleet(make_fleet) -> FleetUnderTest:
    return make_fleet(times=LONG, reaped=False)


def holder(fleet: FleetUnderTest, run_id: str) -> int | None:
    """The process that holds the run, by its id."""
    named = Holder.parse(fleet.run(run_id).holder or "")
    return named.process.pid if named else None


def pids(worker: Process) -> set[int]:
    return {worker.pid, *(child.pid for child in worker.children())}


@pools
def test_a_worker_full_of_model_calls_is_emptied_at_once_and_waits_for_a_booking(fleet, pool):
    """P2, F4: every call is aborted, every run handed over and taken elsewhere, while one of them is still booking."""
    slots = FULL[pool]
    names = [f"waiting-{number}" for number in range(slots - 1)]
    for name in names:
        fleet.models.hold(name, tenant="acme", iteration=1)
    fleet.models.hold("booking", tenant="acme", iteration=3)
    booked = fleet.travel.hold("book", run_id="booking", at="before_answer")
    leaving = fleet.worker("leaving", pool=pool, slots=slots, ADK_DRAIN_TIMEOUT="60")
    for name in ("booking", *names):
        fleet.submit(name)
    for name in names:
        fleet.asked(name, iteration=1)
    fleet.asked("booking", iteration=3)
    heir = fleet.worker("heir", pool=pool, slots=slots)
    # It books in the same iteration, and so on the same worker.
    fleet.models.release("booking", tenant="acme", iteration=3)
    booked.wait(within=PATIENCE)

    psutil.Process(leaving.pid).send_signal(signal.SIGTERM)

    wait_until(
        lambda: {holder(fleet, name) for name in names} <= pids(heir),
        within=PATIENCE,
        what=f"the heir to hold every run\n{fleet.logs()}",
    )
    assert holder(fleet, "booking") in pids(leaving)
    booked.release()
    assert leaving.stop() == 0
    for name in names:
        kinds = [event.kind for event in fleet.events(name)]
        assert kinds == ["submitted", "taken", "given_back", "taken"], kinds
        (given_back,) = fleet.events(name, "given_back")
        assert given_back.data["reason"] == "drain"
        fleet.models.release(name, tenant="acme", iteration=1)
    fleet.done_once("booking", *names)
    assert {fleet.run(name).crashes for name in names} == {0}
    assert not fleet.events("booking", "given_back")


@pytest.mark.parametrize("broker", ["redis", "rabbitmq"])
def test_a_rolling_restart_under_load_delays_and_repeats_nothing(make_fleet_on, request, broker):
    """P2, F4: of three workers, one after the other; no effect twice, no crash counted, no run left to a clock."""
    fleet = make_fleet_on(request.getfixturevalue(f"{broker}_url"), times=LONG, reaped=False)
    pools = ("threads", "prefork", "threads")
    names = ["held"]
    fleet.models.hold("held", tenant="acme", iteration=1)
    workers = []
    for number, pool in enumerate(pools):
        workers.append(fleet.worker(f"old-{number}", pool=pool, slots=3))
        if number == 0:
            # At the least this one is in a model call as its worker leaves.
            fleet.submit("held")
            fleet.asked("held", iteration=1)

    def load() -> None:
        for _ in range(6):
            names.append(f"load-{len(names)}")
            fleet.submit(names[-1], model_delay=0.4)

    load()
    for number, (old, pool) in enumerate(zip(workers, pools, strict=True)):
        load()
        fleet.asked(names[-6], iteration=1)
        assert old.stop() == 0, old.log()[-4000:]
        fleet.worker(f"new-{number}", pool=pool, slots=3)

    fleet.models.release("held", tenant="acme", iteration=1)
    fleet.done_once(*names)
    told = [event for name in names for event in fleet.events(name)]
    given_back = [event.data["reason"] for event in told if event.kind == "given_back"]
    assert set(given_back) == {"drain"}, given_back
    assert not [event for event in told if event.kind in {"recovered", "published_again", "parked"}]


@pools
def test_a_worker_that_starts_again_frees_the_runs_of_its_dead_predecessor(fleet, pool):
    """I11: same boot, same pid namespace, and no such process: its leases need not lapse."""
    fleet.models.hold("orphan", tenant="acme", iteration=2)
    victim = fleet.worker("victim", pool=pool)
    fleet.submit("orphan")
    fleet.asked("orphan", iteration=2)
    victim.kill()
    fleet.models.release("orphan", tenant="acme", iteration=2)

    fleet.worker("heir", pool=pool)

    fleet.done_once("orphan")
    (recovered,) = fleet.events("orphan", "recovered")
    assert recovered.data["known_dead"] is True


def test_a_worker_frees_nothing_of_another_pid_namespace(fleet):
    """I11: its pids are other processes'; the lease of a worker that died in a container has to lapse."""
    if subprocess.run([*OWN_NAMESPACE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine makes no pid namespace")
    fleet.models.hold("contained", tenant="acme", iteration=1)
    victim = fleet.worker("victim", wrapped=OWN_NAMESPACE)
    fleet.submit("contained")
    fleet.asked("contained", iteration=1)
    victim.kill()
    before = fleet.run("contained")

    heir = fleet.worker("heir")

    wait_until(lambda: heir.says("arrived recovered=0"), within=PATIENCE, what="the heir to have looked")
    assert fleet.run("contained") == before
    assert before.status is RunStatus.RUNNING
