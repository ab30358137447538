"""How a person settles a call that may have happened (I8): what they may say, which call they mean, and the asking.

The fleet's client and the runner in process both come here; what it does to the claim, and to the run that waits for
it, is in :mod:`adk_worker.transitions.settling`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ConfigDict, JsonValue, TypeAdapter

from adk_worker.actors import Actor
from adk_worker.checkpoint import Checkpoint, OutstandingCall
from adk_worker.errors import (
    CallDecidedError,
    CallNotFoundError,
    CallStateError,
    ConfigurationError,
    InvalidNameError,
    OwnerMayLiveError,
    ValueTooLargeError,
)
from adk_worker.idempotency import Claim
from adk_worker.inspection import Inspection
from adk_worker.liveness import known_dead
from adk_worker.messages import canonical_json
from adk_worker.outcomes import Effect, OutcomeKind, ToolOutcome
from adk_worker.printable import printable, time_of
from adk_worker.redaction.masking import Masker
from adk_worker.refusals import nothing_undecided
from adk_worker.results import MAX_RESULT_BYTES, MAX_TEXT, whole
from adk_worker.settling.settlement import UNSAID, Settled, Settlement
from adk_worker.submission import read_back
from adk_worker.tools.declaring import Tool

_JSON: Final = TypeAdapter[Any](JsonValue, config=ConfigDict(defer_build=True))


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says of a call: one of two things, and why."""

    why: str
    outcome: ToolOutcome | None
    owner_may_live: bool

    @classmethod
    def given(cls, *, completed: object, never_ran: bool, why: str, owner_may_live: bool) -> Word:
        """What somebody's arguments say.

        :raises ConfigurationError: neither ``completed`` nor ``never_ran``, or both, or a flag that means nothing,
            or is neither true nor false.
        :raises InvalidNameError: ``why`` is no text, or empty, or too long.
        :raises NotJSONError: ``completed`` is no JSON.
        :raises ValueTooLargeError: it is larger than the result of a tool may be.
        """
        for name, flag in (("never_ran", never_ran), ("owner_may_live", owner_may_live)):
            if type(flag) is not bool:  # "no", as a form would have it, would count as yes
                raise ConfigurationError(f"{name} is {flag!r}; it has to be True or False.")
        if not isinstance(why, str):
            raise InvalidNameError(what="reason", reason=f"it must be a text, not {type(why).__name__}")
        if (completed is not UNSAID) is never_ran:
            raise ConfigurationError(
                "a call is settled by one of two: what it returned (--completed JSON, completed=…), or that it never "
                "ran (--never-ran, never_ran=True)."
            )
        if owner_may_live and not never_ran:
            raise ConfigurationError(
                "--owner-may-live (owner_may_live) goes with --never-ran (never_ran=True): what a call returned is so "
                "whoever lives."
            )
        if not why.strip():
            raise InvalidNameError(what="reason", reason="say how you know (--why, why=…)")
        if len(why) > MAX_TEXT:
            raise InvalidNameError(what="reason", reason=f"it is longer than {MAX_TEXT} characters")
        outcome = None
        if not never_ran:
            content = read_back(_JSON, "the outcome", completed)
            size = len(canonical_json(content))
            if size > MAX_RESULT_BYTES:
                cap = "as for the result of a tool"
                raise ValueTooLargeError(what="the outcome", size=size, max_bytes=MAX_RESULT_BYTES, cap=cap)
            outcome = ToolOutcome(kind=OutcomeKind.RETURNED, content=content)
        return cls(whole(why.strip()), outcome, owner_may_live)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A call that can be named: one that is outstanding at the frontier, or whose claim is in flight without one."""

    claim: Claim | None
    call: OutstandingCall | None = None

    @property
    def tool(self) -> str | None:
        """The tool's name."""
        return self.call.tool if self.call else self.claim.tool if self.claim else None

    @property
    def key(self) -> str | None:
        """The call's key."""
        return self.call.key if self.call else self.claim.key if self.claim else None

    @property
    def undecided(self) -> bool:
        """Whether somebody has to say what became of it."""
        return self.claim is not None and self.claim.in_flight

    def __str__(self) -> str:
        named = f"{self.call.call_id}, " if self.call else ""
        return printable(f"{self.tool or 'a tool'} ({named}key {self.key or 'none'}), {self._stands()}")

    def _stands(self) -> str:
        if self.claim is None:
            return "not in flight"
        if self.claim.in_flight:
            return "undecided"
        how = "never ran" if self.claim.known is None else self.claim.known.kind.value
        at = f" at {time_of(self.claim.decisions[-1].at)}" if self.claim.decisions else ""
        return f"{how} by {self.claim.settled_by}{at}"


def candidates(frontier: Checkpoint | None, claims: Sequence[Claim]) -> Sequence[Candidate]:
    """What can be named: the frontier's calls, and claims of the run that it does not show but somebody decided about.

    Those are in flight of a run whose frontier is behind or cannot be read, or are over: to name them tells how.
    """
    by_key = {claim.key: claim for claim in claims}
    outstanding = [
        Candidate(by_key.pop(call.key, None) if call.key else None, call)
        for call in (frontier.calls if frontier else ())
    ]
    return [*outstanding, *(Candidate(claim) for claim in by_key.values() if claim.in_flight or claim.decisions)]


def named(name: str, among: Sequence[Candidate], *, tenant: str, run_id: str) -> Candidate:
    """The call that ``name`` means: a key, a call's id, or the name of a tool of which there is one such call.

    :raises CallNotFoundError: none, or several; those that can be named are listed.
    """
    ways = (
        [found for found in among if found.key == name],
        [found for found in among if found.call is not None and found.call.call_id == name],
        [found for found in among if found.tool == name],
    )
    matching = next((found for found in ways if found), [])
    open_ones = [found for found in matching if found.undecided] or matching
    if len(open_ones) == 1:
        return open_ones[0]
    known = tuple(str(found) for found in among)
    raise CallNotFoundError(tenant=tenant, run_id=run_id, call=name, known=known, ambiguous=bool(open_ones))


def to_settle(found: Candidate) -> Claim:
    """The claim that a person is to decide.

    :raises CallStateError: nobody has to: nothing of it was sent, or it may be made again anyway.
    :raises CallDecidedError: its outcome stands already.
    """
    if found.claim is not None:
        return found.claim
    call = found.call
    state, wanted = "not in flight", "nothing of it was ever sent, and whoever carries the run on makes it"
    if call is not None and call.outcome is not None:
        raise CallDecidedError(
            key=call.key or "none", tool=call.tool, how=call.outcome.kind.value, by="the run itself", at=None
        )
    if call is not None and call.effect is Effect.READ_ONLY:
        state, wanted = "read_only", "it changes nothing, and whoever carries the run on makes it again"
    elif call is not None and call.key is None:
        state = "without a key"
        wanted = "no intent was recorded, so no outcome can be; give the run's process an idempotency store"
    raise CallStateError(key=call.key if call else None, tool=found.tool, state=state, wanted=wanted)


@dataclass(frozen=True, slots=True)
class Meant:
    """The call that somebody means to settle: its claim, its tool if that is known here, and what masks its run."""

    claim: Claim
    tool: Tool | None
    masks: dict[str, Any]

    def asked(self, word: Word, *, by: Actor, masker: Masker) -> Settlement:
        """What the store is asked: masked (R1), with what is known here of the claim's owner and of the tool (I11)."""
        return Settlement(
            by=by,
            why=masker.text(word.why),
            outcome=None if word.outcome is None else masker.outcome(word.outcome, besides=self.masks),
            owner_may_live=word.owner_may_live,
            owner_dead=known_dead(self.claim.owner),
            max_in_flight=None if self.tool is None else self.tool.max_in_flight,
        )


def meant(name: str, found: Inspection, claims: Sequence[Claim]) -> Meant:
    """The call of a run that ``name`` means; ``claims`` are all of the run's.

    :raises CallNotFoundError: none, or several.
    :raises CallStateError: nobody has to settle this call.
    :raises CallDecidedError: its outcome stands already.
    :raises RunStateError: the run has ended, and all of its calls are decided.
    """
    among = candidates(found.frontier, claims)
    if found.run is not None and found.run.status.ended and not any(one.undecided for one in among):
        raise nothing_undecided(found.run)
    target = named(name, among, tenant=found.tenant, run_id=found.run_id)
    claim = to_settle(target)
    subject = found.frontier or found.run
    tool = found.agent.tool(target.tool or "") if found.agent else None
    return Meant(claim, tool, dict(subject.masks) if subject else {})


def done(settled: Settled) -> Settled:
    """What was settled.

    :raises OwnerMayLiveError: nothing was.
    """
    claim = settled.claim
    if settled.refused is not None:
        raise OwnerMayLiveError(key=claim.key, tool=claim.tool, owner=claim.owner, reason=settled.refused)
    return settled
