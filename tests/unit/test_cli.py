"""What `inspect` and `run --resume` answer, over a store in memory, as a product that embeds them calls them."""

from __future__ import annotations

import asyncio
import json

import pytest

from adk_worker.checkpoint import CheckpointBoundary, OutstandingCall
from adk_worker.cli import frontier_main, resume_main
from adk_worker.cli.source import operator
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import NotAllowedError, StoreUnavailableError
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.registry import Registry
from adk_worker.runs import RunStatus
from adk_worker.transitions.runs import Attention, Then
from tests.unit.far_side import FarSide, agent_with


class Fleet:
    """The workers, as a dispatcher that does at once what a message asks for."""

    def __init__(self, driver):
        self.driver = driver
        self.sent = []
        self.work = None

    async def dispatch(self, message):
        self.sent.append(message)
        if self.work is not None:
            taken = await self.driver.take(message.ticket)
            await self.work(taken.lease, taken.run.sequence + 1)

    async def commits(self, lease, sequence):
        await self.driver.commit(lease, sequence, Then.HAND_OVER)


@pytest.fixture
def driver():
    return Driver(memory_stores(MemoryData()))


@pytest.fixture
def fleet(driver):
    return Fleet(driver)


class Terminal:
    """Calls the two programs, and keeps what they printed."""

    def __init__(self, driver, fleet, capsys):
        self._driver = driver
        self._fleet = fleet
        self._capsys = capsys

    def inspect(self, *more, run_id="run", **parts):
        argv = [run_id, "--tenant", "acme", *more]
        return self._printed(frontier_main(argv, **{"stores": self._driver.stores, **parts}))

    def resume(self, *more, run_id="run", **parts):
        argv = [run_id, "--tenant", "acme", *more]
        return self._printed(resume_main(argv, **{"stores": self._driver.stores, "dispatcher": self._fleet, **parts}))

    def _printed(self, code):
        self.out, self.err = self._capsys.readouterr()
        return code


@pytest.fixture
def terminal(driver, fleet, capsys):
    return Terminal(driver, fleet, capsys)


@pytest.fixture
def given(driver):
    """Bring the run to where a test needs it; the programs have loops of their own, so this one ends before."""
    return lambda work: asyncio.run(work(driver))


async def parked(driver):
    lease = await driver.worker()
    await driver.commit(lease, 1)
    await driver.park(lease)


async def failed(driver):
    await driver.runs.fail(await driver.worker(), detail="the script is over")


async def queued(driver):
    await driver.submit()


async def held(driver):
    await driver.worker()


async def abandoned(driver):
    lease = await driver.worker(ttl=0.02)
    await driver.commit(lease, 1)
    await driver.lapse()


async def completed(driver):
    await driver.commit(await driver.worker(), 1, Then.COMPLETE, frontier={"output": "Booked."})


async def cancelled(driver):
    await driver.submit()
    await driver.cancel()


async def waiting(driver):
    await driver.commit(await driver.worker(), 1, Then.WAIT_APPROVAL, attention=Attention.APPROVAL, detail="req-9")


def a_call(driver):
    return OutstandingCall(call_id="call_0", tool="book", arguments={"seat": "12A"}, index=0, key=driver.intent(0).key)


async def undecided(driver):
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.park(lease, *await driver.begin(lease, 0))


async def abandoned_in_a_call(driver):
    lease = await driver.worker(ttl=0.05)
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.begin(lease, 0)
    await driver.lapse()


async def unreadable(driver):
    lease = await driver.worker()
    await driver.commit(lease, 1, frontier={"format": 99})
    await driver.park(lease)


async def without_transcript(driver):
    lease = await driver.worker()
    await driver.commit(lease, 1, frontier={"history_handle": str(driver.segment("hello").handle)})
    await driver.park(lease)


async def behind(driver):
    lease = await driver.worker(ttl=0.05)
    await driver.commit(lease, 1)
    await driver.begin(lease, 0, ahead=True)
    await driver.lapse()


async def in_process(driver):
    await driver.stores.checkpoints.put(driver.boundary(3).checkpoint)


@pytest.mark.parametrize(
    ("state", "inspect", "resume"),
    [
        (parked, 0, 0),
        (failed, 0, 0),
        (abandoned, 0, 0),
        (completed, 0, 1),
        (cancelled, 0, 1),
        (queued, 3, 3),
        (held, 3, 3),
        (waiting, 4, 4),
        (undecided, 4, 4),
        (abandoned_in_a_call, 4, 4),
        (unreadable, 4, 4),
        (without_transcript, 4, 4),
        (behind, 4, 4),
        (in_process, 0, 64),
    ],
)
def test_the_exit_code_says_what_may_be_done(terminal, fleet, given, state, inspect, resume):
    """0 carried on, 1 nothing is checkpointed, 3 somebody holds it, 4 it must not be carried on."""
    given(state)
    fleet.work = fleet.commits
    assert (terminal.inspect(), terminal.err) == (inspect, "")
    said = terminal.out
    assert terminal.resume() == resume
    assert terminal.out.startswith(said)
    assert len(fleet.sent) == (resume == 0)


def test_a_run_that_nobody_knows_is_said_to_be_unknown(terminal):
    """T1: another tenant's is as unknown as one that is not there."""
    assert (terminal.inspect(), terminal.out) == (1, "")
    assert "tenant 'acme' has no run 'run'" in terminal.err
    assert terminal.resume() == 1
    assert "nothing is checkpointed" in terminal.err
    assert terminal.inspect("--json") == terminal.resume("--json") == 1
    assert json.loads(terminal.out)["exit_code"] == 1


def test_looking_takes_no_lease_and_changes_nothing(terminal, driver, given):
    given(parked)
    before = asyncio.run(driver.picture())
    terminal.inspect()
    assert asyncio.run(driver.picture()) == before


def test_carrying_on_reports_the_fence_that_it_held(terminal, fleet, driver, given):
    """L2: the fence is above all before, and the ticket that is published above it."""
    given(parked)
    before = asyncio.run(driver.run()).fence
    fleet.work = fleet.commits
    assert terminal.resume() == 0
    assert f"holding its lease under fence {before + 1}\n" in terminal.out
    assert "carried on: sequence 2" in terminal.out
    assert [message.recovery for message in fleet.sent] == [True]
    assert fleet.sent[0].ticket > before + 1


@pytest.mark.parametrize(("typed", "kept"), [(("--by", "ana"), "ana"), ((), operator())])
def test_who_resumed_a_run_is_kept_with_it(terminal, fleet, driver, given, typed, kept):
    """P5."""
    given(parked)
    fleet.work = fleet.commits
    terminal.resume(*typed)
    (event,) = asyncio.run(driver.events("requeued"))
    assert event.data["by"] == kept


def test_a_live_run_that_nobody_carries_goes_back_to_the_queue(terminal, fleet, driver, given):
    """What is published is the ticket under which the queue has it now."""
    given(abandoned)
    assert terminal.resume("--no-wait") == 0
    run = asyncio.run(driver.run())
    assert (run.status, run.fence) == (RunStatus.QUEUED, fleet.sent[0].ticket)


def test_a_holder_is_named(terminal, given, driver):
    """L5."""
    given(held)
    assert terminal.resume() == 3
    assert "held by holder-1 under fence" in terminal.err
    assert "running on holder-1 under fence" in terminal.out


def test_a_queued_run_is_the_queues(terminal, given):
    given(queued)
    assert terminal.resume() == 3
    assert "held by queue under fence" in terminal.err


def test_of_two_operators_the_second_is_told_of_the_first(terminal, driver, given):
    """L4: their names differ, and so would they if they were the same person's."""
    given(parked)
    asyncio.run(driver.stores.leases.acquire("run", tenant="acme", holder="the other terminal", ttl_seconds=60))
    assert terminal.resume() == 3
    assert "the other terminal" in terminal.err


@pytest.mark.parametrize(
    ("state", "status", "holder"), [(undecided, "parked", None), (abandoned_in_a_call, "queued", "queue")]
)
def test_a_run_that_must_not_be_carried_on_is_left_as_it_was(terminal, fleet, driver, given, state, status, holder):
    """I5: the calls are named, nothing is published, and the lease is given back."""
    given(state)
    claims = asyncio.run(driver.claims())
    assert terminal.resume() == 4
    assert "book (call_0, key adk1-" in terminal.out
    run = asyncio.run(driver.run())
    assert (run.status.value, run.holder) == (status, holder)
    assert asyncio.run(driver.claims()) == claims
    assert fleet.sent == []
    assert asyncio.run(driver.held()) is None


def test_a_call_that_its_tool_can_be_asked_about_is_left_to_a_worker(terminal, fleet, given):
    """I7: probes come before people."""
    far_side = FarSide()
    registry = Registry([agent_with(far_side.tool(probe=far_side.probe), revision="r1")])
    given(undecided)
    fleet.work = fleet.commits
    assert terminal.inspect(registry=registry) == 0
    assert "its tool's probe is asked" in terminal.out
    assert terminal.resume(registry=registry) == 0
    assert far_side.probed == []


async def parks_as_undecided(driver, lease):
    await driver.park(lease, *await driver.begin(lease, 0))


async def parks_for_its_budget(driver, lease):
    await driver.park(lease)


async def fails(driver, lease):
    await driver.runs.fail(lease, detail="no such model")


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (parks_as_undecided, 4, "parked (undecided_call)"),
        (parks_for_its_budget, 65, "parked (over_budget)"),
        (fails, 65, "failed: no such model"),
    ],
)
def test_a_run_that_rests_again_at_once_was_not_carried_on(terminal, fleet, driver, given, end, code, said):
    given(parked)

    async def work(lease, _):
        await end(driver, lease)

    fleet.work = work
    assert terminal.resume() == code
    assert "a worker took it, and it rests again:" in terminal.out
    assert said in terminal.out.partition("rests again:")[2]


def test_a_worker_that_does_not_come_in_time_is_no_answer_about_the_run(terminal, given, driver):
    given(parked)
    assert terminal.resume("--timeout", "0.01") == 75
    assert "did not happen within 0.01 s" in terminal.err
    assert asyncio.run(driver.run()).status is RunStatus.QUEUED


def test_a_broker_that_is_away_is_told_and_left_to_the_reaper(terminal, fleet, given, driver):
    given(parked)

    async def away(message):
        raise ConnectionRefusedError("no broker")

    fleet.dispatch = away
    assert terminal.resume("--no-wait") == 0
    assert "its message is not on its way yet: no broker" in terminal.err
    assert asyncio.run(driver.run()).status is RunStatus.QUEUED


def test_a_run_that_was_healed_meanwhile_is_published_as_it_is_queued(terminal, fleet, driver, given):
    """F4: between our look at it and the hand-over its late outcome came in."""
    given(parked)
    requeue = driver.runs.requeue

    async def after_another(*args, **kwargs):
        await requeue(*args, **kwargs)
        return await requeue(*args, **kwargs)

    driver.runs.requeue = after_another
    fleet.work = fleet.commits
    assert terminal.resume() == 0


def test_inspect_as_json_is_one_object(terminal, given):
    given(undecided)
    assert terminal.inspect("--json", "--events") == 4
    (line,) = terminal.out.splitlines()
    told = json.loads(line)
    assert told["run"]["status"] == "parked"
    assert "masks" not in told["run"]
    assert told["frontier"]["boundary"] == "after_model_call"
    assert told["lease"] is None
    assert told["obstacle"]["error"] == "IndeterminateToolCallError"
    assert [(call["tool"], call["disposition"], call["probe"]) for call in told["calls"]] == [
        ("book", "indeterminate", False)
    ]
    assert told["events"][0]["kind"] == "submitted"
    assert told["exit_code"] == 4


def test_inspect_tells_everything_that_happened_when_asked(terminal, given):
    given(cancelled)
    assert terminal.inspect("--events") == 0
    assert [line.split("  ")[1] for line in terminal.out.splitlines()[-3:]] == [
        "submitted",
        "cancel_requested",
        "cancelled",
    ]


@pytest.mark.parametrize(
    ("state", "outcome", "code"),
    [(parked, "carried_on", 0), (held, "held", 3), (undecided, "refused", 4), (completed, "over", 1)],
)
def test_resume_as_json_is_one_object(terminal, fleet, given, state, outcome, code):
    given(state)
    fleet.work = fleet.commits
    assert terminal.resume("--json") == code
    (line,) = terminal.out.splitlines()
    told = json.loads(line)
    assert (told["outcome"], told["exit_code"]) == (outcome, code)
    assert told["before"]["run_id"] == told["run_id"] == "run"
    assert (told["fence"] is None) == (state in {held, completed})
    assert told["holder"] == ("holder-1" if state is held else None)


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["run"],
        ["run", "--tenant"],
        ["run", "--tenant", ""],
        ["", "--tenant", "acme"],
        ["a\nb", "--tenant", "acme"],
        ["run", "--tenant", "acme\0"],
        ["run", "--tenant", "\udcff"],
        ["run", "--tenant", "acme", "--no-such-option"],
        ["run", "more", "--tenant", "acme"],
    ],
)
def test_a_command_line_that_cannot_be_read_is_2(driver, fleet, capsys, argv):
    assert frontier_main(argv, stores=driver.stores) == 2
    assert resume_main(argv, stores=driver.stores, dispatcher=fleet) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err


def test_a_store_that_is_away_is_no_answer_about_the_run(terminal, driver, given):
    given(parked)

    async def away(*_, **__):
        raise StoreUnavailableError(store="postgresql://db", reason="connection refused")

    driver.runs.get = away
    for ask in (terminal.inspect, terminal.resume):
        assert ask() == 69
        assert terminal.err == (
            "error: the store postgresql://db is not answering: connection refused. Check ADK_STORE_URL and that it is "
            "up.\n"
        )


def test_what_should_not_happen_is_one_line_and_a_traceback_for_those_who_ask(terminal, driver):
    async def broken(*_, **__):
        raise LookupError("a mistake of ours\x1b[2J")

    driver.runs.get = broken
    assert terminal.inspect() == 70
    assert terminal.err == "error: LookupError: a mistake of ours\\x1b[2J (--debug shows where)\n"
    assert terminal.inspect("--debug") == 70
    assert "in broken" in terminal.err


def test_ctrl_c_gives_the_lease_back(terminal, driver, given):
    """L10."""
    given(parked)
    reading = driver.runs.payload
    reads = []

    async def interrupted(*args, **kwargs):
        reads.append(await driver.held())
        if reads[-1] is not None:
            raise KeyboardInterrupt
        return await reading(*args, **kwargs)

    driver.runs.payload = interrupted
    assert terminal.resume() == 130
    assert reads[-1] is not None
    assert asyncio.run(driver.held()) is None
    assert asyncio.run(driver.run()).status is RunStatus.PARKED


def refuses(actor, action, *, tenant, run_id):
    raise NotAllowedError(actor=actor.name, action=action, reason=f"not of {tenant} {run_id}")


@pytest.mark.parametrize("state", [parked, failed, abandoned], ids=lambda state: state.__name__)
def test_who_may_not_carry_a_run_on_does_not_even_take_its_lease(driver, fleet, given, terminal, state):
    """P5: of a live run whose worker is gone, the lease that is given back is all that has it go on."""
    given(state)

    async def stands(driver):
        return await driver.run(), await driver.runs.events(driver.run_id, tenant=driver.tenant)

    before = given(stands)

    code = terminal.resume("--by", "mallory", verifier=refuses)

    assert code == 77
    assert "not of acme run" in terminal.err
    assert "holding its lease" not in terminal.out
    assert (given(stands), fleet.sent) == (before, [])
