"""One iteration of an agent: one model call, the tool calls that it asks for, and the boundaries between them.

The fleet's tasks and :class:`~adk_worker.runner.AgentRunner` run this very code; they differ in the
:class:`~adk_worker.scribes.port.Scribe` alone. A frontier with outstanding calls is carried on with those; any other
with the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from adk_worker.approvals import asking
from adk_worker.approvals.asking import Answers
from adk_worker.approvals.requests import Approvals
from adk_worker.checkpoint import Checkpoint, CheckpointBoundary, OutstandingCall
from adk_worker.continuation import continued
from adk_worker.errors import (
    CallKeyReusedError,
    ModelError,
    ModelUnavailableError,
    NotApprovedError,
    ToolArgumentsError,
)
from adk_worker.idempotency import call_key
from adk_worker.interruption import Cause, Interrupted
from adk_worker.ledger.spending import reservation_for
from adk_worker.messages import Message, ToolCallPart, dump_messages, load_messages
from adk_worker.model import ModelAnswer, ModelRequest
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.results import check_readable, shortened, whole
from adk_worker.scribes.port import Standing, Turnover, Wrapped
from adk_worker.surroundings import Surroundings
from adk_worker.tools.declaring import Tool
from adk_worker.tools.invocation import refuse_invalid, refuse_masked, refuse_unknown
from adk_worker.transitions.runs import Attention
from adk_worker.turn import Turn, TurnEnd, Undecided


class IterationEnd(StrEnum):
    """Where an iteration leaves the run."""

    KEPT = "kept"
    """The run goes on here."""
    HANDED_OVER = "handed_over"
    COMPLETED = "completed"
    FAILED = "failed"
    PARKED = "parked"
    WAITING_APPROVAL = "waiting_approval"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Iterated:
    """The frontier after an iteration, and where that leaves the run. ``detail`` says why, for people."""

    frontier: Checkpoint
    end: IterationEnd
    detail: str | None = None
    undecided: Undecided | None = None


class Waiting(Exception):  # noqa: N818 - a signal to the step, not an error of the tree
    """An undecided call can be probed again after ``seconds``; until then the run waits in the queue (I7)."""

    def __init__(self, undecided: Undecided, seconds: float) -> None:
        super().__init__(undecided.detail)
        self.undecided = undecided
        self.seconds = seconds


def _readable(said: Message) -> Message:
    """What a model said, if its stored form can be read back; nothing may get in that cannot come out (H2).

    :raises ModelError: it cannot. Nothing is stored, and asked again the model may say something else.
    """
    try:
        text = dump_messages([said])
        load_messages(text)
        check_readable(text)  # it stands in a checkpoint too
    except (ValueError, RecursionError) as error:
        why = "a text in it has a lone surrogate, a number no JSON, or it is nested too deeply"
        raise ModelError(f"the model's answer cannot be stored: {why}", transient=True) from error
    return said


class Iteration:
    """Carries a frontier on by one iteration.

    Raises ``StaleFenceError`` when a write was refused, ``Interrupted`` when the work was told to stop, ``ModelError``
    for a transient failure of the model, and :class:`Waiting`. Everything else that can happen ends in a frontier.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._in = surroundings

    async def run(self, frontier: Checkpoint) -> Iterated:
        """One iteration from ``frontier``, whose ``messages`` are the whole transcript."""
        if frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL:
            # Read under the lease. Only the decisions themselves move it on: being resumed is no approval (P1).
            asked = await self._in.scribe.approvals(frontier)
            return await self._act(asking.answers_to(frontier, asked.approvals, self._in.masker), fresh=False)
        if frontier.calls:
            return await self._act(asking.answers_to(frontier, Approvals(), self._in.masker), fresh=False)
        if frontier.iteration >= self._in.agent.max_iterations:
            detail = (
                f"the agent has not finished, and its max_iterations is {self._in.agent.max_iterations}. "
                "To have it go on: give the agent more of them, deploy that, and resume the run"
            )
            return self._left(frontier, await self._in.scribe.fail(detail=detail), IterationEnd.FAILED, detail)
        return await self._ask(frontier)

    # --- the model --------------------------------------------------------------------------------------------

    async def _ask(self, frontier: Checkpoint) -> Iterated:
        request, spending = self._request(frontier), self._in.spending
        if spending.limited:
            standing, why = await self._in.scribe.reserve(reservation_for(self._in.provider, request))
            if standing is not Standing.KEPT:
                return self._left(frontier, standing, IterationEnd.PARKED, why)
        try:
            answer = await self._in.interruption.guard(self._complete(request))
        except ModelError as error:
            if isinstance(error, ModelUnavailableError):
                spending.asked = False  # the provider took no call, and charges for none
            if error.transient:
                raise
            detail = self._in.masker.text(f"the model call failed: {error}")
            return self._left(frontier, await self._in.scribe.fail(detail=detail), IterationEnd.FAILED, detail)
        answered = self._answered(frontier, answer)
        spending.answered(answer, iteration=answered.iteration)
        if not answered.calls:
            wrapped = Wrapped(answered, Turnover.COMPLETE, last=True)
            return self._left(answered, await self._in.scribe.boundary(wrapped), IterationEnd.COMPLETED)
        answered = await self._in.interruption.guard(asking.marked(answered, self._in))
        if any(map(asking.needs_person, answered.calls)):
            answered = asking.under_grants(answered, await self._in.scribe.approvals(answered))
        answers = asking.answers_to(answered, Approvals(), self._in.masker)
        if answers.unanswered:
            return await self._wait(answered, answers.unanswered)
        standing = await self._in.scribe.boundary(Wrapped(answered, Turnover.ON))
        if standing is not Standing.KEPT:
            return self._left(answered, standing, IterationEnd.HANDED_OVER)
        return await self._act(answers, fresh=True)

    async def _wait(self, frontier: Checkpoint, calls: Sequence[OutstandingCall]) -> Iterated:
        """Ask people about ``calls``, before any call of the turn is dispatched; all survive the wait (P1)."""
        at = frontier.updated(boundary=CheckpointBoundary.BEFORE_APPROVAL)
        detail = f"waiting for an approval of {', '.join(call.tool for call in calls)}"
        wrapped = Wrapped(
            at,
            Turnover.WAIT_APPROVAL,
            last=True,
            requests=asking.requests(calls, self._in.agent, expires_in=self._in.approval_expires),
            attention=Attention.APPROVAL,
            detail=detail,
        )
        return self._left(at, await self._in.scribe.boundary(wrapped), IterationEnd.WAITING_APPROVAL, detail)

    async def _complete(self, request: ModelRequest) -> ModelAnswer:
        self._in.spending.asked = True
        try:
            return await self._in.provider.complete(request)
        except (SystemExit, KeyboardInterrupt) as error:
            # A provider's: it would end the event loop, and with it every other run of the process.
            raise RuntimeError(f"the model's provider raised {type(error).__name__}: {error}") from error

    def _request(self, frontier: Checkpoint) -> ModelRequest:
        agent = self._in.agent
        return ModelRequest(
            tenant=frontier.tenant,
            run_id=frontier.run_id,
            agent=agent.name,
            iteration=frontier.iteration + 1,
            model=agent.model_name,
            instructions=agent.instructions,
            messages=frontier.messages,
            tools=agent.specs,
            metadata=frontier.metadata,
        )

    def _answered(self, frontier: Checkpoint, answer: ModelAnswer) -> Checkpoint:
        """The frontier after a model call: the answer, masked where it enters (R1), and every call it asks for."""
        masker = self._in.masker
        iteration = frontier.iteration + 1
        text = None if answer.text is None else masker.text(whole(answer.text))
        parts = tuple(self._masked_call(part) for part in answer.calls)
        # Masked, it would no longer be what its provider wants back.
        opaque = tuple(part for part in answer.opaque if masker.json(part.data) == part.data)
        said = _readable(Message.assistant(text, parts, opaque=opaque))
        return frontier.updated(
            sequence=frontier.sequence + 1,
            boundary=CheckpointBoundary.AFTER_MODEL_CALL,
            iteration=iteration,
            messages=(*frontier.messages, said),
            calls=tuple(
                self._outstanding(frontier, iteration, index, part, answer.refused.get(part.id))
                for index, part in enumerate(parts)
            ),
            journal=frontier.journal.with_step(said),
            usage=frontier.usage + answer.usage,
            cost_micros=frontier.cost_micros + answer.cost_micros,
            masks=masker.state(),
            output=None if parts else text or "",
        )

    def _masked_call(self, part: ToolCallPart) -> ToolCallPart:
        masker = self._in.masker
        # A name that no tool has is text of the model's own.
        name = part.name if self._in.agent.tool(part.name) is not None else masker.text(part.name)
        return part.model_copy(update={"name": name, "arguments": masker.json(dict(part.arguments))})

    def _outstanding(
        self, frontier: Checkpoint, iteration: int, index: int, part: ToolCallPart, refused: str | None
    ) -> OutstandingCall:
        tool = self._in.agent.tool(part.name)
        outcome = None
        if refused is not None:
            outcome = ToolOutcome(kind=OutcomeKind.REFUSED, content=self._in.masker.text(shortened(refused)))
        elif tool is None:
            outcome = refuse_unknown(part.name, self._in.agent.tool_names)
        else:
            outcome = self._refused(tool, part)
        key = None
        if self._in.scribe.keyed:
            key = call_key(tenant=frontier.tenant, run_id=frontier.run_id, iteration=iteration, index=index)
        return OutstandingCall(
            call_id=part.id,
            tool=part.name,
            arguments=part.arguments,
            index=index,
            effect=Effect.READ_ONLY if tool is None else tool.effect,
            key=key,
            outcome=outcome,
        )

    def _refused(self, tool: Tool, part: ToolCallPart) -> ToolOutcome | None:
        """Why the call is not made, to be told the model; ``None`` if it is."""
        masker = self._in.masker
        without = masker.without_original(part.arguments)
        if without:
            # Masked text is never executed: there is no original to put back (R2).
            return refuse_masked(without, kept=masker.seals)
        try:
            tool.validate(masker.put_back(part.arguments))
        except ToolArgumentsError as error:
            invalid = refuse_invalid(error)  # a validator of the author's may repeat what it was given
            return invalid.model_copy(update={"content": masker.json(invalid.content)})
        return None

    # --- the calls --------------------------------------------------------------------------------------------

    async def _act(self, answers: Answers, *, fresh: bool) -> Iterated:
        """Make what was approved and what needs nobody, and tell of what was denied; or ask, if an answer is missing.

        A grant may be over by the moment at which its call is begun: then nothing of that was begun.
        """
        stood = answers.frontier
        if answers.unanswered:
            return await self._wait(asking.stepped(stood), answers.unanswered)
        try:
            return await self._play(answers, fresh=fresh)
        except NotApprovedError as error:
            left = asking.without_grants(stood, error.keys)
            calls = [call for call in left.calls if asking.asked_key(call) in error.keys]
            return await self._wait(asking.stepped(left), calls)

    async def _play(self, answers: Answers, *, fresh: bool) -> Iterated:
        scribe, frontier = self._in.scribe, answers.frontier
        turn = Turn(frontier, self._in, answers.permits, answers.denied)
        ended: TurnEnd | None = None
        while ended is None:
            try:
                ended = await turn.play(fresh=fresh)
            except CallKeyReusedError as error:
                standing = await scribe.park(attention=Attention.KEY_REUSED, detail=str(error))
                return self._left(frontier, standing, IterationEnd.PARKED, str(error))
            except Undecided as undecided:
                if undecided.wait is not None:
                    raise Waiting(undecided, undecided.wait) from undecided
                detail = self._in.masker.text(undecided.detail)
                standing = await scribe.park(
                    attention=Attention.UNDECIDED_CALL, detail=detail, undecided=undecided.claims
                )
                if standing is not Standing.KEPT:
                    return self._left(frontier, standing, IterationEnd.PARKED, detail, undecided)
                # One of them was decided between the plan and the park: plan again.
                fresh = False
        if ended.standing is not Standing.KEPT:
            return self._left(frontier, ended.standing, IterationEnd.HANDED_OVER)
        try:
            return await self._turned(answers, ended.outcomes, turn)
        except Exception:
            # Refused, or never taken: what the calls said is evidence that no lease has to be live for (F4).
            await turn.record_unrecorded()
            raise

    async def _turned(self, answers: Answers, outcomes: tuple[ToolOutcome, ...], turn: Turn) -> Iterated:
        frontier = answers.frontier
        if self._in.interruption.cause is Cause.SUPERSEDED:
            raise Interrupted(Cause.SUPERSEDED)
        calls = sorted(frontier.calls, key=lambda call: call.index)
        results = [
            outcome.result(call_id=call.call_id, name=call.tool) for call, outcome in zip(calls, outcomes, strict=True)
        ]
        told = Message.tool(results)
        turned = frontier.updated(
            sequence=frontier.sequence + 1,
            boundary=CheckpointBoundary.AFTER_TOOL_RESULT,
            messages=(*frontier.messages, told),
            calls=(),
            masks=self._in.masker.state(),
            journal=frontier.journal.with_step(told),
        )
        left = None
        if self._in.continuation.due(turned.journal, history_bytes=turned.journal.history_bytes):
            left = turned.journal
            turned = continued(turned, tenant=turned.tenant, agent_name=self._in.agent.name).frontier
        wrapped = Wrapped(turned, Turnover.ON, last=True, settled=turn.unrecorded(), denials=answers.denials, left=left)
        standing = await self._in.scribe.boundary(wrapped)
        if standing is Standing.KEPT:
            return Iterated(turned, IterationEnd.KEPT)
        return self._left(turned, standing, IterationEnd.HANDED_OVER)

    @staticmethod
    def _left(
        frontier: Checkpoint,
        standing: Standing,
        end: IterationEnd,
        detail: str | None = None,
        undecided: Undecided | None = None,
    ) -> Iterated:
        """Where a write that was meant as ``end`` has left the run."""
        if standing is Standing.CANCELLED:
            return Iterated(frontier, IterationEnd.CANCELLED, "a cancel was requested")
        if standing is Standing.LOST:
            lost = "the frontier is over the cap and could not be stored, so the run cannot rest and be carried on"
            return Iterated(frontier, IterationEnd.PARKED, lost)
        return Iterated(frontier, end, detail, undecided)
