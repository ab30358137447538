"""Real models on real workers: their SDKs, over HTTP, to a server of the tests."""

from __future__ import annotations

import json
import threading

import pytest

from adk_worker.messages import Message, ToolResultPart
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention
from examples.travel.model import due
from tests.acceptance.fleet import PATIENCE
from tests.modelserver import Call, Hangs, Says, Status, model_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]

EACH = pytest.mark.parametrize("agent", ["openai", "anthropic"])


@pytest.fixture
def models():
    with model_server(travels) as server:
        yield server


@pytest.fixture
def worker(fleet, models):
    """Start a worker whose agents' models are at that server."""

    def start(name, **environment):
        ours = {"ADK_AGENTS": "tests.acceptance.modelled", "ADK_MODEL_BACKOFF": "0.05", "ADK_MODEL_BACKOFF_MAX": "0.5"}
        return fleet.worker(name, **ours, **models.environment, **environment)

    return start


def travels(body):
    """What the travel agent's script says to the transcript that a provider was sent."""
    told = due((Message.user("a seat to Berlin, please"), Message.tool(results_of(body))), {})
    return Says(told) if isinstance(told, str) else Says(calls=[Call(*told, id=f"call_{len(str(body))}")])


def results_of(body):
    """The results in a request of OpenAI's or Anthropic's protocol."""
    said = [message.get("content") for message in body.get("messages", [])]
    blocks = body.get("input") or [block for content in said if isinstance(content, list) for block in content]
    names = {}
    for block in blocks:
        if block.get("type") in {"function_call", "tool_use"}:
            names[block.get("call_id") or block["id"]] = block["name"]
        elif block.get("type") in {"function_call_output", "tool_result"}:
            told = block.get("output") or block["content"]
            text = told if isinstance(told, str) else "".join(part["text"] for part in told)
            name = names[block.get("call_id") or block["tool_use_id"]]
            yield ToolResultPart(call_id="any", name=name, content=json.loads(text))


@EACH
def test_a_worker_killed_in_a_call_of_a_real_model_is_succeeded(fleet, models, worker, agent):
    """C1: the heir asks again, from the last boundary; nothing is booked twice."""
    reached = threading.Event()

    def hangs_once(body):
        if len(models.requests) == 3 and not reached.is_set():
            reached.set()
            return Hangs()
        return travels(body)

    models.follow(hangs_once)
    victim = worker("victim")
    fleet.submit("killed", agent=agent)
    assert reached.wait(PATIENCE), fleet.logs()
    victim.kill()
    worker("heir")

    fleet.done_once("killed")
    run = fleet.run("killed")
    assert len(models.requests) == 6
    assert (run.usage.input_tokens, run.usage.output_tokens) == (500, 100)
    assert run.cost_micros > 0


@EACH
def test_a_call_that_fails_for_good_ends_the_run_which_goes_on_once_its_cause_is_gone(fleet, models, worker, agent):
    """C5: as failed, with what to do, and with its frontier."""
    models.follow(
        lambda body: (
            Status(401, "invalid_api_key", "That key is wrong.") if len(models.requests) == 3 else travels(body)
        )
    )
    worker("worker")
    fleet.submit("failed", agent=agent)
    run = fleet.rests("failed", RunStatus.FAILED)
    assert "That key is wrong. Check the key of its provider in the environment of the workers" in run.detail

    fleet.sync.resume("failed", tenant="acme", by="ada")

    fleet.done_once("failed")


@EACH
def test_an_outage_parks_nothing_and_counts_no_crash(fleet, models, worker, agent):
    """A run whose model is unavailable waits in the queue, and says so."""
    models.follow([Status(429, "rate_limit_error", "Slow down.", {"Retry-After": "2"})])
    worker("worker", ADK_MAX_CRASHES="1")
    fleet.submit("waits", agent=agent)
    wait_until(
        lambda: len(fleet.events("waits", "given_back")) >= 2, within=PATIENCE, what=f"it to wait\n{fleet.logs()}"
    )
    run = fleet.run("waits")
    assert (run.attention, run.crashes) == (Attention.MODEL_UNAVAILABLE, 0)
    assert "Slow down." in run.detail

    models.follow(travels)

    fleet.done_once("waits")
