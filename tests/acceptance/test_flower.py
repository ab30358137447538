"""Flower beside a fleet: what it shows of runs that went well, were recovered, or failed, and what it does not."""

from __future__ import annotations

import ast

import psycopg2
import pytest

from adk_worker.runs import RunStatus
from tests.acceptance.confidential import WORD
from tests.acceptance.fleet import LONG, PATIENCE, SHORT
from tests.flower import Flower
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

AGENTS = {"ADK_AGENTS": "tests.acceptance.agents,tests.acceptance.confidential"}


@pytest.fixture
def fleet(make_fleet):
    """One that publishes nothing twice, however busy the machine is: a copy is a task of its own to Flower."""
    return make_fleet(times={**SHORT, "ADK_LEASE_TTL": "10", "ADK_DISPATCH_GRACE": LONG["ADK_DISPATCH_GRACE"]})


@pytest.fixture
def flower(fleet):
    """Flower as the Procfile starts it, once it answers."""
    flower = Flower()
    process = fleet.celery("flower", "flower", **flower.environment)
    wait_until(lambda: process.says("") and flower.ask("/healthcheck")[0], within=PATIENCE, what="Flower to answer")
    return flower


def seen(flower, run_id):
    """Flower's tasks of a run, in the order of their tickets."""
    shown = [(ast.literal_eval(row["kwargs"]), row) for row in flower.rows(f"kwargs:'{run_id}'")]
    assert all(set(kwargs) == {"run_id", "ticket"} and kwargs["run_id"] == run_id for kwargs, _ in shown)
    return [row for _, row in sorted(shown, key=lambda pair: pair[0]["ticket"])]


def known(flower, *workers):
    """Wait until Flower has heard of these workers, so that it hears of what they do from then on."""
    wait_until(
        lambda: {row["hostname"].partition("@")[0] for row in flower.api("/workers?json=true")["data"]} >= set(workers),
        within=PATIENCE,
        what=f"Flower to hear of {workers}",
    )


def ended(flower, run_id, count):
    """A run's tasks, once Flower has heard that so many of them ended."""
    return wait_until(
        lambda: found if len(found := [row for row in seen(flower, run_id) if row["result"]]) >= count else None,
        within=PATIENCE,
        what=f"Flower to hear of {count} tasks of {run_id}",
    )


def test_it_shows_a_recovery_apart_by_run_and_ticket(fleet, flower):
    """The message of a run whose worker died is another task, and the one that the worker had never ends."""
    fleet.models.hold("died", tenant="acme", iteration=2)
    victim = fleet.worker("victim", **AGENTS)
    known(flower, "victim", "control")
    fleet.submit("died")
    fleet.submit("lived")
    fleet.rests("lived")
    fleet.asked("died", iteration=2)
    # A worker says what became of a task after the store has it, and what it had yet to say dies with it.
    lived = ended(flower, "lived", 5)
    wait_until(
        lambda: [row["state"] for row in seen(flower, "died")] == ["SUCCESS", "STARTED"],
        within=PATIENCE,
        what="Flower to hear what the victim is at",
    )
    victim.kill()
    fleet.models.release("died", tenant="acme", iteration=2)
    fleet.worker("heir", **AGENTS)
    fleet.done_once("died", "lived")

    assert [(row["name"], row["state"]) for row in lived] == [("adk.advance", "SUCCESS")] * 5
    assert [row["result"] for row in lived] == ["'handed_over'"] * 4 + ["'completed'"]
    ended(flower, "died", 5)
    died = seen(flower, "died")
    assert [(row["name"], row["state"]) for row in died] == [
        ("adk.advance", "SUCCESS"),
        ("adk.advance", "STARTED"),
        ("adk.resume", "SUCCESS"),
        *[("adk.advance", "SUCCESS")] * 3,
    ]
    assert [row["worker"].partition("@")[0] for row in died] == ["victim"] * 2 + ["heir"] * 4
    tickets = [ast.literal_eval(row["kwargs"])["ticket"] for row in died]
    assert len(set(tickets)) == len(tickets)
    reaps = wait_until(lambda: flower.rows("name:adk.reap"), within=PATIENCE, what="Flower to hear of the reaper")
    assert {row["name"] for row in reaps} == {"adk.reap"}


def test_nothing_that_a_run_is_told_or_does_is_on_any_of_its_pages(fleet, flower):
    """Input, arguments, results, outputs, the errors of tools and models, a row that the database quotes; passwords."""
    worker = fleet.worker("worker", **AGENTS)
    known(flower, "worker", "control")
    for agent in ("discreet", "indiscreet", "speechless"):
        fleet.sync.submit(agent, f"{WORD}-input", tenant="acme", run_id=agent, metadata={"for": WORD})
    # From here on the database refuses every change of that run, and says why by quoting it whole.
    with psycopg2.connect(fleet.store_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE adk_runs ADD CONSTRAINT house_rule CHECK (run_id <> 'refused' OR updated_at = created_at)"
        )
    connection.close()
    fleet.sync.submit("discreet", f"{WORD}-input", tenant="acme", run_id="refused")

    rests = {"discreet": RunStatus.COMPLETED, "indiscreet": RunStatus.PARKED}
    for run_id, status in rests.items():
        wait_until(
            lambda run_id=run_id, status=status: fleet.sync.get(run_id, tenant="acme").status is status,
            within=PATIENCE,
            what=f"{run_id} to rest\n{fleet.logs()}",
        )
    ended(flower, "discreet", 2)
    ended(flower, "indiscreet", 1)
    ended(flower, "speechless", 1)
    failed = wait_until(
        lambda: flower.rows("state:FAILURE"), within=PATIENCE, what="the step of the refused run to fail"
    )
    assert {row["name"] for row in failed} == {"adk.advance"}
    assert all(row["exception"].startswith('TaskBrokenError("IntegrityError; the worker') for row in failed)

    # The row was quoted, where it helps.
    assert f"{WORD}-input" in worker.log()
    shown = flower.everything()
    assert "adk.advance" in shown["/metrics"]
    assert "discreet" not in shown["/metrics"]
    passwords = [
        flower.password,
        *(url.partition("@")[0].rpartition(":")[2] for url in (fleet.broker_url, fleet.store_url)),
    ]
    assert all(len(password) > 8 for password in passwords)
    for path, body in shown.items():
        for secret in (WORD, *passwords):
            assert secret not in body, f"{path} shows {secret}: {_around(body, secret)}"


def _around(body, secret):
    at = body.index(secret)
    return body[max(0, at - 200) : at + 200]
