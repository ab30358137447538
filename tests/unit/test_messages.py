from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from adk_worker.messages import (
    BinaryPart,
    Message,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
    canonical_json,
    dump_messages,
    load_messages,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
PARTS = st.one_of(
    st.builds(TextPart, text=TEXTS),
    st.builds(BinaryPart, media_type=TEXTS, data=st.binary(max_size=40)),
    st.builds(ToolCallPart, id=TEXTS, name=TEXTS, arguments=st.dictionaries(TEXTS, JSON, max_size=3)),
    st.builds(ToolResultPart, call_id=TEXTS, name=TEXTS, content=JSON, is_error=st.booleans()),
)
MESSAGES = st.builds(
    Message, role=st.sampled_from(["user", "assistant", "tool"]), parts=st.lists(PARTS, max_size=4).map(tuple)
)


@given(st.lists(MESSAGES, max_size=4))
def test_messages_read_as_they_were_written(messages):
    """T2, H1: and are written again as the very same bytes, so that digests hold."""
    text = dump_messages(messages)
    read = load_messages(text)

    assert read == tuple(messages)
    assert dump_messages(read) == text
    assert text.isascii()
    assert "\x00" not in text


@given(JSON)
def test_a_value_has_one_text(value):
    """I1: whatever the order in which its keys came."""
    text = canonical_json(value)

    assert json.loads(text) == value
    assert canonical_json(_reversed(value)) == text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"x", object()])
def test_what_is_not_json_has_no_text(value):
    """T2."""
    with pytest.raises((TypeError, ValueError)):
        canonical_json({"value": value})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '[{"role":"system","parts":[]}]',
        '[{"role":"user","parts":[{"kind":"thought","text":"x"}]}]',
        '[{"role":"user","parts":[{"kind":"text","text":"x","more":1}]}]',
        '[{"role":"user","parts":[{"kind":"text"}]}]',
        '[{"role":"user","parts":[{"kind":"binary","media_type":"x","data":"not base64!"}]}]',
    ],
)
def test_what_is_no_transcript_is_refused(text):
    """H2: rather than read with a hole."""
    with pytest.raises(ValidationError):
        load_messages(text)


def test_messages_say_what_they_hold():
    call = ToolCallPart(id="c", name="book", arguments={"seat": "12A"})

    said = Message.assistant("on it: ", [call])
    silent = Message.assistant(calls=[call])

    assert (said.role, said.text, said.calls) == ("assistant", "on it: ", (call,))
    assert (silent.text, silent.calls, silent.parts) == ("", (call,), (call,))
    assert Message.assistant("").parts == (TextPart(text=""),)
    assert (Message.user("hello").role, Message.user("hello").text) == ("user", "hello")
    told = Message.tool([ToolResultPart(call_id="c", name="book", content=7)])
    assert (told.role, told.text, told.calls) == ("tool", "", ())


def test_a_message_cannot_be_changed():
    """H1: what was said was said."""
    message = Message.user("hello")

    with pytest.raises(ValidationError):
        message.role = "assistant"
    with pytest.raises(ValidationError):
        message.parts[0].text = "bye"


def test_usage_adds_up():
    """C6."""
    summed = Usage(input_tokens=1, output_tokens=2) + Usage(input_tokens=10, output_tokens=20)

    assert summed == Usage(input_tokens=11, output_tokens=22)
    assert Usage() + Usage() == Usage()


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens"])
def test_usage_is_never_negative(field):
    """C6."""
    with pytest.raises(ValidationError):
        Usage(**{field: -1})


def _reversed(value):
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    if isinstance(value, list):
        return [_reversed(item) for item in value]
    return value
