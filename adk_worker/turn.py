"""The calls of one turn: plan, probe, dispatch, until each has its outcome or somebody must decide (I2, I5-I7, I10)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from adk_worker.approvals.asking import Denial
from adk_worker.checkpoint import Checkpoint, OutstandingCall
from adk_worker.errors import AdkError, NotApprovedError, StoreUnavailableError, ToolArgumentsError
from adk_worker.idempotency import Claim, Intent, call_digest
from adk_worker.interruption import Cause, Interrupted
from adk_worker.liveness import known_dead
from adk_worker.log import get_logger
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.resume import PlannedCall, plan_resume
from adk_worker.scribes.port import Standing
from adk_worker.surroundings import Surroundings
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import Tool
from adk_worker.tools.invocation import Unresolved, invoke, refuse_invalid, refuse_unknown
from adk_worker.tools.probe import Happened, NeverWill, NotYet, Unknown, ask

_log = get_logger(__name__)

PROBED = "probe"
"""``settled_by`` of an outcome that a probe found."""


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """Every call has its outcome, in call order; or the run left this worker's hands (``standing``)."""

    standing: Standing
    outcomes: tuple[ToolOutcome, ...] = ()


class Undecided(Exception):  # noqa: N818 - a signal to the iteration, not an error of the tree
    """Some calls can be decided neither by claims nor by probes; ``wait`` says after how many seconds a probe may."""

    def __init__(self, calls: tuple[PlannedCall, ...], why: tuple[str, ...], wait: float | None) -> None:
        super().__init__(why)
        self.calls = calls
        self.why = why
        self.wait = wait

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of those calls that have one."""
        return tuple(planned.claim for planned in self.calls if planned.claim is not None)

    @property
    def detail(self) -> str:
        """Every undecided call with why, for people."""
        return "; ".join(
            f"{planned.call.tool} ({planned.call.call_id}, key {planned.call.key or 'none'}): {why}"
            for planned, why in zip(self.calls, self.why, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Start:
    call: OutstandingCall
    take_over: str | None = None


class Turn:
    """The outstanding calls of one frontier. ``fresh`` says that none can have been dispatched before.

    ``permits`` and ``denied`` are about the calls that a person has to approve, by their index (P1): what each may be
    begun under, and what the model is told of each that is not made.
    """

    def __init__(
        self,
        frontier: Checkpoint,
        surroundings: Surroundings,
        permits: Mapping[int, str] = MappingProxyType({}),
        denied: Mapping[int, Denial] = MappingProxyType({}),
    ) -> None:
        self._frontier = frontier
        self._permits = permits
        self._denied = denied
        self._agent = surroundings.agent
        self._scribe = surroundings.scribe
        self._masker = surroundings.masker
        self._interruption = surroundings.interruption
        self._executor = surroundings.executor
        self._keep_late = surroundings.keep_late
        self._max_result_bytes = surroundings.max_result_bytes
        self._outcomes: dict[int, ToolOutcome] = {}
        self._unrecorded: dict[int, Claim] = {}
        self._tried: set[int] = set()
        self._errors: dict[int, str] = {}
        """What calls made here said that had no outcome, for whoever has to find out."""

    async def play(self, *, fresh: bool) -> TurnEnd:
        """Bring every call to its outcome.

        :raises Undecided: some cannot be, by us.
        :raises Interrupted: the work was told to stop before all had one.
        :raises CallKeyReusedError: a key is on record with other arguments (I1).
        :raises NotApprovedError: nobody has approved one of them, or its grant is over; nothing was begun (P1).
        """
        starts = [_Start(call) for call in self._frontier.calls if call.outcome is None] if fresh else None
        for call in self._frontier.calls:
            if call.outcome is not None:
                self._outcomes[call.index] = call.outcome
            elif call.key is None and call.index in self._denied:  # nothing is on record of any call
                self._outcomes[call.index] = self._denied[call.index].not_made
        while len(self._outcomes) < len(self._frontier.calls):
            if starts is None:
                starts = await self._plan()
            standing, again = await self._dispatch(starts)
            if standing is not Standing.KEPT:
                return TurnEnd(standing)
            starts = None if again else []
        calls = sorted(self._frontier.calls, key=lambda call: call.index)
        return TurnEnd(Standing.KEPT, tuple(self._outcomes[call.index] for call in calls))

    def unrecorded(self) -> tuple[tuple[Claim, ToolOutcome], ...]:
        """Outcomes that are not recorded yet: the boundary records them in its own write."""
        return tuple((claim, self._outcomes[index]) for index, claim in self._unrecorded.items())

    # --- planning ---------------------------------------------------------------------------------------------

    async def _plan(self) -> list[_Start]:
        """Take over what is on record, probe what is not decided, and return what to dispatch."""
        pending = tuple(call for call in self._frontier.calls if call.index not in self._outcomes)
        # One call that is still to be recorded keeps its outcome here; the plan is about all the others.
        plan = await plan_resume(self._frontier.updated(calls=pending), self._scribe if self._scribe.keyed else None)
        starts = [
            _Start(planned.call, take_over=planned.claim.owner if planned.claim else None)
            for planned in plan.to_dispatch
            if not self._was_denied(planned.call)
        ]
        starts += [
            _Start(planned.call, take_over=planned.claim.owner)
            for planned in plan.repeatable
            if planned.claim and not self._was_denied(planned.call, again=True)
        ]
        for planned in plan.completed:
            if planned.outcome is not None:
                # Masked when it was recorded, perhaps by another process: our numbers have to pass over its (R2).
                self._outcomes[planned.call.index] = self._masked(planned.outcome)
        undecided: list[tuple[PlannedCall, str, float | None]] = []
        for planned, answer in zip(plan.indeterminate, await self._probe(plan.indeterminate), strict=True):
            if isinstance(answer, ToolOutcome):
                self._outcomes[planned.call.index] = answer
            elif isinstance(answer, _Start):
                starts += [] if self._was_denied(answer.call) else [answer]
            else:
                why, wait = answer
                error = self._errors.get(planned.call.index)
                undecided.append((planned, f"{error.rstrip('.')}; {why}" if error else why, wait))
        if undecided:
            # A call that never ran waits with the others: nothing of a turn is dispatched while any is undecided.
            waits = [wait for _, _, wait in undecided if wait is not None]
            raise Undecided(
                tuple(planned for planned, _, _ in undecided),
                tuple(why for _, why, _ in undecided),
                max(waits) if len(waits) == len(undecided) else None,
            )
        return starts

    def _was_denied(self, call: OutstandingCall, *, again: bool = False) -> bool:
        """Whether a call that could be made was denied, which is its outcome then. Whatever is on record comes first.

        ``again`` says that it may have been made already: under a grant that is over by now.
        """
        denial = self._denied.get(call.index)
        if denial is not None:
            self._outcomes[call.index] = denial.not_again if again else denial.not_made
        return denial is not None

    async def _probe(
        self, undecided: Sequence[PlannedCall]
    ) -> Sequence[ToolOutcome | _Start | tuple[str, float | None]]:
        """Ask the far side about each: its outcome, a start if it may be made now, or why not and how long to wait."""
        claims = [planned.claim for planned in undecided if planned.claim is not None]
        # Death is noted before the probe is sent: "not yet" permits a call only if nothing was sent since (I7).
        dead = [claim for claim in claims if claim.dead_seen_at is None and known_dead(claim.owner)]
        noted = {claim.key: claim for claim in (await self._scribe.note_dead(dead) if dead else ())}
        return await asyncio.gather(*(self._probe_one(planned, noted) for planned in undecided))

    async def _probe_one(
        self, planned: PlannedCall, noted: dict[str, Claim]
    ) -> ToolOutcome | _Start | tuple[str, float | None]:
        call, tool = planned.call, self._agent.tool(planned.call.tool)
        if planned.claim is None or call.key is None or tool is None or tool.probe is None:
            return "no intent was recorded for it" if planned.claim is None else "its tool has no probe", None
        claim = noted.get(planned.claim.key, planned.claim)
        asked = ask(
            tool.probe,
            call.key,
            self._masker.put_back(call.arguments),
            executor=self._executor,
            max_result_bytes=self._max_result_bytes,
        )
        match await self._interruption.guard(asked, until=Cause.TIMEOUT):
            case Happened(ToolOutcome() as outcome):
                return await self._settled(claim, self._masked(outcome))
            case NeverWill(why):
                return await self._never(call, claim, why)
            case NotYet():
                return self._not_yet(call, tool, claim)
            case Unknown(why):
                return why or "its probe cannot tell", None
            case Happened():
                return "its probe answered without an outcome", None

    async def _never(self, call: OutstandingCall, claim: Claim, why: str) -> ToolOutcome | _Start:
        """It did not happen and never will. One dispatched in this very turn has thereby failed: it is not repeated."""
        if call.index not in self._tried:
            return _Start(call, take_over=claim.owner)
        said = f"The call did not happen: {why or 'the far side refuses it'}."
        return await self._settled(claim, self._masked(ToolOutcome(kind=OutcomeKind.FAILED, content=said)))

    def _not_yet(self, call: OutstandingCall, tool: Tool, claim: Claim) -> _Start | tuple[str, float | None]:
        """Permits the call only if its owner was known dead before, for longer than a request outlives it (I7)."""
        seen = "its probe has not seen it"
        if tool.max_in_flight is None:
            return f"{seen}, and its tool declares no max_in_flight", None
        if claim.dead_seen_at is None or self._scribe.now is None:
            return f"{seen}, and its owner may be alive", None
        passed = self._scribe.now - claim.dead_seen_at
        if passed >= tool.max_in_flight:
            return _Start(call, take_over=claim.owner)
        return f"{seen}, and a request of its dead owner may be under way", tool.max_in_flight - passed

    async def _settled(self, claim: Claim, outcome: ToolOutcome) -> ToolOutcome:
        await self._scribe.settle(claim, outcome, by=PROBED)
        now = (await self._scribe.peek([claim.key], tenant=claim.tenant))[claim.key]
        return outcome if now is None or now.outcome is None else now.outcome

    # --- dispatching ------------------------------------------------------------------------------------------

    async def _dispatch(self, starts: Sequence[_Start]) -> tuple[Standing, bool]:
        """Begin and make the calls concurrently. Whether some are still without an outcome, so that a plan is due."""
        self._interruption.check()
        barred = [start.call for start in starts if start.call.needs_approval and start.call.index not in self._permits]
        if barred:
            raise NotApprovedError(keys=tuple(call.key or call.call_id for call in barred))
        # What a person has approved is spent by the begin, whatever the call's effect (P1).
        recorded = [
            start
            for start in starts
            if self._scribe.keyed and (start.call.needs_approval or start.call.effect is not Effect.READ_ONLY)
        ]
        claims: dict[int, Claim] = {}
        if recorded:
            standing, begun = await self._scribe.begin([self._intent(start) for start in recorded])
            if standing is not Standing.KEPT:
                return standing, False
            for start, claim in zip(recorded, begun, strict=True):
                claims[start.call.index] = claim
        if self._interruption.cause is not None:
            await self._take_back(claims)
            self._interruption.check()
        mine = [
            start.call for start in starts if start.call.index not in claims or self._mine(claims[start.call.index])
        ]
        # A lone call's outcome goes into the boundary's own write; of several, each is recorded as it comes.
        lone = len(self._frontier.calls) == 1
        works = [asyncio.ensure_future(self._call(call, claims.get(call.index), lone=lone)) for call in mine]
        await _all(works)
        missing = len(self._outcomes) < len(self._frontier.calls)
        if missing:
            self._interruption.check()
        return Standing.KEPT, missing

    def _mine(self, claim: Claim) -> bool:
        return claim.owned_in_flight_by(self._scribe.owner)

    async def _take_back(self, claims: Mapping[int, Claim]) -> None:
        """Told to stop between the intents and the calls: nobody has to ask about what was never sent (I2)."""
        for index, claim in claims.items():
            if self._mine(claim) and index not in self._tried:
                try:
                    await self._scribe.abandon(claim)
                except StoreUnavailableError as error:
                    _log.warning("claim_left_in_flight", key=claim.key, error=str(error))

    def _intent(self, start: _Start) -> Intent:
        call = start.call
        assert call.key is not None  # noqa: S101 - keyed calls alone are recorded
        digest = call_digest(call.key, tool=call.tool, arguments=call.arguments)
        tool = self._agent.tool(call.tool)
        longest = None if tool is None else tool.max_in_flight
        permit = self._permits.get(call.index)
        return Intent(call.key, digest, call.tool, take_over=start.take_over, max_in_flight=longest, permit=permit)

    async def _call(self, call: OutstandingCall, claim: Claim | None, *, lone: bool) -> None:
        """Make one call and keep what came of it. An effectful one is cancelled by the hard cause alone."""
        until = Cause.TIMEOUT if call.effect is Effect.EFFECTFUL else None
        tool = self._agent.tool(call.tool)
        if tool is None:
            ended: ToolOutcome | Unresolved = refuse_unknown(call.tool, self._agent.tool_names)
        else:
            try:
                # The originals are put back here and for the tool alone; claim and digest are of the masked ones (R2).
                values = tool.validate(self._masker.put_back(call.arguments))
            except ToolArgumentsError as error:
                ended = refuse_invalid(error)
            else:
                self._tried.add(call.index)
                context = self._context(call)
                try:
                    ended = await self._interruption.guard(
                        invoke(
                            tool,
                            context,
                            values,
                            executor=self._executor,
                            max_result_bytes=self._max_result_bytes,
                            left=None if until is None else functools.partial(self._keep_left, claim),
                        ),
                        until=until,
                    )
                except Interrupted:
                    return
        if isinstance(ended, Unresolved):
            self._unresolved(call, claim, ended)
            return
        await self._keep(call, claim, self._masked(ended), lone=lone)

    async def _keep(self, call: OutstandingCall, claim: Claim | None, outcome: ToolOutcome, *, lone: bool) -> None:
        superseded = self._interruption.cause is Cause.SUPERSEDED
        if claim is not None and (superseded or not lone):
            await self._scribe.record(claim, outcome)
        elif claim is not None:
            self._unrecorded[call.index] = claim
        self._outcomes[call.index] = outcome

    def _unresolved(self, call: OutstandingCall, claim: Claim | None, ended: Unresolved) -> None:
        said = self._errors[call.index] = self._masker.text(ended.error_text)
        _log.warning("call_unresolved", tool=call.tool, key=call.key, reason=ended.reason.value, error=said)
        if ended.late is not None:
            self._keep_left(claim, ended.late)

    def _keep_left(self, claim: Claim | None, late: asyncio.Future[ToolOutcome | Unresolved]) -> None:
        if claim is not None:
            self._keep_late(asyncio.ensure_future(self._record_late(claim, late)))

    async def _record_late(self, claim: Claim, late: asyncio.Future[ToolOutcome | Unresolved]) -> None:
        """A call that outlived its time, or its iteration's, has ended after all: what it says is evidence (F4)."""
        outcome = await late
        if isinstance(outcome, ToolOutcome):
            try:
                await self._scribe.record(claim, self._masked(outcome))
            except AdkError as error:
                _log.warning("late_outcome_lost", key=claim.key, error=str(error))

    async def record_unrecorded(self) -> None:
        """Record on their own the outcomes that a refused boundary was to record with itself (F4)."""
        for claim, outcome in self.unrecorded():
            await self._scribe.record(claim, outcome)

    def _context(self, call: OutstandingCall) -> ToolContext:
        return ToolContext(
            tenant=self._frontier.tenant,
            run_id=self._frontier.run_id,
            agent=self._frontier.agent,
            iteration=self._frontier.iteration,
            call_id=call.call_id,
            idempotency_key=call.key,
            fence=self._scribe.fence,
            metadata=self._masker.put_back(self._frontier.metadata),
            sink=functools.partial(self._progress, call),
        )

    def _progress(self, call: OutstandingCall, message: str, fraction: float | None) -> None:
        run = {"tenant": self._frontier.tenant, "run_id": self._frontier.run_id}
        _log.info("tool_progress", tool=call.tool, message=self._masker.text(message), fraction=fraction, **run)

    def _masked(self, outcome: ToolOutcome) -> ToolOutcome:
        return self._masker.outcome(outcome, besides=self._frontier.masks)


async def _all(works: Sequence[asyncio.Future[None]]) -> None:
    """Await all, whatever becomes of one; the first error is raised then. A cancellation reaches each of them."""
    try:
        if works:
            await asyncio.wait(works)
    except asyncio.CancelledError:
        for work in works:
            work.cancel()
        await asyncio.wait(works)
        raise
    for work in works:
        work.result()
