from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import itertools
import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, field_serializer

from adk_worker.messages import Message, dump_messages, load_messages
from adk_worker.outcomes import OutcomeKind
from adk_worker.results import returned, shortened, text_of


class Booking(BaseModel):
    seat: str
    at: dt.datetime


@dataclasses.dataclass
class Fare:
    amount: decimal.Decimal


class Broken(BaseModel):
    seat: str

    @field_serializer("seat")
    def _seat(self, value: str) -> str:
        raise OSError("the seat is taken")


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "content"),
    [
        (None, None),
        ("text", "text"),
        ((1, 2.5, True), [1, 2.5, True]),
        (Booking(seat="3A", at=dt.datetime(2026, 12, 1, tzinfo=dt.UTC)),
         {"seat": "3A", "at": "2026-12-01T00:00:00Z"}),
        ([Fare(decimal.Decimal("9.90"))], [{"amount": "9.90"}]),
        ({uuid.UUID(int=0): {3}}, {"00000000-0000-0000-0000-000000000000": [3]}),
        ("NUL \x00 and 🎫", "NUL \x00 and 🎫"),
        (10**30, 10**30),
    ],
)  # fmt: skip
def test_what_pydantic_can_show_as_json_is_a_result(value, content):
    """I10."""
    outcome = returned(value)

    assert outcome.kind is OutcomeKind.RETURNED
    assert outcome.content == content


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "Unable to serialize unknown type"),
        (float("nan"), "not JSON"),
        ({"deep": [float("inf")]}, "not JSON"),
        (b"\xff", "not JSON"),
        ("\ud800", "lone surrogate"),
        ({"\udfff": 1}, "not JSON"),
        (nested(195), "nested too deeply"),
        (nested(5_000), "not JSON"),
        (itertools.count(), "count is an iterator"),
        ((number for number in range(3)), "generator is an iterator"),
        (Broken(seat="3A"), "the seat is taken"),
        pytest.param(10**5_000, "not JSON", id="a number beyond all digits"),
    ],
)
def test_what_is_not_json_is_recorded_with_a_marker_that_says_so(value, said):
    """I10: it completed."""
    outcome = returned(value)

    assert outcome.kind is OutcomeKind.UNUSABLE
    assert "The call completed" in str(outcome.content)
    assert said in str(outcome.content)
    assert len(str(outcome.content)) < 400


def test_a_result_of_just_the_limit_is_kept_and_one_byte_more_is_not():
    """I10."""
    kept = returned("x" * 98, max_bytes=100)
    dropped = returned("x" * 99, max_bytes=100)

    assert kept.kind is OutcomeKind.RETURNED
    assert dropped.kind is OutcomeKind.UNUSABLE
    assert "101 bytes, over the limit of 100" in str(dropped.content)


def test_five_megabytes_are_dropped_by_default():
    """I10."""
    outcome = returned("x" * 5_000_000)

    assert outcome.kind is OutcomeKind.UNUSABLE
    assert "5,000,002 bytes, over the limit of 262,144" in str(outcome.content)


_ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(_ANY_TEXT, inner) | st.tuples(inner),
)


@given(_ANYTHING)
def test_whatever_is_returned_can_be_stored_in_a_transcript_and_read_again(value):
    """H2: what got in has to come out, and the live run is told what a resumed one reads."""
    outcome = returned(value)
    message = Message.tool([outcome.result(call_id="call_1_0", name="find")])

    assert load_messages(dump_messages([message])) == (message,)


def test_an_error_is_told_by_type_and_message_without_surrogates_and_cut():
    assert text_of(ValueError("no seats")) == "ValueError: no seats"
    assert text_of(KeyError()) == "KeyError"
    assert text_of(OSError("\ud800")) == "OSError: ?"
    assert len(text_of(ValueError("x" * 100_000))) == 2_000
    assert shortened("abcdef", 4) == "abc…"


def test_an_error_that_cannot_be_shown_is_told_by_its_type():
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("mute")

    assert text_of(MuteError()) == "MuteError"
    assert json.dumps(text_of(MuteError()))
