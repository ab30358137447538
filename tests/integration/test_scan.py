"""`adk scan`: what looks like a secret in what is stored, wherever it is, on every store, and never shown (R3)."""

from __future__ import annotations

import asyncio
import json

import pytest

from adk_worker.checkpoint import OutstandingCall
from adk_worker.conformance.runs.driver import BOOKED, REFUSED, Driver
from adk_worker.redaction.masking import Redactor
from adk_worker.transitions.runs import Then
from stores import open_stores
from stores.upgrading import migrator
from tests.integration.test_cli import Adk

pytestmark = pytest.mark.timeout(180)

# Put together here: scanners of repositories would take whole ones for real.
GITHUB = "ghp_" + "a1B2c3" * 6
STRIPE = "sk_live_" + "Zy9x" * 6
PASSWORD = "hunter22"
SECRETS = (GITHUB, STRIPE, PASSWORD, "xyzzy-17", "shop_abcdefgh")


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def store_url(request):
    if request.param == "redis":
        url = request.getfixturevalue("redis_url")
        migrator(url).upgrade(url)
        return url
    return request.getfixturevalue(f"{request.param}_store_url")


@pytest.fixture
def adk(tmp_path, store_url):
    return Adk(tmp_path, ADK_STORE_URL=store_url)


async def everywhere(stores):
    """Secrets in every place that a run has, as if nothing had ever been masked."""
    run = Driver(stores, run_id="run")
    await run.submit(input=f"take {GITHUB}", metadata={"user": {"token": "xyzzy-17"}, "list": [{"a": STRIPE}]})
    lease = await run.worker()
    claims = await run.begin(lease, 0, 1)
    await stores.idempotency.record(claims[0], BOOKED.model_copy(update={"content": {"said": f"password={PASSWORD}"}}))
    said = run.segment(f"password={PASSWORD}")
    call = OutstandingCall(call_id="c", tool="book", index=1, arguments={"key": [GITHUB]}, key=claims[1].key)
    await run.commit(lease, 1, segment=said, frontier={"history_handle": str(said.handle), "calls": (call,)})
    await stores.runs.fail(lease, detail=f"refused {STRIPE}")
    # One that is over: its frontier is gone, and its transcript is there.
    over = Driver(stores, run_id="over")
    lease = await over.worker()
    said = over.segment(f"take {GITHUB}")
    await over.commit(lease, 1, segment=said, frontier={"history_handle": str(said.handle)})
    await over.commit(lease, 2, Then.COMPLETE, frontier={"output": f"it is {GITHUB}"})


async def clean(stores):
    """A run whose secrets were masked, and whose texts are full of what is none."""
    masker = Redactor().masker()
    run = Driver(stores, run_id="clean")
    text = masker.text(f"password={PASSWORD} and {GITHUB}, mail ana@example.com")
    await run.submit(input=text, metadata=masker.json({"token": "xyzzy-17"}), masks=masker.state())
    lease = await run.worker()
    claims = await run.begin(lease, 0)
    await stores.idempotency.record(claims[0], REFUSED)
    await run.commit(lease, 1, frontier={"masks": masker.state()})
    await run.park(lease)


def stored(store_url, work):
    async def store():
        stores = open_stores(store_url, pool_size=1)
        try:
            await work(stores)
        finally:
            await stores.lifecycle.close()

    asyncio.run(store())


def test_every_place_is_searched_and_nothing_is_shown(adk, store_url):
    """R3: where and which kind."""
    stored(store_url, everywhere)
    ran = adk("scan", "--json")

    assert ran.returncode == 4, ran.stderr
    assert not [secret for secret in SECRETS if secret in ran.stdout + ran.stderr]
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    found = {(line["run_id"], line["place"].partition(" ")[0], line["kind"]) for line in lines}
    assert found == {
        ("run", "input", "github"),
        ("run", "metadata.user.token", "named"),
        ("run", "metadata.list[0].a", "stripe"),
        ("run", "detail", "stripe"),
        ("run", "checkpoint.calls[0].arguments.key[0]", "github"),
        ("run", "transcript[0].parts[0].text", "pair"),
        ("run", "claim", "pair"),
        ("run", "event", "stripe"),
        ("over", "transcript[0].parts[0].text", "github"),
        ("over", "output", "github"),
    }
    assert f"{len(lines)} places in 2 of 2 runs" in ran.stderr
    assert [line.split("  ")[2:] for line in adk("scan").stdout.splitlines()] == [
        [line["place"], line["kind"]] for line in lines
    ]


def test_what_was_masked_is_not_found(adk, store_url):
    """R1, R3: what stands in its place, and what was never a secret."""
    stored(store_url, clean)
    ran = adk("scan")
    assert (ran.returncode, ran.stdout) == (0, ""), ran.stdout
    assert "0 places in 0 of 1 run" in ran.stderr


def test_it_only_reads(adk, store_url):
    """And takes no lease."""
    before = []

    async def look(stores):
        before.append(await Driver(stores, run_id="run").picture())

    stored(store_url, everywhere)
    stored(store_url, look)
    adk("scan")
    stored(store_url, look)
    assert before[0] == before[1]


def test_of_one_tenant_nothing_is_told_of_another(adk, store_url):
    """T1."""
    stored(store_url, everywhere)
    ran = adk("scan", "--tenant", "globex")
    assert (ran.returncode, ran.stdout) == (0, "")


def test_patterns_of_one_s_own_are_searched_for(adk, store_url):
    async def shop(stores):
        await Driver(stores).submit(input="it is shop_abcdefgh")

    stored(store_url, shop)
    assert adk("scan").returncode == 0
    ran = adk("scan", ADK_REDACT_PATTERNS='["shop_[a-z]{8}"]')
    assert (ran.returncode, ran.stdout) == (4, "acme  run  input  extra\n")


def test_more_runs_than_a_page_are_all_searched(adk, store_url):
    """R3: page by page."""

    async def many(stores):
        for number in range(130):
            text = f"password={PASSWORD}" if number % 100 == 7 else "nothing"
            await Driver(stores, run_id=f"run-{number}").submit(input=text)

    stored(store_url, many)
    ran = adk("scan")
    assert [line.split()[1] for line in ran.stdout.splitlines()] == ["run-107", "run-7"]
    assert "2 places in 2 of 130 runs" in ran.stderr
