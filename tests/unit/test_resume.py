"""plan_resume as a table: what a frontier and the claims on record say about each outstanding call."""

from __future__ import annotations

import pickle

import pytest

from adk_worker.checkpoint import Checkpoint, OutstandingCall
from adk_worker.errors import CallKeyReusedError, IndeterminateToolCallError
from adk_worker.idempotency import Claim, ClaimState, call_digest, call_key, run_part, run_part_of
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.resume import ToolDisposition, plan_resume

RETURNED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"seat": "12A"})


class Record:
    """Claims by key, which can be read and nothing else: any other method would be an AttributeError (I5)."""

    def __init__(self, **claims):
        self._claims = claims

    async def peek(self, keys, *, tenant):
        assert tenant == "acme"
        return {key: self._claims.get(key) for key in keys}


def key_of(index):
    return call_key(tenant="acme", run_id="run_1", iteration=1, index=index)


def outstanding(index=0, *, effect=Effect.EFFECTFUL, keyed=True, **fields):
    key = key_of(index) if keyed else None
    return OutstandingCall(
        call_id=f"c{index}", tool="book", arguments={"seat": "12A"}, index=index, effect=effect, key=key, **fields
    )


def frontier(*calls):
    return Checkpoint(tenant="acme", run_id="run_1", agent="booking", revision="one", iteration=1, calls=calls)


def claim(index=0, *, outcome=None, arguments=None):
    key = key_of(index)
    digest = call_digest(key, tool="book", arguments=arguments or {"seat": "12A"})
    state = ClaimState.IN_FLIGHT if outcome is None else ClaimState.SETTLED
    return Claim("acme", key, "somebody", digest, state, outcome=outcome)


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_call_with_an_outcome_on_record_completed(effect):
    """I5: replayed, whatever the tool."""
    plan = await plan_resume(frontier(outstanding(effect=effect)), Record(**{key_of(0): claim(outcome=RETURNED)}))
    assert [planned.outcome for planned in plan.completed] == [RETURNED]
    assert plan.safe


@pytest.mark.parametrize("effect", list(Effect))
async def test_a_call_without_an_intent_on_record_never_ran(effect):
    """I2, I5: an intent comes before every dispatch."""
    plan = await plan_resume(frontier(outstanding(effect=effect)), Record())
    assert [planned.disposition for planned in plan.to_dispatch] == [ToolDisposition.NEVER_RAN]
    assert plan.safe


async def test_an_effectful_call_in_flight_is_indeterminate():
    """I4, I5: however old the claim is; the frontier itself carries the effect."""
    plan = await plan_resume(frontier(outstanding()), Record(**{key_of(0): claim()}))
    assert len(plan.indeterminate) == 1
    assert not plan.safe
    with pytest.raises(IndeterminateToolCallError) as refused:
        plan.refuse_if_undecidable()
    assert refused.value.calls == (("c0", "book", key_of(0)),)
    assert not refused.value.retryable
    assert pickle.loads(pickle.dumps(refused.value)).calls == refused.value.calls  # noqa: S301 - our own


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.READ_ONLY])
async def test_a_call_in_flight_that_may_be_repeated_is_repeatable(effect):
    """I7: still indeterminate as far as knowledge goes, and no reason to stop."""
    plan = await plan_resume(frontier(outstanding(effect=effect)), Record(**{key_of(0): claim()}))
    assert [planned.disposition for planned in plan.repeatable] == [ToolDisposition.INDETERMINATE]
    assert plan.indeterminate == ()
    plan.refuse_if_undecidable()


@pytest.mark.parametrize("effect", list(Effect))
@pytest.mark.parametrize(("keyed", "record"), [(False, Record()), (True, None), (False, None)])
async def test_without_a_key_or_a_store_everything_is_indeterminate(effect, keyed, record):
    """I6: nobody wrote down whether it was dispatched, and nothing without a key may be repeated."""
    plan = await plan_resume(frontier(outstanding(effect=effect, keyed=keyed)), record)
    assert len(plan.indeterminate) == 1


async def test_a_key_on_record_with_other_arguments_is_no_answer():
    """I1: neither replayed nor made."""
    record = Record(**{key_of(0): claim(outcome=RETURNED, arguments={"seat": "1A"})})
    with pytest.raises(CallKeyReusedError):
        await plan_resume(frontier(outstanding()), record)


async def test_a_call_that_was_refused_has_its_outcome_in_the_frontier():
    """I10: never started, no claim; it needs no store to be told again."""
    refused = ToolOutcome(kind=OutcomeKind.REFUSED, content="no such tool")
    plan = await plan_resume(frontier(outstanding(outcome=refused)), None)
    assert [planned.outcome for planned in plan.completed] == [refused]


async def test_the_plan_keeps_call_order_and_names_every_undecidable_call():
    """I5: in call order, each in its place."""
    calls = [
        outstanding(0),
        outstanding(1),
        outstanding(2),
        outstanding(3, effect=Effect.IDEMPOTENT),
        outstanding(4),
    ]
    claims = {key_of(0): claim(0), key_of(1): claim(1, outcome=RETURNED), key_of(3): claim(3), key_of(4): claim(4)}
    plan = await plan_resume(frontier(*calls), Record(**claims))
    assert [planned.call.index for planned in plan.calls] == [0, 1, 2, 3, 4]
    assert [planned.call.index for planned in plan.completed] == [1]
    assert [planned.call.index for planned in plan.to_dispatch] == [2]
    assert [planned.call.index for planned in plan.repeatable] == [3]
    with pytest.raises(IndeterminateToolCallError) as refused:
        plan.refuse_if_undecidable()
    assert [call_id for call_id, _, _ in refused.value.calls] == ["c0", "c4"]


async def test_a_frontier_with_nothing_outstanding_is_safe():
    plan = await plan_resume(frontier(), Record())
    assert plan.calls == ()
    assert plan.safe


class TestKeys:
    """I1: the same across retry and resume, different for every other call; no name reaches another's (T1)."""

    def test_it_is_the_same_for_the_same_position(self):
        assert key_of(0) == key_of(0)

    @pytest.mark.parametrize(
        "other",
        [
            {"tenant": "acme:run_1", "run_id": ""},
            {"tenant": "other"},
            {"run_id": "run_2"},
            {"iteration": 2},
            {"index": 1},
        ],
    )
    def test_it_differs_for_every_other(self, other):
        position = {"tenant": "acme", "run_id": "run_1", "iteration": 1, "index": 0}
        assert call_key(**position) != call_key(**{**position, **other})

    def test_it_tells_which_run_it_is_of_and_not_its_name(self):
        """I1, T1: a store that spreads over machines finds a call's run by it."""
        parts = {run_part_of(call_key(tenant="acme", run_id="run_1", iteration=1, index=index)) for index in range(9)}

        assert parts == {run_part("acme", "run_1")}
        assert run_part("acme", "run_1") != run_part("acme", "run_2")
        assert run_part("a:b", "c") != run_part("a", "b:c")

    @pytest.mark.parametrize("key", ["", "adk1-1", "adk1-" + "g" * 40, "adk1-" + "0" * 41, "adk1-" + "0" * 40 + "\n"])
    def test_any_other_key_is_of_no_run(self, key):
        """I1: whoever keeps claims under keys of their own."""
        assert run_part_of(key) is None

    def test_no_separator_in_a_name_makes_two_calls_one(self):
        assert call_key(tenant="a:b", run_id="c", iteration=1, index=0) != call_key(
            tenant="a", run_id="b:c", iteration=1, index=0
        )

    def test_it_fits_a_header_whatever_the_names(self):
        key = call_key(tenant="Łódź 🚀", run_id="x" * 500, iteration=1, index=0)
        assert key.isascii()
        assert len(key) == 45

    def test_equal_arguments_of_two_calls_do_not_show_as_equal(self):
        """I1: the digest is keyed by the call."""
        one = call_digest(key_of(0), tool="book", arguments={"a": 1, "b": 2})
        assert one == call_digest(key_of(0), tool="book", arguments={"b": 2, "a": 1})
        assert one != call_digest(key_of(1), tool="book", arguments={"a": 1, "b": 2})
