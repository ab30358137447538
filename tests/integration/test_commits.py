"""What an iteration asks of PostgreSQL: how many commits, and how much it writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from adk_worker import Agent, tool
from adk_worker.checkpoint import Checkpoint
from adk_worker.fleet_scribe import FleetScribe
from adk_worker.history import Handle
from adk_worker.interruption import Interruption
from adk_worker.messages import Message, ToolCallPart, ToolResultPart, canonical_json
from adk_worker.providers import ScriptedProvider
from adk_worker.registry import Registry
from adk_worker.runs import Dispatch, NewRun
from adk_worker.scribe import Turnover, Wrapped
from adk_worker.steps import StepEnd, Stepper
from adk_worker.transitions import FleetPolicy
from stores import open_stores
from stores.sql.schema import metadata

POLICY = FleetPolicy()
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


def agent_that(turn) -> Agent:
    """One whose model says ``turn`` whenever it is asked."""
    model = ScriptedProvider(lambda _request: turn)
    return Agent("bench", "Be measured.", model, tools=[look, put, act], max_iterations=10_000, revision="1")


class Unwatched:
    """A keeper that renews nothing."""

    def enter(self, lease, interruption):
        pass

    def leave(self, lease):
        pass


class Bench:
    """One run at a time on real stores, with a list as its broker."""

    def __init__(self, stores, executor):
        self.stores, self.executor = stores, executor
        self.sent: list[Dispatch] = []

    async def dispatch(self, message):
        self.sent.append(message)

    async def submit(self, run_id="run_1") -> Dispatch:
        new = NewRun(tenant="acme", run_id=run_id, agent="bench", input="Begin.")
        submitted = await self.stores.runs.submit(new, policy=POLICY)
        return Dispatch("acme", run_id, submitted.ticket)

    async def step(self, message, turn) -> StepEnd:
        stepper = Stepper(
            stores=self.stores,
            registry=Registry([agent_that(turn)]),
            dispatcher=self,
            watch=Unwatched(),
            policy=POLICY,
            checkpoint_max_bytes=MAX_BYTES,
            tool_executor=self.executor,
        )
        return await stepper.step(message, label="bench")


@pytest.fixture
async def opened(postgres_store_url, postgres_proxy):
    """The stores in a database behind the proxy, so that all that goes to it is seen."""
    stores = open_stores(postgres_proxy.url(postgres_store_url))
    yield stores
    await stores.lifecycle.close()


@pytest.fixture
def bench(opened):
    with ThreadPoolExecutor(1) as executor:
        yield Bench(opened, executor)


def is_commit(request: bytes) -> bool:
    return request.endswith(b"COMMIT\0")


@pytest.mark.parametrize(
    ("turn", "end", "commits"),
    [
        pytest.param(("look", {"at": "it"}), StepEnd.HANDED_OVER, 3, id="a-read-only-call"),
        pytest.param([("look", {"at": "it"})] * 3, StepEnd.HANDED_OVER, 3, id="three-read-only-calls"),
        pytest.param(("act", {"on": "it"}), StepEnd.HANDED_OVER, 4, id="a-lone-effectful-call"),
        pytest.param(("put", {"on": "it"}), StepEnd.HANDED_OVER, 4, id="a-lone-idempotent-call"),
        # The intents of all are one commit; each outcome is recorded as it comes.
        pytest.param([("act", {"on": "it"})] * 3, StepEnd.HANDED_OVER, 7, id="three-effectful-calls"),
        pytest.param(("look", {"up": "it"}), StepEnd.HANDED_OVER, 3, id="a-call-that-is-refused"),
        pytest.param("Done.", StepEnd.COMPLETED, 2, id="a-final-answer"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
async def test_an_iteration_commits_no_more_than_it_has_to(bench, postgres_proxy, turn, end, commits, first):
    """I2: the take, the model's answer, the intents if there are any, and the last boundary with a lone outcome."""
    message = await bench.submit()
    if not first:
        await bench.step(message, ("act", {"on": "something else"}))
        message = bench.sent.pop()
    counted = postgres_proxy.count(is_commit)

    assert await bench.step(message, turn) is end

    assert counted.count == commits


async def test_a_duplicate_message_costs_one_commit_that_writes_nothing(bench, postgres_proxy):
    """F1: it is refused by the take; the frontier is not read, nor anything else done."""
    message = await bench.submit()
    await bench.step(message, ("look", {"at": "it"}))
    counted = postgres_proxy.count(is_commit)
    before = await bench.stores.runs.events("run_1", tenant="acme")

    assert await bench.step(message, ("look", {"at": "it"})) is StepEnd.DUPLICATE

    assert counted.count == 1
    assert await bench.stores.runs.events("run_1", tenant="acme") == before


# --- H1 -----------------------------------------------------------------------------------------------------------


class Weighing:
    """A run store that keeps what each commit was given."""

    def __init__(self, runs):
        self._runs = runs
        self.payloads: list[str] = []

    def __getattr__(self, name):
        return getattr(self._runs, name)

    async def commit(self, lease, boundary, *, policy):
        self.payloads += [boundary.payload, boundary.segment.payload]
        self.payloads += [canonical_json(dict(event.data)) for event in boundary.events]
        return await self._runs.commit(lease, boundary, policy=policy)


def transcript(length: int) -> tuple[Message, ...]:
    """``length`` messages, an even number: what was asked, and then calls and their results."""
    turns: list[Message] = []
    for n in range(length // 2 - 1):
        turns.append(Message.assistant(None, [ToolCallPart(id=f"call_{n}", name="look", arguments={"at": "it"})]))
        turns.append(Message.tool([ToolResultPart(call_id=f"call_{n}", name="look", content="seen " * 20)]))
    return (Message.user("Begin."), Message.user("And go on."), *turns)


async def queued_with(bench: Bench, run_id: str, messages: tuple[Message, ...]) -> Dispatch:
    """A queued run that has said ``messages``, by its next message of the queue."""
    submitted = await bench.submit(run_id)
    ticket, ttl = submitted.ticket, POLICY.lease_ttl
    taken = await bench.stores.runs.take(run_id, tenant="acme", ticket=ticket, holder="past", ttl_seconds=ttl)
    handle = Handle.empty(run_id)
    scribe = FleetScribe(bench.stores, taken.lease, Interruption(), handle=handle, policy=POLICY, max_bytes=MAX_BYTES)
    frontier = Checkpoint(
        tenant="acme", run_id=run_id, agent="bench", revision="1", sequence=1, iteration=5, messages=messages
    )
    await scribe.boundary(Wrapped(frontier, Turnover.ON, last=True))
    return Dispatch("acme", run_id, scribe.ticket)


TURNS = [pytest.param(("look", {"at": "it"}), id="read-only"), pytest.param(("act", {"on": "it"}), id="effectful")]
LENGTHS = (10, 1000)
NEW_ROWS = "SELECT count(*), coalesce(sum(octet_length(r::text)), 0)::int FROM {} r WHERE xmin::text::bigint > {}"


@pytest.mark.parametrize("turn", TURNS)
async def test_a_boundary_is_as_large_in_a_long_run_as_in_a_short_one(bench, opened, turn):
    """H1: a step writes its new messages alone; the frontier names the others, it does not repeat them."""
    written = {}
    for length in LENGTHS:
        message = await queued_with(bench, f"run_{length:04}", transcript(length))
        weighing = Weighing(opened.runs)
        bench.stores = replace(opened, runs=weighing)

        assert await bench.step(message, turn) is StepEnd.HANDED_OVER

        written[length] = sum(map(len, weighing.payloads))
    # Each of the two frontiers says how many messages its transcript has: 12 there, 1002 here.
    assert written[1000] - written[10] == 2 * (len("1002") - len("12"))


@pytest.mark.parametrize("turn", TURNS)
async def test_an_iteration_leaves_as_many_new_rows_in_a_long_run_as_in_a_short_one(
    bench, turn, postgres_server, postgres_store_url
):
    """H1: nor does the store rewrite what is there, in whichever table."""
    database = urlsplit(postgres_store_url).path.removeprefix("/")
    rows, sizes = {}, {}
    for length in LENGTHS:
        message = await queued_with(bench, f"run_{length:04}", transcript(length))
        ((since,),) = postgres_server.execute("SELECT txid_current()", database=database)

        assert await bench.step(message, turn) is StepEnd.HANDED_OVER

        new = {
            table.name: postgres_server.execute(NEW_ROWS.format(table.name, since), database=database)[0]
            for table in metadata.sorted_tables
        }
        rows[length] = {table: count for table, (count, _) in new.items()}
        sizes[length] = sum(size for _, size in new.values())
    assert rows[1000] == rows[10]
    assert (rows[10]["adk_messages"], rows[10]["adk_checkpoints"], rows[10]["adk_events"]) == (2, 1, 3)
    # Numbers and times that are written with a few digits more or less. The transcript has more than 100 kB.
    assert abs(sizes[1000] - sizes[10]) < 200
