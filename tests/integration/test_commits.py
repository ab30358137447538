"""What an iteration asks of PostgreSQL: how many commits, and how much it writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from adk_worker.actors import Actor
from adk_worker.ledger.amounts import Budget, BudgetChange, Kind
from adk_worker.steps import StepEnd
from stores import open_stores
from stores.sql.schema import metadata
from tests.integration.bench import Bench, Weighing, is_commit, transcript


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
    message = await bench.submit("run_1")
    if not first:
        await bench.step(message, ("act", {"on": "something else"}))
        message = bench.sent.pop()
    counted = postgres_proxy.count(is_commit)

    assert await bench.step(message, turn) is end

    assert counted.count == commits


@pytest.mark.parametrize("whose", ["run", "tenant"])
async def test_a_budget_costs_one_commit_more(bench, postgres_proxy, whose):
    """C6, P3: the reservation. It is settled in the boundary's own write, the tenant's account in the same one."""
    budget = None
    if whose == "tenant":
        change = BudgetChange(to={Kind.TOKENS: 1_000_000})
        await bench.stores.runs.change_account("acme", change=change, by=Actor("ann"))
    else:
        budget = Budget(tokens=1_000_000)
    message = await bench.submit("run_1", budget=budget)
    counted = postgres_proxy.count(is_commit)

    assert await bench.step(message, ("look", {"at": "it"})) is StepEnd.HANDED_OVER

    assert counted.count == 4
    run = await bench.stores.runs.get("run_1", tenant="acme")
    assert run.ledger.reserved is None


async def test_a_duplicate_message_costs_one_commit_that_writes_nothing(bench, postgres_proxy):
    """F1: it is refused by the take; the frontier is not read, nor anything else done."""
    message = await bench.submit("run_1")
    await bench.step(message, ("look", {"at": "it"}))
    counted = postgres_proxy.count(is_commit)
    before = await bench.stores.runs.events("run_1", tenant="acme")

    assert await bench.step(message, ("look", {"at": "it"})) is StepEnd.DUPLICATE

    assert counted.count == 1
    assert await bench.stores.runs.events("run_1", tenant="acme") == before


# --- H1 -----------------------------------------------------------------------------------------------------------


TURNS = [pytest.param(("look", {"at": "it"}), id="read-only"), pytest.param(("act", {"on": "it"}), id="effectful")]
LENGTHS = (10, 1000)
NEW_ROWS = "SELECT count(*), coalesce(sum(octet_length(r::text)), 0)::int FROM {} r WHERE xmin::text::bigint > {}"


@pytest.mark.parametrize("turn", TURNS)
async def test_a_boundary_is_as_large_in_a_long_run_as_in_a_short_one(bench, opened, turn):
    """H1: a step writes its new messages alone; the frontier names the others, it does not repeat them."""
    written = {}
    for length in LENGTHS:
        message = await bench.submit_with(f"run_{length:04}", transcript(length))
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
        message = await bench.submit_with(f"run_{length:04}", transcript(length))
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
