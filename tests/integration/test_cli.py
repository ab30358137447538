"""The terminal, as processes: what is printed where, exit codes, and operators' mistakes."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from adk_worker.conformance.runs.driver import Driver
from adk_worker.transitions.runs import Then
from stores import open_stores
from tests.architecture.packages import ROOT
from tests.servers.daemon import free_port
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

_PATIENCE = 120
_RUN_1 = ("--tenant", "acme", "--run-id", "run_1")


class Adk:
    """Runs ``adk`` in a folder of its own, with an environment of its own."""

    def __init__(self, folder, **environment):
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith("ADK_")}
        ours = {"PYTHONPATH": str(ROOT), "XDG_RUNTIME_DIR": str(folder), "PYTHONUNBUFFERED": "1"}
        self.environment = {**kept, **ours, **environment}

    def start(self, *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **environment):
        return subprocess.Popen(
            [sys.executable, "-m", "adk_worker.cli", *argv],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *argv, said=None, **environment):
        """The finished process: ``returncode``, ``stdout``, ``stderr``."""
        stdin = subprocess.DEVNULL if said is None else subprocess.PIPE
        with self.start(*argv, stdin=stdin, **environment) as process:
            out, err = process.communicate(said, timeout=_PATIENCE)
        assert "Traceback" not in err, err
        return subprocess.CompletedProcess(argv, process.returncode, out, err)


@pytest.fixture
def dead_broker():
    """Nothing listens there, so that whatever is published is left to the reaper."""
    return f"redis://127.0.0.1:{free_port()}/0"


@pytest.fixture
def adk(tmp_path, sqlite_store_url, dead_broker):
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=dead_broker)


def submit(adk, run_id="run_1", *more, **environment):
    return adk("run", "booking", "book the flight", "--tenant", "acme", f"--run-id={run_id}", *more, **environment)


def test_help_needs_no_settings(tmp_path):
    adk = Adk(tmp_path)
    told = adk("--help")
    assert (told.returncode, told.stderr) == (0, "")
    for command in ("run", "inspect", "list", "cancel", "prune", "db", "dev"):
        assert f"\n  {command} " in told.stdout
    told = adk("db", "--help")
    assert all(command in told.stdout for command in ("upgrade", "verify", "bump-epoch"))


def test_a_run_is_submitted_looked_at_listed_and_cancelled(adk):
    """The broker is away all the time: nothing but the submit has to do with it, and that does not fail."""
    ran = submit(adk, "run_1", "--metadata", '{"seats": 2}')
    assert ran.returncode == 0
    assert ran.stdout.splitlines()[:2] == [
        "run run_1  tenant acme  agent booking",
        "iteration 0  0 in, 0 out  0 micros",
    ]
    assert "its message is not on its way yet" in ran.stderr

    looked = adk("inspect", "run_1", "--tenant", "acme", "--json")
    assert looked.returncode == 3
    told = json.loads(looked.stdout)
    assert told["run"]["metadata"] == {"seats": 2}
    assert told["lease"]["holder"] == "queue"

    listed = adk("list", "--tenant", "acme", "--status", "queued")
    assert listed.stdout.splitlines()[1].split()[:4] == ["acme", "run_1", "booking", "queued"]
    assert adk("list", "--attention").stdout == ""
    (line,) = adk("list", "--json").stdout.splitlines()
    assert json.loads(line)["run_id"] == "run_1"

    assert "cancelled" in adk("cancel", "run_1", "--tenant", "acme").stdout
    assert adk("inspect", "run_1", "--tenant", "acme").returncode == 0
    again = adk("run", "--resume", "run_1", "--tenant", "acme")
    assert (again.returncode, "it is over" in again.stderr) == (1, True)


def test_what_a_run_is_given_is_masked_as_the_settings_say(adk):
    """R1: with the patterns of one's own, and not at all where masking is off."""
    asked = ("run", "booking", "take shop_12ab34cd and password=hunter22hunter", "--tenant", "acme")
    patterns = '["shop_[a-z0-9]{8}"]'
    adk(*asked, "--run-id=masked", ADK_REDACT_PATTERNS=patterns)
    adk(*asked, "--run-id=open", ADK_REDACT_PATTERNS=patterns, ADK_REDACT="false")

    inputs = {run["run_id"]: run["input"] for run in map(json.loads, adk("list", "--json").stdout.splitlines())}
    assert inputs == {"masked": "take [secret:1] and password=[secret:2]", "open": asked[2]}


def test_a_pattern_that_is_none_stops_a_submit_and_no_look(adk):
    refused = submit(adk, ADK_REDACT_PATTERNS='["(shop_"]')
    assert (refused.returncode, "is no regular expression" in refused.stderr) == (78, True)
    assert adk("list", ADK_REDACT_PATTERNS='["(shop_"]').returncode == 0


def test_a_listing_of_more_than_its_limit_says_so(adk):
    for number in range(3):
        submit(adk, f"run_{number}")
    listed = adk("list", "--limit", "2")
    assert len(listed.stdout.splitlines()) == 3
    assert "there are more" in listed.stderr


def test_runs_that_are_over_are_removed_and_the_others_are_seen_to_load(adk):
    """C5: by the age of their last write."""
    for run_id in ("run_1", "run_2", "run_3"):
        submit(adk, run_id)
    for run_id in ("run_1", "run_2"):
        adk("cancel", run_id, "--tenant", "acme")

    kept = adk("prune", "--older-than", "1d")
    assert (kept.returncode, kept.stdout) == (0, "0 runs removed; 1 of 1 that are not over can be loaded\n")
    pruned = adk("prune", "--older-than", "0s", "--json")

    assert pruned.returncode == 0
    assert json.loads(pruned.stdout) == {"removed": 2, "undecided": 0, "examined": 1, "unloadable": []}
    assert adk("inspect", "run_1", "--tenant", "acme").returncode == 1
    assert [line.split()[1] for line in adk("list").stdout.splitlines()[1:]] == ["run_3"]


def test_a_schema_that_somebody_has_changed_is_told_from_its_version(adk, sqlite_store_url):
    assert adk("db", "verify").returncode == 0
    with closing(sqlite3.connect(sqlite_store_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DROP TABLE adk_claims")

    told = adk("db", "verify")

    assert told.returncode == 78
    assert "its schema is another one: table adk_claims is missing" in told.stderr


def test_a_run_that_does_not_load_is_named_after_a_prune(adk, sqlite_store_url):
    """H2: a transcript that somebody has removed by hand."""

    async def run(stores):
        driver = Driver(stores, run_id="run_1")
        said = driver.segment("hello")
        handle = {"history_handle": str(said.handle)}
        await driver.commit(await driver.worker(), 1, Then.PARK, segment=said, frontier=handle)
        await stores.lifecycle.close()

    asyncio.run(run(open_stores(sqlite_store_url)))
    with closing(sqlite3.connect(sqlite_store_url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("DELETE FROM adk_messages")

    told = adk("prune", "--older-than", "1d")

    assert (told.returncode, told.stdout) == (4, "0 runs removed; 0 of 1 that are not over can be loaded\n")
    assert "run 'run_1' of tenant 'acme' does not load: the transcript behind handle" in told.stderr
    assert adk("prune", "--older-than", "1d", "--no-check").returncode == 0


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("stores.py", ("list",)),
        ("stores/__init__.py", ("db", "upgrade")),
        ("tasks.py", ("run", "booking", "book", "--tenant", "acme")),
        ("tasks.py", ("dev", "--agents", "tests.integration.agents")),
    ],
)
def test_a_module_of_the_app_s_own_that_hides_a_package_of_ours_is_named(adk, name, argv):
    """Python looks in the working folder first, and an app may well have tasks."""
    file = adk.folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("# the app's own")
    told = adk(*argv)
    assert told.returncode == 78
    assert f"{file} hides adk-worker's own package" in told.stderr


def test_an_input_can_come_through_a_pipe(adk):
    ran = adk("run", "booking", "-", "--tenant", "acme", "--json", said="a long story\n")
    assert json.loads(ran.stdout)["input"] == "a long story\n"


def test_the_same_id_with_another_request_is_refused(adk):
    submit(adk)
    ran = adk("run", "booking", "another thing", "--tenant", "acme", "--run-id", "run_1")
    assert (ran.returncode, ran.stdout) == (65, "")
    assert "choose another run id" in ran.stderr


# --- an operator's mistakes ---------------------------------------------------------------------------------------


def test_a_command_line_that_cannot_be_read_is_2(adk):
    ran = adk("run", "booking", "book")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "Missing option '--tenant'" in ran.stderr
    ran = adk("inspect", "\x1b[2J", "--tenant", "acme")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "not a run id: it contains a control character" in ran.stderr


def test_hostile_names_that_can_be_names_are_taken_literally(adk):
    """T1: other programs would read a path, a pattern, an option or a separator in them."""
    for name in ["../*", "a:b", "--", "'; DROP TABLE adk_runs; --\u202egnp"]:
        assert submit(adk, name).returncode == 0
        ran = adk("inspect", "--tenant", "acme", "--", name)
        assert ran.returncode == 3
        assert "\u202e" not in ran.stdout
    assert adk("inspect", "a", "--tenant", "b:acme").returncode == 1


def test_a_run_that_nobody_knows_is_1(adk):
    for argv in (["inspect", "run_9"], ["run", "--resume", "run_9"], ["cancel", "run_9"]):
        ran = adk(*argv, "--tenant", "acme")
        assert (ran.returncode, ran.stdout) == (1, "")
        assert "tenant 'acme' has no run 'run_9'" in ran.stderr


def test_without_settings_it_says_which_are_missing(tmp_path):
    ran = Adk(tmp_path)("list")
    assert ran.returncode == 78
    assert "ADK_STORE_URL is not set" in ran.stderr
    assert "no adk dev of yours runs" in ran.stderr


def test_without_a_broker_nothing_is_submitted(adk):
    ran = submit(adk, ADK_BROKER_URL="")
    assert ran.returncode == 78
    assert "ADK_BROKER_URL is not set" in ran.stderr
    assert adk("list").stdout == ""


@pytest.mark.parametrize(
    ("url", "code", "said"),
    [
        ("oracle://scott:tiger@db/x", 78, "no store is registered for 'oracle://scott:***@db/x'"),
        ("memory://", 78, "shared with no other process"),
        ("here.db", 78, "has to be a URL"),
        ("sqlite:///nowhere/at/all.db", 69, "unable to open database file (its folder has to be there"),
    ],
)
def test_a_store_that_cannot_be_opened_says_why_and_no_password(adk, url, code, said):
    ran = adk("inspect", "run_1", "--tenant", "acme", ADK_STORE_URL=url)
    assert ran.returncode == code
    assert said in ran.stderr
    assert "tiger" not in ran.stderr


def test_a_store_that_does_not_answer_is_69(adk):
    """At start; nothing is said about the run."""
    url = f"postgresql://app:tiger@127.0.0.1:{free_port()}/adk"
    for argv in (["inspect", "run_1"], ["run", "--resume", "run_1"], ["run", "booking", "book"]):
        ran = adk(*argv, "--tenant", "acme", ADK_STORE_URL=url)
        assert (ran.returncode, ran.stdout) == (69, "")
        assert "is not answering" in ran.stderr
        assert "tiger" not in ran.stderr


def test_a_store_without_tables_names_the_command_that_makes_them(adk):
    ran = adk("list", ADK_STORE_URL=f"sqlite:///{adk.folder}/empty.db")
    assert ran.returncode == 78
    assert "adk db upgrade" in ran.stderr


def test_a_schema_of_another_version_is_refused(adk):
    with sqlite3.connect(adk.folder / "store.db") as connection:
        connection.execute("UPDATE adk_schema SET version = '9999'")
    connection.close()
    for argv in (["db", "verify"], ["run", "booking", "book", "--tenant", "acme"]):
        ran = adk(*argv)
        assert ran.returncode == 78
        assert "is at version 9999, this adk-worker needs" in ran.stderr


def agents_module(adk, text, name="shop"):
    (adk.folder / f"{name}.py").write_text(text)
    return {"ADK_AGENTS": name}


SHOP = """
from __future__ import annotations
from adk_worker import Agent
booking = Agent(name="booking", instructions="Book.", model="scripted:shop:turns")
turns = ["Booked."]
"""


def test_an_agent_that_is_not_known_is_64_and_those_that_are_are_named(adk):
    """Modules are found from the working folder, as Celery finds them."""
    ran = adk("run", "bookin", "book", "--tenant", "acme", **agents_module(adk, SHOP))
    assert (ran.returncode, ran.stdout) == (64, "")
    assert "no agent named 'bookin' is registered (known: booking)" in ran.stderr
    assert submit(adk, **agents_module(adk, SHOP)).returncode == 0


def test_a_module_that_does_not_import_stops_a_submit_and_no_look(adk):
    submit(adk)
    broken = agents_module(adk, "raise RuntimeError('no such database')", name="broken")
    ran = submit(adk, "run_2", **broken)
    assert ran.returncode == 78
    assert "'broken' does not import: RuntimeError: no such database" in ran.stderr
    ran = adk("inspect", "run_1", "--tenant", "acme", **broken)
    assert ran.returncode == 3
    assert "it is not known here which tools have a probe" in ran.stderr


# --- the store's schema and epoch ---------------------------------------------------------------------------------


def test_the_tables_are_made_by_a_command_and_checked_by_another(adk):
    adk.environment["ADK_STORE_URL"] = f"sqlite:///{adk.folder}/new.db"
    assert adk("db", "verify").returncode == 78
    made = json.loads(adk("db", "upgrade", "--json").stdout)
    assert made["before"] is None
    assert f"is at {made['after']} already" in adk("db", "upgrade").stdout
    assert adk("db", "verify").returncode == 0
    assert json.loads(adk("db", "verify", "--json").stdout)["ok"] is True


def test_tables_may_be_made_with_other_rights(adk):
    ran = adk(
        "db", "upgrade", ADK_STORE_URL="postgresql://app@127.0.0.1:1/x", ADK_MIGRATE_URL=f"sqlite:///{adk.folder}/m.db"
    )
    assert ran.returncode == 0
    assert (adk.folder / "m.db").exists()


def test_the_epoch_rises(adk):
    """L2."""
    assert json.loads(adk("db", "bump-epoch", "--json").stdout)["epoch"] == 1
    assert "is in epoch 2" in adk("db", "bump-epoch").stdout
    submit(adk)
    assert json.loads(adk("list", "--json").stdout)["fence"] == (2 << 40) + 1


def test_what_is_no_database_has_no_tables_to_make(adk):
    ran = adk("db", "upgrade", ADK_STORE_URL="memory://")
    assert ran.returncode == 78


# --- how it ends --------------------------------------------------------------------------------------------------


def test_a_wait_shows_what_happens_line_by_line_and_ctrl_c_ends_it_alone(adk):
    """The run itself goes on."""
    with adk.start("run", "booking", "book", *_RUN_1, "--wait") as process:
        lines = []
        wait_until(
            lambda: lines.append(process.stderr.readline()) or "submitted" in lines[-1],
            within=_PATIENCE,
            what="the first event",
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 130
    assert "run run_1 itself goes on" in err
    assert "Traceback" not in err
    assert out == ""
    assert adk("inspect", "run_1", "--tenant", "acme").returncode == 3


def test_on_a_terminal_a_wait_is_one_live_line(adk):
    ours, theirs = pty.openpty()
    with adk.start("run", "booking", "book", *_RUN_1, "--wait", stderr=theirs, TERM="xterm") as process:
        os.close(theirs)
        shown = []

        def live():
            shown.append(os.read(ours, 10_000).decode())
            return "run_1  queued  iteration 0, 0 in, 0 out" in "".join(shown)

        wait_until(live, within=_PATIENCE, what="the live line")
        adk("cancel", "run_1", "--tenant", "acme")
        out, _ = process.communicate(timeout=_PATIENCE)
    os.close(ours)
    assert out.splitlines()[-1] == "cancelled"
    assert "submitted  fence" not in "".join(shown)


def test_a_wait_that_takes_too_long_is_75(adk):
    ran = submit(adk, "run_1", "--wait", "--timeout", "0.1")
    assert (ran.returncode, ran.stdout) == (75, "")
    assert "did not happen within 0.1 s" in ran.stderr


def test_a_wait_for_a_run_that_is_cancelled_is_65(adk):
    with adk.start("run", "booking", "book", *_RUN_1, "--wait") as process:
        wait_until(lambda: "submitted" in process.stderr.readline(), within=_PATIENCE, what="the first event")
        adk("cancel", "run_1", "--tenant", "acme")
        out, err = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 65
    assert "cancel_requested" in err
    assert out.splitlines()[-1] == "cancelled"


def test_a_pipe_that_nobody_reads_any_more_is_no_error_of_ours(adk):
    submit(adk)
    read, write = os.pipe()
    os.close(read)
    with adk.start("list", "--json", stdout=write) as process:
        os.close(write)
        _, err = process.communicate(timeout=_PATIENCE)
    assert (process.returncode, err) == (141, "")
