"""How far the model looks. All bounds stand here, with the number of states that each of them reaches."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    """What may go wrong. ``Bounds.faults`` of them may, in any mixture of the kinds that are let loose."""

    CRASH = "dies"
    """A worker dies, anywhere."""
    LAPSE = "lapses"
    """The lease of a worker that lives lapses: it was paused, or could not renew."""
    COPY = "delivered twice"
    LOSS = "lost"
    NO_ANSWER = "no answer"
    """A write's answer does not come. It was made, or will be made late, or never."""
    TIMEOUT = "times out"
    """A call times out, and its request is still under way."""
    UNSENT = "request lost"
    """A request does not reach the far side."""
    CHECKPOINT = "checkpoint not stored"
    EXCEPTION = "gives up"
    DRAIN = "drains"
    LET_GO = "lets go"
    """A lease is released without giving the run back."""
    MODEL = "model fails"


class Probe(Enum):
    """What the tool's far side can be asked."""

    NONE = "none"
    """Nothing: people decide."""
    FENCING = "fencing"
    """Whether the call happened; if not, the far side refuses what comes under an older fence from then on."""
    SEEN = "seen"
    """Whether the call happened by now; requests outlive their sender for ``max_in_flight`` at most."""


@dataclass(frozen=True)
class Bounds:
    """How much there is of everything."""

    workers: int = 2
    calls: int = 1
    """Iterations with an effectful call; one more ends the run."""
    faults: int = 2
    acts: int = 0
    """How many things people do: cancel, queue again, decide a call, hold the lease at a terminal."""
    insists: bool = False
    """Whether people also say that a call never ran where nobody knows, with --owner-may-live: what it then does twice
    is their doing."""
    asks: int = 0
    """How many calls of each turn have to be approved: two people answer as they like, or nobody does in time."""
    granted: bool = False
    """Whether a grant was given before, under which those calls pass unasked until somebody revokes it."""
    beside: bool = False
    """Whether each turn has a second call, which may be sent again under its key."""
    probe: Probe = Probe.NONE
    kinds: frozenset[Fault] = frozenset(Fault)
    apart: bool = False
    """Outcomes are recorded as they come, as those of several calls in one turn are, and not with the boundary."""
    max_crashes: int = 3
    reaper: bool = True

    def __str__(self) -> str:
        kinds = "any kind" if self.kinds == frozenset(Fault) else ", ".join(sorted(kind.name for kind in self.kinds))
        who = f"{self.acts} acts of people{' who insist' if self.insists else ''}"
        of_two = ", two in a turn" if self.beside else ""
        granted = ", or under a grant" if self.granted else ""
        approved = f", {self.asks} of a turn to be approved{granted}" if self.asks else ""
        return (
            f"{self.workers} workers, {self.calls} calls{of_two}{approved}, {self.faults} faults ({kinds}), {who}, "
            f"probe {self.probe.value}{', outcomes apart' if self.apart else ''}{'' if self.reaper else ', no reaper'}"
        )


_HARD = frozenset({Fault.CRASH, Fault.LAPSE, Fault.TIMEOUT, Fault.CHECKPOINT})
"""What decides about calls and frontiers; messages and answers are left in peace."""

_CRASH = frozenset({Fault.CRASH})
_PASSING = frozenset({Fault.CRASH, Fault.LAPSE, Fault.NO_ANSWER})
"""What decides about who carries a run on."""

TESTED: dict[str, tuple[Bounds, int]] = {
    "nothing goes wrong, and nobody reaps": (Bounds(faults=0, reaper=False), 10),
    "any two faults": (Bounds(), 60334),
    "any fault, and people": (Bounds(faults=1, acts=2), 24247),
    "any fault in two iterations": (Bounds(faults=1, calls=2), 14290),
    "any fault among three workers": (Bounds(faults=1, workers=3), 2403),
    "a far side that refuses older fences": (Bounds(probe=Probe.FENCING, kinds=_HARD), 56616),
    "a far side that sees what has arrived": (Bounds(probe=Probe.SEEN, kinds=_HARD), 66870),
    "outcomes that are recorded apart, and people": (Bounds(faults=1, acts=1, apart=True), 9386),
    "a far side that sees, and people": (Bounds(faults=1, acts=1, probe=Probe.SEEN), 11530),
    "approvals, and any fault": (Bounds(faults=1, asks=1), 16765),
    "approvals, and people who cancel": (Bounds(faults=1, acts=1, asks=1, kinds=_PASSING), 56904),
    "approvals in two iterations": (Bounds(faults=0, calls=2, asks=1), 8878),
    "approvals, and a far side that refuses": (Bounds(faults=1, asks=1, probe=Probe.FENCING), 18713),
    "two calls in a turn, and any fault": (Bounds(faults=1, beside=True), 6014),
    "two calls in a turn, and a far side that refuses": (Bounds(faults=1, beside=True, probe=Probe.FENCING), 9996),
    "two calls in a turn, one to be approved": (Bounds(faults=1, beside=True, asks=1, kinds=_PASSING), 26256),
    "two calls in a turn, both to be approved": (Bounds(faults=1, beside=True, asks=2, kinds=_CRASH), 11278),
    "both to be approved, and people who cancel": (Bounds(faults=0, acts=1, beside=True, asks=2), 4412),
    "a grant that is revoked, and a far side that refuses": (
        Bounds(faults=1, acts=1, asks=1, granted=True, probe=Probe.FENCING, kinds=_HARD),
        33692,
    ),
    "two calls in a turn, and a grant that is revoked": (
        Bounds(faults=1, acts=1, asks=2, granted=True, beside=True, kinds=_CRASH),
        30026,
    ),
    "people who insist": (Bounds(faults=1, acts=2, insists=True, kinds=_HARD), 35600),
}
"""Bounds that every run of the tests goes through, with the number of states that each reaches."""

LARGER: dict[str, tuple[Bounds, int]] = {
    "any two faults, and people": (Bounds(acts=1), 261882),
    "any two faults among three workers": (Bounds(workers=3), 75926),
    "three hard faults, and a far side that refuses": (
        Bounds(faults=3, probe=Probe.FENCING, kinds=_HARD),
        664086,
    ),
    "two iterations, and a far side that sees": (Bounds(calls=2, probe=Probe.SEEN, kinds=_HARD), 726246),
    "approvals, and any fault, and people": (Bounds(faults=1, acts=1, asks=1), 76865),
    "a grant that is revoked, and people who insist": (
        Bounds(faults=1, acts=2, asks=1, granted=True, insists=True, kinds=frozenset({Fault.TIMEOUT})),
        21318,
    ),
    "two calls in a turn, both to be approved, and any fault": (Bounds(faults=1, beside=True, asks=2), 93001),
    "approvals, and any two that pass": (Bounds(asks=1, kinds=_PASSING), 238660),
}
"""Bounds for ``python -m tests.model``: some minutes, and up to four gigabytes."""
