"""The morning after an outage, on a real fleet: what it has stopped is found, queued again, and comes to its end."""

from __future__ import annotations

import pytest

from adk_worker.bulk import BulkResult
from adk_worker.filters import RunFilter
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention
from tests.acceptance.fleet import PATIENCE, SHORT
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(300)]


def test_runs_that_killed_their_workers_all_night_go_on_once_the_cause_is_gone(make_fleet):
    """P2, C3, C5: each from its boundary, with its deaths counted anew; nothing of them is done twice."""
    fleet = make_fleet(times={**SHORT, "ADK_MAX_CRASHES": "2"})
    names = [f"deadly-{number}" for number in range(3)]
    for name in names:
        fleet.models.hold(name, tenant="acme", iteration=2)
        fleet.submit(name)

    def asked(times: int) -> bool:
        began = [(call.run_id, call.iteration) for call in fleet.models.calls("began")]
        return all(began.count((name, 2)) >= times for name in names)

    for death in (1, 2):
        victim = fleet.worker(f"victim-{death}")
        wait_until(lambda death=death: asked(death), within=PATIENCE, what=f"death {death}\n{fleet.logs()}")
        victim.kill()
    for name in names:
        assert fleet.rests(name, RunStatus.PARKED).attention is Attention.POISONED
        fleet.models.release(name, tenant="acme", iteration=2)

    poisoned = RunFilter(tenant="acme", attention=Attention.POISONED)
    dry = [(one.run.run_id, one.result) for one in fleet.sync.resume_many(poisoned, by="ana", dry_run=True)]
    done = [(one.run.run_id, one.result) for one in fleet.sync.resume_many(poisoned, by="ana")]

    assert dry == [(name, BulkResult.DUE) for name in reversed(names)]
    assert done == [(name, BulkResult.DONE) for name in reversed(names)]
    assert not list(fleet.sync.resume_many(poisoned, by="ana"))
    assert {fleet.run(name).crashes for name in names} == {0}
    fleet.worker("mended")
    fleet.done_once(*names)
    for name in names:
        (requeued,) = fleet.events(name, "requeued")
        assert requeued.data["by"] == "ana"
