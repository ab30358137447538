from __future__ import annotations

import pytest

from adk_worker.printable import printable, printable_lines, time_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, Zürich, 東京, 🙂, a\u00a0b", "plain, Zürich, 東京, 🙂, a\u00a0b"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("back\x08space\x7f", r"back\x08space\x7f"),
        ("over\rwritten", r"over\rwritten"),
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("nul\0", r"nul\x00"),
        ("admin\u202etxt.exe", r"admin\u202etxt.exe"),
        ("\u2066isolate\u2069 \u061c", r"\u2066isolate\u2069 \u061c"),
        ("hid\u200bden\ufeff", r"hid\u200bden\ufeff"),
        ("para\u2029graph\u2028", r"para\u2029graph\u2028"),
        ("lone \udc80", r"lone \udc80"),
        ("tag \U000e0041", r"tag \U000e0041"),
    ],
)
def test_what_a_terminal_would_obey_or_hide_is_escaped_and_nothing_else(text, shown):
    """P4."""
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (0.0, "1970-01-01 00:00:00Z"),
        (8e15, "8e+15 s after 1970"),
        (1e11 * 86_400, "8.64e+15 s after 1970"),
        (1e300, "1e+300 s after 1970"),
    ],
)
def test_every_time_can_be_told(at, shown):
    """P4: whoever grants something for a million years can still look at the run."""
    assert time_of(at) == shown


def test_a_long_text_is_cut_and_says_by_how_much():
    assert printable("x" * 1500, limit=100) == "x" * 100 + " … and 1,400 characters more"
    assert printable("x" * 100, limit=100) == "x" * 100


def test_lines_are_kept_and_each_is_escaped():
    """P4."""
    assert printable_lines("one\r\ntwo\x1b[2J\n\nfour") == ["one", r"two\x1b[2J", "", "four"]


def test_lines_are_cut_where_their_limit_is_used_up():
    assert printable_lines("12345\n67890\nabc", limit=8) == ["12345", "678 … and 6 characters more"]
    assert printable_lines("12345\n678", limit=8) == ["12345", "678"]
