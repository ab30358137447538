"""Command lines that cannot be read. None of them gets as far as to ask for a store."""

from __future__ import annotations

import asyncio
import sys

import pytest

from adk_worker.cli import main
from adk_worker.cli.program import Invocation, perform
from adk_worker.cli.root import root

SETTLE = ["settle", "run_1", "book", "--tenant", "acme", "--why", "they say so", "--by", "ana"]


class Nothing:
    """A source that must not be asked."""

    def open(self, **_):
        raise AssertionError("the command line was taken for one that can be read")


@pytest.fixture
def adk(capsys):
    def call(*argv):
        code = perform(root, argv, prog="adk", invocation=Invocation(Nothing()))
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["inspect", "run_1"], "Missing option '--tenant'"),
        (["cancel", "--tenant", "acme"], "Missing argument 'RUN_ID'"),
        (["run", "booking", "book"], "Missing option '--tenant'"),
        (["run", "--tenant", "acme"], "Missing AGENT and INPUT"),
        (["run", "booking", "--tenant", "acme"], "Missing INPUT"),
        (["run", "booking", "book", "--tenant", "acme", "--resume", "run_1"], "AGENT and INPUT cannot be given"),
        (["run", "--tenant", "acme", "--resume", "run_1", "--run-id", "x"], "--run-id cannot be given together"),
        (["run", "--tenant", "acme", "--resume", "run_1", "--metadata", "{}"], "--metadata cannot be given together"),
        (["run", "booking", "book", "--tenant", "acme", "--metadata", "{"], "it is not JSON"),
        (["run", "booking", "book", "--tenant", "acme", "--metadata", "[]"], "a JSON object"),
        (["run", "booking", "book", "--tenant", "acme", "--timeout", "5"], "--timeout is for --wait"),
        (["run", "booking", "book", "--tenant", "acme", "--wait", "--timeout", "0"], "0.0 is not in the range"),
        (["run", "booking", "book", "--tenant", "acme", "--wait", "--timeout", "nan"], "'nan' is no number of seconds"),
        (["run", "booking", "book", "--tenant", "acme", "--wait", "--timeout", "inf"], "inf is not in the range"),
        (["run", "--tenant", "acme", "--resume", "run_1", "--timeout", "nan"], "'nan' is no number of seconds"),
        (["watch", "--every", "nan"], "'nan' is no number of seconds"),
        (["doctor", "--timeout", "nan"], "'nan' is no number of seconds"),
        (["list", "--status", "lost"], "is not one of"),
        (["list", "--limit", "0"], "0 is not in the range"),
        (["list", "--tenant", ""], "not a tenant: it is empty"),
        (["prune"], "Missing option '--older-than'"),
        (["prune", "--older-than", "30"], "'30' is no length of time; write 30d, 12h, 90m or 45s"),
        (["prune", "--older-than", "-1d"], "'-1d' is no length of time"),
        (["prune", "--older-than", "d"], "'d' is no length of time"),
        (["prune", "--older-than", "1d", "--batch", "0"], "0 is not in the range"),
        (["dev", "--workers", "0"], "0 is not in the range"),
        (["settle", "run_1", "book", "--tenant", "acme", "--never-ran", "--by", "ana"], "Missing option '--why'"),
        (["settle", "run_1", "book", "--tenant", "acme", "--never-ran", "--why", "so"], "Missing option '--by'"),
        (["settle", "run_1", "book", "--never-ran", "--why", "so", "--by", "ana"], "Missing option '--tenant'"),
        (
            ["settle", "run_1", "--tenant", "acme", "--never-ran", "--why", "so", "--by", "ana"],
            "Missing argument 'CALL'",
        ),
        ([*SETTLE], "either --completed JSON or --never-ran"),
        ([*SETTLE, "--never-ran", "--completed", "1"], "either --completed JSON or --never-ran"),
        ([*SETTLE, "--completed", "12A"], "it is not JSON"),
        ([*SETTLE, "--completed", "null", "--owner-may-live"], "--owner-may-live is for --never-ran"),
        ([*SETTLE, "--completed", "1", "--by", " "], "who acts: it is empty"),
        (["lst"], "No such command 'lst'"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_2(adk, argv, said):
    code, out, err = adk(*argv)
    assert (code, out) == (2, "")
    assert said in err


@pytest.mark.parametrize("name", ["", " ", " a", "a\nb", "\x1b[2J", "a\0b", "\udcff", "x" * 513])
@pytest.mark.parametrize(
    "argv",
    [
        ["inspect", "NAME", "--tenant", "acme"],
        ["cancel", "run_1", "--tenant", "NAME"],
        ["run", "booking", "book", "--tenant", "acme", "--run-id", "NAME"],
        ["run", "--tenant", "acme", "--resume", "NAME"],
    ],
)
def test_a_name_that_cannot_be_one_is_refused_and_not_obeyed(adk, argv, name):
    """T1, P4."""
    code, out, err = adk(*(name if word == "NAME" else word for word in argv))
    assert (code, out) == (2, "")
    assert ": it" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("argv", [[], ["db"]])
def test_without_a_command_it_says_which_there_are(adk, argv):
    code, out, err = adk(*argv)
    assert code == 2
    assert "Commands:" in out + err


@pytest.mark.parametrize("command", ["run", "inspect", "list", "cancel", "prune", "dev", "db"])
def test_every_command_explains_itself(adk, command):
    code, out, err = adk(command, "-h")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: adk ")


def test_the_version_is_told(adk):
    code, out, _ = adk("--version")
    assert code == 0
    assert out.startswith("adk")


def test_ctrl_c_while_the_program_is_still_loading_is_no_error(capsys, monkeypatch):
    """That is half of the time that a short command takes."""

    class Interrupts:
        def find_spec(self, name, *_):
            if name == "adk_worker.cli.root":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "adk_worker.cli.root")
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])

    assert main(["list"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


class Broken:
    """A source that runs somebody's code, which ends as it likes."""

    def __init__(self, error):
        self._error = error

    def open(self, **_):
        raise self._error


@pytest.mark.parametrize("error", [SystemExit(0), asyncio.CancelledError()], ids=["exits", "cancelled"])
def test_code_of_somebodys_that_ends_in_an_odd_way_is_an_error_that_is_told(capsys, error):
    """Not a success, and neither a pipe that nobody reads nor a traceback."""
    argv = ["inspect", "run_1", "--tenant", "acme"]

    code = perform(root, argv, prog="adk", invocation=Invocation(Broken(error)))

    assert code == 70
    assert capsys.readouterr().err.startswith(f"error: {type(error).__name__}")
