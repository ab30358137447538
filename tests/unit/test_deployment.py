"""What code that is not deployed yet would make of the runs that are under way; and `adk check-deploy`, which tells."""

from __future__ import annotations

import asyncio
import json

import pytest

from adk_worker.checkpoint import CheckpointBoundary, OutstandingCall
from adk_worker.cli.program import Invocation, perform
from adk_worker.cli.root import root
from adk_worker.cli.source import Given
from adk_worker.conformance.runs.driver import Driver
from adk_worker.deployment import Outlook, prospects
from adk_worker.idempotency import call_digest
from adk_worker.memory import memory_stores
from adk_worker.outcomes import Effect
from adk_worker.redaction.masking import Redactor
from adk_worker.registry import Registry
from adk_worker.runs import RunStatus
from adk_worker.sealing.keys import SealKey, SealKeys
from adk_worker.transitions.runs import Attention, Then
from tests.unit.far_side import FarSide, agent_with

FAR_SIDE = FarSide()
BLIND = agent_with(FAR_SIDE.tool(), revision="r1", max_iterations=5)
SEEING = agent_with(FAR_SIDE.tool(probe=FAR_SIDE.probe), revision="r1")
NEWER = agent_with(FAR_SIDE.tool(), revision="r2")


@pytest.fixture
def stores():
    return memory_stores()


async def at(driver, then=Then.HAND_OVER, **frontier):
    """Bring a run to a boundary."""
    await driver.commit(await driver.worker(), 1, then, frontier=frontier)
    return driver


async def in_a_call(driver, *, effect=Effect.EFFECTFUL, begun=True, then=Then.HAND_OVER):
    """Bring a run to where a call is outstanding, and may have been made."""
    call = OutstandingCall(
        call_id="c", tool="book", arguments={"seat": "12A"}, index=0, effect=effect, key=driver.intent(0).key
    )
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (call,)}
    await driver.commit(lease, 1, frontier=asked)
    if begun:
        await driver.begin(lease, 0)
    if then is Then.HAND_OVER:
        await driver.runs.claim_dead(driver.run_id, tenant="acme", holder=lease.holder, policy=driver.policy)
    return driver


async def outlooks(stores, *agents, **which):
    return {
        found.run.run_id: (found.outlook, found.attention)
        async for found in prospects(stores, Registry(agents), **which)
    }


async def test_every_live_run_is_judged_by_its_revision(stores):
    """C7: several revisions side by side are what lets all go on."""
    await at(Driver(stores, run_id="old"))
    await at(Driver(stores, run_id="new"), revision="r2")
    await Driver(stores, run_id="pinned").submit(revision="r1")
    await Driver(stores, run_id="unpinned").submit(revision="")
    await at(Driver(stores, run_id="done"), Then.COMPLETE)
    await Driver(stores, run_id="running").worker()
    await at(Driver(stores, run_id="asking"), Then.WAIT_APPROVAL)

    mismatch = (Outlook.GIVEN_BACK, Attention.REVISION_MISMATCH)
    accepted = (Outlook.ACCEPTED, None)
    assert await outlooks(stores, NEWER) == {
        "old": mismatch,
        "new": accepted,
        "pinned": mismatch,
        "unpinned": accepted,
        "running": mismatch,
        "asking": mismatch,
    }
    assert set((await outlooks(stores, BLIND, NEWER)).values()) == {accepted}
    assert set((await outlooks(stores)).values()) == {(Outlook.GIVEN_BACK, Attention.AGENT_UNKNOWN)}


async def test_a_format_that_this_code_does_not_read_is_given_back(stores):
    """C4: of a rollback, say."""
    await at(Driver(stores), format=99)

    assert await outlooks(stores, BLIND) == {"run": (Outlook.GIVEN_BACK, Attention.FORMAT_TOO_NEW)}


async def test_a_call_that_may_have_happened_parks_unless_its_tool_can_be_asked(stores):
    """I5, I7: by the tools of the code that is judged."""
    await in_a_call(Driver(stores, run_id="made"))
    await in_a_call(Driver(stores, run_id="not made"), begun=False)
    await in_a_call(Driver(stores, run_id="repeatable"), effect=Effect.IDEMPOTENT)
    await in_a_call(Driver(stores, run_id="being made"), then=Then.KEEP)

    accepted = (Outlook.ACCEPTED, None)
    assert await outlooks(stores, BLIND) == {
        "made": (Outlook.PARKED, Attention.UNDECIDED_CALL),
        "not made": accepted,
        "repeatable": accepted,
        "being made": accepted,
    }
    assert set((await outlooks(stores, SEEING)).values()) == {accepted}


async def test_a_key_that_was_used_for_something_else_parks(stores):
    """I1."""
    driver = await in_a_call(Driver(stores), begun=False)
    key = driver.intent(0).key
    await stores.idempotency.begin(
        key, tenant="acme", owner="somebody", digest=call_digest(key, tool="book", arguments={"seat": "1A"})
    )

    assert await outlooks(stores, BLIND) == {"run": (Outlook.PARKED, Attention.KEY_REUSED)}


async def test_a_run_whose_frontier_is_behind_parks(stores):
    """C3: the reaper parks it, whatever the code."""
    driver = Driver(stores)
    lease = await driver.worker()
    await driver.commit(lease, 1, stored=False)
    await driver.begin(lease, 0, ahead=True)
    await stores.leases.release(lease)

    assert await outlooks(stores, BLIND) == {"run": (Outlook.PARKED, Attention.FRONTIER_LOST)}


async def test_a_run_that_has_had_its_iterations_fails(stores):
    """max_iterations is in no revision: whoever lowers it ends what is beyond."""
    await at(Driver(stores), iteration=7)

    assert await outlooks(stores, SEEING) == {"run": (Outlook.ACCEPTED, None)}
    assert await outlooks(stores, BLIND) == {"run": (Outlook.FAILED, None)}


async def test_runs_that_rest_are_judged_where_one_asks_for_them(stores):
    await at(Driver(stores, run_id="parked"), Then.PARK)
    await at(Driver(stores, run_id="failed"), Then.FAIL)

    assert await outlooks(stores, BLIND) == {}
    which = (RunStatus.PARKED, RunStatus.FAILED)
    assert set(await outlooks(stores, BLIND, statuses=which)) == {"parked", "failed"}


async def test_all_are_judged_however_many_and_a_tenant_by_itself(stores):
    for number in range(230):
        await Driver(stores, run_id=f"run-{number}").submit()
    await Driver(stores, tenant="other").submit()

    assert len([found async for found in prospects(stores, Registry([BLIND]))]) == 231
    assert len([found async for found in prospects(stores, Registry([BLIND]), tenant="other")]) == 1


async def test_runs_whose_seal_key_the_new_code_would_not_have_would_park(stores):
    """R2: where it is known which keys it would have; without any nothing is said of them."""
    old, new = SealKey.new("old"), SealKey.new("new")
    for run_id, key in (("old", old), ("new", new), ("early", old)):
        masker = Redactor(seal_keys=SealKeys((key,))).masker(of=("acme", run_id))
        masker.text("password=hunter22")
        driver = Driver(stores, run_id=run_id)
        await driver.submit(masks=masker.state())
        if run_id != "early":
            await driver.commit(await driver.worker(), 1, Then.HAND_OVER, frontier={"masks": masker.state()})

    accepted, parked = (Outlook.ACCEPTED, None), (Outlook.PARKED, Attention.SEAL_KEY_MISSING)
    keyed = await outlooks(stores, BLIND, keys=SealKeys((new,)))
    assert keyed == {"old": parked, "new": accepted, "early": parked}
    assert set((await outlooks(stores, BLIND, keys=SealKeys((new, old)))).values()) == {accepted}
    assert set((await outlooks(stores, BLIND)).values()) == {accepted}


class TestTheCommand:
    @pytest.fixture
    def adk(self, stores, capsys):
        def call(*argv, agents=(BLIND,)):
            registry = Registry(agents) if agents is not None else None
            source = Given(stores, registry=registry)
            code = perform(root, ["check-deploy", *argv], prog="adk", invocation=Invocation(source))
            return code, *capsys.readouterr()

        return call

    @pytest.fixture
    def given(self, stores):
        async def some():
            await at(Driver(stores, run_id="old"))
            await at(Driver(stores, run_id="older"), revision="r0")
            await at(Driver(stores, run_id="new"), revision="r2")
            await at(Driver(stores, run_id="parked"), Then.PARK, revision="r0")

        asyncio.run(some())

    def pictures(self, stores):
        async def look():
            return [await Driver(stores, run_id=run_id).picture() for run_id in ("old", "older", "new", "parked")]

        return asyncio.run(look())

    def test_counts_by_revision_and_names_what_would_not_be_carried_on(self, adk, given, stores):
        before = self.pictures(stores)
        code, out, err = adk()
        assert code == 4
        counted, named = out.strip().split("\n\n")
        assert [line.split() for line in counted.splitlines()] == [
            ["RUNS", "OUTLOOK", "AGENT", "REVISION", "ATTENTION"],
            ["1", "accepted", "booking", "r1"],
            ["1", "given_back", "booking", "r0", "revision_mismatch"],
            ["1", "given_back", "booking", "r2", "revision_mismatch"],
        ]
        assert [line.split()[:4] for line in named.splitlines()] == [
            ["TENANT", "RUN", "STATUS", "OUTLOOK"],
            ["acme", "new", "queued", "given_back"],
            ["acme", "older", "queued", "given_back"],
        ]
        assert err == ""
        assert self.pictures(stores) == before

    def test_says_that_there_are_more(self, adk, given):
        code, out, err = adk("--limit", "1")
        assert (code, out.count("acme")) == (4, 1)
        assert "there are more" in err

    def test_is_0_where_all_would_be_carried_on(self, adk, given):
        oldest = agent_with(FAR_SIDE.tool(), revision="r0")
        code, out, err = adk(agents=(oldest, BLIND, NEWER))
        assert (code, err) == (0, "")
        assert out.count("accepted") == 3

    def test_judges_what_rests_when_it_is_asked_to(self, adk, given):
        _, out, _ = adk("--resting", "--json")
        assert "parked" in [json.loads(line)["run_id"] for line in out.splitlines()]

    def test_as_json_is_a_line_for_each_run(self, adk, given):
        code, out, _ = adk("--json")
        told = {line["run_id"]: line for line in map(json.loads, out.splitlines())}
        assert code == 4
        assert told["new"].pop("detail")
        assert told["new"] == {
            "tenant": "acme",
            "run_id": "new",
            "agent": "booking",
            "revision": "r2",
            "status": "queued",
            "outlook": "given_back",
            "attention": "revision_mismatch",
        }
        assert (told["old"]["outlook"], told["old"]["attention"], told["old"]["detail"]) == ("accepted", None, None)

    def test_without_runs_there_is_nothing_in_the_way(self, adk):
        code, out, err = adk()
        assert (code, out) == (0, "")
        assert "no live runs" in err

    def test_without_agents_says_what_to_set(self, adk):
        code, out, err = adk(agents=None)
        assert (code, out) == (78, "")
        assert "ADK_AGENTS" in err
