from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adk_worker.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointBoundary,
    Checkpointer,
    CheckpointPolicy,
    Journal,
    OutstandingCall,
    decode_checkpoint,
    encode_checkpoint,
)
from adk_worker.errors import (
    CheckpointFormatError,
    CheckpointTooLargeError,
    ConfigurationError,
    StoreUnavailableError,
)
from adk_worker.memory import MemoryCheckpointStore
from adk_worker.messages import BinaryPart, Message, TextPart, ToolCallPart, ToolResultPart, Usage
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from tests.unit.test_messages import JSON, MESSAGES, TEXTS

GOLDEN = Path(__file__).parents[1] / "golden"

# What checkpoint-1.json says, with every field and every kind of part.
FORMAT_1 = Checkpoint(
    format=1,
    tenant="acme",
    run_id="run-1",
    agent="booking",
    revision="r1",
    sequence=7,
    boundary=CheckpointBoundary.BEFORE_APPROVAL,
    iteration=3,
    messages=(
        Message(role="user", parts=(TextPart(text="caf\u00e9"), BinaryPart(media_type="image/png", data=b"\x00\xff"))),
        Message.assistant("on it", [ToolCallPart(id="c-0", name="search", arguments={"to": "OSL", "seats": 2})]),
        Message.tool([ToolResultPart(call_id="c-0", name="search", content=[{"flight": "AC7"}], is_error=False)]),
    ),
    history_handle="h1.cnVuLTE.3.00000000000000000000000000000000",
    calls=(
        OutstandingCall(call_id="c-1", tool="book", arguments={"flight": "AC7"}, index=0, key="adk1-1"),
        OutstandingCall(call_id="c-2", tool="look", index=1, effect=Effect.READ_ONLY),
        OutstandingCall(
            call_id="c-3",
            tool="pay",
            index=2,
            effect=Effect.IDEMPOTENT,
            key="adk1-3",
            outcome=ToolOutcome(kind=OutcomeKind.REFUSED, content="no such tool"),
        ),
    ),
    usage=Usage(input_tokens=1200, output_tokens=300),
    cost_micros=4100,
    metadata={"trip": {"legs": [1, 2.5, None, True]}},
    masks={"next": 2},
    grant_id="grant-1",
    execution=2,
    journal=Journal(steps=5, history_bytes=1_234),
    output="done",
)


def minimal(**fields):
    return Checkpoint(tenant="acme", run_id="run", agent="booking", revision="r1").updated(**fields)


# --- the format ---------------------------------------------------------------------------------------------------


def test_every_format_has_a_golden_file():
    """C4: what some version once wrote is read for ever."""
    assert {path.name for path in GOLDEN.glob("checkpoint-*.json")} == {
        f"checkpoint-{number}.json" for number in range(1, CHECKPOINT_FORMAT + 1)
    }


def test_format_1_is_read():
    """C4."""
    assert decode_checkpoint((GOLDEN / "checkpoint-1.json").read_text()) == FORMAT_1


def test_the_format_that_is_written_is_its_golden_files():
    """C4: a change of what is written is a new format, and a new file."""
    assert CHECKPOINT_FORMAT == 1
    assert encode_checkpoint(FORMAT_1) + "\n" == (GOLDEN / "checkpoint-1.json").read_text()


def test_the_golden_file_holds_every_field():
    """C4: a field that is added is seen there."""
    written = json.loads((GOLDEN / "checkpoint-1.json").read_text())

    assert set(written) == set(Checkpoint.model_fields)
    assert set(written["calls"][0]) == set(OutstandingCall.model_fields)
    assert all(FORMAT_1.model_dump()[name] for name in Checkpoint.model_fields)


@pytest.mark.parametrize("found", [CHECKPOINT_FORMAT + 1, 99])
def test_a_newer_format_is_refused_whatever_else_it_holds(found):
    """C4: its fields are not this version's to judge."""
    for payload in (json.dumps({"format": found}), json.dumps({"format": found, "new": [1]})):
        with pytest.raises(CheckpointFormatError) as refused:
            decode_checkpoint(payload)
        assert (refused.value.found, refused.value.supported) == (found, CHECKPOINT_FORMAT)


def test_an_older_format_is_read_and_goes_out_as_this_version_s(monkeypatch):
    """C4: what this version adds to a run of an older one is not an older reader's to read."""
    payload = encode_checkpoint(FORMAT_1)
    monkeypatch.setattr("adk_worker.checkpoint.CHECKPOINT_FORMAT", 2)

    assert json.loads(encode_checkpoint(decode_checkpoint(payload)))["format"] == 2


@pytest.mark.parametrize("payload", ["", "{}", "[]", "null", '{"format":"x"}', '{"format":1', '{"format":null}'])
def test_what_is_no_checkpoint_is_refused(payload):
    """C4."""
    with pytest.raises(CheckpointFormatError) as refused:
        decode_checkpoint(payload)

    assert refused.value.found == "none"


@pytest.mark.parametrize("damage", [{"sequence": -1}, {"boundary": "nowhere"}, {"more": 1}, {"tenant": None}])
def test_a_damaged_checkpoint_is_refused(damage):
    """C4, C2: nothing is left out of it, and nothing read into it."""
    payload = json.loads(encode_checkpoint(FORMAT_1))

    with pytest.raises(CheckpointFormatError, match="damaged"):
        decode_checkpoint(json.dumps(payload | damage))


CALLS = st.builds(
    OutstandingCall,
    call_id=TEXTS,
    tool=TEXTS,
    arguments=st.dictionaries(TEXTS, JSON, max_size=2),
    index=st.integers(0, 9),
    effect=st.sampled_from(Effect),
    key=st.none() | TEXTS,
    outcome=st.none() | st.builds(ToolOutcome, kind=st.sampled_from(OutcomeKind), content=JSON),
)
CHECKPOINTS = st.builds(
    Checkpoint,
    tenant=TEXTS,
    run_id=TEXTS,
    agent=TEXTS,
    revision=TEXTS,
    sequence=st.integers(0, 2**53),
    boundary=st.sampled_from(CheckpointBoundary),
    iteration=st.integers(0, 2**31),
    messages=st.lists(MESSAGES, max_size=2).map(tuple),
    history_handle=st.none() | TEXTS,
    calls=st.lists(CALLS, max_size=2).map(tuple),
    cost_micros=st.integers(0, 2**53),
    metadata=st.dictionaries(TEXTS, JSON, max_size=2),
    masks=st.dictionaries(TEXTS, JSON, max_size=2),
    grant_id=st.none() | TEXTS,
    output=st.none() | TEXTS,
)


@given(CHECKPOINTS)
def test_a_frontier_reads_as_it_was_written(checkpoint):
    """T2: in ASCII, without a raw NUL, and as the very same bytes again."""
    payload = encode_checkpoint(checkpoint)

    assert decode_checkpoint(payload) == checkpoint
    assert encode_checkpoint(decode_checkpoint(payload)) == payload
    assert payload.isascii()
    assert "\x00" not in payload


# --- the cap ------------------------------------------------------------------------------------------------------


def test_the_cap_is_in_bytes_of_the_payload():
    """C2: it refuses, and trims nothing."""
    size = len(encode_checkpoint(FORMAT_1))

    assert len(encode_checkpoint(FORMAT_1, max_bytes=size)) == size
    with pytest.raises(CheckpointTooLargeError) as refused:
        encode_checkpoint(FORMAT_1, max_bytes=size - 1)

    assert (refused.value.size, refused.value.max_bytes) == (size, size - 1)


@pytest.mark.parametrize("max_bytes", [0, -1])
def test_a_cap_that_lets_nothing_through_is_refused(max_bytes):
    """C2."""
    with pytest.raises(ConfigurationError, match="max_bytes"):
        CheckpointPolicy(max_bytes=max_bytes)


def test_the_policy_stores_everything_up_to_a_megabyte_unless_told():
    """C1, C2."""
    assert CheckpointPolicy() == CheckpointPolicy(frozenset(CheckpointBoundary), 1024 * 1024)


# --- the checkpointer ---------------------------------------------------------------------------------------------


class Failing(MemoryCheckpointStore):
    """A store that is away for as long as it has an error."""

    def __init__(self):
        super().__init__()
        self.error = None

    async def put(self, checkpoint, *, fence=None):
        if self.error:
            raise self.error
        await super().put(checkpoint, fence=fence)

    async def forget(self, run_id, *, tenant, fence=None):
        if self.error:
            raise self.error
        await super().forget(run_id, tenant=tenant, fence=fence)


async def test_a_checkpoint_is_written_and_forgotten():
    """C5."""
    checkpointer = Checkpointer(MemoryCheckpointStore())

    assert await checkpointer.write(minimal())
    assert await checkpointer.latest("run", tenant="acme") == minimal()
    assert await checkpointer.forget("run", tenant="acme")
    assert await checkpointer.latest("run", tenant="acme") is None
    assert checkpointer.last_error is None


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError(store="x", reason="gone"), OSError("disk full"), RuntimeError("a bug of the store's")],
)
async def test_whatever_a_store_does_never_fails_the_run(error):
    """C3: it is kept, until a write goes well again."""
    store = Failing()
    checkpointer = Checkpointer(store)
    store.error = error

    assert not await checkpointer.write(minimal())
    assert checkpointer.last_error is error
    store.error = None
    assert await checkpointer.write(minimal())
    assert checkpointer.last_error is None


@pytest.mark.parametrize(
    "error",
    [StoreUnavailableError(store="x", reason="gone"), OSError("disk full"), RuntimeError("a bug of the store's")],
)
async def test_a_frontier_that_cannot_be_forgotten_does_not_fail_the_run_either(error):
    """C3."""
    store = Failing()
    checkpointer = Checkpointer(store)
    await checkpointer.write(minimal())
    store.error = error

    assert not await checkpointer.forget("run", tenant="acme")

    assert checkpointer.last_error is error


async def test_a_frontier_over_the_cap_is_not_written():
    """C2, C3: the older one stays, and the writer is told that it is not current."""
    store = MemoryCheckpointStore()
    await store.put(minimal())
    checkpointer = Checkpointer(store, CheckpointPolicy(max_bytes=500))

    written = await checkpointer.write(minimal(output="x" * 500))

    assert not written
    assert isinstance(checkpointer.last_error, CheckpointTooLargeError)
    assert await store.latest("run", tenant="acme") == minimal()


async def test_a_boundary_that_the_policy_leaves_out_is_not_written():
    """C1: nor is that an error; but memory is ahead then (C3)."""
    policy = CheckpointPolicy(frozenset({CheckpointBoundary.AFTER_TOOL_RESULT}))
    checkpointer = Checkpointer(MemoryCheckpointStore(), policy)

    left_out = await checkpointer.write(minimal(boundary=CheckpointBoundary.AFTER_MODEL_CALL))
    written = await checkpointer.write(minimal(boundary=CheckpointBoundary.AFTER_TOOL_RESULT))

    assert (left_out, written, checkpointer.last_error) == (False, True, None)
