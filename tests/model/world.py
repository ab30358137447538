"""A state of the model. All of it are tuples of small numbers, so that millions can be kept and compared.

Time is abstract: a lease has lapsed or not, and may lapse at any moment. A holder, an owner of a claim and an
acquisition are one number here: the fence, which is given once. The calls of a run are numbered from 0; its script asks
for call 0, then for call 1, and so on, then ends. Its frontier is a *stage*: 0 at the start, 1 with call 0 outstanding,
2 with call 0 done, 3 with call 1 outstanding, up to the final answer.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

FAILED = 0
"""The outcome of a call that did not happen."""
HAPPENED = 1
"""The outcome of a call that did."""
NOTHING = -1
"""No outcome."""
DENIED = 2
"""A person has denied the call: it has a result, and no claim says so."""

Op = tuple[Any, ...]
"""A write of a worker: its name, the fence that it presents, and what it says."""


class At(IntEnum):
    """Where a worker is: what it does next."""

    IDLE = 0
    THINK = 1
    """Commit the boundary after the model's answer."""
    CALLS = 2
    """Plan the call that is outstanding."""
    INTEND = 3
    """Record the intent."""
    CALL = 4
    """Send the request to the far side."""
    WAIT = 5
    """The call is under way."""
    RESULT = 6
    """Commit the boundary after the call."""
    UNDECIDED = 7
    """Ask the far side whether the call happened."""
    DECIDE = 8
    """Decide by what the far side said (only where a rule is taken out: the two are one step)."""
    SETTLE = 9
    """Settle another's claim with what the probe found."""
    PARK = 10
    RECORD = 11
    """Superseded: record the outcome as evidence."""
    PUBLISH = 12
    EXCEPTION = 13
    """Give the run back: something went wrong."""
    CONFLICT = 14
    """Give the run back until the far side can be asked again."""
    DRAIN = 15
    """Give the run back: the worker is leaving."""
    FAIL = 16
    """End the run as failed."""
    LET_GO = 17
    """Release the lease."""
    NOTE = 18
    """Record the outcome by itself, before the boundary."""
    ANSWERS = 19
    """Read what people have said of the call."""
    ASK = 20
    """Ask about the call, once more, and wait."""


class Start(NamedTuple):
    """A call that is to be begun: over from the owner that was seen, 0 for none; and the request that permits it."""

    number: int
    seen: int = 0
    request: int = 0


class Told(NamedTuple):
    """What a boundary says of the calls at hand, its ``turn``: the outcome of the first, if it is not on record yet;
    which calls people are asked about; the requests that were denied; and of which calls it is told that they were not
    made. ``kept`` are the grants under which its calls pass unasked.
    """

    turn: tuple[int, ...]
    outcome: int = NOTHING
    asks: tuple[int, ...] = ()
    denied: tuple[int, ...] = ()
    not_made: tuple[int, ...] = ()
    kept: tuple[int, int] = (0, 0)


class Call(NamedTuple):
    """The claim's row of one call."""

    owner: int
    outcome: int = NOTHING
    by_owner: bool = False
    former: tuple[int, ...] = ()
    dead_seen: bool = False
    """Its owner is on record as known dead."""
    quiet: bool = False
    """``max_in_flight`` has passed since: no request of that owner is under way any more."""
    late: tuple[int, ...] = ()
    never_ran: bool = False
    """A person has said so (I8): it may be made by whoever names its owner."""

    @property
    def decided(self) -> bool:
        """Whether somebody has said what became of it, or it is known."""
        return self.outcome != NOTHING or self.never_ran

    @property
    def known(self) -> int:
        """The outcome to go on with: of one that was said never to have run, that which came in all the same."""
        return self.late[0] if self.never_ran and self.late else self.outcome


class Place(IntEnum):
    """Where the second call of a turn is."""

    NONE = 0
    START = 1
    """It is to be begun."""
    CALL = 2
    WAIT = 3
    NOTE = 4
    """Its outcome is to be recorded."""
    DONE = 5


class Other(NamedTuple):
    """What a worker knows of the second call of a turn: see :mod:`tests.model.beside`."""

    place: Place = Place.NONE
    seen: int = 0
    request: int = 0
    denied: bool = False
    outcome: int = NOTHING


class Worker(NamedTuple):
    """One worker, and its memory. A worker that is paused is one that does not move for a while."""

    at: At = At.IDLE
    fence: int = 0
    sequence: int = 0
    stage: int = 0
    ahead: bool = False
    """Its memory is ahead of the stored frontier."""
    quiet: bool = False
    """Of the call at hand, when the lease was granted."""
    tried: bool = False
    """It made the call itself, in this very turn."""
    seen: int = 0
    """The owner whose claim the plan has seen."""
    dead_seen: bool = False
    outcome: int = NOTHING
    unrecorded: bool = False
    ticket: int = 0
    request: int = 0
    """The request about the call whose answer it goes by; below 0, the grant that it is to be made under."""
    denied: bool = False
    other: Other = Other()


IDLE = Worker()


class Said(NamedTuple):
    """What became of the question about a call."""

    approved: bool
    by: str


class Ghost(NamedTuple):
    """What an outsider remembers, to judge the protocol by; nothing of it can be seen from within."""

    right: int = 0
    """The acquisition that may write now; 0 for none."""
    sequence: int = 0
    by: int = 0
    """Who committed ``sequence``."""
    top: int = 0
    """The highest fence that was ever given."""
    ran: int = 0
    """The furthest stage that is known to the outside: a call was dispatched from it, or its sequence is on record."""
    rested: int = 0
    """The highest fence under which the run has rested."""
    cancelled: bool = False
    """A person was told that the run will end."""
    insisted: bool = False
    """A person has said that nothing of a call is under way, without a proof (--owner-may-live)."""
    said: tuple[Said | None, ...] = ()
    """For each call, the first answer that stood about it."""


class World(NamedTuple):
    """One state."""

    row: int
    """The number of the run's row, its lease in it: see :class:`tests.model.store.Store`."""
    workers: tuple[Worker, ...]
    calls: tuple[Call | None, ...]
    effects: tuple[int, ...]
    """How often each call had its effect."""
    closed: tuple[int, ...]
    """The far side refuses requests for a call under a lower fence than this."""
    stored: tuple[int, int] = (0, 0)
    """Sequence and stage of the stored frontier; (0, 0) for none."""
    kept: tuple[int, int] = (0, 0)
    """The grants under which the calls of the stored frontier pass unasked, as a worker's ``request``."""
    asked: int = 0
    """The number of what people were asked: see :class:`tests.model.asked.Asked`."""
    requests: tuple[tuple[int, int], ...] = ()
    """Under way to the far side: which call, and whose. A request may outlive its sender."""
    messages: tuple[int, ...] = ()
    """Tickets in the broker, the oldest first."""
    late: Op | None = None
    """A write whose answer did not come: it may have been made, and may still be."""
    dead: tuple[int, ...] = ()
    """Owners of claims that can be known dead: their process is gone."""
    unanswered: Op | None = None
    """An answer of a person's to whom none came: they give it again."""
    terminal: int = 0
    """The fence under which somebody at a terminal holds the lease of a resting run."""
    faults: int = 0
    """How many things may still go wrong."""
    acts: int = 0
    """How many things people may still do."""
    ghost: Ghost = Ghost()


class Violation(Exception):  # noqa: N818 - what the search looks for, not an error
    """Something that must be true is not. ``steps`` lead on from the state at which it was found."""

    def __init__(self, what: str, *, steps: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.steps = steps


class Impossible(Violation):
    """A write that the table takes for a mistake of its caller's. From one whom nobody listens to it does no harm."""


class Trying:
    """Names the step in which a violation is found: it is the last one of the trace."""

    __slots__ = ("_step",)

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Violation) and not error.steps:
            error.steps = (self._step,)
