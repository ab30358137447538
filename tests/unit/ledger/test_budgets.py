"""Budgets as workers hold them: reserved before a call, parked over a limit, and nothing spent twice (C6, P3)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from adk_worker import (
    Agent,
    AgentRunner,
    Attention,
    Budget,
    BudgetChange,
    BudgetError,
    Checkpointer,
    ConfigurationError,
    Estimate,
    Fleet,
    MemoryCheckpointStore,
    MemoryLedgers,
    ModelAnswer,
    ModelError,
    ModelUnavailableError,
    RunExistsError,
    RunStatus,
    ScriptedProvider,
    Usage,
    memory_stores,
    tool,
)
from adk_worker.actors import Actor
from adk_worker.conformance.runs.driver import PATIENT
from adk_worker.describe import describe
from adk_worker.ledger.amounts import Amount, Kind, Unaccounted
from adk_worker.ledger.spending import by_size, reservation_for
from adk_worker.messages import BinaryPart, Message, TextPart, ToolCallPart
from adk_worker.model import ModelRequest
from adk_worker.providers.policy import ModelPolicy, Price
from adk_worker.providers.pydantic_ai import PydanticAIProvider
from adk_worker.reaper import sweep
from adk_worker.registry import Registry
from adk_worker.steps import Stepper

TOOK = Usage(input_tokens=60, output_tokens=40)
MORE = BudgetChange(by={Kind.TOKENS: 1000})


@tool(effect="read_only")
def look(at: str) -> str:
    """Look."""
    return at


def asks(number):
    call = ToolCallPart(id=f"c-{number}", name="look", arguments={"at": "it"})
    return ModelAnswer(calls=(call,), usage=TOOK, cost_micros=7)


WANTS = Estimate(300, 200, 70)


def agent(*turns):
    last = ModelAnswer(text="Done.", usage=TOOK, cost_micros=7)
    provider = ScriptedProvider([*turns, last], estimate=WANTS)
    return Agent(name="looking", instructions="Look.", model=provider, tools=[look]), provider


# --- in process -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledgers():
    return MemoryLedgers()


@pytest.fixture
def runner(ledgers):
    return AgentRunner(checkpoints=Checkpointer(MemoryCheckpointStore()), ledgers=ledgers)


async def test_a_run_within_its_budget_is_none_the_wiser(runner, ledgers):
    """C6: and what its calls took is on record."""
    looking, _ = agent(asks(1))

    run = await runner.run(looking, "look", tenant="acme", run_id="run", budget=Budget(tokens=1000))

    assert run.status is RunStatus.COMPLETED
    ledger = ledgers.get("run", tenant="acme")
    assert (ledger.spent, ledger.reserved, ledger.unaccounted) == (Amount(200, 14), None, Unaccounted())


@pytest.mark.parametrize(
    "numbers",
    [(-400, 0), (0, -1, 7), (1, 1, 1234.5), (float("nan"), 1), (1, float("inf")), (1, True), ("1", 1), (1, 1 << 54)],
)
def test_an_estimate_is_of_whole_numbers_from_0_up(numbers):
    """P3: below that it would make room for others; a fraction could be written, and the run not be read again."""
    with pytest.raises(ConfigurationError, match="is none; have the model's provider give a whole number"):
        Estimate(*numbers)


async def test_nothing_is_reserved_by_what_is_no_estimate(runner, ledgers):
    """P3: whatever a provider makes up instead."""
    looking, provider = agent()
    provider.estimate = lambda _: SimpleNamespace(input_tokens=-400, output_tokens=0, cost_micros=None)

    with pytest.raises(ConfigurationError, match="gave a SimpleNamespace for what a call may take"):
        await runner.run(looking, "look", tenant="acme", run_id="run", budget=Budget(tokens=1000))

    assert (ledgers.get("run", tenant="acme").reserved, len(provider.requests)) == (None, 0)


async def test_a_run_over_its_budget_is_parked_and_goes_on_after_a_raise(runner, ledgers):
    """P3: before the call is made that it does not allow; none is made twice."""
    looking, provider = agent(asks(1), asks(2))
    budget = Budget(tokens=650)

    parked = await runner.run(looking, "look", tenant="acme", run_id="run", budget=budget)
    again = await runner.resume(looking, "run", tenant="acme")
    made = len(provider.requests)
    ledgers.change("run", tenant="acme", change=MORE)
    run = await runner.resume(looking, "run", tenant="acme")

    assert (parked.status, parked.attention) == (RunStatus.PARKED, Attention.OVER_BUDGET)
    assert "tokens limit 650, spent 200, reserved 0, unaccounted 0, and the next model call may take 500" in (
        parked.detail or ""
    )
    assert (again.status, made) == (RunStatus.PARKED, 2)
    assert (run.status, len(provider.requests)) == (RunStatus.COMPLETED, 3)
    assert ledgers.get("run", tenant="acme").spent == Amount(300, 21)


async def test_a_call_that_was_cut_off_in_process_is_unaccounted(runner, ledgers):
    """C6."""
    begun = asyncio.Event()

    async def hangs(_):
        begun.set()
        await asyncio.Event().wait()

    looking = Agent(name="looking", instructions="Look.", model=ScriptedProvider(hangs, estimate=WANTS))
    running = asyncio.create_task(runner.run(looking, "look", tenant="acme", run_id="run", budget=Budget(tokens=1000)))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert ledgers.get("run", tenant="acme").unaccounted == Unaccounted(1, Amount(500, 70))


async def test_a_run_that_is_not_started_over_keeps_its_limits(runner, ledgers):
    """P3: whoever is refused has changed nothing."""
    looking, _ = agent(asks(1), asks(2))
    await runner.run(looking, "look", tenant="acme", run_id="run", budget=Budget(tokens=650))

    with pytest.raises(RunExistsError):
        await runner.run(looking, "look", tenant="acme", run_id="run", budget=Budget(tokens=9_000))

    assert ledgers.get("run", tenant="acme").limits == Budget(tokens=650)


async def test_a_budget_in_process_needs_a_ledger():
    """P3: nobody would hold it."""
    looking, _ = agent()

    with pytest.raises(ConfigurationError, match="MemoryLedgers"):
        await AgentRunner().run(looking, "look", tenant="acme", budget=Budget(tokens=1))


# --- on the fleet -----------------------------------------------------------------------------------------------------


@pytest.fixture
def stores():
    return memory_stores()


@pytest.fixture
def sent():
    return []


@pytest.fixture
def fleet(stores, sent):
    class Sends:
        async def dispatch(self, message):
            sent.append(message)

    return Fleet(stores, Sends(), policy=PATIENT)


@pytest.fixture
def carry(make_stepper, sent):
    """Carries out messages until there are no more; what came of each."""

    async def carry(looking):
        stepper, ends = make_stepper(looking), []
        while sent:
            ends.append(await stepper.step(sent.pop(0), label="task"))
        return ends

    return carry


@pytest.fixture
def make_stepper(stores, fleet):
    class Watch:
        def enter(self, lease, interruption, *, since):
            pass

        def leave(self, lease):
            pass

    with ThreadPoolExecutor(1) as executor:
        yield lambda looking: Stepper(
            stores=stores,
            registry=Registry([looking]),
            dispatcher=fleet._dispatcher,  # noqa: SLF001
            watch=Watch(),
            policy=PATIENT,
            checkpoint_max_bytes=1 << 20,
            tool_executor=executor,
        )


async def test_a_fleets_run_crosses_its_budget_and_goes_on_after_a_raise(fleet, carry, stores):
    """P3, P5: by itself; no model call is made twice, and who raised it is told."""
    looking, provider = agent(asks(1), asks(2))
    await fleet.submit("looking", "look", tenant="acme", run_id="run", budget=Budget(tokens=650))
    await carry(looking)
    parked = await fleet.inspect("run", tenant="acme")

    raised = await fleet.change_budget("run", tenant="acme", change=MORE, by="ann")
    await carry(looking)

    assert (parked.run.status, parked.run.attention) == (RunStatus.PARKED, Attention.OVER_BUDGET)
    said = describe(parked)
    assert "budget: tokens 200 of 650" in said
    assert "adk budget raise run --tenant acme --tokens N" in said
    assert "run --resume" not in said
    run = await fleet.get("run", tenant="acme")
    assert raised.status is RunStatus.QUEUED
    assert (run.status, len(provider.requests)) == (RunStatus.COMPLETED, 3)
    assert run.ledger.spent == Amount(300, 21)
    kinds = [event.kind async for event in fleet.events("run", tenant="acme")]
    assert kinds.count("parked") == kinds.count("budget_changed") == kinds.count("requeued") == 1


async def test_a_tenants_raise_has_its_runs_go_on(fleet, carry, stores):
    """P3: those that were parked on it and fit, published at once; the last one with the next sweep."""
    looking, _ = agent()
    account, _ = await fleet.change_account("acme", change=BudgetChange(to={Kind.TOKENS: 450}), by="ann")
    for number in range(3):
        await fleet.submit("looking", "look", tenant="acme", run_id=f"run-{number}")
    await carry(looking)
    parked = [run.run_id async for run in fleet.list(tenant="acme", attention=True)]

    account, queued = await fleet.change_account("acme", change=MORE, by="ann")
    await carry(looking)
    report = await sweep(stores.runs, fleet._dispatcher, PATIENT)  # noqa: SLF001
    await carry(looking)

    assert (len(parked), queued, report.afforded) == (3, 2, 1)
    assert account.limits == Budget(tokens=1450)
    assert {run.status async for run in fleet.list(tenant="acme")} == {RunStatus.COMPLETED}
    settled = await fleet.account("acme")
    assert (settled.spent, settled.reserved) == (Amount(300, 21), Amount())


async def test_a_run_without_a_limit_reserves_nothing(fleet, carry, stores, monkeypatch):
    """C6: there is no write for it; what it spends is counted in the boundary's own."""
    reserved = []
    monkeypatch.setattr(type(stores.runs), "reserve", lambda *args: reserved.append(args))
    looking, _ = agent(asks(1))
    await fleet.submit("looking", "look", tenant="acme", run_id="run")

    await carry(looking)

    run = await fleet.get("run", tenant="acme")
    assert (reserved, run.status, run.ledger.spent) == ([], RunStatus.COMPLETED, Amount(200, 14))


@pytest.mark.parametrize(
    ("error", "unaccounted"),
    [
        (ModelError("cut off", transient=True), Unaccounted(1, Amount(500, 70))),
        (ModelError("refused"), Unaccounted(1, Amount(500, 70))),
        (ModelUnavailableError("overloaded"), Unaccounted()),
        (RuntimeError("a fault of the provider's"), Unaccounted(1, Amount(500, 70))),
    ],
    ids=["transient", "for good", "not taken", "fault"],
)
async def test_a_call_that_failed_is_unaccounted_unless_it_was_never_taken(fleet, carry, error, unaccounted):
    """C6: an overload is not charged for, and waiting one out does not use the budget up."""
    looking, _ = agent(error)
    await fleet.submit("looking", "look", tenant="acme", run_id="run", budget=Budget(tokens=1000))

    await carry(looking)

    ledger = (await fleet.get("run", tenant="acme")).ledger
    assert (ledger.unaccounted, ledger.reserved, ledger.spent) == (unaccounted, None, Amount())


async def test_a_run_is_submitted_with_the_fleets_own_budget(stores, sent):
    """P3: unless it brings one, be it none."""

    class Sends:
        async def dispatch(self, message):
            sent.append(message)

    fleet = Fleet(stores, Sends(), budget=Budget(cost_micros=9))
    ours = await fleet.submit("looking", "look", tenant="acme")
    own = await fleet.submit("looking", "look", tenant="acme", budget=Budget(tokens=1))
    free = await fleet.submit("looking", "look", tenant="acme", budget=Budget())

    assert [run.ledger.limits for run in (ours, own, free)] == [Budget(cost_micros=9), Budget(tokens=1), Budget()]


async def test_a_person_who_may_not_change_budgets_changes_none(stores):
    """P5: a tenant's neither."""
    asked = []

    def refuses(actor, action, *, tenant, run_id):
        asked.append((actor.name, action, tenant, run_id))
        raise BudgetError("not you")

    fleet = Fleet(stores, None, verifier=refuses)
    await stores.runs.change_account("acme", change=BudgetChange(to={Kind.TOKENS: 1}), by=Actor("root"))

    for attempt in (
        fleet.change_budget("run", tenant="acme", change=MORE, by="ann"),
        fleet.change_account("acme", change=MORE, by="ann"),
    ):
        with pytest.raises(Exception, match="may not budget"):
            await attempt

    assert asked == [("ann", "budget", "acme", "run"), ("ann", "budget", "acme", None)]
    assert (await fleet.account("acme")).limits == Budget(tokens=1)


# --- estimates --------------------------------------------------------------------------------------------------------


def request(*parts):
    message = Message(role="user", parts=parts)
    return ModelRequest(
        tenant="acme", run_id="run", agent="a", iteration=3, model="m", instructions="Look.", messages=(message,)
    )


def test_an_estimate_grows_with_what_is_sent():
    """P3: an image counts as one, and not by its bytes."""
    small, large = by_size(request(TextPart(text="hi"))), by_size(request(TextPart(text="é" * 3000)))
    image = by_size(request(BinaryPart(media_type="image/png", data=b"x" * 1_000_000)))

    assert small.input_tokens < 10
    assert large.input_tokens >= 2000
    assert 2000 <= image.input_tokens < 2100
    assert (small.output_tokens, small.cost_micros) == (4096, None)


def test_what_nobody_has_a_price_for_is_reserved_by_tokens_alone():
    """P3: which the reservation says."""

    class Own:
        name = "own"

        async def complete(self, request):
            raise NotImplementedError

    reserved = reservation_for(Own(), request(TextPart(text="hi")))

    assert (reserved.iteration, reserved.priced, reserved.amount.cost_micros) == (3, False, 0)
    assert reserved.amount.tokens > 4096


def real(name, **policy):
    return PydanticAIProvider(name, policy=ModelPolicy(**policy))


def test_a_real_model_s_call_is_estimated_by_its_longest_answer_and_its_price():
    """P3: the published one, or one's own; nothing of it from a cache."""
    said = request(TextPart(text="x" * 3000))
    own = {"openai:gpt-4o": {"input_mtok": 2, "output_mtok": 8, "cache_read_mtok": 0}}

    published = real("openai:gpt-4o", max_tokens=500).estimate(said)
    priced = real("openai:gpt-4o", max_tokens=500, prices={name: Price(**price) for name, price in own.items()})
    estimated = priced.estimate(said)

    assert (published.input_tokens, published.output_tokens) == (1003, 500)
    assert (published.cost_micros or 0) > 0
    assert estimated.cost_micros == 1003 * 2 + 500 * 8
    settled = PydanticAIProvider("openai:gpt-4o", settings={"max_tokens": 70}, policy=ModelPolicy(max_tokens=500))
    assert settled.estimate(said).output_tokens == 70


@pytest.mark.parametrize("name", ["openai:no-such-model-of-anybody", "vllm:llama-4", "unheard-of"])
def test_a_real_model_that_nobody_has_a_price_for_is_estimated_in_tokens(name):
    """P3."""
    estimate = real(name).estimate(request(TextPart(text="hi")))

    assert (estimate.cost_micros, estimate.output_tokens) == (None, 4096)
