"""Operators who meet: two at once on one run, one who interrupts, and those who come too late."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from stores import open_stores
from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.integration.test_watch import Watching
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(300)

_PATIENCE = 120
_RUN = ("run_1", "--tenant", "acme")


@pytest.fixture
def adk(tmp_path, postgres_store_url):
    return Adk(tmp_path, ADK_STORE_URL=postgres_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


def stands(store_url):
    """The run, and what is kept of those who acted on it."""

    async def look():
        stores = open_stores(store_url, pool_size=1)
        try:
            run = await stores.runs.get("run_1", tenant="acme")
            return run, await stores.runs.events("run_1", tenant="acme")
        finally:
            await stores.lifecycle.close()

    return asyncio.run(look())


def test_of_two_operators_at_once_one_carries_a_run_on_and_the_other_is_told(adk, postgres_store_url):
    """L4, L7: real connections, and the same person in two terminals is two holders."""
    given("parked", postgres_store_url)
    both = [adk.start("run", "--resume", *_RUN, "--no-wait", "--json") for _ in range(2)]
    told = [process.communicate(timeout=_PATIENCE)[0] for process in both]

    assert sorted(process.returncode for process in both) == [0, 3]
    outcomes = {json.loads(line)["outcome"] for line in told}
    assert outcomes == {"queued", "held"}
    _, events = stands(postgres_store_url)
    assert [event.kind for event in events].count("requeued") == 1


def test_an_operator_who_resumes_and_one_who_cancels_at_once_leave_a_run_that_is_over(adk, postgres_store_url):
    """P2: a cancel is never lost."""
    given("parked", postgres_store_url)
    resuming = adk.start("run", "--resume", *_RUN, "--no-wait")
    cancelling = adk.start("cancel", *_RUN)
    for process in (resuming, cancelling):
        process.communicate(timeout=_PATIENCE)

    run, _ = stands(postgres_store_url)
    assert cancelling.returncode == 0
    assert resuming.returncode in {0, 1, 3, 65}
    assert run.status.value == "cancelled"


def test_whoever_interrupts_a_resume_leaves_the_run_to_the_queue(adk, postgres_store_url):
    """L10: no lease stays with the terminal."""
    given("parked", postgres_store_url)
    resuming = adk.start("run", "--resume", *_RUN, "--timeout", "600")
    watching = Watching(resuming)
    watching.says("its message is not on its way yet")
    resuming.send_signal(signal.SIGINT)

    assert watching.ends() == 130
    run, _ = stands(postgres_store_url)
    assert (run.status.value, run.holder) == ("queued", "queue")


@pytest.mark.parametrize(
    ("state", "argv", "code", "said"),
    [
        ("completed", ["cancel", *_RUN], 65, "completed"),
        ("failed", ["cancel", *_RUN], 65, "failed"),
        ("completed", ["run", "--resume", *_RUN], 1, "it is over: nothing is left to be carried on"),
        ("held", ["run", "--resume", *_RUN], 3, "held by holder-1"),
        ("nothing", ["run", "--resume", *_RUN], 1, "tenant 'acme' has no run 'run_1'"),
    ],
)
def test_whoever_comes_too_late_is_told_what_stands(adk, postgres_store_url, state, argv, code, said):
    given(state, postgres_store_url)

    told = adk(*argv)

    assert told.returncode == code
    assert said in told.stderr
