from __future__ import annotations

import datetime as dt

import pytest
from pydantic import JsonValue, TypeAdapter

from adk_worker.errors import InvalidNameError, NotJSONError
from adk_worker.idempotency import Claim, ClaimState
from adk_worker.messages import Message, ToolResultPart, dump_messages, load_messages
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.runs import NewRun, Run, RunStatus
from adk_worker.submission import checked, read_back, same_request

SECRET = "hunter2"


def new(**fields):
    return NewRun(**{"tenant": "acme", "run_id": "run", "agent": "booking", "input": "book it", **fields})


def run(**fields):
    said = {"tenant": "acme", "run_id": "run", "agent": "booking", "revision": "r1", "input": "book it"}
    return Run(**{**said, "status": RunStatus.QUEUED, **fields})


def test_a_submit_is_given_json_of_its_own():
    """T2: what the caller does to its metadata afterwards is its own affair."""
    metadata = {"trip": {"legs": [1, 2.5, None, True, "caf\u00e9\x00"]}}

    submit = checked(new(metadata=metadata))
    metadata["trip"]["legs"].clear()

    assert submit.metadata == {"trip": {"legs": [1, 2.5, None, True, "caf\u00e9\x00"]}}
    assert (submit.agent, submit.input, submit.masks) == ("booking", "book it", {})


@pytest.mark.parametrize(
    ("fields", "what"), [({"tenant": ""}, "tenant"), ({"run_id": " a"}, "run id"), ({"agent": "a\nb"}, "agent's name")]
)
def test_what_names_nothing_is_refused(fields, what):
    """T1."""
    with pytest.raises(InvalidNameError) as refused:
        checked(new(**fields))

    assert refused.value.what == what


def _within_itself():
    value = {}
    value["inner"] = value
    return value


def _deep(levels=1_000):
    value = None
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", range(170, 205))
def test_what_is_taken_can_be_read_where_it_stands(levels):
    """H2, T2: in a message, in a checkpoint and in a claim, whose readers all take so many levels and no more."""
    content = _deep(levels)
    try:
        read_back(TypeAdapter(JsonValue), "the outcome", content)
    except NotJSONError:
        return
    part = ToolResultPart(call_id="c", name="book", content=content)
    load_messages(dump_messages([Message.tool([part])]))
    claims = TypeAdapter(list[list[Claim]])
    outcome = ToolOutcome(kind=OutcomeKind.RETURNED, content=content)
    claim = Claim("acme", "k", "me", "d", ClaimState.SETTLED, outcome=outcome, late=(outcome,))
    assert claims.validate_json(claims.dump_json([[claim]])) == [[claim]]


@pytest.mark.parametrize(
    "value",
    [
        (SECRET,),
        {SECRET},
        SECRET.encode(),
        float("nan"),
        float("inf"),
        dt.date(2025, 1, 1),
        {1: SECRET},
        SECRET + "\ud800",
        {"\udfff": SECRET},
        _within_itself(),
        _deep(),
    ],
    ids=["tuple", "set", "bytes", "nan", "inf", "date", "key", "surrogate", "surrogate key", "itself", "deep"],
)
@pytest.mark.parametrize("field", ["metadata", "masks"])
def test_what_is_not_json_is_refused_and_not_repeated(field, value):
    """T2: the error says where, and shows no value; nor is it longer than the thing deserves."""
    with pytest.raises(NotJSONError) as refused:
        checked(new(**{field: {"a": value}}))

    assert refused.value.what == field
    assert SECRET not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", [None, 7, b"book", ["book"], "\ud800"], ids=repr)
def test_an_input_is_a_text(value):
    """T2."""
    with pytest.raises(NotJSONError) as refused:
        checked(new(input=value))

    assert refused.value.what == "the input"
    assert isinstance(value, str) or "Use a text (json.dumps makes one)" in str(refused.value)


@pytest.mark.parametrize("metadata", [None, 7, ["a"], "text"], ids=repr)
def test_metadata_is_an_object(metadata):
    """T2."""
    with pytest.raises(NotJSONError, match="metadata"):
        checked(new(metadata=metadata))


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        ({}, True),
        ({"revision": "r2"}, True),
        ({"masks": {"[secret:1]": "x"}}, True),
        ({"metadata": {"b": 2, "a": 1}}, True),
        ({"metadata": {"a": 1}}, False),
        ({"agent": "refunds"}, False),
        ({"input": "book two"}, False),
    ],
)
def test_a_request_is_its_agent_its_input_and_its_metadata(fields, same):
    """F5: whoever asks again after a deployment asks for the same."""
    asked = new(**{"metadata": {"a": 1, "b": 2}, **fields})

    assert same_request(run(metadata={"a": 1, "b": 2}), asked) is same
