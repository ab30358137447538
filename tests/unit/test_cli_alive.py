"""``adk alive`` on files that were made up; on those of real workers in tests/integration."""

from __future__ import annotations

import json
import os
import time

import pytest
import structlog

from adk_worker.cli import main
from adk_worker.liveness import Holder
from adk_worker.pulse import Phase, Pulse, PulseFile


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch, tmp_path):
    for name in os.environ:
        if name.startswith("ADK_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ADK_ALIVE_DIR", str(tmp_path))
    yield
    # The program logs to the standard error that it found, which was this test's.
    structlog.reset_defaults()


@pytest.fixture
def worker(tmp_path):
    """Write the file of a worker of that name, seen so many seconds ago."""
    written = []

    def write(name="worker@here", *, phase=Phase.CONSUMING, ago=1.0, **said):
        now = time.monotonic()
        pulse = Pulse(
            name=name,
            process=str(Holder.new("worker")),
            queues=("adk",),
            slots=2,
            beat_within=30,
            heard_within=20,
            at=now - ago,
            phase=phase,
            since=now - 100,
            heard_at=now - ago,
            **said,
        )
        written.append(name)
        PulseFile(tmp_path, pid=len(written)).write(pulse)

    return write


def test_one_line_says_what_a_worker_does(worker, capsys):
    worker(running=1, started=5, started_at=time.monotonic() - 42, in_hand=1)
    assert main(["alive"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("worker@here: working; 1 of 2 slots in use, 1 in hand, 5 begun, the last 42 s ago")


def test_the_worst_of_several_decides(worker, capsys):
    worker("a@here")
    worker("b@here", ago=31)
    assert main(["alive", "--json"]) == 75
    assert [json.loads(line)["sign"] for line in capsys.readouterr().out.splitlines()] == ["idle", "stopped"]
    assert main(["alive", "a@here"]) == 0
    assert main(["alive", "c@here"]) == 1


def test_in_doubt_and_with_no_broker_to_ask_nobody_is_blamed(worker, capsys):
    """Without the settings of its worker beside it: a restart is asked for only where it is known to help."""
    worker(phase=Phase.CONNECTING)
    assert main(["alive"]) == 0
    said = capsys.readouterr()
    assert "broker away" in said.out
    assert "the broker cannot be asked" in said.err
    assert "ADK_STORE_URL" in said.err
    assert main(["alive", "--consuming"]) == 69


def test_a_name_is_shown_as_it_can_be_printed(worker, capsys):
    worker("evil\x1b[2J@here")
    assert main(["alive"]) == 0
    assert "\x1b" not in capsys.readouterr().out
