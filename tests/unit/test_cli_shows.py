"""What the terminal shows of runs: the table, and the progress of one that is waited for."""

from __future__ import annotations

import io

import pytest

from adk_worker.cli import dev, progress
from adk_worker.cli.runs import table
from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import StoreUnavailableError, WaitTimeoutError
from adk_worker.memory import memory_stores
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention
from tests.unit.test_client import Broker
from tests.unit.test_describe import WORKER, a_run


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_each_run_of_a_table_is_a_line_with_all_that_it_is_about():
    runs = [
        a_run(RunStatus.RUNNING, holder=WORKER, updated_at=1_795_000_000.0),
        a_run(RunStatus.PARKED, run_id="東京 " + "x" * 300, attention=Attention.POISONED),
    ]
    heading, first, second = table(runs).split("\n")
    assert heading.split() == ["TENANT", "RUN", "AGENT", "STATUS", "ATTENTION", "ITERATION", "UPDATED", "HOLDER"]
    assert first.split() == [
        "acme",
        "run_1",
        "booking",
        "running",
        "3",
        "2026-11-18",
        "11:06:40Z",
        "web-7",
        "pid",
        "4711",
    ]
    assert second.split()[:5] == ["acme", "東京", "x" * 300, "booking", "parked"]


def test_on_a_terminal_a_table_fits_into_it(monkeypatch):
    monkeypatch.setattr("sys.stdout", Terminal())
    monkeypatch.setenv("COLUMNS", "100")
    lines = table([a_run(run_id="x" * 300)]).split("\n")
    assert max(map(len, lines)) <= 100
    assert sum(line.count("x") for line in lines) == 300


def test_nothing_in_a_table_moves_the_terminal():
    """P4."""
    shown = table([a_run(run_id="a\u202eb", agent="[red]x[/red]\x1b[2J", holder="\x1b[1m")])
    assert "a\\u202eb" in shown
    assert "[red]x[/red]\\x1b[2J" in shown
    assert "\x1b" not in shown


def test_the_live_line_says_how_a_run_stands():
    run = a_run(RunStatus.RUNNING, holder=WORKER, attention=Attention.EXCEPTION, crashes=2)
    assert progress.standing_line(run) == (
        "run_1  running  on web-7 pid 4711  iteration 3, 1200 in, 300 out  in its way: exception  crashes: 2"
    )
    assert progress.standing_line(a_run(RunStatus.QUEUED)) == "run_1  queued  iteration 3, 1200 in, 300 out"


@pytest.fixture
def driver():
    return Driver(memory_stores())


@pytest.fixture
def fleet(driver):
    return Fleet(driver.stores, Broker())


async def test_a_run_is_followed_event_by_event_until_it_rests(driver, fleet, capsys):
    await driver.park(await driver.worker())
    run = await progress.follow(fleet, "run", tenant="acme", timeout=None)
    assert run.status is RunStatus.PARKED
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split("  ")[1] for line in err.splitlines()] == ["submitted", "taken", "parked"]


async def test_a_store_that_is_away_for_a_moment_is_waited_for(driver, fleet, capsys, monkeypatch):
    await driver.park(await driver.worker())
    monkeypatch.setattr(progress, "_LONGEST_PAUSE", 0.01)
    reading = driver.runs.get
    answers = iter([False, False])

    async def get(*args, **kwargs):
        if next(answers, True):
            return await reading(*args, **kwargs)
        raise StoreUnavailableError(store="postgresql://db", reason="connection refused")

    monkeypatch.setattr(driver.runs, "get", get)
    assert (await progress.follow(fleet, "run", tenant="acme", timeout=None)).status is RunStatus.PARKED
    assert capsys.readouterr().err.count("is not answering") == 1


async def test_a_store_that_stays_away_is_given_up(driver, fleet, monkeypatch):
    monkeypatch.setattr(progress, "_OUTAGE", 0.0)

    async def get(*_, **__):
        raise StoreUnavailableError(store="postgresql://db", reason="connection refused")

    monkeypatch.setattr(driver.runs, "get", get)
    with pytest.raises(StoreUnavailableError):
        await progress.follow(fleet, "run", tenant="acme", timeout=None)


async def test_that_nobody_takes_a_run_is_said_once(driver, fleet, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    monkeypatch.setattr(progress, "_LONGEST_PAUSE", 0.01)
    await driver.submit()
    reading = driver.runs.get
    looks = 0

    async def get(*args, **kwargs):
        nonlocal looks
        looks += 1
        if looks == 6:
            await driver.park(await driver.worker())
        return await reading(*args, **kwargs)

    monkeypatch.setattr(driver.runs, "get", get)
    await progress.follow(fleet, "run", tenant="acme", timeout=None)
    assert capsys.readouterr().err.count("no worker takes run: does one run") == 1


async def test_a_run_that_does_not_rest_in_time_is_let_go(driver, fleet):
    await driver.submit()
    with pytest.raises(WaitTimeoutError):
        await progress.follow(fleet, "run", tenant="acme", timeout=0.01)


def test_a_fleet_whose_terminal_was_closed_is_told_to_stop(monkeypatch):
    """Otherwise its programs would wait for ever for somebody to read what they print."""

    class Closed(io.StringIO):
        def write(self, _):
            raise BrokenPipeError

    log = dev.Log()
    told = []
    log.on_broken = lambda: told.append("stop")
    monkeypatch.setattr("sys.stdout", Closed())
    log.line("worker", "ready")
    log.line("worker", "gone")
    assert told == ["stop"]


def test_a_line_of_a_program_stands_behind_its_name_and_moves_nothing(capsys):
    """P4."""
    dev.Log().line("worker-1", "a\tb\x1b[2J")
    assert capsys.readouterr().out == " worker-1 | a       b\\x1b[2J\n"
