"""Deploying a new revision of an agent, and a newer adk-worker, under load: by real processes with real code trees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention
from tests.acceptance.fleet import LONG, PATIENCE, SHORT, FleetUnderTest
from tests.acceptance.releases import AGENT, NEXT_RELEASE, release
from tests.travel import ROOT
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

# Nothing is recovered by a lease; what a worker cannot carry on comes back soon, for another one.
ROLLING = {**LONG, "ADK_RETRY_BACKOFF": "0.2", "ADK_RETRY_BACKOFF_MAX": "2"}
PATIENT = {**LONG, "ADK_RETRY_BACKOFF": "300", "ADK_RETRY_BACKOFF_MAX": "600"}


class Shop:
    """The app's releases on a fleet."""

    def __init__(self, fleet: FleetUnderTest, folder: Path) -> None:
        self.fleet = fleet
        self._folder = folder
        self._releases: dict[tuple[str, ...], Path] = {}

    def code(self, *agents: str) -> dict[str, str]:
        """The environment of a process that has the release which knows these revisions."""
        if agents not in self._releases:
            self._releases[agents] = release(self._folder, *agents)
        return {"PYTHONPATH": f"{self._releases[agents]}:{ROOT}", "ADK_AGENTS": "shop.agents"}

    def worker(self, name: str, *agents: str):
        return self.fleet.worker(name, slots=3, **self.code(*agents))

    def submit(self, run_id: str, *, revision: str | None = None, delay: float = 0.0) -> None:
        self.fleet.sync.submit(
            AGENT, "a seat", tenant="acme", run_id=run_id, revision=revision, metadata={"model_delay": delay}
        )

    def check_deploy(self, *agents: str) -> tuple[int, dict[str, str]]:
        """The exit code of `adk check-deploy` on that release, and the outlook of every run."""
        ran = subprocess.run(
            [sys.executable, "-m", "adk_worker.cli", "check-deploy", "--json"],
            env=self.fleet.environment(**self.code(*agents)),
            cwd=self._folder,
            check=False,
            capture_output=True,
            text=True,
        )
        told = [json.loads(line) for line in ran.stdout.splitlines()]
        return ran.returncode, {line["run_id"]: line["outlook"] for line in told}

    def revision(self, of: str) -> str:
        """The revision of one of the two agents, as a process that has it says."""
        code = f"from shop import agents; print(getattr(agents, {of!r}).revision, end='')"
        return subprocess.run(
            [sys.executable, "-c", code],
            env=self.fleet.environment(**self.code(of)),
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def waits_for_code(fleet: FleetUnderTest, run_id: str, attention: Attention) -> None:
    """Wait until the run is seen to wait for a worker that has its code; one that has not tries it now and then."""

    def waits() -> bool:
        run = fleet.run(run_id)
        return (run.status, run.attention) == (RunStatus.QUEUED, attention)

    wait_until(waits, within=PATIENCE, what=f"{run_id} to be given back\n{fleet.logs()}")


def test_a_run_goes_on_as_soon_as_a_worker_comes_that_has_its_revision(make_fleet, tmp_path):
    """C7: its backoff is of minutes and nothing reaps, so that nothing but that worker's start can have done it."""
    fleet = make_fleet(times=PATIENT, reaped=False)
    shop = Shop(fleet, tmp_path)
    fleet.models.hold("pinned", tenant="acme", iteration=2)
    first = shop.worker("first", "old")
    shop.submit("pinned")
    fleet.asked("pinned", iteration=2)
    strict = shop.worker("strict", "new")
    assert shop.check_deploy("new") == (4, {"pinned": "given_back"})

    assert first.stop() == 0
    waits_for_code(fleet, "pinned", Attention.REVISION_MISMATCH)
    waiting = fleet.run("pinned")
    assert strict.stop() == 0
    assert shop.check_deploy("new") == (4, {"pinned": "given_back"})
    assert shop.check_deploy("old", "new") == (0, {"pinned": "accepted"})
    assert fleet.run("pinned") == waiting

    fleet.models.release("pinned", tenant="acme", iteration=2)
    shop.worker("both", "old", "new")

    fleet.done_once("pinned")
    run = fleet.run("pinned")
    assert (run.revision, run.crashes) == (shop.revision("old"), 0)
    assert len(fleet.events("pinned", "requeued")) == 1


def test_a_rolling_deploy_of_an_agent_carries_every_run_to_its_end_under_its_own_revision(make_fleet, tmp_path):
    """C7: old and new workers side by side; runs of both revisions, and of none yet, before, amid and after."""
    fleet = make_fleet(times=ROLLING)
    shop = Shop(fleet, tmp_path)
    old, new = shop.revision("old"), shop.revision("new")
    workers = [shop.worker(f"old-{number}", "old") for number in range(2)]
    before = [f"before-{number}" for number in range(4)]
    for name in before:
        fleet.models.hold(name, tenant="acme", iteration=2)
        shop.submit(name, delay=0.4)
    for name in before:
        fleet.asked(name, iteration=2)
    assert shop.check_deploy("old", "new") == (0, dict.fromkeys(before, "accepted"))
    # of a web app that is ahead of the workers
    shop.submit("early", revision=new)
    waits_for_code(fleet, "early", Attention.REVISION_MISMATCH)

    for name in before:
        fleet.models.release(name, tenant="acme", iteration=2)

    amid = []
    for number, worker in enumerate(workers):
        shop.worker(f"new-{number}", "old", "new")
        amid += [f"amid-{number}-{of}" for of in (old, new)]
        shop.submit(amid[-2], revision=old, delay=0.1)
        shop.submit(amid[-1], revision=new, delay=0.1)
        assert worker.stop() == 0
    shop.submit("after")

    everyone = [*before, "early", *amid, "after"]
    fleet.done_once(*everyone)
    of_old = {name for name in everyone if fleet.run(name).revision == old}
    assert of_old == {*before, *(name for name in amid if name.endswith(old))}
    told = [event for name in everyone for event in fleet.events(name)]
    assert {event.data["reason"] for event in told if event.kind == "given_back"} <= {"drain", "conflict"}
    assert not [event for event in told if event.kind in {"recovered", "parked"}]


def test_a_rolling_upgrade_to_newer_formats_loses_no_run(make_fleet, tmp_path):
    """C4: an old worker gives a newer checkpoint back, and drops a newer message, which the reaper writes again."""
    fleet = make_fleet(times={**SHORT, "ADK_LEASE_TTL": LONG["ADK_LEASE_TTL"]})
    root = NEXT_RELEASE.build(tmp_path)
    upgraded = {"PYTHONPATH": str(root), "ADK_TEST_ROOT": str(root)}
    fleet.models.hold("upgraded", tenant="acme", iteration=2)
    newer = fleet.worker("newer", **upgraded)
    fleet.submit("upgraded")
    fleet.asked("upgraded", iteration=2)
    old = fleet.worker("old")

    # the newer one leaves: its message, and then its checkpoint, come to the old one
    assert newer.stop() == 0
    wait_until(lambda: old.says("message_unreadable"), within=PATIENCE, what="the message to be dropped")
    waits_for_code(fleet, "upgraded", Attention.FORMAT_TOO_NEW)
    fleet.models.release("upgraded", tenant="acme", iteration=2)
    names = [f"amid-{number}" for number in range(4)]
    for name in names:
        fleet.submit(name, model_delay=0.2)
    fleet.worker("newest", **upgraded)
    assert old.stop() == 0

    fleet.done_once("upgraded", *names)
    told = [event for name in ("upgraded", *names) for event in fleet.events(name)]
    assert not [event for event in told if event.kind in {"recovered", "parked"}]
    assert fleet.events("upgraded", "published_again")
