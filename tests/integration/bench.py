"""One worker's steps in this process, on whatever stores: no broker but a list, no keeper, a model with one answer."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

from adk_worker import Agent, tool
from adk_worker.checkpoint import Checkpoint
from adk_worker.history import Handle
from adk_worker.interruption import Interruption
from adk_worker.lease import RunLease
from adk_worker.ledger.amounts import Budget
from adk_worker.ledger.spending import Spending
from adk_worker.messages import Message, ToolCallPart, ToolResultPart, canonical_json
from adk_worker.providers import ScriptedProvider
from adk_worker.registry import Registry
from adk_worker.runs import Boundary, Committed, Dispatch, NewRun, RunStore, Stores
from adk_worker.scribes.fleet import FleetScribe
from adk_worker.scribes.port import Turnover, Wrapped
from adk_worker.steps import StepEnd, Stepper
from adk_worker.transitions.runs import FleetPolicy

POLICY = FleetPolicy()
TENANT = "acme"
MAX_BYTES = 1 << 20


@tool(effect="read_only")
async def look(at: str) -> str:
    """Look at something."""
    return at


@tool(effect="idempotent")
async def put(on: str) -> str:
    """Put something somewhere."""
    return on


@tool
async def act(on: str) -> str:
    """Do something to something."""
    return on


class Unwatched:
    """A keeper that renews nothing."""

    def enter(self, lease: RunLease, interruption: Interruption, *, since: float) -> None:
        pass

    def leave(self, lease: RunLease) -> None:
        pass


class Bench:
    """Carries out messages one by one. ``sent`` are the messages that were to be published, oldest first."""

    def __init__(self, stores: Stores, executor: Executor) -> None:
        self.stores = stores
        self.sent: list[Dispatch] = []
        self._executor = executor

    async def dispatch(self, message: Dispatch) -> None:
        """Publish."""
        self.sent.append(message)

    async def submit(self, run_id: str, *, tenant: str = TENANT, budget: Budget | None = None) -> Dispatch:
        """Submit a run; its first message."""
        new = NewRun(tenant=tenant, run_id=run_id, agent="bench", input="Begin.", budget=budget or Budget())
        submitted = await self.stores.runs.submit(new, policy=POLICY)
        assert submitted.ticket is not None
        return Dispatch(tenant, run_id, submitted.ticket)

    async def submit_with(self, run_id: str, messages: Sequence[Message], *, handle: Handle | None = None) -> Dispatch:
        """Submit a run that has said ``messages`` already, of which ``handle`` are stored; its next message."""
        first = await self.submit(run_id)
        ttl = POLICY.lease_ttl
        taken = await self.stores.runs.take(run_id, tenant=TENANT, ticket=first.ticket, holder="past", ttl_seconds=ttl)
        assert taken is not None
        handle = handle or Handle.empty(run_id)
        stored = self.stores, taken.lease, Interruption()
        scribe = FleetScribe(*stored, handle=handle, policy=POLICY, max_bytes=MAX_BYTES, spending=Spending())
        frontier = Checkpoint(
            tenant=TENANT,
            run_id=run_id,
            agent="bench",
            revision="1",
            sequence=1,
            iteration=1,
            messages=tuple(messages),
        )
        await scribe.boundary(Wrapped(frontier, Turnover.ON, last=True))
        assert scribe.ticket is not None
        return Dispatch(TENANT, run_id, scribe.ticket)

    async def step(self, message: Dispatch, turn: object) -> StepEnd:
        """Carry out ``message`` with a model that says ``turn``."""
        model = ScriptedProvider(lambda _request: turn)  # type: ignore[arg-type,return-value]
        agent = Agent("bench", "Be measured.", model, tools=[look, put, act], max_iterations=10_000, revision="1")
        stepper = Stepper(
            stores=self.stores,
            registry=Registry([agent]),
            dispatcher=self,
            watch=Unwatched(),
            policy=POLICY,
            checkpoint_max_bytes=MAX_BYTES,
            tool_executor=self._executor,
        )
        return await stepper.step(message, label="bench")


class Weighing:
    """A run store that keeps what each commit was given to write: frontiers, segments, and what events tell."""

    def __init__(self, runs: RunStore) -> None:
        self._runs = runs
        self.payloads: list[str] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._runs, name)

    async def commit(self, lease: RunLease, boundary: Boundary, *, policy: FleetPolicy) -> Committed:
        """Commit."""
        self.payloads.append(boundary.payload or "")
        self.payloads.append(boundary.segment.payload if boundary.segment else "")
        self.payloads += [canonical_json(dict(event.data)) for event in boundary.events]
        return await self._runs.commit(lease, boundary, policy=policy)


def transcript(length: int) -> tuple[Message, ...]:
    """``length`` messages, an even number: what was asked, and then calls and their results."""
    turns: list[Message] = []
    for n in range(length // 2 - 1):
        turns.append(Message.assistant(None, [ToolCallPart(id=f"call_{n}", name="look", arguments={"at": "it"})]))
        turns.append(Message.tool([ToolResultPart(call_id=f"call_{n}", name="look", content="seen " * 20)]))
    return (Message.user("Begin."), Message.user("And go on."), *turns)


def is_commit(request: bytes) -> bool:
    """Whether a request of a PostgreSQL client's is a COMMIT."""
    return request.endswith(b"COMMIT\0")
