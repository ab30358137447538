from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.errors import InvalidNameError
from adk_worker.names import MAX_NAME_BYTES, check_name, check_run


@pytest.mark.parametrize(("tenant", "run_id"), HOSTILE_RUNS)
def test_whatever_can_be_carried_is_taken_literally(tenant, run_id):
    """T1: no name is trimmed, folded or escaped."""
    assert check_run(tenant, run_id) == (tenant, run_id)


def test_the_names_to_be_told_apart_are_different():
    """T1: two that are the same would show nothing."""
    assert len(set(HOSTILE_RUNS)) == len(HOSTILE_RUNS)


@pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
def test_what_cannot_be_carried_is_refused(name):
    """T1: and the error says which of the two, and why, without repeating it."""
    with pytest.raises(InvalidNameError, match="not a tenant: ") as tenant:
        check_run(name, "run")
    with pytest.raises(InvalidNameError, match="not a run id: ") as run_id:
        check_run("acme", name)

    assert (tenant.value.what, run_id.value.what) == ("tenant", "run id")
    assert tenant.value.reason == run_id.value.reason


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (7, "int"),
        (None, "NoneType"),
        ("", "empty"),
        ("\u2003", "empty"),
        (" a", "white space"),
        ("a\u00a0", "white space"),
        ("a\x00b", "control character"),
        ("a\x85b", "control character"),
        ("\udfff", "surrogate"),
        ("x" * (MAX_NAME_BYTES + 1), "512 bytes"),
    ],
    ids=repr,
)
def test_the_reason_is_told(name, why):
    """T1."""
    with pytest.raises(InvalidNameError, match=why):
        check_name(name, what="tenant")


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u20ac", "\U0001f600"])
def test_the_limit_is_in_bytes(character):
    """T1: three names of the longest still fit into one entry of an index."""
    longest = character * (MAX_NAME_BYTES // len(character.encode()))

    assert check_name(longest, what="run id") == longest
    with pytest.raises(InvalidNameError):
        check_name(longest + character, what="run id")


@given(st.text(max_size=600))
def test_a_name_is_returned_as_it_is_or_refused(text):
    """T1: and whatever is returned can be stored, printed on one line, and read back."""
    try:
        name = check_name(text, what="run id")
    except InvalidNameError:
        return

    assert name == text
    assert 0 < len(name.encode()) <= MAX_NAME_BYTES
    assert name.encode().decode() == name
    assert name == name.strip()
    assert not {unicodedata.category(character) for character in name} & {"Cc", "Cs"}
