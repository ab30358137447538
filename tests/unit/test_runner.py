"""Runs in process: what a caller of AgentRunner sees, and what is left behind when it dies."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from adk_worker.approvals.answers import ApprovalDecision
from adk_worker.approvals.declaring import Approval
from adk_worker.checkpoint import CheckpointBoundary, Checkpointer, CheckpointPolicy
from adk_worker.errors import (
    ApprovalRefusedError,
    CheckpointTooLargeError,
    FrontierLostError,
    HistoryUnavailableError,
    IndeterminateToolCallError,
    InvalidNameError,
    LeaseError,
    ModelError,
    NoCheckpointError,
    NotAllowedError,
    ResumeConflictError,
    RevisionMismatchError,
    RunExistsError,
    StoreUnavailableError,
    ToolError,
)
from adk_worker.memory import (
    MemoryCheckpointStore,
    MemoryData,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
)
from adk_worker.outcomes import Effect
from adk_worker.redaction.masking import Redactor
from adk_worker.resume import plan_resume
from adk_worker.runner import AgentRunner
from adk_worker.runs import RunStatus
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import tool
from tests.unit.far_side import FarSide, NeverWill, NotYet, Unknown, agent_with


class FailingCheckpointStore(MemoryCheckpointStore):
    """A store that is away whenever ``away`` is set."""

    away = False

    async def put(self, checkpoint, *, fence=None):
        if self.away:
            raise OSError("no route to host")
        await super().put(checkpoint, fence=fence)


class InProcess:
    """One run's stores, which outlive its runners."""

    def __init__(self, **policy):
        self.store = FailingCheckpointStore()
        self.checkpointer = Checkpointer(self.store, CheckpointPolicy(**policy))
        self.idempotency = MemoryIdempotencyStore()

    def runner(self, **more):
        """A runner as a new process would make it."""
        return AgentRunner(idempotency=self.idempotency, checkpoints=self.checkpointer, **more)

    async def frontier(self):
        return await self.store.latest("run_1", tenant="acme")


@pytest.fixture
def here():
    return InProcess()


@pytest.fixture
def far_side():
    return FarSide()


async def die_in(runner, agent, far_side, *, reached=None):
    """Run until a tool is entered, or ``reached`` is set, and let it come to where it blocks; then kill the runner."""
    task = asyncio.create_task(runner.run(agent, "book", tenant="acme", run_id="run_1"))
    await (reached or far_side.entered).wait()
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def die_in_seat_2(here, agent, far_side):
    """Kill the runner while the call for seat 2 has had its effect and has not answered; it answers from then on."""
    block, act = asyncio.Event(), far_side.act
    reached = asyncio.Event()

    async def blocked(context, seat):
        result = await act(context, seat)
        if seat == "2":
            reached.set()
            await block.wait()
        return result

    far_side.act = blocked
    await die_in(here.runner(), agent, far_side, reached=reached)
    block.set()


async def test_a_run_ends_with_its_output_and_leaves_no_frontier(here, far_side):
    """C5: the frontier of a completed run is forgotten."""
    run = await here.runner().run(agent_with(far_side.tool()), "book", tenant="acme", run_id="run_1")

    assert (run.status, run.output, run.iteration) == (RunStatus.COMPLETED, "Booked 12A.", 2)
    assert [seat for _, seat in far_side.effects] == ["12A"]
    assert await here.frontier() is None


async def test_checkpoints_are_written_at_boundaries_and_count_up(here, far_side):
    """C1, C5: after the model call and after the tool result, sequence by sequence, and nowhere else."""
    written = []
    put = here.store.put

    async def spy(checkpoint, *, fence=None):
        written.append((checkpoint.sequence, checkpoint.boundary))
        await put(checkpoint, fence=fence)

    here.store.put = spy
    await here.runner().run(agent_with(far_side.tool()), "book", tenant="acme", run_id="run_1")

    assert written == [(1, CheckpointBoundary.AFTER_MODEL_CALL), (2, CheckpointBoundary.AFTER_TOOL_RESULT)]


async def test_a_call_that_completed_before_the_death_is_replayed(here, far_side):
    """I2, I5: the outcome on record is told to the model, and the call is not made again."""
    agent = agent_with(
        far_side.tool(), far_side.tool(name="pay"), turns=[[("book", {"seat": "1"}), ("pay", {"seat": "2"})], "ok"]
    )
    # given a death while the second of two calls is under way, the first being recorded
    release, recorded, reached = asyncio.Event(), asyncio.Event(), asyncio.Event()
    first, record = far_side.act, here.idempotency.record

    async def noticed(claim, outcome):
        await record(claim, outcome)
        recorded.set()

    here.idempotency.record = noticed

    async def act(context, seat):
        if seat == "2":
            await recorded.wait()
            reached.set()
            await release.wait()
        return await first(context, seat)

    far_side.act = act
    await die_in(here.runner(), agent, far_side, reached=reached)
    # when somebody finds out that the second one did not happen, and another process resumes
    plan = await plan_resume(await here.frontier(), here.idempotency)
    assert [planned.call.tool for planned in plan.completed] == ["book"]
    assert [planned.call.tool for planned in plan.indeterminate] == ["pay"]
    await here.idempotency.abandon(plan.indeterminate[0].claim)
    release.set()
    run = await here.runner().resume(agent, "run_1", tenant="acme")
    # then each effect is there once
    assert run.output == "ok"
    assert [seat for _, seat in far_side.effects] == ["1", "2"]


async def test_an_effectful_call_in_flight_at_a_death_is_never_made_again(here, far_side):
    """I5, I7, I10: without a probe nobody can tell, so the resume refuses and names the call; nothing is dispatched."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool())
    await die_in(here.runner(), agent, far_side)

    with pytest.raises(IndeterminateToolCallError) as refused:
        await here.runner().resume(agent, "run_1", tenant="acme")

    assert [(call_id, tool_name) for call_id, tool_name, _ in refused.value.calls] == [("call_1_0", "book")]
    assert not refused.value.retryable
    assert len(far_side.effects) == 1
    assert (await here.frontier()).sequence == 1


async def test_a_probe_settles_what_happened(here, far_side):
    """I7: the far side says that it happened, its outcome is recorded, and the call is not made again."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    await die_in(here.runner(), agent, far_side)

    run = await here.runner().resume(agent, "run_1", tenant="acme")

    assert run.output == "Booked 12A."
    assert len(far_side.effects) == 1
    assert far_side.probed == [far_side.effects[0][0]]


async def test_a_probe_that_says_never_lets_the_call_be_made(here, far_side):
    """I7: it did not happen and never will, so it is made, under the same key."""
    far_side.before = asyncio.Event()
    far_side.probe_says = NeverWill()
    agent = agent_with(far_side.tool(probe=far_side.probe))
    await die_in(here.runner(), agent, far_side)
    far_side.before = None

    run = await here.runner().resume(agent, "run_1", tenant="acme")

    assert run.output == "Booked 12A."
    assert [key for key, _ in far_side.effects] == far_side.probed


@pytest.mark.parametrize("answer", [NotYet(), Unknown("ask later"), "nonsense"])
async def test_a_probe_that_does_not_know_decides_nothing(here, far_side, answer):
    """I7: in process nobody keeps a time of death, so "not yet" is no permission; unknown never is."""
    far_side.before = asyncio.Event()
    far_side.probe_says = answer
    agent = agent_with(far_side.tool(probe=far_side.probe, max_in_flight=0))
    await die_in(here.runner(), agent, far_side)
    far_side.before = None

    with pytest.raises(IndeterminateToolCallError):
        await here.runner().resume(agent, "run_1", tenant="acme")

    assert far_side.effects == []


@pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.READ_ONLY])
async def test_a_tool_that_may_be_repeated_is_repeated_under_the_same_key(here, far_side, effect):
    """I1, I7: idempotent calls are sent again under their key, read-only ones are run again."""
    far_side.after = asyncio.Event()
    agent = agent_with(far_side.tool(effect=effect))
    await die_in(here.runner(), agent, far_side)
    far_side.after = None

    run = await here.runner().resume(agent, "run_1", tenant="acme")

    assert run.output == "Booked 12A."
    keys = [key for key, _ in far_side.effects]
    assert len(keys) == 2
    assert keys[0] == keys[1]


async def test_without_an_idempotency_store_everything_outstanding_is_indeterminate(far_side):
    """I6: nobody wrote down whether it was dispatched."""
    store = MemoryCheckpointStore()
    far_side.before = asyncio.Event()
    agent = agent_with(far_side.tool(effect="read_only"))
    await die_in(AgentRunner(checkpoints=Checkpointer(store)), agent, far_side)

    with pytest.raises(IndeterminateToolCallError) as refused:
        await AgentRunner(checkpoints=Checkpointer(store)).resume(agent, "run_1", tenant="acme")

    assert refused.value.calls == (("call_1_0", "book", None),)


class TestHowACallEnds:
    """I10, live: what is recorded, what the model is told, and what stays undecided."""

    async def told(self, here, far_side, **declared):
        run = await here.runner().run(agent_with(far_side.tool(**declared)), "book", tenant="acme", run_id="run_1")
        (result,) = [part for message in run.messages if message.role == "tool" for part in message.parts]
        return result

    @pytest.mark.parametrize("effect", list(Effect))
    async def test_it_did_not_happen(self, here, far_side, effect):
        """I10: a tool that knows it did not happen has failed; the model is told."""
        far_side.before = ToolError("sold out", happened=False)
        result = await self.told(here, far_side, effect=effect)
        assert result.is_error
        assert "sold out" in result.content

    async def test_a_type_that_proves_it(self, here, far_side):
        """I10: the same for a type listed in did_not_happen."""
        far_side.before = ConnectionRefusedError("refused")
        result = await self.told(here, far_side, did_not_happen=(ConnectionRefusedError,))
        assert result.is_error

    @pytest.mark.parametrize("effect", [Effect.IDEMPOTENT, Effect.READ_ONLY])
    async def test_anything_else_fails_a_repeatable_call(self, here, far_side, effect):
        """I10: recorded as failed, and the model is told."""
        far_side.before = ValueError("odd")
        assert "odd" in (await self.told(here, far_side, effect=effect)).content

    async def test_anything_else_leaves_an_effectful_call_undecided(self, here, far_side):
        """I10: the claim stays in flight, and without a probe nobody can tell."""
        far_side.after = ValueError("odd")
        with pytest.raises(IndeterminateToolCallError):
            await self.told(here, far_side)
        assert (await plan_resume(await here.frontier(), here.idempotency)).indeterminate

    async def test_the_probe_is_asked_in_the_live_run_too(self, here, far_side):
        """I7, I10: it raised after its effect, and the far side knows."""
        far_side.after = ValueError("odd")
        result = await self.told(here, far_side, probe=far_side.probe)
        assert not result.is_error
        assert result.content == {"seat": "12A"}

    async def test_a_call_that_never_will_is_not_repeated_in_the_turn_that_made_it(self, here, far_side):
        """I10: it is known not to have happened, so it has failed; the model decides what to do."""
        far_side.before = ValueError("odd")
        far_side.probe_says = NeverWill("refused")
        result = await self.told(here, far_side, probe=far_side.probe)
        assert result.is_error
        assert "did not happen" in result.content
        assert far_side.effects == []

    async def test_what_is_not_json_completed_all_the_same(self, here, far_side):
        """I10: recorded with a marker that says so."""
        far_side.answer = object()
        result = await self.told(here, far_side)
        assert result.is_error
        assert "completed" in result.content

    @pytest.mark.parametrize(
        ("turn", "says"),
        [(("fly", {}), "no tool named"), (("book", {"seat": 12}), "seat"), (("book", {}), "seat")],
    )
    async def test_a_call_that_was_never_started_has_no_claim(self, here, far_side, turn, says):
        """I10: unknown tool, invalid arguments: no claim, and the model is told."""
        agent = agent_with(far_side.tool(), turns=[[turn], "I give up."])
        run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
        assert says in str(run.messages[2].parts[0].content)
        assert far_side.effects == []

    async def test_a_masked_secret_is_never_executed(self, here, far_side):
        """R2: a call whose arguments contain a placeholder is refused to the model."""
        agent = agent_with(far_side.tool(), turns=[[("book", {"seat": "sk_live_" + "a1B2" * 8})], "I give up."])
        run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
        assert "masked" in str(run.messages[2].parts[0].content)
        assert far_side.effects == []


class TestACheckpointThatFails:
    async def test_it_never_fails_the_live_run(self, here, far_side):
        """C3: the reason is kept, the run goes on."""
        here.store.away = True
        run = await here.runner().run(agent_with(far_side.tool()), "book", tenant="acme", run_id="run_1")
        assert run.output == "Booked 12A."

    async def test_its_reason_is_kept(self, here, far_side):
        """C3: last_error has what went wrong."""
        here.store.away = True
        far_side.before = asyncio.Event()
        await die_in(here.runner(), agent_with(far_side.tool()), far_side)
        assert "no route" in str(here.checkpointer.last_error)

    async def test_one_over_the_cap_is_refused_and_not_trimmed(self, far_side):
        """C2, C3: refused with both sizes; the run goes on."""
        here = InProcess(max_bytes=300)
        far_side.before = asyncio.Event()
        await die_in(here.runner(), agent_with(far_side.tool()), far_side)
        assert isinstance(here.checkpointer.last_error, CheckpointTooLargeError)
        assert here.checkpointer.last_error.max_bytes == 300
        assert await here.frontier() is None

    async def test_an_older_frontier_is_not_resumed_as_if_it_were_current(self, here, far_side):
        """C3: the mark is set before the dispatch, so whoever finds the older frontier knows."""
        # given a frontier of the first turn, and a death in the second turn's call, which was not checkpointed
        turns = [[("book", {"seat": "1"})], [("book", {"seat": "2"})], "ok"]
        agent = agent_with(far_side.tool(), turns=turns)
        written = []
        put = here.store.put

        async def first_turn_only(checkpoint, *, fence=None):
            if checkpoint.sequence > 2:
                raise OSError("no route to host")
            written.append(checkpoint.sequence)
            await put(checkpoint, fence=fence)

        here.store.put = first_turn_only
        await die_in_seat_2(here, agent, far_side)
        assert written == [1, 2]
        # when another process finds it
        with pytest.raises(FrontierLostError) as refused:
            await here.runner().resume(agent, "run_1", tenant="acme")
        # then it is refused, and the booking is not made again
        assert refused.value.sequence == 2
        assert len(far_side.effects) == 2

    async def test_the_next_stored_checkpoint_takes_the_mark_back(self, here, far_side):
        """C3: memory and store agree again, so the run can be resumed."""
        turns = [[("book", {"seat": "1"})], [("book", {"seat": "2"})], "ok"]
        agent = agent_with(far_side.tool(probe=far_side.probe), turns=turns)
        put = here.store.put

        async def all_but_the_first(checkpoint, *, fence=None):
            if checkpoint.sequence == 1:
                raise OSError("no route to host")
            await put(checkpoint, fence=fence)

        here.store.put = all_but_the_first
        await die_in_seat_2(here, agent, far_side)
        run = await here.runner().resume(agent, "run_1", tenant="acme")
        assert run.output == "ok"
        assert [seat for _, seat in far_side.effects] == ["1", "2"]

    async def test_one_that_cannot_be_forgotten_keeps_its_mark(self, here, far_side):
        """C3: the run has completed, and the older frontier that is left behind is not taken for where it stands."""
        put = here.store.put

        async def the_first_alone(checkpoint, *, fence=None):
            if checkpoint.sequence > 1:
                raise OSError("no route to host")
            await put(checkpoint, fence=fence)

        async def forget(run_id, *, tenant, fence=None):
            raise OSError("no route to host")

        here.store.put, here.store.forget = the_first_alone, forget
        turns = [[("book", {"seat": "1"})], [("book", {"seat": "2"})], "ok"]
        agent = agent_with(far_side.tool(), turns=turns)

        run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")

        assert run.output == "ok"
        with pytest.raises(FrontierLostError):
            await here.runner().resume(agent, "run_1", tenant="acme")
        assert [seat for _, seat in far_side.effects] == ["1", "2"]


async def test_a_worker_that_was_superseded_ends_no_run():
    """F1: its last write is refused like any other, and its caller is not told that the run completed."""
    clock = [1_000.0]
    data = MemoryData(lambda: clock[0])
    leases, store = MemoryLeaseStore(data), MemoryCheckpointStore(data)

    async def answers_too_late(_):
        clock[0] += 3600
        await leases.acquire("run_1", tenant="acme", holder="another", ttl_seconds=60)
        return "done"

    runner = AgentRunner(checkpoints=Checkpointer(store), leases=leases)
    with pytest.raises(LeaseError):
        await runner.run(agent_with(turns=answers_too_late), "book", tenant="acme", run_id="run_1")


async def test_a_resume_that_cannot_be_ended_in_the_store_has_its_result_all_the_same(here, far_side):
    """I9: the claim expires by itself, and nobody's run is lost over it."""
    agent = agent_with(far_side.tool(effect="idempotent"))
    far_side.before = asyncio.Event()
    await die_in(here.runner(), agent, far_side)
    far_side.before.set()

    async def end_resume(run_id, *, tenant, owner):
        raise StoreUnavailableError(store="x", reason="gone")

    here.idempotency.end_resume = end_resume
    run = await here.runner().resume(agent, "run_1", tenant="acme")
    assert run.output == "Booked 12A."


class TestWhatAResumeRefuses:
    async def test_nothing_checkpointed(self, here, far_side):
        with pytest.raises(NoCheckpointError):
            await here.runner().resume(agent_with(far_side.tool()), "run_1", tenant="acme")

    async def test_another_tenants_run(self, here, far_side):
        """T1: it says the same as for a run that is not there."""
        far_side.before = asyncio.Event()
        await die_in(here.runner(), agent_with(far_side.tool()), far_side)
        with pytest.raises(NoCheckpointError):
            await here.runner().resume(agent_with(far_side.tool()), "run_1", tenant="other")

    async def test_another_revision(self, here, far_side):
        """C7: the run is pinned to the revision that began it."""
        far_side.before = asyncio.Event()
        await die_in(here.runner(), agent_with(far_side.tool()), far_side)
        with pytest.raises(RevisionMismatchError) as refused:
            await here.runner().resume(agent_with(far_side.tool(), revision="two"), "run_1", tenant="acme")
        assert refused.value.registered == ("two",)

    async def test_a_second_resume_at_the_same_time(self, here, far_side):
        """I9: at most one at a time, be it of another runner."""
        agent = agent_with(far_side.tool(effect="idempotent"))
        far_side.before = asyncio.Event()
        await die_in(here.runner(), agent, far_side)
        far_side.entered.clear()
        first = asyncio.create_task(here.runner().resume(agent, "run_1", tenant="acme"))
        await far_side.entered.wait()
        with pytest.raises(ResumeConflictError):
            await here.runner().resume(agent, "run_1", tenant="acme")
        far_side.before.set()
        assert (await first).output == "Booked 12A."

    async def test_an_evicted_transcript(self, far_side):
        """H1, H2: the frontier has a handle alone, and what it names is gone."""
        checkpoints, idempotency = Checkpointer(MemoryCheckpointStore()), MemoryIdempotencyStore()
        agent = agent_with(far_side.tool(effect="idempotent"))
        far_side.before = asyncio.Event()
        history = MemoryHistoryStore()
        runner = AgentRunner(checkpoints=checkpoints, idempotency=idempotency, history=history)
        await die_in(runner, agent, far_side)
        stored = await checkpoints.latest("run_1", tenant="acme")
        assert stored.messages == ()
        other = AgentRunner(checkpoints=checkpoints, idempotency=idempotency, history=MemoryHistoryStore())
        with pytest.raises(HistoryUnavailableError):
            await other.resume(agent, "run_1", tenant="acme")
        far_side.before.set()
        assert (await runner.resume(agent, "run_1", tenant="acme")).output == "Booked 12A."

    async def test_a_run_id_that_has_a_frontier_is_not_started_over(self, here, far_side):
        far_side.before = asyncio.Event()
        agent = agent_with(far_side.tool())
        await die_in(here.runner(), agent, far_side)
        with pytest.raises(RunExistsError):
            await here.runner().run(agent, "book", tenant="acme", run_id="run_1")

    @pytest.mark.parametrize("tenant", ["", " ", "a\0b", "x" * 600])
    async def test_a_name_that_is_none(self, here, far_side, tenant):
        """T1: refused with the reason, before anything happens."""
        with pytest.raises(InvalidNameError):
            await here.runner().run(agent_with(far_side.tool()), "book", tenant=tenant, run_id="run_1")
        assert far_side.effects == []


async def test_an_agent_that_does_not_finish_fails_and_keeps_its_frontier(here, far_side):
    agent = agent_with(far_side.tool(), turns=lambda _: [("book", {"seat": "1"})], max_iterations=2)
    run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
    assert run.status is RunStatus.FAILED
    assert "its max_iterations is 2. To have it go on: give the agent more" in run.detail
    assert len(far_side.effects) == 2
    assert (await here.frontier()).sequence == 4


async def test_a_model_that_fails_for_good_fails_the_run_with_its_reason(here, far_side):
    """C5: the frontier is kept, to be carried on once the cause is gone."""
    agent = agent_with(far_side.tool(), turns=[[("book", {"seat": "1"})], ModelError("no such model")])
    run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
    assert run.status is RunStatus.FAILED
    assert "no such model" in run.detail
    assert (await here.frontier()).sequence == 2


async def test_a_call_that_requires_an_approval_rests_before_any_call_is_made(here, far_side):
    """P1, C1: at before_approval, with all calls of the turn in the frontier; a resume is no approval."""
    turns = [[("book", {"seat": "1"}), ("pay", {"seat": "2"})], "ok"]
    agent = agent_with(far_side.tool(), far_side.tool(name="pay", requires_approval=True), turns=turns)
    run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
    assert run.status is RunStatus.WAITING_APPROVAL
    frontier = await here.frontier()
    assert frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL
    assert [call.tool for call in frontier.calls] == ["book", "pay"]
    again = await here.runner().resume(agent, "run_1", tenant="acme")
    assert again.status is RunStatus.WAITING_APPROVAL
    assert far_side.effects == []


async def test_what_was_decided_lets_the_run_go_on(here, far_side):
    """P1: in process: what was approved is made, with what needed nobody; who denied what is told."""
    turns = [[("pay", {"seat": "1"}), ("pay", {"seat": "2"}), ("look", {"seat": "3"})], "ok"]
    looking = far_side.tool(name="look", effect="read_only")
    agent = agent_with(looking, far_side.tool(name="pay", requires_approval=True, effect="read_only"), turns=turns)
    runner = here.runner()
    run = await runner.run(agent, "book", tenant="acme", run_id="run_1")
    first, second = run.asked
    assert (first.tool, first.arguments) == ("pay", {"seat": "1"})
    one = {first.call_id: ApprovalDecision(approved=True, by="ann", digest=first.digest)}
    assert (await runner.resume(agent, "run_1", tenant="acme", decisions=one)).status is RunStatus.WAITING_APPROVAL
    assert far_side.effects == []

    both = {**one, second.call_id: ApprovalDecision(approved=False, by="ann", reason="too dear")}
    run = await runner.resume(agent, "run_1", tenant="acme", decisions=both)

    assert (run.status, run.asked) == (RunStatus.COMPLETED, ())
    assert sorted(seat for _, seat in far_side.effects) == ["1", "3"]
    told = [part.content for message in run.messages for part in message.parts if part.kind == "tool_result"]
    assert "ann denied it: too dear" in told[1]


async def test_without_keys_nobody_can_tell_whether_an_approved_call_was_made(here, far_side):
    """I6, P1: so it is refused as any other outstanding call without one, whoever approved it."""
    agent = agent_with(far_side.tool(requires_approval=True))
    runner = AgentRunner(checkpoints=here.checkpointer)
    run = await runner.run(agent, "book", tenant="acme", run_id="run_1")
    decisions = {run.asked[0].call_id: ApprovalDecision(approved=True, by="ann")}

    with pytest.raises(IndeterminateToolCallError):
        await runner.resume(agent, "run_1", tenant="acme", decisions=decisions)

    assert far_side.effects == []


async def test_an_approved_call_that_was_begun_is_not_asked_about_again(here, far_side):
    """P1, I2: in process its claim says that it was approved."""
    agent = agent_with(far_side.tool(requires_approval=True, probe=far_side.probe))
    run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
    far_side.after = asyncio.Event()
    decisions = {run.asked[0].call_id: ApprovalDecision(approved=True, by="ann")}
    task = asyncio.create_task(here.runner().resume(agent, "run_1", tenant="acme", decisions=decisions))
    await far_side.entered.wait()
    task.cancel()
    await asyncio.wait({task})
    far_side.after = None

    run = await here.runner().resume(agent, "run_1", tenant="acme")

    assert (run.status, len(far_side.effects)) == (RunStatus.COMPLETED, 1)


@pytest.mark.parametrize(
    ("named", "decision", "error", "said"),
    [
        ("nobody's", ApprovalDecision(approved=True, by="ann"), ApprovalRefusedError, "no such call"),
        (None, ApprovalDecision(approved=True, by="ann", digest="0"), ApprovalRefusedError, "other arguments"),
        (None, ApprovalDecision(approved=False, by="bob"), NotAllowedError, "for ann to answer"),
    ],
    ids=["call", "arguments", "approver"],
)
async def test_a_decision_that_cannot_be_acted_on_is_refused(here, far_side, named, decision, error, said):
    """P1: before anything is done."""
    agent = agent_with(far_side.tool(requires_approval=Approval(approvers=["ann"])))
    run = await here.runner().run(agent, "book", tenant="acme", run_id="run_1")
    before = await here.frontier()
    decisions = {named or run.asked[0].call_id: decision}

    with pytest.raises(error, match=said):
        await here.runner().resume(agent, "run_1", tenant="acme", decisions=decisions)

    assert await here.frontier() == before
    assert far_side.effects == []


async def test_secrets_are_masked_where_they_enter(here, far_side):
    """R1: input, metadata, the model's words and the tools' results read the same live, stored and resumed."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    seen = []

    def script(request):
        seen.append(request)
        return [("book", {"seat": "1"})] if len(request.messages) == 1 else f"The token was {secret}."

    far_side.answer = {"token": secret}
    agent = agent_with(far_side.tool(), turns=script)
    run = await here.runner().run(
        agent, f"use {secret}", tenant="acme", run_id="run_1", metadata={"note": f"bearer {secret}"}
    )
    everything = repr((seen, run))
    assert secret not in everything
    assert "[secret:1]" in run.output
    assert "[secret:1]" in run.messages[0].text


async def test_masking_can_be_switched_off(here, far_side):
    """R1: redact=False leaves everything as it came."""
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    agent = agent_with(turns=[f"It is {secret}."])
    run = await here.runner(redactor=Redactor(enabled=False)).run(agent, "go", tenant="acme", run_id="run_1")
    assert secret in run.output


async def test_the_key_and_no_fence_reach_a_tool_without_a_lease(here):
    """F3, I1: stable, and different for each call."""
    seen = []

    @tool(effect="read_only")
    async def look(ctx: ToolContext, what: str) -> str:
        seen.append((ctx.idempotency_key, ctx.fence, ctx.iteration))
        return what

    turns = [[("look", {"what": "a"}), ("look", {"what": "b"})], [("look", {"what": "a"})], "ok"]
    await here.runner().run(agent_with(look, turns=turns), "go", tenant="acme", run_id="run_1")
    assert len({key for key, _, _ in seen}) == 3
    assert {(fence, iteration) for _, fence, iteration in seen} == {(None, 1), (None, 2)}
