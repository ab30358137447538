"""Faults that the booking service plays on request: it is the outside port at which tests and the demo inject them.

A *rule* says what to do to which requests. Which ones is settled at one moment, when a request has arrived whole: under
the service's lock, every rule that matches counts it, and takes it if it is the rule's ``nth`` (or one of the ``times``
from there on). What happens later cannot change which request a rule takes.

Rules are played at one of two places:

``before_effect``  the request has arrived and is in the journal; nothing has been done
``before_answer``  all that will be done has been done and is in the journal; the client knows nothing yet

and do one of these:

``hold``    keep the request at that place until it is released; who waits for it is not told
``delay``   keep it for ``seconds``
``drop``    close the connection without an answer
``answer``  answer ``status`` (500 unless said), with ``{"error": "injected"}``
``refuse``  answer 409 with ``{"error": "rejected"}``: it was not done, and never will be. Only ``before_effect``

Several rules may take one request: they are played in the order in which they were made, until one of them ends it.

A request whose client has died stays where it is: as on any network, a request can outlive its sender.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from examples.travel.desk import Request
from examples.travel.journal import Kind

Place = Literal["before_effect", "before_answer"]
Release = Literal["go_on", "drop", "answer"]
Ending = Literal["drop", "answer", "refuse"]


class Rule(BaseModel):
    """What to do to which requests. Of the conditions, those given must hold; without any, every request matches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    do: Literal["hold", "delay", "drop", "answer", "refuse"]
    at: Place = "before_effect"
    kind: Kind | None = None
    tenant: str | None = None
    run_id: str | None = None
    key: str | None = None
    nth: int = Field(default=1, ge=1)
    """Which of the matching requests, counted from when the rule was made, is the first that the rule takes."""
    times: int | None = Field(default=1, ge=1)
    """How many matching requests in a row it takes; None for all from the ``nth`` on."""
    seconds: float = Field(default=0.0, ge=0, le=600, allow_inf_nan=False)
    """How long ``delay`` keeps a request."""
    status: int = Field(default=500, ge=400, le=599)
    """What ``answer`` answers."""

    @model_validator(mode="after")
    def _refuse_means_not_done(self) -> Self:
        if self.do == "refuse" and self.at != "before_effect":
            raise ValueError("a refusal says that nothing was done: it can only stand before the effect")
        return self

    def matches(self, request: Request) -> bool:
        """Whether the rule counts ``request``."""
        return (
            self.kind in {None, request.kind}
            and self.tenant in {None, request.run.tenant}
            and self.run_id in {None, request.run.run_id}
            and self.key in {None, request.key}
        )


@dataclass(frozen=True, slots=True)
class Held:
    """A request that is inside a hold now."""

    request: Request
    rule: int
    at: Place


@dataclass(frozen=True, slots=True)
class Made:
    """A rule that was made. ``seen``: requests that it has counted. ``ended``: how it was released, None before."""

    number: int
    rule: Rule
    seen: int
    ended: Release | None


class UnknownError(Exception):
    """A rule or a request was named that is not there; the message names those that are."""


@dataclass(slots=True)
class _Live:
    """A rule at work."""

    id: int
    rule: Rule
    seen: int = 0
    ended: Release | None = None

    def takes(self, request: Request) -> bool:
        if self.ended is not None or not self.rule.matches(request):
            return False
        self.seen += 1
        behind = self.seen - self.rule.nth
        return behind >= 0 and (self.rule.times is None or behind < self.rule.times)


@dataclass(frozen=True, slots=True)
class Played:
    """What a rule did to a request. ``ending`` is None where the request goes on."""

    rule: Rule
    ending: Ending | None


class Faults:
    """The rules, and the requests that are inside a hold. ``room`` is the service's one lock, and wakes who waits."""

    def __init__(self, room: threading.Condition) -> None:
        self._room = room
        self._rules: dict[int, _Live] = {}
        self._taken: dict[int, tuple[_Live, ...]] = {}
        self._held: dict[int, Held] = {}
        self._released: dict[int, Release] = {}

    def add(self, rule: Rule) -> int:
        """Make ``rule``, and return the number that names it. It sees requests that arrive from now on."""
        with self._room:
            number = len(self._rules) + 1
            self._rules[number] = _Live(number, rule)
            return number

    def rules(self) -> tuple[Made, ...]:
        """Every rule that was made, ended ones too."""
        with self._room:
            return tuple(Made(live.id, live.rule, live.seen, live.ended) for live in self._rules.values())

    def arrived(self, request: Request) -> None:
        """Settle which rules take ``request``. The caller holds the lock."""
        taken = tuple(live for live in self._rules.values() if live.takes(request))
        if taken:
            self._taken[request.id] = taken

    def left(self, request: Request) -> None:
        """Forget ``request``: it was answered, or its connection closed. The caller holds the lock."""
        self._taken.pop(request.id, None)
        self._room.notify_all()

    def play(self, place: Place, request: Request) -> Iterator[Played]:
        """Do to ``request`` what the rules that took it say at ``place``, one after the other.

        Yields what was done, once it is done: a hold when it was released. The caller carries an ending out.
        """
        with self._room:
            taken = [live for live in self._taken.get(request.id, ()) if live.rule.at == place]
        for live in taken:
            if live.rule.do == "hold":
                yield Played(live.rule, self._hold(live, request))
            elif live.ended is None and live.rule.do == "delay":
                time.sleep(live.rule.seconds)
                yield Played(live.rule, None)
            elif live.ended is None and live.rule.do != "delay":
                yield Played(live.rule, live.rule.do)

    def _hold(self, live: _Live, request: Request) -> Ending | None:
        with self._room:
            self._held[request.id] = Held(request, live.id, live.rule.at)
            self._room.notify_all()
            self._room.wait_for(lambda: live.ended is not None or request.id in self._released)
            del self._held[request.id]
            then = self._released.pop(request.id, live.ended)
            return None if then == "go_on" else then

    def release(
        self, *, rule: int | None = None, request: int | None = None, then: Release = "go_on"
    ) -> tuple[int, ...]:
        """Let held requests go, and return their numbers.

        ``request`` lets go of that one alone, and its rule works on. Otherwise ``rule``, or every rule if neither is
        given, comes to its end: it takes no more requests, and those that it has taken but that have not reached its
        place yet go straight through. ``then``: they go on, their connection is dropped, or they are answered 500; with
        the latter two this returns when they are over, so that the service no longer counts them as in flight.
        Raises :class:`UnknownError` if there is no such rule, or no such request inside a hold.
        """
        with self._room:
            if request is not None:
                held = [inside.request.id for inside in self._inside(None)]
                if request not in held:
                    raise UnknownError(f"request {request} is not held; held are: {held}")
                self._released[request] = then
                return self._gone((request,), then)
            if rule is not None and rule not in self._rules:
                raise UnknownError(f"there is no rule {rule}; made were: {sorted(self._rules)}")
            freed = tuple(held.request.id for held in self._inside(rule))
            ending = self._rules.values() if rule is None else [self._rules[rule]]
            for live in ending:
                live.ended = live.ended or then
            return self._gone(freed, then)

    def _gone(self, freed: tuple[int, ...], then: Release) -> tuple[int, ...]:
        self._room.notify_all()
        if then != "go_on":
            self._room.wait_for(lambda: not any(number in self._taken for number in freed))
        return freed

    def waiting(self, *, rule: int | None = None, at_least: int = 0, timeout: float = 0) -> tuple[Held, ...]:
        """The requests inside a hold (of ``rule``), oldest first, as soon as there are ``at_least`` so many.

        After ``timeout`` seconds: those that there are, so the caller counts.
        """
        with self._room:
            if rule is not None and rule not in self._rules:
                raise UnknownError(f"there is no rule {rule}; made were: {sorted(self._rules)}")
            self._room.wait_for(lambda: len(self._inside(rule)) >= at_least, timeout)
            return self._inside(rule)

    def _inside(self, rule: int | None) -> tuple[Held, ...]:
        return tuple(
            held
            for number, held in sorted(self._held.items())
            if rule in {None, held.rule} and number not in self._released and self._rules[held.rule].ended is None
        )
