"""Crossing into a new execution: when, what crosses, and what must (K1)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from adk_worker.checkpoint import CheckpointBoundary, Checkpointer, Journal
from adk_worker.continuation import DEFAULT_CONTINUATION, Continuation, ContinuationPolicy, continued
from adk_worker.errors import ConfigurationError, IndeterminateToolCallError
from adk_worker.idempotency import call_key
from adk_worker.memory import MemoryCheckpointStore, MemoryHistoryStore, MemoryIdempotencyStore
from adk_worker.messages import Message, dump_messages
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.runner import AgentRunner
from adk_worker.runs import RunStatus
from tests.unit.far_side import FarSide, agent_with
from tests.unit.test_checkpoint import FORMAT_1


def across(state=FORMAT_1, **changed):
    """A crossing from ``state`` in which fields are changed."""
    crossed = continued(state, tenant=state.tenant, agent_name=state.agent).frontier
    return Continuation(crossed.updated(**changed), state)


# --- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "size", "due"), [(9, 99, False), (10, 0, True), (0, 100, True), (11, 101, True), (0, 0, False)]
)
def test_it_is_due_by_steps_or_by_bytes(steps, size, due):
    """K1: of whatever has as many entries as there were steps."""
    policy = ContinuationPolicy(max_steps=10, max_history_bytes=100)
    assert policy.due([object()] * steps, history_bytes=size) is due
    assert policy.due(Journal(steps=steps), history_bytes=size) is due


def test_the_default_leaves_ordinary_runs_alone():
    """K1: an agent of twenty iterations never crosses."""
    assert not DEFAULT_CONTINUATION.due(Journal(steps=2 * 20), history_bytes=1024 * 1024)


@pytest.mark.parametrize("limits", [{"max_steps": 0}, {"max_history_bytes": 0}])
def test_a_limit_that_is_none_is_refused(limits):
    with pytest.raises(ConfigurationError, match="has to be at least 1"):
        ContinuationPolicy(**limits)


def test_a_journal_counts_boundaries_and_what_the_transcript_has_grown_by():
    """K1: by the bytes that are stored."""
    said = Message.user("caf\u00e9")
    journal = Journal().with_step(said).with_step()
    assert (len(journal), journal.history_bytes) == (2, len(dump_messages([said])) + len(dump_messages([])))


# --- what crosses -----------------------------------------------------------------------------------------------------


def test_all_that_carries_the_run_on_crosses_and_the_journal_does_not():
    """K1, I1: the transcript as a handle, and numbers; the sequence and the iterations go on."""
    crossing = continued(FORMAT_1, tenant="acme", agent_name="booking")

    assert (crossing.execution, len(crossing.frontier.journal)) == (FORMAT_1.execution + 1, 0)
    assert crossing.frontier.updated(execution=FORMAT_1.execution, journal=FORMAT_1.journal) == FORMAT_1
    assert (crossing.tenant, crossing.run_id, crossing.agent_name) == ("acme", "run-1", "booking")
    assert (crossing.history_handle, crossing.grant_id) == (FORMAT_1.history_handle, "grant-1")
    assert (crossing.iteration, crossing.usage, crossing.cost_micros) == (3, FORMAT_1.usage, 4100)


@pytest.mark.parametrize("grant_id", [None, "grant-2"])
def test_one_that_drops_the_grant_cannot_be_constructed(grant_id):
    """K1."""
    with pytest.raises(ConfigurationError, match="drops the grant 'grant-1'"):
        across(grant_id=grant_id)


@pytest.mark.parametrize(
    "changed",
    [
        {"calls": ()},
        {"calls": FORMAT_1.calls[1:]},
        {"calls": (FORMAT_1.calls[0].model_copy(update={"arguments": {"flight": "other"}}), *FORMAT_1.calls[1:])},
        {"boundary": CheckpointBoundary.AFTER_MODEL_CALL},
    ],
    ids=["none", "fewer", "other arguments", "no longer waiting"],
)
def test_one_that_drops_an_approval_cannot_be_constructed(changed):
    """K1, P1: nor the call that it is about, nor the wait for it."""
    with pytest.raises(ConfigurationError, match="drops an approval"):
        across(**changed)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tenant": "other"}, "tenant"),
        ({"run_id": "other"}, "run_id"),
        ({"agent": "other"}, "agent"),
        ({"revision": "r2"}, "revision"),
        ({"iteration": 0}, "iteration"),
        ({"sequence": 0}, "sequence"),
        ({"cost_micros": 0}, "cost_micros"),
        ({"history_handle": None}, "history_handle"),
        ({"messages": ()}, "messages"),
        ({"masks": {}}, "masks"),
        ({"execution": FORMAT_1.execution}, "execution"),
        ({"execution": FORMAT_1.execution + 2}, "execution"),
        ({"journal": FORMAT_1.journal}, "carries a journal"),
    ],
)
def test_one_that_is_not_the_same_run_going_on_cannot_be_constructed(changed, said):
    """K1, T1, C6, I1: a name, a place or a number that is another's."""
    with pytest.raises(ConfigurationError, match=said):
        across(**changed)


@pytest.mark.parametrize("named", [{"tenant": "other"}, {"agent_name": "other"}])
def test_whose_run_it_is_is_said_and_not_inferred(named):
    """K1, T1."""
    with pytest.raises(ConfigurationError, match="'other'"):
        continued(FORMAT_1, **{"tenant": "acme", "agent_name": "booking", **named})


# --- in process -------------------------------------------------------------------------------------------------------


class Keeping(MemoryCheckpointStore):
    """Keeps every frontier that it was given."""

    def __init__(self):
        super().__init__()
        self.kept = []

    async def put(self, checkpoint, *, fence=None):
        self.kept.append(checkpoint)
        await super().put(checkpoint, fence=fence)

    @property
    def crossed(self):
        """Those with which an execution began."""
        return [one for before, one in pairwise(self.kept) if one.execution > before.execution]


@pytest.mark.parametrize("history", [MemoryHistoryStore, lambda: None], ids=["out of line", "in line"])
async def test_a_run_in_process_crosses_where_it_is_due(history):
    """K1, I1: after the tools' results; its keys stay unique, and its iterations are counted across."""
    store, far_side, turns = Keeping(), FarSide(), 6
    asked = [[("book", {"seat": str(seat)})] for seat in range(turns)]
    agent = agent_with(far_side.tool(), turns=[*asked, "Booked."])
    runner = AgentRunner(
        idempotency=MemoryIdempotencyStore(),
        checkpoints=Checkpointer(store),
        history=history(),
        continuation=ContinuationPolicy(max_steps=4),
    )

    ended = await runner.run(agent, "book", tenant="acme", run_id="run_1")

    assert (ended.status, ended.iteration, ended.execution) == (RunStatus.COMPLETED, turns + 1, 4)
    crossed = store.crossed
    assert [(one.boundary, one.execution, one.iteration) for one in crossed] == [
        (CheckpointBoundary.AFTER_TOOL_RESULT, execution, 2 * (execution - 1)) for execution in (2, 3, 4)
    ]
    assert [len(one.journal) for one in crossed] == [0, 0, 0]
    assert max(len(one.journal) for one in store.kept) == 3
    assert [key for key, _ in far_side.effects] == [
        call_key(tenant="acme", run_id="run_1", iteration=iteration, index=0) for iteration in range(1, turns + 1)
    ]


async def test_iterations_are_counted_across_executions():
    """K1: ``max_iterations`` is no less a limit for a run that crosses at each turn."""
    agent = agent_with(FarSide().tool(), turns=[[("book", {"seat": "1"})]] * 9, max_iterations=5)
    runner = AgentRunner(idempotency=MemoryIdempotencyStore(), continuation=ContinuationPolicy(max_steps=1))

    ended = await runner.run(agent, "book", tenant="acme", run_id="run_1")

    assert (ended.status, ended.iteration, ended.execution) == (RunStatus.FAILED, 5, 6)


async def test_a_run_that_is_resumed_goes_on_in_its_execution():
    """K1: what is due is counted from where the execution began, whoever carries it on."""
    store, far_side = Keeping(), FarSide()
    agent = agent_with(far_side.tool(), turns=[[("book", {"seat": str(seat)})] for seat in range(4)] + ["Booked."])
    stores = {"idempotency": MemoryIdempotencyStore(), "checkpoints": Checkpointer(store)}
    policy = ContinuationPolicy(max_steps=6)
    far_side.after = RuntimeError("the far side closed the connection")
    with pytest.raises(IndeterminateToolCallError):
        await AgentRunner(**stores, continuation=policy).run(agent, "book", tenant="acme", run_id="run_1")
    far_side.after = None
    (claim,) = store.kept[-1].calls
    undecided = (await stores["idempotency"].peek([claim.key], tenant="acme"))[claim.key]
    await stores["idempotency"].record(undecided, ToolOutcome(kind=OutcomeKind.RETURNED, content={"seat": "0"}))

    ended = await AgentRunner(**stores, continuation=policy).resume(agent, "run_1", tenant="acme")

    assert (ended.status, ended.execution) == (RunStatus.COMPLETED, 2)
    (crossed,) = store.crossed
    assert (crossed.sequence, crossed.iteration) == (6, 3)
