"""What the signs of a worker mean; that it gives them is shown on real ones in tests/integration."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from adk_worker.errors import ConfigurationError
from adk_worker.liveness import Holder
from adk_worker.pulse import Phase, Pulse, PulseFile, Sign, in_doubt, judge, pulses

NOW = 1000.0
IDLE = Pulse(
    name="worker@here",
    process="somebody",
    queues=("adk",),
    slots=4,
    beat_within=30,
    heard_within=20,
    at=NOW - 1,
    phase=Phase.CONSUMING,
    since=NOW - 500,
    heard_at=NOW - 2,
    started=7,
    started_at=NOW - 300,
)


def test_an_idle_worker_is_told_from_one_that_hears_nothing():
    assert judge(IDLE, now=NOW) is Sign.IDLE
    assert judge(replace(IDLE, heard_at=NOW - 21), now=NOW, reached=True) is Sign.DEAF


@pytest.mark.parametrize(("running", "sign"), [(0, Sign.IDLE), (1, Sign.WORKING), (4, Sign.BUSY)])
def test_one_that_consumes_says_how_much_it_does(running, sign):
    assert judge(replace(IDLE, running=running), now=NOW) is sign
    assert sign.alive
    assert sign.consumes


def test_one_whose_loop_stands_still_has_stopped_whatever_the_broker_says():
    stopped = replace(IDLE, at=NOW - 31)
    assert {judge(stopped, now=NOW, reached=reached) for reached in (None, True, False)} == {Sign.STOPPED}
    assert not Sign.STOPPED.alive


@pytest.mark.parametrize("phase", [Phase.CONNECTING, Phase.CONSUMING])
def test_silence_is_the_workers_fault_only_where_the_broker_answers_another(phase):
    silent = replace(IDLE, phase=phase, heard_at=None)
    assert in_doubt(silent, now=NOW)
    assert judge(silent, now=NOW, reached=True) is Sign.DEAF
    assert judge(silent, now=NOW, reached=False) is Sign.AWAY
    assert judge(silent, now=NOW) is Sign.AWAY
    assert Sign.AWAY.alive
    assert not Sign.DEAF.alive
    assert not Sign.AWAY.consumes


def test_one_that_has_just_lost_its_broker_is_given_time():
    lost = replace(IDLE, phase=Phase.CONNECTING, since=NOW - 20, heard_at=None)
    assert not in_doubt(lost, now=NOW)
    assert judge(lost, now=NOW, reached=True) is Sign.AWAY


def test_what_waits_is_passed_over_only_by_one_with_a_free_slot_that_has_begun_nothing_for_long():
    assert judge(IDLE, now=NOW, waiting=3, reached=True) is Sign.DEAF
    assert judge(replace(IDLE, started_at=NOW - 19), now=NOW, waiting=3) is Sign.IDLE
    assert judge(replace(IDLE, started_at=None, since=NOW - 19), now=NOW, waiting=3) is Sign.IDLE
    assert judge(replace(IDLE, running=4), now=NOW, waiting=3) is Sign.BUSY
    assert judge(IDLE, now=NOW, waiting=0) is Sign.IDLE


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.LEAVING])
def test_one_that_comes_or_goes_takes_its_time(phase):
    sign = judge(replace(IDLE, phase=phase, at=NOW - 400, heard_at=None), now=NOW, reached=True, waiting=9)
    assert (sign.value, sign.alive, sign.consumes) == (phase.value, True, False)


def test_a_phase_begins_with_nothing_heard_of_it():
    connecting = IDLE.entering(Phase.CONNECTING, now=NOW)
    assert (connecting.since, connecting.heard_at) == (NOW, None)
    consuming = connecting.entering(Phase.CONSUMING, now=NOW + 5)
    assert (consuming.since, consuming.heard_at, consuming.started) == (NOW + 5, NOW + 5, 7)


def test_a_beat_knows_when_the_last_task_was_begun():
    same = IDLE.beating(now=NOW, heard_at=NOW, started=7, running=0, in_hand=0)
    more = same.beating(now=NOW + 2, heard_at=NOW, started=9, running=2, in_hand=1)
    assert (same.started_at, more.started_at, more.running, more.in_hand) == (NOW - 300, NOW + 2, 2, 1)


class TestFiles:
    def test_what_was_written_is_read(self, tmp_path):
        mine = replace(IDLE, process=str(Holder.new("worker")))
        PulseFile(tmp_path / "deep" / "down", pid=1).write(mine)
        assert pulses(tmp_path / "deep" / "down") == [mine]

    def test_a_worker_that_ends_leaves_nothing(self, tmp_path):
        file = PulseFile(tmp_path, pid=1)
        file.write(replace(IDLE, process=str(Holder.new("worker"))))
        file.remove()
        file.remove()
        assert list(tmp_path.iterdir()) == []

    def test_what_a_killed_worker_has_left_is_removed(self, tmp_path):
        holder = Holder.new("worker")
        dead = replace(holder, process=replace(holder.process, started="1"))
        PulseFile(tmp_path, pid=1).write(replace(IDLE, process=str(dead)))
        assert pulses(tmp_path) == []
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("elsewhere", [{"pid_namespace": "1"}, {"boot": "another"}])
    def test_workers_of_another_container_are_none_of_ours(self, tmp_path, elsewhere):
        """I11: nothing is known of them, not even that they are dead."""
        holder = Holder.new("worker")
        other = replace(holder, process=replace(holder.process, **elsewhere))
        PulseFile(tmp_path, pid=1).write(replace(IDLE, process=str(other)))
        assert pulses(tmp_path) == []
        assert len(list(tmp_path.iterdir())) == 1

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", json.dumps({"name": "w"})])
    def test_what_cannot_be_read_is_no_worker(self, tmp_path, text):
        (tmp_path / "1.worker.json").write_text(text)
        assert pulses(tmp_path) == []

    def test_there_need_be_no_folder(self, tmp_path):
        assert pulses(tmp_path / "nowhere") == []

    def test_a_folder_that_others_may_write_to_is_refused(self, tmp_path):
        folder = tmp_path / "open"
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(ConfigurationError, match="others may write"):
            PulseFile(folder, pid=1).write(IDLE)
