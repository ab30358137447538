"""What a person may say of a call, which call they mean, and what the client and the runner in process make of it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from adk_worker.actors import os_user
from adk_worker.checkpoint import CheckpointBoundary, Checkpointer, OutstandingCall
from adk_worker.client import Fleet
from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.describe import describe
from adk_worker.errors import (
    CallDecidedError,
    CallNotFoundError,
    CallStateError,
    CommitUnknownError,
    ConfigurationError,
    IndeterminateToolCallError,
    InvalidNameError,
    NoCheckpointError,
    NotAllowedError,
    NotJSONError,
    OwnerMayLiveError,
    RunNotFoundError,
    RunStateError,
    ValueTooLargeError,
)
from adk_worker.events import EventKind
from adk_worker.idempotency import ClaimState
from adk_worker.memory import MemoryCheckpointStore, MemoryData, MemoryIdempotencyStore, MemoryRunStore, memory_stores
from adk_worker.outcomes import Effect
from adk_worker.registry import Registry
from adk_worker.results import MAX_RESULT_BYTES
from adk_worker.runner import AgentRunner
from adk_worker.runs import Dispatch, RunStatus
from adk_worker.transitions.runs import Then
from tests.unit.far_side import Crash, FarSide, agent_with

SAID = {"tenant": "acme", "why": "it is in their list", "by": "ana"}


class Broker:
    def __init__(self):
        self.sent = []

    async def dispatch(self, message):
        self.sent.append(message)


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def driver():
    return Driver(memory_stores())


@pytest.fixture
def fleet(driver, broker):
    return Fleet(driver.stores, broker)


def a_call(driver, index, *, tool="book", effect=Effect.EFFECTFUL, **fields):
    key = driver.intent(index).key
    said = {"call_id": f"call_{index}", "arguments": {"seat": "12A"}, "key": key, **fields}
    return OutstandingCall(tool=tool, index=index, effect=effect, **said)


async def parked(driver, *calls, begun=(0,), on=None, **frontier):
    """A run that is parked on calls, all of those that were begun unless ``on`` says fewer; their claims."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": calls or (a_call(driver, 0),), **frontier}
    await driver.commit(lease, 1, frontier=asked)
    claims = await driver.begin(lease, *begun)
    await driver.park(lease, *(claims if on is None else [claims[index] for index in on]))
    return claims


# --- the client -------------------------------------------------------------------------------------------------------


async def test_a_settled_call_carries_the_run_on(driver, fleet, broker):
    """I8, P5: published as a recovery, with who, through which user, why."""
    (claim,) = await parked(driver)

    run = await fleet.settle("run", "call_0", completed={"seat": "12A"}, **SAID)

    assert run.status is RunStatus.QUEUED
    assert broker.sent == [Dispatch("acme", "run", run.fence, recovery=True)]
    (kept,) = await driver.claims()
    assert (kept.key, kept.outcome.content, kept.settled_by) == (claim.key, {"seat": "12A"}, "person:ana")
    (event,) = await driver.events(EventKind.DECIDED)
    assert (event.data["by"], event.data["os_user"], event.data["why"]) == ("ana", os_user(), "it is in their list")


@pytest.mark.parametrize("content", [None, "12A", 7, [1, {"a": None}], {}])
async def test_any_json_is_an_outcome(driver, fleet, content):
    """I8: null too; it is the same that reading the stored form gives back."""
    await parked(driver)

    await fleet.settle("run", "call_0", completed=content, **SAID)

    assert (await driver.claims())[0].outcome.content == content


async def test_what_a_person_says_is_masked(driver, fleet):
    """R1, R2: the outcome and the reason, with numbers behind those of the run."""
    secret, other = "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLF"
    await parked(driver, masks={"last": 4})

    await fleet.settle("run", "call_0", **{**SAID, "completed": {"key": secret}, "why": f"they gave {other}"})

    stored = repr(await driver.picture())
    assert secret not in stored
    assert other not in stored
    (kept,) = await driver.claims()
    assert "[secret:" in kept.outcome.content["key"]
    assert "[secret:1]" not in repr(kept)


@pytest.mark.parametrize(
    ("named", "index"),
    [("call_1", 1), (None, 1), ("pay", 1), ("call_0", 0)],
    ids=["its id", "its key", "its tool", "another's id"],
)
async def test_a_call_is_named_by_id_key_or_tool(driver, fleet, named, index):
    """I8."""
    calls = (a_call(driver, 0), a_call(driver, 1, tool="pay", arguments={"seat": "12A"}))
    claims = await parked(driver, *calls, begun=(0, 1))

    await fleet.settle("run", named or claims[1].key, completed=1, **SAID)

    assert [claim.in_flight for claim in await driver.claims()] == [index != 0, index != 1]


async def test_a_tools_name_is_enough_if_one_call_of_it_is_undecided(driver, fleet):
    """I8: the other one of the turn never began."""
    await parked(driver, a_call(driver, 0), a_call(driver, 1), begun=(1,))

    await fleet.settle("run", "book", completed=1, **SAID)

    assert [claim.in_flight for claim in await driver.claims()] == [False]


@pytest.mark.parametrize(("name", "ambiguous"), [("book", True), ("pay", False), ("call", False)])
async def test_a_name_that_means_no_call_or_several_lists_those_that_there_are(driver, fleet, name, ambiguous):
    """I8: nothing is guessed."""
    claims = await parked(driver, a_call(driver, 0), a_call(driver, 1), begun=(0, 1))
    before = await driver.picture()

    with pytest.raises(CallNotFoundError) as refused:
        await fleet.settle("run", name, completed=1, **SAID)

    assert refused.value.ambiguous is ambiguous
    for index, claim in enumerate(claims):
        assert f"book (call_{index}, key {claim.key}), undecided" in str(refused.value)
    assert await driver.picture() == before


async def test_the_second_of_two_operators_hears_of_the_first(driver, fleet):
    """I8: also when the run has gone on meanwhile, and the call is no longer outstanding."""
    (claim,) = await parked(driver)
    await fleet.settle("run", "call_0", completed=1, **SAID)

    with pytest.raises(CallDecidedError, match=r"returned, by person:ana at \d{4}-"):
        await fleet.settle("run", "call_0", never_ran=True, owner_may_live=True, **{**SAID, "by": "bob"})
    lease = await driver.worker()
    await driver.commit(lease, 2)
    with pytest.raises(CallDecidedError, match="by person:ana"):
        await fleet.settle("run", claim.key, completed=2, **{**SAID, "by": "bob"})
    with pytest.raises(CallNotFoundError, match="returned by person:ana"):
        await fleet.settle("run", "call_0", completed=2, **{**SAID, "by": "bob"})


async def test_never_ran_is_refused_while_something_may_be_under_way(driver, fleet, broker):
    """I8: with what would have to be said; the run stays as it is."""
    await parked(driver)
    before = await driver.picture()

    with pytest.raises(OwnerMayLiveError, match=r"its owner may be alive.*--owner-may-live"):
        await fleet.settle("run", "call_0", never_ran=True, **SAID)

    assert (await driver.picture(), broker.sent) == (before, [])
    await fleet.settle("run", "call_0", never_ran=True, owner_may_live=True, **SAID)
    assert [claim.state for claim in await driver.claims()] == [ClaimState.NEVER_RAN]


async def test_what_a_tool_declares_is_asked_of_its_agent(driver, broker, monkeypatch):
    """I8, I11: a claim that a lone process began has no declaration on record."""
    monkeypatch.setattr("adk_worker.settling.deciding.known_dead", lambda _: True)
    agent = agent_with(FarSide().tool(max_in_flight=0))
    fleet = Fleet(driver.stores, broker, registry=Registry([agent]))
    await parked(driver, revision=agent.revision)

    await fleet.settle("run", "call_0", never_ran=True, **SAID)

    assert (await driver.claims())[0].decisions[0].owner_may_live is False


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        ({"effect": Effect.READ_ONLY}, CallStateError, "read_only: it changes nothing"),
        ({}, CallStateError, "not in flight: nothing of it was ever sent"),
        ({"key": None}, CallStateError, "without a key"),
        ({"outcome": BOOKED}, CallDecidedError, "settled already: returned, by the run itself"),
    ],
)
async def test_a_call_that_nobody_has_to_settle_says_so(driver, fleet, call, error, said):
    """I8."""
    await parked(driver, a_call(driver, 0), a_call(driver, 1, **call), begun=(0,))
    before = await driver.picture()

    with pytest.raises(error, match=said):
        await fleet.settle("run", "call_1", completed=1, **SAID)

    assert await driver.picture() == before


async def test_a_run_that_goes_on_finds_out_by_itself(driver, fleet):
    """I7, I8."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver, 0),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.begin(lease, 0)

    with pytest.raises(RunStateError, match="is running: whoever carries it on finds out"):
        await fleet.settle("run", "book", completed=1, **SAID)


async def test_nothing_is_left_to_decide_of_a_run_that_has_ended(driver, fleet):
    """I8."""
    await driver.commit(await driver.worker(), 1, Then.COMPLETE)

    with pytest.raises(RunStateError, match="is completed: it has ended, and none of its calls is undecided"):
        await fleet.settle("run", "book", completed=1, **SAID)


async def test_there_is_no_such_run(fleet):
    """T1."""
    with pytest.raises(RunNotFoundError):
        await fleet.settle("run", "book", completed=1, **SAID)


async def test_a_call_of_a_cancelled_run_is_settled_by_its_tools_name(driver, fleet, broker):
    """P2, I8: its frontier goes with it, and nothing is published."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver, 0),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.begin(lease, 0)
    await driver.cancel()
    await driver.give_back(lease)

    run = await fleet.settle("run", "book", completed=1, **SAID)

    assert (run.status, await driver.payload(), broker.sent) == (RunStatus.CANCELLED, None, [])


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({}, ConfigurationError),
        ({"completed": 1, "never_ran": True}, ConfigurationError),
        ({"completed": 1, "owner_may_live": True}, ConfigurationError),
        ({"never_ran": "no"}, ConfigurationError),
        ({"never_ran": True, "owner_may_live": "no"}, ConfigurationError),
        ({"completed": 1, "why": 5}, InvalidNameError),
        ({"completed": {1, 2}}, NotJSONError),
        ({"completed": float("nan")}, NotJSONError),
        ({"completed": "\ud800"}, NotJSONError),
        ({"completed": "x" * MAX_RESULT_BYTES}, ValueTooLargeError),
        ({"completed": 1, "why": "  "}, InvalidNameError),
        ({"completed": 1, "why": "x" * 2_001}, InvalidNameError),
        ({"completed": 1, "by": ""}, InvalidNameError),
        ({"completed": 1, "tenant": ""}, InvalidNameError),
    ],
)
async def test_what_cannot_be_said_is_refused_before_anything_is_written(driver, fleet, said, error):
    """I8, P5."""
    await parked(driver)
    before = await driver.picture()

    with pytest.raises(error):
        await fleet.settle("run", "call_0", **{**SAID, **said})

    assert await driver.picture() == before


async def test_whoever_may_not_settles_nothing(driver, broker):
    """P5."""

    async def nobody(actor, action, *, tenant, run_id):
        raise NotAllowedError(actor=actor.name, action=action, reason="ask the desk")

    await parked(driver)
    before = await driver.picture()

    with pytest.raises(NotAllowedError, match="'ana' may not settle: ask the desk"):
        await Fleet(driver.stores, broker, verifier=nobody).settle("run", "call_0", completed=1, **SAID)

    assert await driver.picture() == before


async def test_an_answer_that_was_lost_is_found_out(broker):
    """F5: the decision is on record, and the run is published under the ticket that stands."""
    lost = [CommitUnknownError(store="memory", reason="lost")]

    data = MemoryData()
    driver = Driver(memory_stores(data))
    await parked(driver)

    class Losing(MemoryRunStore):
        async def decide(self, *args, **fields):
            settled = await super().decide(*args, **fields)
            if lost:
                raise lost.pop()
            return settled

    stores = replace(driver.stores, runs=Losing(data))

    run = await Fleet(stores, broker).settle("run", "call_0", completed=1, **SAID)

    assert broker.sent == [Dispatch("acme", "run", run.fence, recovery=True)]
    assert len(await driver.events(EventKind.DECIDED)) == 1


# --- in words ---------------------------------------------------------------------------------------------------------


async def test_all_that_helps_to_find_out_is_shown(driver, fleet):
    """I8, P4: when, which worker and fence, dead or not, key, arguments, what the tool declares, and what to type."""
    lease = await driver.worker()
    call = a_call(driver, 0, arguments={"seat": "\x1b[31m\u202e12A"})
    await driver.commit(lease, 1, frontier={"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (call,)})
    intent = driver.intent(seat="\x1b[31m\u202e12A")
    _, (claim,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
    await driver.park(lease, claim)

    said = describe(await fleet.inspect("run", tenant="acme"))

    assert "book (call_0)  indeterminate, begun at" in said
    assert f"key {claim.key}" in said
    assert f"sent under fence {claim.fence} by {claim.owner}, which may be alive" in said
    assert r'arguments {"seat":"\u001b[31m\u202e12A"}' in said
    assert "its tool is not known here, and does not say how long" in said
    assert "adk settle run call_0 --tenant acme --completed 'JSON' --why 'TEXT' --by NAME" in said
    assert "adk settle run call_0 --tenant acme --never-ran --owner-may-live --why 'TEXT' --by NAME" in said


async def test_what_was_decided_is_shown_with_who_and_why(driver, fleet):
    """I8, P5: and that an outcome came in after all (F4)."""
    claims = await parked(driver, a_call(driver, 0), a_call(driver, 1), begun=(0, 1))
    await fleet.settle("run", "call_0", never_ran=True, owner_may_live=True, **SAID)

    before = describe(await fleet.inspect("run", tenant="acme"))
    await driver.stores.idempotency.record(claims[0], BOOKED)
    after = describe(await fleet.inspect("run", tenant="acme"))

    assert "book (call_0)  never ran, says person:ana" in before
    assert "said at" in before
    assert "never ran, although its owner might be alive. Why: it is in their list" in before
    assert "book (call_0)  completed: returned  key" in after
    assert "although it was said never to have run, an outcome came in afterwards: returned" in after
    assert before.count("adk settle run ") == after.count("adk settle run ") == 2


async def test_a_dead_workers_call_says_from_when_on_it_may_be_said_never_to_have_run(driver, fleet):
    """I8, I11."""
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver, 0, call_id="\x07"),)}
    await driver.commit(lease, 1, frontier=asked)
    intent = replace(driver.intent(), max_in_flight=90.0)
    _, (claim,) = await driver.runs.begin(lease, [intent], owner=lease.holder)
    await driver.runs.note_dead(lease, [claim])
    await driver.park(lease, claim)

    said = describe(await fleet.inspect("run", tenant="acme"))

    assert "is known dead since" in said
    assert "a request may outlive its sender for 90 s (max_in_flight)" in said
    assert "it never ran, from " in said
    # A name that a terminal cannot show cannot be typed either.
    assert f"adk settle run {claim.key} --tenant acme --never-ran --why" in said


async def test_a_call_that_the_frontier_does_not_show_is_shown_and_settled_by_its_key(driver, fleet, broker):
    """C3, I8: the run is behind what ran; it stays parked for that, and what became of the call is on record."""
    lease = await driver.worker()
    await driver.commit(lease, 1)
    (claim,) = await driver.begin(lease, 0, ahead=True)
    await driver.give_back(lease)

    said = describe(await fleet.inspect("run", tenant="acme"))
    run = await fleet.settle("run", claim.key, completed=1, **SAID)

    assert "calls in flight that its frontier does not show:\n  book  indeterminate, begun at" in said
    assert f"adk settle run {claim.key} --tenant acme --completed" in said
    assert (run.status, run.attention, broker.sent) == (RunStatus.PARKED, "frontier_lost", [])
    assert not (await fleet.inspect("run", tenant="acme")).adrift


# --- in process -------------------------------------------------------------------------------------------------------


class Here:
    """Stores of a process, and a far side whose call is in flight when the process dies."""

    def __init__(self):
        self.idempotency = MemoryIdempotencyStore()
        self.checkpoints = MemoryCheckpointStore()
        self.far_side = FarSide()
        self.agent = agent_with(self.far_side.tool())

    def runner(self, **fields):
        parts = {"idempotency": self.idempotency, "checkpoints": Checkpointer(self.checkpoints), **fields}
        return AgentRunner(**parts)

    async def die(self):
        self.far_side.before = asyncio.Event()
        run = asyncio.ensure_future(self.runner().run(self.agent, "book", tenant="acme", run_id="run_1"))
        await self.far_side.entered.wait()
        self.far_side.before = Crash()
        run.cancel()
        await asyncio.wait([run])
        self.far_side.before = None
        with pytest.raises(IndeterminateToolCallError):
            await self.runner().resume(self.agent, "run_1", tenant="acme")


async def test_a_run_in_process_goes_on_with_what_a_person_says():
    """I8: the outcome is replayed, and the call not made."""
    here = Here()
    await here.die()

    claim = await here.runner().settle(here.agent, "run_1", "book", completed={"seat": "12A"}, **SAID)
    run = await here.runner().resume(here.agent, "run_1", tenant="acme")

    assert claim.decisions[0].by == "ana"
    assert (run.output, here.far_side.effects) == ("Booked 12A.", [])


async def test_a_run_in_process_makes_the_call_that_never_ran():
    """I8, I1: under the same key."""
    here = Here()
    await here.die()

    with pytest.raises(OwnerMayLiveError):
        await here.runner().settle(here.agent, "run_1", "book", never_ran=True, **SAID)
    claim = await here.runner().settle(here.agent, "run_1", "book", never_ran=True, owner_may_live=True, **SAID)
    run = await here.runner().resume(here.agent, "run_1", tenant="acme")

    assert run.output == "Booked 12A."
    assert here.far_side.effects == [(claim.key, "12A")]


async def test_a_run_in_process_does_not_make_a_call_that_ran_after_all():
    """I8, F4: its old owner's outcome came after the person's word."""
    here = Here()
    await here.die()
    claim = await here.runner().settle(here.agent, "run_1", "book", never_ran=True, owner_may_live=True, **SAID)
    await here.idempotency.record(claim, BOOKED)

    run = await here.runner().resume(here.agent, "run_1", tenant="acme")

    assert (run.output, here.far_side.effects) == ("Booked 12A.", [])


@pytest.mark.parametrize("missing", ["checkpoints", "idempotency"])
async def test_without_a_store_nothing_is_settled_in_process(missing):
    """I8."""
    here = Here()

    with pytest.raises(ConfigurationError, match=missing):
        await here.runner(**{missing: None}).settle(here.agent, "run_1", "book", completed=1, **SAID)


async def test_nothing_is_settled_of_a_run_that_nobody_knows():
    """I8."""
    here = Here()

    with pytest.raises(NoCheckpointError):
        await here.runner().settle(here.agent, "run_1", "book", completed=1, **SAID)
