"""``adk watch`` as a process: what it shows of one run and of many, and how it ends."""

from __future__ import annotations

import json
import os
import pty
import signal
import threading

import pytest

from tests.integration.given import given
from tests.integration.test_cli import Adk
from tests.servers.daemon import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(300)

_PATIENCE = 120


class Watching:
    """A watch under way: the lines that it has printed so far, and what it has said on the standard error."""

    def __init__(self, process):
        self.process = process
        self.lines, self.said = [], []
        self._threads = [
            threading.Thread(target=self._read, args=(stream, into), daemon=True)
            for stream, into in ((process.stdout, self.lines), (process.stderr, self.said))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream, into):
        for line in stream:
            into.append(line.rstrip("\n"))

    def shows(self, what):
        wait_until(
            lambda: any(what in line for line in self.lines),
            within=_PATIENCE,
            what=f"{what!r} to be shown; {self.lines} {self.said}",
        )

    def says(self, what):
        wait_until(lambda: any(what in line for line in self.said), within=_PATIENCE, what=f"{what!r} to be said")

    def ends(self):
        code = self.process.wait(_PATIENCE)
        for thread in self._threads:
            thread.join(_PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        assert not any("Traceback" in line for line in self.said), self.said
        return code

    def interrupted(self):
        self.process.send_signal(signal.SIGINT)
        return self.ends()


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


@pytest.fixture
def watch(adk):
    """Start a watch, which is ended with the test."""
    started = []

    def start(*argv, **how):
        started.append(adk.start("watch", *argv, **how))
        return Watching(started[-1])

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def test_a_run_is_watched_event_by_event_until_it_rests(adk, watch, sqlite_store_url):
    given("queued", sqlite_store_url)
    watching = watch("run_1", "--tenant", "acme")
    watching.shows("submitted  fence 1  agent booking")

    adk("cancel", "run_1", "--tenant", "acme")

    assert watching.ends() == 65
    assert watching.lines[-1] == "cancelled"
    assert any("cancel_requested" in line for line in watching.lines)


def test_a_run_that_has_completed_ends_a_watch_at_once(adk, sqlite_store_url):
    given("completed", sqlite_store_url)
    told = adk("watch", "run_1", "--tenant", "acme", "--json")

    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert told.returncode == 0
    assert [line["event"]["kind"] for line in lines[:-1]] == ["submitted", "taken", "after_tool_result"]
    assert (lines[-1]["event"], lines[-1]["run"]["status"]) == (None, "completed")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["run_9", "--tenant", "acme"], 1, "has no run 'run_9'"),
        (["run_1"], 2, "RUN_ID alone names no run"),
        (["run_1", "--tenant", "acme", "--attention"], 2, "for watching more than one run"),
        (["--every", "0"], 2, "is not in the range"),
    ],
)
def test_a_watch_of_nothing_says_why(adk, argv, code, said):
    told = adk("watch", *argv)

    assert (told.returncode, told.stdout) == (code, "")
    assert said in told.stderr


def test_a_watch_of_one_run_that_is_interrupted_is_130(watch, sqlite_store_url):
    given("queued", sqlite_store_url)
    watching = watch("run_1", "--tenant", "acme")
    watching.shows("submitted")

    assert watching.interrupted() == 130


def test_all_runs_are_watched_change_by_change_until_ctrl_c(adk, watch, sqlite_store_url):
    given("parked", sqlite_store_url)
    watching = watch("--every", "0.1")
    watching.shows("acme  run_1  booking  parked (over_budget)  iteration 1")

    given("queued", sqlite_store_url, run_id="run_2")
    watching.shows("acme  run_2  booking  queued  iteration 0")
    adk("cancel", "run_1", "--tenant", "acme")
    watching.shows("acme  run_1  booking  cancelled  iteration 1")

    assert watching.interrupted() == 0
    assert len(watching.lines) == 3


def test_a_run_that_needs_nobody_any_more_is_told_once(adk, watch, sqlite_store_url):
    given("parked", sqlite_store_url)
    given("queued", sqlite_store_url, run_id="run_2")
    watching = watch("--attention", "--every", "0.1", "--json")
    watching.shows('"parked"')

    adk("cancel", "run_1", "--tenant", "acme")
    watching.shows('"cancelled"')

    assert watching.interrupted() == 0
    runs = [json.loads(line)["run"] for line in watching.lines]
    assert [(run["run_id"], run["status"]) for run in runs] == [("run_1", "parked"), ("run_1", "cancelled")]


def test_on_a_terminal_the_runs_are_a_table_that_is_drawn_anew(adk, watch, sqlite_store_url):
    """P4: what is in a name is no markup, and moves nothing."""
    given("parked", sqlite_store_url, run_id="[red]run_1[/red]")
    ours, theirs = pty.openpty()
    watching = adk.start("watch", "--every", "0.1", stdout=theirs, TERM="xterm", COLUMNS="120", LINES="30")
    os.close(theirs)
    shown = []

    def draws(what):
        def seen():
            shown.append(os.read(ours, 65536).decode())
            return what in "".join(shown)

        wait_until(seen, within=_PATIENCE, what=f"{what!r} to be drawn")

    try:
        draws("[red]run_1[/red]")
        draws("1 run at ")
        given("queued", sqlite_store_url, run_id="run_2")
        draws("2 runs at ")
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=_PATIENCE)
    finally:
        os.close(ours)
        watching.kill()
        watching.wait()

    assert watching.returncode == 0
    assert "Traceback" not in err
    assert "ATTENTION" in "".join(shown)


def test_a_store_that_is_away_is_told_and_waited_for(watch, postgres_store_url, postgres_proxy):
    given("parked", postgres_store_url)
    watching = watch("--every", "0.1", ADK_STORE_URL=postgres_proxy.url(postgres_store_url))
    watching.shows("run_1")

    postgres_proxy.refuse()
    postgres_proxy.cut()
    watching.says("is not answering")
    postgres_proxy.accept()
    watching.says("the store answers again")

    assert watching.interrupted() == 0
    assert sum("Waiting for it." in line for line in watching.said) == 1


@pytest.mark.parametrize("argv", [("run_1", "--tenant", "acme"), ("--every", "0.2")])
def test_a_watch_that_nobody_reads_any_more_ends_though_nothing_happens(adk, sqlite_store_url, argv):
    """As of ``adk watch | head -1``, which would otherwise wait for the next event of a fleet that may be asleep."""
    given("queued", sqlite_store_url)
    with adk.start("watch", *argv) as process:
        assert process.stdout.readline()

        process.stdout.close()

        assert process.wait(_PATIENCE) == 141
        assert "Traceback" not in process.stderr.read()
