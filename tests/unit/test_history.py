from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker import history
from adk_worker.errors import HistoryUnavailableError
from adk_worker.history import Handle, Segment, StoredSegment, assemble
from adk_worker.messages import Message

RUN_IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def said(*texts):
    return [Message.user(text) for text in texts]


def stored(*segments):
    return {
        (segment.handle.count, segment.handle.digest): StoredSegment(
            segment.after.count, segment.after.digest, segment.payload
        )
        for segment in segments
    }


FIRST = Segment.extend(Handle.empty("run"), said("one"))
SECOND = Segment.extend(FIRST.handle, said("two", "three"))
THIRD = Segment.extend(SECOND.handle, said("four"))


@given(RUN_IDS, st.integers(0, 10**9 - 1), st.binary(min_size=16, max_size=16))
def test_a_handle_is_read_back(run_id, count, digest):
    """H1, T1: whatever the run is called; and it fits on one line, into a header and into a URL."""
    handle = Handle(run_id, count, digest.hex())

    assert Handle.parse(str(handle)) == handle
    assert str(handle).isascii()
    assert str(handle).replace(".", "").replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "run",
        "h1",
        "h1.cnVu.1",
        "h2.cnVu.1." + "0" * 32,
        "h1..1." + "0" * 32,
        "h1.cnVu.-1." + "0" * 32,
        "h1.cnVu.01." + "0" * 32,
        "h1.cnVu.1_0." + "0" * 32,
        "h1.cnVu.\u0661." + "0" * 32,
        "h1.cnVu.9999999999." + "0" * 32,
        "h1.cnVu.1." + "0" * 31,
        "h1.cnVu.1." + "A" * 32,
        "h1.cnVu.1." + "0" * 32 + "\n",
        "h1.cnVv.1." + "0" * 32 + ".",
        "h1.cnV1=.1." + "0" * 32,
        "h1.cnV.1." + "0" * 32,
        "h1.A.1." + "0" * 32,
        "h1._w.1." + "0" * 32,
    ],
)
def test_what_is_not_exactly_a_handle_is_refused(text):
    """H2: one transcript has one handle; and no store is asked for a number that it cannot hold."""
    with pytest.raises(HistoryUnavailableError) as refused:
        Handle.parse(text)

    assert refused.value.handle == text


def test_a_transcript_is_followed_back_from_its_handle():
    """H1."""
    segments = stored(FIRST, SECOND, THIRD)

    assert [message.text for message in assemble(THIRD.handle, segments)] == ["one", "two", "three", "four"]
    assert [message.text for message in assemble(SECOND.handle, segments)] == ["one", "two", "three"]
    assert assemble(Handle.empty("run"), segments) == ()


def test_strangers_segments_are_not_seen():
    """H3: neither those that end where ours do, nor those that go on behind them."""
    stale = Segment.extend(FIRST.handle, said("stale", "staler"))
    staler = Segment.extend(stale.handle, said("stalest"))
    late = Segment.extend(SECOND.handle, said("late"))

    found = assemble(THIRD.handle, stored(stale, staler, FIRST, late, SECOND, THIRD))

    assert [message.text for message in found] == ["one", "two", "three", "four"]


@pytest.mark.parametrize("gone", [FIRST, SECOND, THIRD])
def test_a_missing_segment_is_a_hole(gone):
    """H2."""
    segments = stored(FIRST, SECOND, THIRD)
    del segments[gone.handle.count, gone.handle.digest]

    with pytest.raises(HistoryUnavailableError, match=f"ends at message {gone.handle.count} is gone"):
        assemble(THIRD.handle, segments)


@pytest.mark.parametrize("damaged", [FIRST, SECOND, THIRD])
@pytest.mark.parametrize(
    "how",
    [
        lambda row: StoredSegment(row.start, row.start_digest, row.payload.replace("o", "0")),
        lambda row: StoredSegment(row.start, row.start_digest, "[]"),
        lambda row: StoredSegment(row.start, "0" * 32, row.payload),
    ],
    ids=["altered", "emptied", "moved"],
)
def test_a_damaged_segment_is_a_hole(damaged, how):
    """H2."""
    segments = stored(FIRST, SECOND, THIRD)
    key = (damaged.handle.count, damaged.handle.digest)
    segments[key] = how(segments[key])

    with pytest.raises(HistoryUnavailableError, match="digest"):
        assemble(THIRD.handle, segments)


def test_a_segment_whose_place_was_altered_is_a_hole():
    """H2: its digest does not tell, so its length has to."""
    segments = stored(FIRST, SECOND)
    key = (SECOND.handle.count, SECOND.handle.digest)
    segments[key] = StoredSegment(0, FIRST.handle.digest, SECOND.payload)

    with pytest.raises(HistoryUnavailableError, match="missing"):
        assemble(SECOND.handle, segments)


def test_a_message_of_a_newer_version_is_not_left_out():
    """H2: a transcript that cannot be read is not resumed from."""
    payload = json.dumps([{"role": "user", "parts": [{"kind": "thought"}]}])
    segment = _segment(Handle.empty("run"), payload, 1)

    with pytest.raises(HistoryUnavailableError, match="cannot be read"):
        assemble(segment.handle, stored(segment))


def test_a_transcript_of_another_run_is_none_of_this_one():
    """H2, T1: a handle whose run was exchanged."""
    for handle in (Handle("other", THIRD.handle.count, THIRD.handle.digest), Handle("run", 0, FIRST.handle.digest)):
        with pytest.raises(HistoryUnavailableError, match="does not begin with this run"):
            assemble(handle, stored(FIRST, SECOND, THIRD))


def test_digests_depend_on_all_that_was_said_before():
    """H3: the same words behind others are another transcript."""
    one = Segment.extend(Segment.extend(Handle.empty("run"), said("a")).handle, said("z"))
    other = Segment.extend(Segment.extend(Handle.empty("run"), said("b")).handle, said("z"))
    elsewhere = Segment.extend(Segment.extend(Handle.empty("run-2"), said("a")).handle, said("z"))
    again = Segment.extend(Segment.extend(Handle.empty("run"), said("a")).handle, said("z"))

    assert len({one.handle.digest, other.handle.digest, elsewhere.handle.digest}) == 3
    assert one == again


def test_a_segment_has_messages():
    """H1."""
    with pytest.raises(ValueError, match="at least one message"):
        Segment.extend(Handle.empty("run"), [])


def _segment(after, payload, count):
    """A segment over a payload that this version would not write."""
    digest = history._chain(after.digest, payload)  # noqa: SLF001
    return Segment(after, Handle(after.run_id, after.count + count, digest), payload)
