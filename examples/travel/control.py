"""The client of the booking service's control plane, for tests and the demo.

::

    held = control.hold("book", run_id="run_1", at="before_answer")
    ...  # have a worker book
    held.wait()  # the seat is booked, and the worker does not know
    ...  # SIGKILL the worker
    held.release(then="drop")
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from examples.travel.client import ask
from examples.travel.faults import Place, Release, Rule
from examples.travel.journal import Entry, Event, Kind

PATIENCE = 30.0
"""Seconds that a wait goes on for, unless the caller says otherwise: generous, as nothing waits longer than it must."""


class NeverCameError(AssertionError):
    """What was waited for did not come; the message says what came instead."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request inside a hold."""

    request: int
    rule: int
    at: Place
    kind: Kind
    tenant: str
    run_id: str
    key: str | None
    fence: int | None


@dataclass(frozen=True, slots=True)
class Made:
    """A rule that was made at a service."""

    control: Control
    number: int

    def wait(self, *, at_least: int = 1, within: float = PATIENCE) -> tuple[Waiting, ...]:
        """Return the requests that this rule holds once there are ``at_least`` so many, else raise NeverCameError."""
        return self.control.waiting(rule=self.number, at_least=at_least, within=within)

    def release(self, *, then: Release = "go_on") -> tuple[int, ...]:
        """End the rule, let go of what it holds, and return the numbers of those requests."""
        return self.control.release(rule=self.number, then=then)

    @property
    def seen(self) -> int:
        """How many requests the rule has counted."""
        return next(int(rule["seen"]) for rule in self.control.rules() if rule["rule"] == self.number)


@dataclass(frozen=True, slots=True)
class Control:
    """The control plane of the service at ``url``."""

    url: str

    def add(self, rule: Rule) -> Made:
        """Make ``rule``; it sees every request that is sent from now on."""
        return Made(self, int(ask(self.url, "POST", "/control/rules", body=rule.model_dump())["rule"]))

    def hold(self, kind: Kind | None = None, *, at: Place = "before_effect", **conditions: Any) -> Made:
        """Hold matching requests until they are released; ``conditions`` are fields of :class:`Rule`."""
        return self.add(Rule(do="hold", kind=kind, at=at, **conditions))

    def delay(
        self, kind: Kind | None = None, *, seconds: float, at: Place = "before_effect", **conditions: Any
    ) -> Made:
        """Keep matching requests for ``seconds``."""
        return self.add(Rule(do="delay", kind=kind, at=at, seconds=seconds, **conditions))

    def drop(self, kind: Kind | None = None, *, at: Place, **conditions: Any) -> Made:
        """Close the connection of matching requests without an answer."""
        return self.add(Rule(do="drop", kind=kind, at=at, **conditions))

    def answer(self, kind: Kind | None = None, *, at: Place, status: int = 500, **conditions: Any) -> Made:
        """Answer matching requests with an error's ``status``."""
        return self.add(Rule(do="answer", kind=kind, at=at, status=status, **conditions))

    def refuse(self, kind: Kind | None = None, **conditions: Any) -> Made:
        """Have matching requests refused: they do not happen, and the client is told so."""
        return self.add(Rule(do="refuse", kind=kind, **conditions))

    def rules(self) -> tuple[dict[str, Any], ...]:
        """Every rule that was made, with ``seen`` and ``ended``."""
        return tuple(ask(self.url, "GET", "/control/rules")["rules"])

    def waiting(self, *, rule: int | None = None, at_least: int = 0, within: float = PATIENCE) -> tuple[Waiting, ...]:
        """Return the requests inside a hold once there are ``at_least`` so many, else raise NeverCameError."""
        answer = self._wait("/control/waiting", within, rule=rule, at_least=at_least)
        waiting = tuple(Waiting(**one) for one in answer["waiting"])
        if len(waiting) < at_least:
            raise NeverCameError(f"waited {within:g} s for {at_least} held requests; held are: {waiting}")
        return waiting

    def release(
        self, *, rule: int | None = None, request: int | None = None, then: Release = "go_on"
    ) -> tuple[int, ...]:
        """Let go of one request, of a rule's, or (with neither) end every rule; returns the requests let go."""
        body = {"rule": rule, "request": request, "then": then}
        return tuple(ask(self.url, "POST", "/control/release", body=body)["released"])

    def entries(
        self,
        event: Event | None = None,
        kind: Kind | None = None,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        key: str | None = None,
        at_least: int = 0,
        within: float = PATIENCE,
    ) -> tuple[Entry, ...]:
        """Return the journal's lines of that description once there are ``at_least`` so many, else raise."""
        answer = self._wait(
            "/control/entries",
            within,
            event=event,
            kind=kind,
            tenant=tenant,
            run_id=run_id,
            key=key,
            at_least=at_least,
        )
        entries = tuple(Entry.model_validate(one) for one in answer["entries"])
        if len(entries) < at_least:
            raise NeverCameError(f"waited {within:g} s for {at_least} lines in the journal; there are: {entries}")
        return entries

    def _wait(self, path: str, within: float, **asked: Any) -> dict[str, Any]:
        query = urlencode({name: value for name, value in asked.items() if value is not None})
        return ask(self.url, "GET", f"{path}?{query}&timeout={within:g}", timeout=within + 10)
