"""``adk budget``: what it answers, and an operator's mistakes."""

from __future__ import annotations

import asyncio
import json

import jsonschema
import pytest

from adk_worker.cli import schemas
from adk_worker.cli.program import Invocation, perform
from adk_worker.cli.root import root
from adk_worker.cli.source import Given, operator
from adk_worker.conformance.runs.driver import Driver
from adk_worker.ledger.amounts import Budget, Unaccounted
from adk_worker.memory import memory_stores
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Then


class Sends:
    def __init__(self):
        self.sent = []

    async def dispatch(self, message):
        self.sent.append((message.run_id, message.ticket))


@pytest.fixture
def stores():
    return memory_stores()


@pytest.fixture
def sends():
    return Sends()


@pytest.fixture
def adk(stores, sends, capsys):
    """Types a command line; its exit code, and what it printed."""

    def adk(*argv):
        invocation = Invocation(Given(stores, dispatcher=sends))
        code = perform(root, ["budget", *argv], prog="adk", invocation=invocation)
        return code, *capsys.readouterr()

    return adk


async def parked(stores, run_id="run"):
    driver = Driver(stores, run_id=run_id)
    await driver.submit(budget=Budget(tokens=1000, cost_micros=500_000))
    await driver.reserve(await driver.worker(), 1200)
    return driver


def test_a_parked_run_is_raised_and_published(adk, stores, sends):
    """P3: at once, and the operator is told so."""
    driver = asyncio.run(parked(stores))

    code, out, err = adk("raise", "run", "--tenant", "acme", "--tokens", "9_000", "--cost", "0.25")

    run = asyncio.run(driver.run())
    assert (code, err) == (0, "1 run queued again\n")
    assert out == "budget: tokens 0 of 10000  cost 0 of 0.75\n"
    assert (run.status, sends.sent) == (RunStatus.QUEUED, [("run", run.fence)])
    assert run.ledger.limits == Budget(10_000, 750_000)


def test_a_tenant_s_runs_go_on_after_its_raise(adk, stores, sends):
    """P3."""
    assert adk("set", "--tenant", "acme", "--tokens", "1")[0] == 0

    async def park_two():
        for name in ("one", "two"):
            driver = Driver(stores, run_id=name)
            await driver.reserve(await driver.worker(), 10)

    asyncio.run(park_two())

    code, out, err = adk("raise", "--tenant", "acme", "--tokens", "100", "--json")

    answer = json.loads(out)
    assert (code, err, answer["queued"], answer["account"]["limits"]["tokens"]) == (0, "", 2, 101)
    assert sorted(run_id for run_id, _ in sends.sent) == ["one", "two"]
    jsonschema.validate(answer, json.loads(schemas.read("budget raise")))


def test_a_limit_is_taken_away(adk, stores):
    """P3."""
    driver = asyncio.run(parked(stores))

    code, out, _ = adk("set", "run", "--tenant", "acme", "--tokens", "none")

    assert (code, out) == (0, "budget: tokens 0 of no limit  cost 0 of 0.5\n")
    assert asyncio.run(driver.ledger()).limits == Budget(cost_micros=500_000)


def test_what_nobody_can_account_for_is_shown(adk, stores):
    """C6: also of a run that has no limit."""

    async def failed():
        driver = Driver(stores)
        await stores.runs.fail(await driver.worker(), detail="cut off", asked=True)
        return await driver.ledger()

    assert asyncio.run(failed()).unaccounted == Unaccounted(1)

    code, out, _ = adk("show", "run", "--tenant", "acme")

    assert code == 0
    assert out == (
        "unaccounted: a model call of which nobody knows what the provider charges, cut off or failed on the way\n"
    )


def test_what_there_is_nothing_to_say_of(adk, stores):
    asyncio.run(Driver(stores).submit())

    assert adk("show", "run", "--tenant", "acme") == (0, "no limit, and nothing unaccounted\n", "")
    assert adk("show", "--tenant", "acme") == (0, "tenant acme was never given limits\n", "")


@pytest.mark.parametrize("command", ["show", "set", "raise"])
def test_the_published_schema_holds_what_is_printed(adk, stores, command):
    asyncio.run(parked(stores))
    given = [] if command == "show" else ["--tokens", "7000"]

    _, out, _ = adk(command, "run", "--tenant", "acme", *given, "--json")

    jsonschema.validate(json.loads(out), json.loads(schemas.read(f"budget {command}")))


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["raise", "run", "--tenant", "acme"], 2, "Name what to change"),
        (["set", "run", "--tokens", "5"], 2, "Missing option '--tenant'"),
        (["raise", "run", "--tenant", "acme", "--tokens", "none"], 2, "'none' is no number of tokens"),
        (["raise", "run", "--tenant", "acme", "--tokens", "-5"], 2, "'-5' is no number of tokens"),
        (["set", "run", "--tenant", "acme", "--cost", "2,50"], 2, "'2,50' is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "inf"], 2, "'inf' is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "0.0000001"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "1e999999999"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "1e400"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "1e-999999999999999999"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", f"1.{'0' * 40}1"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--cost", "٣"], 2, "is no cost"),
        (["set", "run", "--tenant", "acme", "--tokens", "9" * 5_000], 2, "is no number of tokens"),
        (["raise", "run", "--tenant", "acme", "--tokens", "0"], 65, "above 0"),
        (["raise", "--tenant", "other", "--tokens", "5"], 65, "there is no limit of tokens to be raised"),
        (
            ["raise", "--tenant", "other", "--cost", "5"],
            65,
            "no limit of cost to be raised; set one first (adk budget set)",
        ),
        (["show", "no-such-run", "--tenant", "acme"], 1, "tenant 'acme' has no run 'no-such-run'"),
        (["raise", "run", "--tenant", "other", "--tokens", "5"], 1, "tenant 'other' has no run 'run'"),
        (["set", "run", "--tenant", "acme", "--tokens", str(1 << 60)], 65, "the highest there is"),
    ],
)
def test_an_operators_mistake_is_told_and_changes_nothing(adk, stores, argv, code, said):
    """T1: a tenant is never guessed."""
    driver = asyncio.run(parked(stores))
    before = asyncio.run(driver.picture())

    ended, out, err = adk(*argv)

    assert (ended, out) == (code, "")
    assert said in err
    assert asyncio.run(driver.picture()) == before


def test_a_run_that_is_over_is_not_raised(adk, stores):
    """P3."""

    async def over():
        driver = Driver(stores)
        await driver.commit(await driver.worker(), 1, Then.COMPLETE)

    asyncio.run(over())

    code, _, err = adk("set", "run", "--tenant", "acme", "--tokens", "5")

    assert code == 65
    assert "completed: it will never spend anything again" in err


def test_a_run_is_submitted_with_a_budget(stores, sends, capsys):
    """P3: one of the two leaves the other without a limit."""
    argv = ["run", "booking", "book", "--tenant", "acme", "--run-id", "run", "--max-cost", "2.50"]

    code = perform(root, argv, prog="adk", invocation=Invocation(Given(stores, dispatcher=sends)))

    assert code == 0
    assert "budget: tokens 0 of no limit  cost 0 of 2.5" in capsys.readouterr().out
    assert asyncio.run(Driver(stores).ledger()).limits == Budget(cost_micros=2_500_000)


def test_a_budget_is_for_a_submit(stores, sends, capsys):
    argv = ["run", "--resume", "run", "--tenant", "acme", "--max-tokens", "5"]

    code = perform(root, argv, prog="adk", invocation=Invocation(Given(stores, dispatcher=sends)))

    assert (code, capsys.readouterr().out) == (2, "")


@pytest.mark.parametrize(("typed", "kept"), [(("--by", "ana"), "ana"), ((), operator())])
def test_who_changed_a_limit_is_kept_with_it(adk, stores, typed, kept):
    """P5: as they say it, or as the operating system does; of a run in its events, of a tenant in its account."""
    asyncio.run(parked(stores))

    assert adk("raise", "run", "--tenant", "acme", "--tokens", "500", *typed)[0] == 0
    assert adk("set", "--tenant", "acme", "--tokens", "5000", *typed)[0] == 0

    async def told():
        events = await stores.runs.events("run", tenant="acme")
        account = await stores.runs.account("acme")
        return {event.data["by"] for event in events if event.kind == "budget_changed"}, account.changes[-1].by

    assert asyncio.run(told()) == ({kept}, kept)


def test_nobody_is_named_with_a_submit(stores, sends, capsys):
    argv = ["run", "booking", "book", "--tenant", "acme", "--by", "ana"]

    code = perform(root, argv, prog="adk", invocation=Invocation(Given(stores, dispatcher=sends)))

    assert code == 2
    assert "--by is for --resume." in capsys.readouterr().err
