"""Drives a run through a bundle as workers, people and reapers would, and looks at all that is stored of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adk_worker.actors import Actor
from adk_worker.checkpoint import Checkpoint, CheckpointBoundary, decode_checkpoint, encode_checkpoint
from adk_worker.conformance.waiting import LONG, SOON, until
from adk_worker.errors import FrontierLostError
from adk_worker.events import Event, EventKind, NewEvent
from adk_worker.history import Handle, Segment
from adk_worker.idempotency import Claim, Intent, call_digest, call_key
from adk_worker.lease import RunLease
from adk_worker.ledger.amounts import Amount, BudgetChange
from adk_worker.ledger.booking import Ledger, Reservation
from adk_worker.messages import Message, Usage
from adk_worker.outcomes import OutcomeKind, ToolOutcome
from adk_worker.runs import Boundary, Committed, NewRun, Reaped, Run, Stores, Submitted, Taken
from adk_worker.sealing.resealing import Reseal
from adk_worker.transitions.runs import Attention, FleetPolicy, Reason, Then

TENANT = "acme"
PATIENT = FleetPolicy(lease_ttl=LONG, dispatch_grace=LONG, dispatch_grace_max=4 * LONG, max_crashes=3)
"""Nothing lapses by itself."""
HASTY = FleetPolicy(lease_ttl=SOON, dispatch_grace=SOON, dispatch_grace_max=4 * SOON, max_crashes=3)
"""What the queue holds lapses while a test waits for it."""
BOOKED = ToolOutcome(kind=OutcomeKind.RETURNED, content={"booking": 7})
ANN = Actor("ann", "op-1")
"""Whoever acts as a person."""
REFUSED = ToolOutcome(kind=OutcomeKind.FAILED, content="no seat left")


@dataclass(frozen=True)
class Picture:
    """All that can be read of a run."""

    run: Run | None
    payload: str | None
    claims: Sequence[Claim]
    events: Sequence[Event]
    held: RunLease | None


class Driver:
    """One run of a bundle. Its holders' names count up, so that each take has its own (L4)."""

    def __init__(
        self, stores: Stores, *, tenant: str = TENANT, run_id: str = "run", policy: FleetPolicy = PATIENT
    ) -> None:
        self.stores = stores
        self.runs = stores.runs
        self.tenant = tenant
        self.run_id = run_id
        self.policy = policy
        self._takes = 0

    # --- the way of a run -------------------------------------------------------------------------------------

    def new(self, **fields: Any) -> NewRun:
        """The request that :meth:`submit` makes."""
        said = {"agent": "booking", "input": "book the flight", "revision": "r1", **fields}
        return NewRun(self.tenant, self.run_id, **said)

    async def submit(self, **fields: Any) -> Submitted:
        """Submit the run."""
        return await self.runs.submit(self.new(**fields), policy=self.policy)

    async def take(self, ticket: int, *, holder: str | None = None, ttl: float = LONG) -> Taken | None:
        """Present a ticket."""
        self._takes += 1
        name = holder or f"holder-{self._takes}"
        return await self.runs.take(self.run_id, tenant=self.tenant, ticket=ticket, holder=name, ttl_seconds=ttl)

    async def worker(self, *, ttl: float = LONG) -> RunLease:
        """A worker's lease: of the run as it is queued now, or of a new one."""
        run = await self.run_or_none()
        ticket = (await self.submit()).ticket if run is None else run.fence
        assert ticket is not None
        taken = await self.take(ticket, ttl=ttl)
        assert taken is not None
        return taken.lease

    async def dead_worker(self) -> RunLease:
        """A worker whose lease has lapsed, and which nobody has missed yet."""
        lease = await self.worker(ttl=SOON)
        await self.lapse()
        return lease

    async def lapse(self) -> None:
        """Wait until the lease that stands has lapsed."""

        async def lapsed() -> bool:
            return await self.held() is None

        await until(lapsed, what="the lease to lapse")

    def boundary(self, sequence: int, then: Then = Then.KEEP, **fields: Any) -> Boundary:
        """A boundary. ``frontier`` updates the checkpoint's fields; ``stored=False`` makes it a tombstone (C3)."""
        frontier = Checkpoint(
            tenant=self.tenant,
            run_id=self.run_id,
            agent="booking",
            revision="r1",
            sequence=sequence,
            boundary=CheckpointBoundary.AFTER_TOOL_RESULT,
            iteration=sequence,
            usage=Usage(input_tokens=100 * sequence, output_tokens=10 * sequence),
            cost_micros=1000 * sequence,
        ).updated(**fields.pop("frontier", {}))
        payload = encode_checkpoint(frontier) if fields.pop("stored", True) else None
        fields.setdefault("events", (NewEvent(frontier.boundary, {"sequence": sequence}),))
        return Boundary(checkpoint=frontier, payload=payload, then=then, **fields)

    async def commit(self, lease: RunLease, sequence: int, then: Then = Then.KEEP, **fields: Any) -> Committed:
        """Commit a boundary; see :meth:`boundary`."""
        return await self.runs.commit(lease, self.boundary(sequence, then, **fields), policy=self.policy)

    def segment(self, text: str, after: Handle | None = None) -> Segment:
        """One message to be added to the transcript."""
        return Segment.extend(after or Handle.empty(self.run_id), [Message.user(text)])

    def intent(self, index: int = 0, *, take_over: str | None = None, seat: str = "12A") -> Intent:
        """The intent to make the call at ``index``."""
        key = call_key(tenant=self.tenant, run_id=self.run_id, iteration=1, index=index)
        digest = call_digest(key, tool="book", arguments={"seat": seat})
        return Intent(key, digest, "book", take_over=take_over)

    async def begin(self, lease: RunLease, *indexes: int, ahead: bool = False) -> list[Claim]:
        """Begin calls; their claims."""
        intents = [self.intent(index) for index in indexes]
        _, claims = await self.runs.begin(lease, intents, owner=lease.holder, ahead=ahead)
        return list(claims)

    async def park(self, lease: RunLease, *undecided: Claim) -> Committed:
        """Park, on claims or for no call's sake."""
        attention = Attention.UNDECIDED_CALL if undecided else Attention.OVER_BUDGET
        return await self.runs.park(lease, attention=attention, detail="somebody has to look", undecided=undecided)

    async def give_back(
        self, lease: RunLease, reason: Reason = Reason.EXCEPTION, *, policy: FleetPolicy | None = None, **fields: Any
    ) -> Committed:
        """Give the run back to the queue."""
        fields.setdefault("detail", "it went wrong")
        return await self.runs.give_back(lease, reason=reason, policy=policy or self.policy, **fields)

    async def reap(self, *, count_crashes: bool = True, policy: FleetPolicy | None = None) -> Reaped | None:
        """Sweep; what was done about this run."""
        acted = await self.runs.claim_lapsed(policy=policy or self.policy, limit=100, count_crashes=count_crashes)
        mine = [reaped for reaped in acted if (reaped.tenant, reaped.run_id) == (self.tenant, self.run_id)]
        assert len(mine) <= 1
        return mine[0] if mine else None

    async def requeue(self, *, seen: Run | None = None) -> Submitted:
        """Queue the run again, as a person would."""
        return await self.runs.requeue(self.run_id, tenant=self.tenant, by=ANN, policy=self.policy, seen=seen)

    async def reserve(self, lease: RunLease, tokens: int = 0, cost_micros: int = 0, *, iteration: int = 1) -> Committed:
        """Reserve what a model call may take."""
        asked = Reservation(iteration, lease.fence, Amount(tokens, cost_micros))
        return await self.runs.reserve(lease, asked)

    async def change_budget(self, change: BudgetChange) -> Submitted:
        """Change the run's limits, as a person would."""
        return await self.runs.change_budget(self.run_id, tenant=self.tenant, change=change, by=ANN, policy=self.policy)

    async def ledger(self) -> Ledger:
        """What the run may spend, and what it has."""
        return (await self.run()).ledger

    async def cancel(self, *, seen: Run | None = None) -> Run:
        """Ask for the run's end, as a person would."""
        return await self.runs.cancel(self.run_id, tenant=self.tenant, by=ANN, seen=seen)

    async def change(self, masks: Mapping[str, Any], told: ToolOutcome) -> Reseal:
        """What replaces all that the run has sealed, as it stands: by ``masks``, and in outcomes by ``told``."""
        run, payload, claims = await self.run(), await self.payload(), await self.claims()
        outcomes = {claim.key: (claim.outcome, told) for claim in claims if claim.outcome is not None}
        after = None if payload is None else encode_checkpoint(decode_checkpoint(payload).updated(masks=dict(masks)))
        return Reseal(run.fence, (run.masks, masks), (payload, after), outcomes)

    async def reseal(self, change: Reseal) -> bool:
        """Replace what the run has sealed."""
        return await self.runs.reseal(self.run_id, tenant=self.tenant, change=change)

    # --- what is stored ---------------------------------------------------------------------------------------

    async def run_or_none(self) -> Run | None:
        """The run, if there is one."""
        return await self.runs.get(self.run_id, tenant=self.tenant)

    async def run(self) -> Run:
        """The run, which is there."""
        run = await self.run_or_none()
        assert run is not None
        return run

    async def held(self) -> RunLease | None:
        """Who holds the run's lease."""
        return await self.stores.leases.held(self.run_id, tenant=self.tenant)

    async def payload(self) -> str | None:
        """The stored frontier, not decoded."""
        return await self.runs.payload(self.run_id, tenant=self.tenant)

    async def claims(self) -> list[Claim]:
        """The run's claims."""
        return list(await self.runs.claims(self.run_id, tenant=self.tenant))

    async def events(self, kind: EventKind | None = None) -> list[Event]:
        """The run's events, of one kind or all."""
        events = await self.runs.events(self.run_id, tenant=self.tenant)
        return [event for event in events if kind in {None, event.kind}]

    async def frontier_lost(self) -> bool:
        """Whether the stored frontier must not be resumed from (C3)."""
        try:
            await self.stores.checkpoints.latest(self.run_id, tenant=self.tenant)
        except FrontierLostError:
            return True
        return False

    async def picture(self) -> Picture:
        """All of it, to be compared with all of it later."""
        return Picture(
            await self.run_or_none(), await self.payload(), await self.claims(), await self.events(), await self.held()
        )


async def left_in_flight(stores: Stores, run_id: str = "run") -> tuple[Driver, RunLease, Claim]:
    """A run whose first worker died with a call in flight: the driver, the next worker's lease, and the claim."""
    driver = Driver(stores, run_id=run_id)
    dead = await driver.dead_worker()
    (claim,) = await driver.begin(dead, 0)
    await driver.reap()
    return driver, await driver.worker(), claim
