"""Rotating seal keys: what is sealed anew, what is left, and which keys are needed still (R2)."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from adk_worker.checkpoint import decode_checkpoint, encode_checkpoint
from adk_worker.conformance.runs.driver import BOOKED, Driver
from adk_worker.memory import MemoryData, memory_stores
from adk_worker.redaction.masking import Redactor
from adk_worker.sealing.keys import SealKey, SealKeys
from adk_worker.sealing.resealing import Reseal
from adk_worker.sealing.rotation import CameTo, rotate
from adk_worker.transitions.runs import Then

OLD, NEW, OTHER = SealKey.new("old"), SealKey.new("new"), SealKey.new("other")
SECRET = "hunter22"


@pytest.fixture
def stores():
    return memory_stores(MemoryData())


def masks(run_id, *keys):
    masker = Redactor(seal_keys=SealKeys(keys)).masker(of=("acme", run_id))
    masker.text(f"password={SECRET}")
    return masker.state()


async def rests(stores, run_id, then=Then.PARK, *keys, told=None):
    """A run that rests, or is queued, and holds a secret in its row and in its frontier."""
    driver = Driver(stores, run_id=run_id)
    await driver.submit(masks=masks(run_id, *(keys or (OLD,))))
    lease = await driver.worker()
    claims = await driver.begin(lease, 0)
    if told is not None:
        await stores.idempotency.record(claims[0], told)
    calls = (
        {
            "call_id": "c",
            "tool": "book",
            "index": 0,
            "key": claims[0].key,
        },
    )
    frontier = decode_checkpoint(json.dumps({**json.loads(_payload(driver)), "calls": calls}))
    await driver.commit(lease, 1, then, frontier={"masks": masks(run_id, *(keys or (OLD,))), "calls": frontier.calls})
    return driver


def _payload(driver):
    return encode_checkpoint(driver.boundary(1).checkpoint)


async def rotated(stores, *keys, **more):
    return {one.run.run_id: one async for one in rotate(stores, SealKeys(keys), **more)}


def opens(state, run_id, *keys):
    masker = Redactor(seal_keys=SealKeys(keys)).masker(state, of=("acme", run_id))
    masker.check_seals()
    return masker.put_back("[secret:1]") == SECRET


@pytest.mark.parametrize("then", [Then.PARK, Then.HAND_OVER, Then.WAIT_APPROVAL, Then.FAIL])
async def test_afterwards_the_new_key_alone_opens_what_a_run_holds(stores, then):
    """R2: its row, its frontier, and the outcomes of its turn."""
    masker = Redactor(seal_keys=SealKeys((OLD,))).masker(of=("acme", "run"))
    told = masker.outcome(BOOKED.model_copy(update={"content": f"password={SECRET}"}), besides={})
    driver = await rests(stores, "run", then, told=told)

    (one,) = (await rotated(stores, NEW, OLD)).values()

    assert (one.came_to, one.needs) == (CameTo.RESEALED, ())
    frontier = decode_checkpoint(await driver.payload())
    assert opens((await driver.run()).masks, "run", NEW)
    assert opens(frontier.masks, "run", NEW)
    (claim,) = await driver.claims()
    again = Redactor(seal_keys=SealKeys((NEW,))).masker(of=("acme", "run"))
    assert again.put_back(again.outcome(claim.outcome, besides={}).content) == f"password={SECRET}"
    assert (await rotated(stores, NEW, OLD))["run"].came_to is CameTo.CURRENT


async def test_a_run_before_its_first_frontier_too(stores):
    """R2: it may wait in the queue for long."""
    driver = Driver(stores, run_id="run")
    await driver.submit(masks=masks("run", OLD))
    assert (await rotated(stores, NEW, OLD))["run"].came_to is CameTo.RESEALED
    assert opens((await driver.run()).masks, "run", NEW)


async def test_a_run_that_a_worker_holds_is_named_with_the_key_that_it_needs(stores):
    """R2: its worker seals it anew, at its next boundary."""
    driver = await rests(stores, "run", Then.HAND_OVER)
    await driver.worker()
    before = await driver.picture()
    one = (await rotated(stores, NEW, OLD))["run"]
    assert (one.came_to, one.needs) == (CameTo.HELD, ("old",))
    assert await driver.picture() == before


async def test_what_no_key_here_opens_is_left_and_named(stores):
    """R2: the rest of the run is sealed anew all the same."""
    driver = Driver(stores, run_id="run")
    await driver.submit(masks=masks("run", OTHER))
    one = (await rotated(stores, NEW, OLD))["run"]
    assert (one.came_to, one.needs) == (CameTo.UNOPENED, ("other",))
    assert opens((await driver.run()).masks, "run", OTHER)

    both = Redactor(seal_keys=SealKeys((OLD,))).masker(masks("two", OTHER), of=("acme", "two"))
    both.json({"password": "correct horse"})
    two = Driver(stores, run_id="two")
    await two.submit(masks=both.state())
    assert (await rotated(stores, NEW, OLD))["two"].needs == ("other",)
    keys = {seal.split(".")[1] for seal in (await two.run()).masks["sealed"].values()}
    assert keys == {"other", "new"}


async def test_one_that_always_moves_is_named(stores):
    """F1: what is written rests on what was seen."""
    await rests(stores, "run", Then.HAND_OVER)

    async def moved(run_id, *, tenant, change):
        return False

    stores.runs.reseal = moved
    one = (await rotated(stores, NEW, OLD))["run"]
    assert (one.came_to, one.needs) == (CameTo.MOVING, ("old",))


async def test_one_that_moves_once_is_looked_at_again(stores):
    await rests(stores, "run", Then.HAND_OVER)
    reseal, asked = stores.runs.reseal, []

    async def moves(run_id, *, tenant, change):
        asked.append(change)
        return len(asked) > 1 and await reseal(run_id, tenant=tenant, change=change)

    stores.runs.reseal = moves
    assert (await rotated(stores, NEW, OLD))["run"].came_to is CameTo.RESEALED


async def test_a_frontier_of_a_newer_version_is_left_to_that(stores):
    """C4."""
    driver = await rests(stores, "run")
    run, payload = await driver.run(), await driver.payload()
    newer = json.dumps({**json.loads(payload), "format": 99})
    assert await driver.reseal(Reseal(run.fence, (run.masks, run.masks), (payload, newer)))
    assert (await rotated(stores, NEW, OLD))["run"].came_to is CameTo.UNREADABLE


async def test_only_runs_that_hold_something_and_may_be_carried_on_are_looked_at(stores):
    """T1: of one tenant, if one is named."""
    await Driver(stores, run_id="nothing").submit()
    completed = Driver(stores, run_id="over")
    await completed.submit(masks=masks("over", OLD))
    await completed.commit(await completed.worker(), 1, Then.COMPLETE)
    await rests(stores, "run")
    elsewhere = Driver(stores, tenant="globex", run_id="run")
    await elsewhere.submit(masks=masks("run", OLD))  # of another run: it does not open

    assert Counter(one.came_to for one in (await rotated(stores, NEW, OLD, tenant="acme")).values()) == {
        CameTo.RESEALED: 1
    }
    assert (await rotated(stores, NEW, OLD, tenant="globex"))["run"].came_to is CameTo.UNOPENED
