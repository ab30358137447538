"""``ADK_VERIFIER``: the application's own rules about who may do what, asked by the terminal too (P5)."""

from __future__ import annotations

import json

import pytest

from adk_worker.actors import os_user
from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

RIGHTS = """
from adk_worker import NotAllowedError

async def may(actor, action, *, tenant, run_id):
    if actor.name != "ana":
        reason = f"not {action} of {tenant} {run_id}, {actor.os_user}"
        raise NotAllowedError(actor=actor.name, action=action, reason=reason)
"""
OF = ("--tenant", "acme")
RUN = ("run_1", *OF)
MALLORY = ("--by", "mallory")
ACTS = {
    "approve": ("asking", ("approve", "run_1", "req-1", *OF), "acme run_1"),
    "deny": ("asking", ("deny", "run_1", "req-1", *OF, "--why", "no"), "acme run_1"),
    "revoke": ("granted", ("revoke", "run_1", "grant-1", *OF), "acme run_1"),
    "settle": ("undecided", ("settle", "run_1", "call_0", *OF, "--completed", "1", "--why", "seen"), "acme run_1"),
    "budget": ("over budget", ("budget", "raise", *RUN, "--tokens", "9000"), "acme run_1"),
    "budget of all": ("over budget", ("budget", "set", *OF, "--tokens", "9000"), "acme None"),
    "resume": ("parked", ("run", "--resume", *RUN), "acme run_1"),
    "resume of many": ("parked", ("resume", *OF, "--status", "parked", "--yes"), "acme None"),
    "cancel": ("parked", ("cancel", *RUN), "acme run_1"),
    "cancel of many": ("parked", ("cancel", *OF, "--status", "parked", "--yes"), "acme None"),
    "find": ("parked", ("find", "run_1"), "None run_1"),
    "prune": ("completed", ("prune", "--older-than", "0s"), "None None"),
}


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    """In the folder of a product that has rules. Nobody reaches the broker."""
    (tmp_path / "rights.py").write_text(RIGHTS)
    broker = f"redis://127.0.0.1:{free_port()}/0"
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=broker, ADK_VERIFIER="rights:may")


def told(adk):
    """Where the run stands, whoever has looked at it under a lease, and all that happened to it."""
    found = json.loads(adk("inspect", *RUN, "--events", "--json").stdout)
    stands = {name: value for name, value in found["run"].items() if name not in {"fence", "holder", "expires_at"}}
    return stands, found["events"]


@pytest.mark.parametrize("act", ACTS)
def test_who_may_not_is_refused_before_anything_is_written(adk, sqlite_store_url, act):
    """P5: each thing that a person can do; the verifier hears who, what, of whom, and through whose process."""
    state, typed, asked = ACTS[act]
    given(state, sqlite_store_url)
    before = told(adk)

    ran = adk(*typed, *MALLORY)

    assert ran.returncode == 77, ran.stderr
    assert f"not {act.split()[0]} of {asked}, {os_user()}" in ran.stderr
    assert told(adk) == before


def test_who_may_does(adk, sqlite_store_url):
    """P5."""
    given("parked", sqlite_store_url)

    ran = adk("cancel", *RUN, "--by", "ana")

    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        ("nowhere.rights:may", "ADK_VERIFIER nowhere.rights:may: module 'nowhere.rights' cannot be used"),
        ("rights:might", "it has no function 'might'"),
        ("rights:RIGHTS", "it has no function 'RIGHTS'"),
        ("rights", "ADK_VERIFIER has to name a function of a module, such as myshop.rights:may"),
    ],
)
def test_without_the_verifier_that_is_named_nobody_may(adk, sqlite_store_url, verifier, said):
    """P5: it fails closed, and who looks at the run is not held up, unless the setting itself cannot be read."""
    given("parked", sqlite_store_url)

    ran = adk("cancel", *RUN, "--by", "ana", ADK_VERIFIER=verifier)
    looked = adk("inspect", *RUN, ADK_VERIFIER=verifier)

    assert (ran.returncode, ran.stdout) == (78, "")
    assert said in ran.stderr
    assert looked.returncode == (0 if ":" in verifier else 78)
    assert told(adk)[0]["status"] == "parked"


def test_what_their_modules_print_is_no_part_of_an_answer(adk, sqlite_store_url, tmp_path):
    """P5: a program that reads --json would be given what is none, after the act."""
    given("parked", sqlite_store_url)
    (tmp_path / "loud.py").write_text(
        "print('as it is imported')\n\nagents = []\n\ndef may(actor, action, *, tenant, run_id):\n    print('asked')\n"
    )
    loud = {"ADK_VERIFIER": "loud:may", "ADK_AGENTS": "loud"}

    ran = adk("cancel", *RUN, "--json", **loud)
    looked = adk("inspect", *RUN, "--json", **loud)
    checked = adk("doctor", "--json", "--timeout", "1", **loud)

    assert json.loads(ran.stdout)["status"] == "cancelled"
    assert json.loads(looked.stdout)["run"]["status"] == "cancelled"
    for line in checked.stdout.splitlines():
        json.loads(line)
    assert "asked" in ran.stderr
    assert all("as it is imported" in one.stderr for one in (ran, looked, checked))
