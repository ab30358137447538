"""What a message carries, and which messages are refused."""

from __future__ import annotations

import json

import pytest

from adk_worker.errors import UnreadableMessageError
from adk_worker.runs import Dispatch
from tasks.envelope import READABLE, VERSION, decode, encode, shown, task_name

MESSAGE = Dispatch("acme", "run_1", 7)


@pytest.mark.parametrize("recovery", [False, True])
def test_a_message_reads_back_as_it_was_written(recovery):
    message = Dispatch("acme", "a:b/*", (3 << 40) + 1, recovery)
    carried = json.loads(json.dumps(encode(message)))

    assert decode((), carried, recovery=recovery) == message


def test_it_carries_a_version_names_and_a_number_and_nothing_else():
    assert encode(MESSAGE) == {"v": 1, "tenant": "acme", "run_id": "run_1", "ticket": 7}


def test_a_recovery_is_a_task_of_its_own():
    """So that Flower shows recoveries apart."""
    assert task_name(MESSAGE) == "adk.advance"
    assert task_name(Dispatch("acme", "run_1", 7, recovery=True)) == "adk.resume"


def test_logs_and_flower_see_the_run_and_its_ticket_and_not_the_tenant():
    assert shown(MESSAGE) == "{'run_id': 'run_1', 'ticket': 7}"


def test_what_is_written_is_read():
    """And for one release before it is written, so that no worker in a rolling upgrade is sent what it cannot read."""
    assert VERSION in READABLE


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"v": 2}, "it has version 2, this worker reads 1"),
        ({"v": True}, "it has"),
        ({"v": "1"}, "no version that could be one"),
        ({"ticket": 0}, "ticket"),
        ({"ticket": -1}, "ticket"),
        ({"ticket": "7"}, "ticket"),
        ({"ticket": 7.0}, "ticket"),
        ({"ticket": True}, "ticket"),
        ({"ticket": None}, "ticket"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": None}, "tenant"),
        ({"run_id": "a\0b"}, "run id"),
        ({"run_id": ["run_1"]}, "run id"),
        ({"more": 1}, "fields"),
    ],
)
def test_a_message_that_is_none_of_ours_is_refused(wrong, said):
    """T1, T2: whatever somebody puts onto the queue, it is not guessed at."""
    with pytest.raises(UnreadableMessageError, match=said):
        decode((), {**encode(MESSAGE), **wrong}, recovery=False)


@pytest.mark.parametrize("field", ["v", "tenant", "run_id", "ticket"])
def test_a_message_without_a_field_is_refused(field):
    kept = {name: value for name, value in encode(MESSAGE).items() if name != field}
    with pytest.raises(UnreadableMessageError):
        decode((), kept, recovery=False)


def test_a_message_with_positional_arguments_is_refused():
    with pytest.raises(UnreadableMessageError, match="fields"):
        decode(("acme",), encode(MESSAGE), recovery=False)


def test_a_refusal_repeats_nothing_of_what_it_was_given():
    with pytest.raises(UnreadableMessageError) as refused:
        decode((), {**encode(MESSAGE), "v": "hunter2", "more": "hunter2"}, recovery=False)
    assert "hunter2" not in str(refused.value)
