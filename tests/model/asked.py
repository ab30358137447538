"""What a run's people are asked, and what they say, by the tables of approvals; and what must be true of it (P1).

What stands is a small number in a :class:`~tests.model.world.World`, as its row is; no table is asked the same twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer
from adk_worker.approvals.requests import Approvals, Grant, NewRequest, RequestState
from adk_worker.approvals.store import Asked as Standings
from adk_worker.checkpoint import Checkpoint, OutstandingCall, encode_checkpoint
from adk_worker.errors import ApprovalRefusedError, NotApprovedError
from adk_worker.idempotency import Intent
from adk_worker.redaction.masking import Redactor
from adk_worker.runs import Boundary
from adk_worker.transitions.runs import Attention, Then, Verdict
from tests.model.claims import TOOL, digest_of, key_of, permit_of
from tests.model.rules import Rules
from tests.model.world import Said, Told, Violation, World

EXPIRES_IN = 1.0
"""How long a request waits, in seconds: its time is over at any moment."""

ATTENTION = {Then.WAIT_APPROVAL: Attention.APPROVAL, Then.PARK: Attention.FRONTIER_LOST}
"""What a run that rests at a boundary says of itself."""

GRANTED = Approvals(
    grants=(Grant(grant_id="grant-1", tool=TOOL, by="ann", os_user=None, given_at=0.0, request_id="req-0"),)
)
"""A grant that somebody gave in an earlier turn."""

_STATES = {RequestState.APPROVED: True, RequestState.DENIED: False}
_MASKER = Redactor().masker()


class Standing(NamedTuple):
    """What stands of a call: the request that was answered, 0 for none, and how."""

    request: int = 0
    approved: bool = False


class Asked:
    """Makes what a store writes of approvals. It holds nothing of a run, only what it has learnt of the tables."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.kept: list[Approvals] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], Any] = {}
        self.number(Approvals())

    def number(self, approvals: Approvals) -> int:
        """The number of what stands; 0 where nobody was asked anything."""
        said = repr(approvals)  # what a request shows makes it no key by itself
        if said not in self._numbers:
            self._numbers[said] = len(self.kept)
            self.kept.append(approvals)
        return self._numbers[said]

    # --- the tables -------------------------------------------------------------------------------------------

    def bound(self, asked: int, boundary: Boundary, *, done: bool) -> int:
        """What stands after a boundary that asks, or tells of denials.

        :raises ValueError: it acts on what is no denial.
        """
        names = tuple(new.key for new in boundary.requests)
        known = ("bound", asked, names, tuple(boundary.denials), boundary.then, done)
        if known not in self._known:
            bound = self._rules.bound(self.kept[asked], boundary, now=0.0, done=done)
            self._known[known] = self.number(bound.approvals)
        return int(self._known[known])

    def permit(self, asked: int, intents: Sequence[Intent]) -> int | None:
        """What stands after these calls were begun; ``None`` if nothing lets one of them."""
        known = ("permit", asked, *((intent.key, intent.permit) for intent in intents))
        if known not in self._known:
            try:
                permitted = self._rules.permit(self.kept[asked], intents, now=0.0)
            except NotApprovedError:
                self._known[known] = None
            else:
                self._known[known] = self.number(permitted)
        after: int | None = self._known[known]
        return after

    def answer(self, asked: int, who: str, request: int, *, approved: bool) -> tuple[int, Verdict]:
        """What stands after somebody has answered, and whether they were listened to."""
        known = ("answer", asked, who, request, approved)
        if known not in self._known:
            stood, given = self.kept[asked], answer_of(who, request, approved=approved)
            try:
                came_to = self._rules.answer(stood, given, tenant="acme", run_id="run", by=Actor(who), now=0.0)
            except ApprovalRefusedError:
                self._known[known] = (asked, Verdict.REFUSED)
            else:
                verdict = Verdict.REPEATED if came_to.repeated else Verdict.DONE
                self._known[known] = (self.number(came_to.approvals), verdict)
        answer: tuple[int, Verdict] = self._known[known]
        return answer

    def expire(self, asked: int) -> int:
        """What stands after the reaper has denied what is past its time."""
        known = ("expire", asked)
        if known not in self._known:
            after, _ = self._rules.expire(self.kept[asked], now=0.0)
            self._known[known] = self.number(after)
        return int(self._known[known])

    def withdraw(self, asked: int) -> int:
        """What stands once the run was cancelled."""
        known = ("withdraw", asked)
        if known not in self._known:
            self._known[known] = self.number(self._rules.withdraw(self.kept[asked], now=0.0))
        return int(self._known[known])

    def stands(self, asked: int, numbers: tuple[int, ...], kept: tuple[int, int]) -> tuple[Standing, ...]:
        """What a worker that carries the run on makes of it, for the calls that a person has to approve."""
        known = ("stands", asked, numbers, kept)
        if known not in self._known:
            answers = self._rules.answers_to(_waiting(numbers, kept), self.kept[asked], _MASKER)
            found = {index: Standing(request_of(name), approved=True) for index, name in answers.permits.items()}
            found |= {index: Standing(request_of(denial.request_id)) for index, denial in answers.denied.items()}
            self._known[known] = tuple(found.get(index, Standing()) for index in range(len(numbers)))
        standings: tuple[Standing, ...] = self._known[known]
        return standings

    def granted(self, asked: int, numbers: tuple[int, ...]) -> tuple[int, int]:
        """The grants under which these calls pass unasked, as they stand."""
        known = ("granted", asked, numbers)
        if known not in self._known:
            stands = Standings(0.0, self.kept[asked])
            calls = self._rules.under_grants(_waiting(numbers, (0, 0)), stands).calls
            found = [request_of(call.grant_id) if call.grant_id else 0 for call in calls]
            self._known[known] = (*found, 0, 0)[:2]
        kept: tuple[int, int] = self._known[known]
        return kept

    def revoke(self, asked: int) -> int:
        """What stands once somebody has revoked the grant."""
        stood = self.kept[asked]
        after, _ = self._rules.revoke(stood, "grant-1", tenant="acme", run_id="run", by=Actor("bob"), now=0.0)
        return self.number(after)

    # --- time -------------------------------------------------------------------------------------------------

    def over(self, asked: int) -> int:
        """What stands once the time of all that waits for an answer is over."""
        stood = self.kept[asked]
        if not any(request.expires_at for request in stood.pending):
            return asked
        late = [replace(one, expires_at=0.0) if one.pending else one for one in stood.requests]
        return self.number(replace(stood, requests=tuple(late)))

    # --- what an outsider notes -------------------------------------------------------------------------------

    def noted(self, world: World, after: int) -> World:
        """The world with what stands after a write.

        :raises Violation: an answer did not stay as it was, or somebody was asked about what is decided.
        """
        if after == world.asked:
            return world
        stood, said = self.kept[world.asked], list(world.ghost.said)
        for request in self.kept[after].requests:
            before, number = stood.request(request.request_id), number_of(request.key)
            if before is None:
                if said[number] is not None:
                    raise Violation(f"somebody is asked about call {number}, which is decided")
            elif request.state is not before.state or request.answered_by != before.answered_by:
                if not before.pending:
                    raise Violation(f"{request.request_id} {_told(before)} and was answered again")
                if before.expires_at == 0.0 and request.answered_by not in {None, "system:timeout"}:
                    raise Violation(f"{request.request_id} was answered by {request.answered_by} past its time")
                if request.state in _STATES:
                    said[number] = Said(_STATES[request.state], str(request.answered_by))
        return world._replace(asked=after, ghost=world.ghost._replace(said=tuple(said)))


def request_of(name: str) -> int:
    """The number of a request; below 0, that of a grant."""
    kind, _, number = name.partition("-")
    return int(number) if kind == "req" else -int(number)


def number_of(key: str) -> int:
    """The number of the call that has this key."""
    return int(key.removeprefix("call-"))


def answer_of(who: str, request: int, *, approved: bool) -> Answer:
    """What somebody answers: the same however often they give it."""
    return Answer(request_id=permit_of(request), approved=approved, answer_id=f"{who} about {request}: {approved}")


def asked_about(number: int) -> NewRequest:
    """What a boundary asks about a call."""
    return NewRequest(
        call_id=key_of(number), key=key_of(number), tool=TOOL, digest=digest_of(number), expires_in=EXPIRES_IN
    )


def boundary_of(sequence: int, stage: int, then: Then, told: Told, *, stored: bool = True) -> Boundary:
    """A boundary as the tables see it, in what it asks and in what it tells of denials."""
    frontier = Checkpoint(
        tenant="acme", run_id="run", agent="booking", revision="r1", sequence=sequence, iteration=stage
    )
    return Boundary(
        frontier,
        encode_checkpoint(frontier) if stored else None,
        then,
        requests=tuple(map(asked_about, told.asks)) if then is Then.WAIT_APPROVAL else (),
        denials=tuple(map(permit_of, told.denied)),
        attention=ATTENTION.get(then),
    )


def _waiting(numbers: tuple[int, ...], kept: tuple[int, int]) -> Checkpoint:
    """The frontier of a run that waits for an approval of these calls."""
    calls = tuple(
        OutstandingCall(
            call_id=key_of(number),
            tool=TOOL,
            index=index,
            key=key_of(number),
            needs_approval=True,
            grant_id=permit_of(permit) if permit < 0 else None,
        )
        for index, (number, permit) in enumerate(zip(numbers, kept, strict=False))
    )
    return Checkpoint(tenant="acme", run_id="run", agent="booking", revision="r1", sequence=1, iteration=1, calls=calls)


def _told(request: Any) -> str:
    return f"was {request.state} by {request.answered_by}"
