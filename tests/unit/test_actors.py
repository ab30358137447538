from __future__ import annotations

import asyncio
import os
import pwd

import pytest

from adk_worker import Fleet, memory_stores
from adk_worker.actors import Action, Actor, os_user, verify
from adk_worker.errors import InvalidNameError, NotAllowedError, RunNotFoundError
from adk_worker.runs import NewRun
from adk_worker.settings import Settings
from adk_worker.transitions.runs import FleetPolicy
from adk_worker.wiring import make_fleet


@pytest.mark.parametrize("name", ["", " ana", "a\nb", "a\x00b", None])
def test_who_acts_has_a_name(name):
    """P5."""
    with pytest.raises(InvalidNameError, match="who acts"):
        Actor(name)


def test_the_operating_systems_user_is_not_what_the_environment_says(monkeypatch):
    """P5: it is kept beside a name that somebody gives, and so must not be given by the same."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "mallory")

    assert Actor.here("ana") == Actor("ana", os_user())
    assert os_user() == pwd.getpwuid(os.getuid()).pw_name


def test_a_user_without_a_name_is_named_by_its_number(monkeypatch):
    """P5: as in a container that runs under a number of its platform's."""
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)

    assert os_user() == str(2**31 - 7)


class Asked:
    """A verifier that remembers what it was asked."""

    def __init__(self, answer=lambda: None):
        self.answer = answer
        self.asked = []

    def __call__(self, actor, action, *, tenant, run_id):
        self.asked.append((actor, action, tenant, run_id))
        return self.answer()


def refuse():
    raise NotAllowedError(actor="ana", action="cancel", reason="she is new here")


async def later():
    refuse()


async def fine():
    pass


def broken():
    raise ConnectionError("no directory")


def exits():
    raise SystemExit(3)


async def exits_later():
    exits()


async def cancelled():
    """As a library leaves it behind whose own time is over."""
    raise asyncio.CancelledError


async def test_without_a_verifier_whoever_was_authenticated_may():
    """P5."""
    await verify(None, Actor("ana"), Action.CANCEL, tenant="acme", run_id="run")


@pytest.mark.parametrize("answer", [lambda: None, fine], ids=["plain", "async"])
async def test_a_verifier_may_allow(answer):
    """P5."""
    verifier = Asked(answer)

    await verify(verifier, Actor("ana"), Action.CANCEL, tenant="acme", run_id="run")

    assert verifier.asked == [(Actor("ana"), "cancel", "acme", "run")]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refuse, "she is new here"),
        (later, "she is new here"),
        (broken, "ConnectionError: no directory"),
        (exits, "SystemExit: 3"),
        (exits_later, "SystemExit: 3"),
        (cancelled, "CancelledError"),
        (lambda: True, "returned bool"),
        (lambda: False, "returned bool"),
    ],
    ids=["raises", "raises later", "breaks", "exits", "exits later", "cancelled by itself", "true", "false"],
)
async def test_whatever_else_a_verifier_does_refuses(answer, said):
    """P5: it fails closed; one that returns its verdict is not taken to have allowed."""
    with pytest.raises(NotAllowedError, match=said) as refused:
        await verify(Asked(answer), Actor("ana"), Action.CANCEL, tenant="acme", run_id="run")

    assert (refused.value.actor, refused.value.action) == ("ana", "cancel")


async def test_who_is_cancelled_while_a_verifier_is_asked_is_cancelled():
    """P5: a verifier that hangs can be got rid of, and nobody is told that they may not."""
    asked = asyncio.Event()

    async def hangs():
        asked.set()
        await asyncio.Event().wait()

    verifying = asyncio.ensure_future(verify(Asked(hangs), Actor("ana"), Action.CANCEL, tenant="acme", run_id="run"))
    await asked.wait()
    verifying.cancel()

    with pytest.raises(asyncio.CancelledError):
        await verifying


@pytest.mark.parametrize("what", ["cancel", "resume"])
async def test_what_is_not_allowed_is_not_written(what):
    """P5."""
    stores = memory_stores()
    await stores.runs.submit(NewRun("acme", "run", "booking", "go"), policy=FleetPolicy())
    before = await stores.runs.get("run", tenant="acme"), await stores.runs.events("run", tenant="acme")
    verifier = Asked(refuse)

    with pytest.raises(NotAllowedError):
        await getattr(Fleet(stores, None, verifier=verifier), what)("run", tenant="acme", by="ana")

    assert verifier.asked == [(Actor.here("ana"), what, "acme", "run")]
    assert (await stores.runs.get("run", tenant="acme"), await stores.runs.events("run", tenant="acme")) == before


async def test_an_event_says_who_acted_and_through_which_user():
    """P5."""
    stores = memory_stores()
    await stores.runs.submit(NewRun("acme", "run", "booking", "go"), policy=FleetPolicy())

    await Fleet(stores, None).cancel("run", tenant="acme", by="ana")

    told = [event.data for event in await stores.runs.events("run", tenant="acme") if event.kind == "cancel_requested"]
    assert told == [{"by": "ana", "os_user": os_user()}]


async def test_a_fleet_that_is_made_from_settings_asks_the_verifier_that_they_name(tmp_path, monkeypatch):
    """P5: and one that is given in its place."""
    (tmp_path / "rules.py").write_text(
        "def may(actor, action, *, tenant, run_id):\n    raise ValueError('by the rules')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = Settings(store_url="memory://", broker_url="memory://", verifier=" rules:may ")

    with pytest.raises(NotAllowedError, match="by the rules"):
        await make_fleet(settings).cancel("run", tenant="acme", by="ana")

    with pytest.raises(RunNotFoundError):
        await make_fleet(settings, verifier=Asked()).cancel("run", tenant="acme", by="ana")
