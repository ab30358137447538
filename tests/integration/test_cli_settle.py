"""``adk settle``, as processes: what it prints, what it ends with, and an operator's mistakes."""

from __future__ import annotations

import json

import pytest

from tests.integration.given import given
from tests.integration.test_cli import _PATIENCE, Adk
from tests.servers.daemon import free_port

pytestmark = pytest.mark.timeout(240)

SAID = ("--tenant", "acme", "--why", "they have it", "--by", "ana")
SEAT = ("--completed", '{"seat": "12A"}')
INSISTS = ("--never-ran", "--owner-may-live")


@pytest.fixture
def adk(tmp_path, sqlite_store_url):
    """Nobody reaches the broker: what is queued is left to the reaper."""
    return Adk(tmp_path, ADK_STORE_URL=sqlite_store_url, ADK_BROKER_URL=f"redis://127.0.0.1:{free_port()}/0")


def inspected(adk):
    return json.loads(adk("inspect", "run_1", "--tenant", "acme", "--events", "--json").stdout)


@pytest.mark.parametrize(("option", "how"), [(SEAT, "completed"), (INSISTS, "never_ran")])
def test_a_settled_run_is_queued_though_the_broker_is_away(adk, sqlite_store_url, option, how):
    """I8, P5: the decision is in the store, with who and why; the reaper publishes."""
    given("undecided", sqlite_store_url)

    ran = adk("settle", "run_1", "call_0", *SAID, *option)

    assert ran.returncode == 0, ran.stderr
    assert "queued under fence" in ran.stdout
    assert "its message is not on its way yet" in ran.stderr
    found = inspected(adk)
    (call,) = found["calls"]
    (decision,) = call["decisions"]
    assert (decision["by"], decision["why"], decision["how"]) == ("ana", "they have it", how)
    (told,) = [event["data"] for event in found["events"] if event["kind"] == "decided"]
    assert (told["by"], told["os_user"], told["how"]) == ("ana", decision["os_user"], how)


def test_of_two_operators_at_once_one_settles(adk, sqlite_store_url):
    """I8: the other hears who has, and how."""
    given("undecided", sqlite_store_url)
    options = {"ana": SEAT, "bob": INSISTS}

    racing = {
        name: adk.start("settle", "run_1", "book", *SAID[:4], "--by", name, *said) for name, said in options.items()
    }
    ended = {}
    for name, process in racing.items():
        with process:
            _, err = process.communicate(timeout=_PATIENCE)
            ended[name] = (process.returncode, err)

    (winner,) = [name for name, (code, _) in ended.items() if code == 0]
    (loser,) = set(ended) - {winner}
    code, err = ended[loser]
    assert code == 65, err
    # Whether the call was looked up before the other's decision or after it.
    assert f"person:{winner}" in err
    assert len([event for event in inspected(adk)["events"] if event["kind"] == "decided"]) == 1


@pytest.mark.parametrize(
    ("state", "argv", "code", "said"),
    [
        ("nothing", ("run_1", "book", *SEAT), 1, "has no run 'run_1'"),
        ("undecided", ("run_1", "pay", *SEAT), 64, "has no call 'pay'"),
        ("undecided", ("run_1", "book", "--never-ran"), 4, "its owner may be alive"),
        ("completed", ("run_1", "book", *SEAT), 65, "is completed: it has ended"),
        ("held", ("run_1", "book", *SEAT), 64, "it has none"),
        ("undecided", ("run_1", "book", *SEAT, "--why", " "), 2, "say how you know"),
        ("undecided", ("run_1", "book", "--completed", "[" * 10_000), 2, "it is not JSON"),
        ("undecided", ("run_1", "book", "--completed", "[" * 195 + "]" * 195), 2, "nested too deeply"),
    ],
)
def test_what_cannot_be_settled_says_why(adk, sqlite_store_url, state, argv, code, said):
    """I8."""
    given(state, sqlite_store_url)

    ran = adk("settle", *SAID, *argv)

    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    assert said in ran.stderr


def test_a_long_outcome_is_read_from_the_standard_input(adk, sqlite_store_url):
    """I8: up to what a tool's result may have."""
    given("undecided", sqlite_store_url)

    long = adk("settle", "run_1", "book", *SAID, "--completed", "-", said=json.dumps("x" * 300_000))
    fits = adk("settle", "run_1", "book", *SAID, "--completed", "-", said=json.dumps("x" * 200_000))

    assert (long.returncode, long.stdout) == (2, "")
    assert "at most 262144 are taken" in long.stderr
    assert fits.returncode == 0, fits.stderr


def test_a_store_that_is_away_is_told(adk):
    ran = adk("settle", "run_1", "book", *SAID, *SEAT, ADK_STORE_URL="postgresql://app@127.0.0.1:1/nowhere")

    assert (ran.returncode, ran.stdout) == (69, "")
    assert "is not answering" in ran.stderr
