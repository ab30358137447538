"""The terminal's answers to what a run asks: what an operator may get wrong, and two of them at once."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from adk_worker.approvals.requests import NewRequest
from adk_worker.conformance.runs.driver import Driver
from adk_worker.transitions.runs import Attention, Then
from stores import open_stores
from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

THIS = ("--tenant", "acme", "--by", "ana")


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    """A store, and a broker that nobody reaches: what is queued is the reaper's to publish."""
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        (("approve", "run_1", "req-2", *THIS, "--for-run", "--for", "2h"), 2, "one of --for-run and --for"),
        (("approve", "run_1", "req-2", *THIS, "--for", "0h"), 2, "some time"),
        (("approve", "run_1", "req-2", *THIS, "--for", "soon"), 2, "no length of time"),
        (("approve", "run_1", "req-2", *THIS, "--for", "9" * 400 + "d"), 2, "is too long"),
        (("approve", "run_1", "req-2", "--tenant", "acme"), 2, "--by"),
        (("approve", "run_1", "req-2", "--by", "ana"), 2, "--tenant"),
        (("deny", "run_1", "req-2", *THIS), 2, "--why"),
        (("deny", "run_1", "req-2", *THIS, "--why", "ghp_" + "a1B2c3D4e5F6" * 3), 2, "looks like a secret"),
        (("approve", "run_2", "req-1", *THIS), 1, "no run 'run_2'"),
        (("approvals", "run_2", "--tenant", "acme"), 1, "no run 'run_2'"),
        (("approve", "run_1", "req-9", *THIS), 65, "no such request; what waits for an answer: req-1, req-2"),
        (("approve", "run_1", "req-2", *THIS, "--digest", "0"), 65, "other arguments"),
        (("revoke", "run_1", "grant-1", *THIS), 65, "no such grant"),
        (("approve", "run_1", "req-1", "--tenant", "acme", "--by", "eve"), 77, "for ana or bob to answer"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else str(value),
)
def test_what_an_operator_gets_wrong_is_told(adk, sqlite_store_url, typed, code, said):
    """P1: and changes nothing."""
    given("asking", sqlite_store_url)

    ran = adk(*typed)

    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    assert said in ran.stderr
    lines = adk("approvals", "run_1", "--tenant", "acme", "--json").stdout.splitlines()
    assert [json.loads(line)["request"]["state"] for line in lines] == ["pending", "pending"]


def test_of_two_operators_at_once_one_is_heard(adk, sqlite_store_url):
    """P1: two programs; the other one is told what stands, and ends with 65."""
    given("asking", sqlite_store_url)

    with ThreadPoolExecutor(2) as operators:
        ran = list(operators.map(lambda name: adk("approve", "run_1", "req-2", *THIS[:3], name), ("ana", "bob")))

    assert sorted(one.returncode for one in ran) == [0, 65], [one.stderr for one in ran]
    (refused,) = [one for one in ran if one.returncode]
    (heard,) = [name for one, name in zip(ran, ("ana", "bob"), strict=True) if not one.returncode]
    assert f"was approved by {heard}" in refused.stderr


def test_an_answer_that_cannot_be_published_is_given_all_the_same(adk, sqlite_store_url):
    """P1: the broker is away: the operator is told, and the reaper publishes."""
    given("asking", sqlite_store_url)
    adk("approve", "run_1", "req-1", *THIS)

    ran = adk("deny", "run_1", "req-2", *THIS, "--why", "too dear")

    assert ran.returncode == 0
    assert "the run goes on" in ran.stdout
    assert "not on its way yet" in ran.stderr


def test_what_a_model_wrote_moves_no_cursor(adk, sqlite_store_url):
    """P4: tool, call and arguments are the model's words."""

    async def asking():
        stores = open_stores(sqlite_store_url, pool_size=1)
        driver = Driver(stores, run_id="run_1")
        wild = "\x1b[2J\u202e"
        request = NewRequest(call_id=wild, key="k", tool=wild, digest="d", arguments={wild: wild})
        await driver.commit(
            await driver.worker(), 1, Then.WAIT_APPROVAL, requests=[request], attention=Attention.APPROVAL
        )
        await stores.lifecycle.close()

    asyncio.run(asking())

    for command in ("inspect", "approvals"):
        for more in ((), ("--json",)):
            printed = adk(command, "run_1", "--tenant", "acme", *more).stdout
            assert "req-1" in printed
            assert not {"\x1b", "\u202e"} & set(printed)
