"""``adk resume``, ``adk cancel`` without an id, and ``adk find``, as processes."""

from __future__ import annotations

import json
import os
import pty

import pytest

from tests.integration.given import given
from tests.integration.test_cli import _PATIENCE, Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

FAILED = ("--tenant", "acme", "--status", "failed")


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


@pytest.fixture
def failed(sqlite_store_url):
    """Three runs that an outage has failed."""
    for number in range(3):
        given("failed", sqlite_store_url, run_id=f"run_{number}")


def statuses(adk):
    """How each run stands, as ``adk list`` has it."""
    listed = [json.loads(line) for line in adk("list", "--json").stdout.splitlines()]
    return {run["run_id"]: run["status"] for run in listed}


def test_what_an_outage_has_failed_is_queued_again_after_a_dry_run(adk, failed):
    """P2: the dry run writes nothing; a broker that is away is tried once, and the reaper does the rest."""
    dry = adk("resume", *FAILED, "--since", "1h", "--dry-run")
    assert (dry.returncode, dry.stderr) == (0, "3 runs: 3 due\n")
    assert dry.stdout.splitlines() == [f"due       acme  run_{number}  booking  failed" for number in (2, 1, 0)]
    assert set(statuses(adk).values()) == {"failed"}

    done = adk("resume", *FAILED, "--since", "1h", "--limit", "2", "--yes")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [f"done      acme  run_{number}  booking  queued" for number in (2, 1)]
    assert done.stderr.count("its message is not on its way yet") == 1
    assert statuses(adk) == {"run_2": "queued", "run_1": "queued", "run_0": "failed"}

    assert adk("resume", *FAILED, "--yes").stdout.splitlines() == ["done      acme  run_0  booking  queued"]
    again = adk("resume", *FAILED, "--yes")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "no such runs\n")


def test_who_did_it_is_in_each_runs_events(adk, failed):
    """P5: as far as the operating system knows them."""
    adk("cancel", "--tenant", "acme", "--status", "parked", "--yes")
    adk("resume", *FAILED, "--yes")
    told = json.loads(adk("inspect", "run_1", "--tenant", "acme", "--events", "--json").stdout)
    (requeued,) = [event for event in told["events"] if event["kind"] == "requeued"]
    assert requeued["data"]["by"].startswith("cli:")


def test_a_run_that_must_not_be_is_refused_and_the_others_are_done(adk, failed, sqlite_store_url):
    """C3: exit code 65, and the reason on its line."""
    given("lost", sqlite_store_url, run_id="lost")
    ran = adk("resume", "--all-tenants", "--since", "1h", "--yes", "--json")
    assert ran.returncode == 65
    told = {one["run"]["run_id"]: one for one in map(json.loads, ran.stdout.splitlines())}
    assert {name: one["outcome"] for name, one in told.items()} == {
        **{f"run_{number}": "done" for number in range(3)},
        "lost": "refused",
    }
    assert told["lost"]["error"]["error"] == "FrontierLostError"
    assert "4 runs: 3 done, 1 refused" in ran.stderr


def test_cancelled_by_attention(adk, failed, sqlite_store_url):
    """P2: nothing else is."""
    given("parked", sqlite_store_url, run_id="parked")
    given("queued", sqlite_store_url, run_id="queued")
    ran = adk("cancel", "--all-tenants", "--attention", "over_budget", "--yes")
    assert (ran.returncode, ran.stdout) == (0, "done      acme  parked  booking  cancelled\n")
    assert statuses(adk)["queued"] == "queued"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("resume", "run_1", "--tenant", "acme"), "`adk run --resume run_1 --tenant T`"),
        (("resume", "--status", "failed", "--yes"), "Missing option '--tenant'; or --all-tenants."),
        (("resume", *FAILED, "--all-tenants", "--yes"), "cannot be given together"),
        (("cancel", "--tenant", "acme", "--yes"), "at least one of --status"),
        (("cancel", "run_1", "--tenant", "acme", "--status", "parked"), "--status is for many runs"),
        (("cancel", "run_1", "--tenant", "acme", "--dry-run"), "--dry-run is for many runs"),
        (("cancel", "run_1"), "Missing option '--tenant'."),
        (("cancel", *FAILED, "--yes"), "nothing to cancel in runs that are failed"),
        (("resume", "--tenant", "acme", "--status", "completed", "--yes"), "may be failed, parked, queued"),
        (("resume", *FAILED), "Nobody can be asked here"),
        (("resume", *FAILED, "--json"), "Nobody can be asked here"),
        (("resume", *FAILED, "--since", "yesterday", "--yes"), "write how long ago (12h)"),
        (("resume", *FAILED, "--since", "1h", "--until", "2h", "--yes"), "--since has to be before --until"),
        (("resume", "--tenant", "acme", "--attention", "tired", "--yes"), "is not one of"),
        (("list", "--attention", "tired"), "is not one of"),
        (("find", ""), "it is empty"),
    ],
)
def test_an_operators_mistake_is_2_and_changes_nothing(adk, failed, argv, said):
    """P2: whoever does not say which runs, means none."""
    ran = adk(*argv)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert said in " ".join(ran.stderr.split())
    assert set(statuses(adk).values()) == {"failed"}


def asked(adk, *argv, answer):
    """Carry out a command at a terminal, and answer its question with what ``answer`` returns."""
    ours, theirs = pty.openpty()
    with adk.start(*argv, stdin=theirs) as process:
        os.close(theirs)
        question = ""
        while "Go on?" not in question:
            said = process.stderr.read(1)
            assert said, f"it did not ask: {question}"
            question += said
        os.write(ours, answer().encode())
        out, err = process.communicate(timeout=_PATIENCE)
    os.close(ours)
    return process.returncode, out, question + err


def test_at_a_terminal_it_asks_and_acts_on_what_it_has_shown(adk, failed, sqlite_store_url):
    """P2: one that was moved while it asked is told as changed, by the exit code too; one that failed since stays."""

    def yes():
        assert adk("run", "--resume", "run_1", "--tenant", "acme", "--no-wait").returncode == 0
        given("failed", sqlite_store_url, run_id="new")
        return "y\n"

    code, out, err = asked(adk, "resume", *FAILED, answer=yes)
    assert code == 65
    assert "3 of them are to be queued again. Go on?" in err
    assert "3 runs: 1 changed, 2 done" in err
    came = [line.split()[:3:2] for line in out.splitlines()]
    assert came[3:] == [["done", "run_2"], ["changed", "run_1"], ["done", "run_0"]]
    assert statuses(adk)["new"] == "failed"


def test_whoever_says_no_has_done_nothing(adk, failed):
    code, _, err = asked(adk, "resume", *FAILED, answer=lambda: "n\n")
    assert code == 130
    assert "nothing was done" in err
    assert set(statuses(adk).values()) == {"failed"}


def test_a_store_that_is_away_is_69_and_says_how_far_it_came(adk):
    ran = adk("resume", *FAILED, "--yes", ADK_STORE_URL="postgresql://app@127.0.0.1:1/nowhere")
    assert ran.returncode == 69
    assert "is not answering" in ran.stderr


def test_a_run_is_found_whichever_tenants_it_is(adk):
    """T1: the newest first; an id that only begins so is another one."""
    for tenant in ("acme", "other"):
        adk("run", "booking", "book", "--tenant", tenant, "--run-id", "wanted")
    found = adk("find", "wanted")
    assert found.returncode == 0
    assert [line.split()[:2] for line in found.stdout.splitlines()[1:]] == [["other", "wanted"], ["acme", "wanted"]]
    told = [json.loads(line)["tenant"] for line in adk("find", "wanted", "--json").stdout.splitlines()]
    assert told == ["other", "acme"]
    nothing = adk("find", "wante")
    assert (nothing.returncode, nothing.stdout, nothing.stderr) == (1, "", "no tenant has a run 'wante'\n")


def test_runs_are_listed_by_more_than_their_status(adk, failed, sqlite_store_url):
    given("parked", sqlite_store_url, run_id="parked")
    assert [line.split()[1] for line in adk("list", "--attention").stdout.splitlines()[1:]] == ["parked"]
    assert adk("list", "--attention", "over_budget", "--agent", "booking").stdout.splitlines()[1].split()[1] == "parked"
    assert adk("list", "--attention", "poisoned").stderr == "no such runs\n"
    assert adk("list", "--agent", "refunds").stderr == "no such runs\n"
    assert adk("list", "--until", "2020-01-31T03:00Z").stderr == "no such runs\n"
    assert len(adk("list", "--since", "2020-01-31 03:00").stdout.splitlines()) == 5
