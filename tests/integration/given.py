"""States of a run as a test of the terminal finds them in its store, by name; the pages name them too.

The run is run_1 of tenant acme, of the agent ``booking``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, NewGrant
from adk_worker.approvals.requests import NewRequest
from adk_worker.checkpoint import CheckpointBoundary, OutstandingCall
from adk_worker.conformance.runs.driver import Driver
from adk_worker.errors import SealKeyMissingError
from adk_worker.ledger.amounts import Budget, BudgetChange, Kind
from adk_worker.redaction.masking import Redactor
from adk_worker.sealing.keys import KEY_BYTES, SealKey, SealKeys
from adk_worker.transitions.runs import Attention, Then
from stores import open_stores

RUN_ID = "run_1"
STATES: dict[str, Callable[[Driver], Awaitable[object]]] = {}


def state(work):
    """Name a state after the function that brings a run there; ``_`` is read as a space."""
    STATES[work.__name__.replace("_", " ")] = work
    return work


def given(name: str, store_url: str, *, run_id: str = RUN_ID) -> None:
    """Bring the run there, in a store that is made and knows no such run."""

    async def bring() -> None:
        stores = open_stores(store_url, pool_size=1)
        try:
            await STATES[name](Driver(stores, run_id=run_id))
        finally:
            await stores.lifecycle.close()

    asyncio.run(bring())


def a_call(driver, index=0):
    """An effectful call that the frontier names."""
    key = driver.intent(index).key
    return OutstandingCall(call_id=f"call_{index}", tool="book", arguments={"seat": "12A"}, index=index, key=key)


@state
async def nothing(driver):
    """No run at all."""


@state
async def queued(driver):
    await driver.submit()


@state
async def held(driver):
    await driver.worker()


@state
async def parked(driver):
    lease = await driver.worker()
    await driver.commit(lease, 1)
    await driver.park(lease)


@state
async def over_budget(driver):
    await driver.submit(budget=Budget(tokens=1000))
    await driver.reserve(await driver.worker(), 4200)


@state
async def unmasked(driver):
    """Parked, with secrets as they were before anything was masked."""
    await driver.submit(input="log in as bob, password=hunter22", metadata={"user": {"api_token": "xyzzy-17"}})
    lease = await driver.worker()
    await driver.commit(lease, 1)
    await driver.park(lease)


@state
async def sealed(driver):
    """Parked, with a secret sealed under the key ``old``, which is all zeros."""
    await driver.park(await _sealing(driver))


@state
async def rotating(driver):
    """Parked, with a secret sealed under the key ``old``; and run_2 has one too, and is held."""
    await sealed(driver)
    await _sealing(Driver(driver.stores, run_id="run_2"))


async def _sealing(driver):
    """Submit a run that has a secret sealed under the key ``old``, and take it to its first boundary: its lease."""
    keys = SealKeys((SealKey("old", bytes(KEY_BYTES)),))
    masker = Redactor(seal_keys=keys).masker(of=(driver.tenant, driver.run_id))
    text = masker.text("log in as bob, password=hunter22")
    await driver.submit(input=text, masks=masker.state())
    lease = await driver.worker()
    await driver.commit(lease, 1, frontier={"masks": masker.state()})
    return lease


@state
async def keyless(driver):
    """Parked, since the worker that took it lacks the key ``old``."""
    keys = SealKeys((SealKey("old", bytes(KEY_BYTES)),))
    masker = Redactor(seal_keys=keys).masker(of=(driver.tenant, driver.run_id))
    text = masker.text("log in as bob, password=hunter22")
    await driver.submit(input=text, masks=masker.state())
    lease = await driver.worker()
    said = driver.segment(text)
    await driver.commit(lease, 1, segment=said, frontier={"masks": masker.state(), "history_handle": str(said.handle)})
    missing = SealKeyMissingError(tenant=driver.tenant, run_id=driver.run_id, key_id="old", known=("new",))
    await driver.runs.park(lease, attention=Attention.SEAL_KEY_MISSING, detail=str(missing))


@state
async def failed(driver):
    lease = await driver.worker()
    said = driver.segment("book the flight")
    await driver.commit(lease, 1, segment=said, frontier={"history_handle": str(said.handle)})
    await driver.runs.fail(lease, detail="the model is not known")


@state
async def lost(driver):
    lease = await driver.worker()
    await driver.commit(lease, 1)
    await driver.commit(lease, 2, Then.PARK, stored=False, attention=Attention.FRONTIER_LOST)


@state
async def completed(driver):
    await driver.commit(await driver.worker(), 1, Then.COMPLETE, frontier={"output": "Booked."})


@state
async def undecided(driver):
    lease = await driver.worker()
    asked = {"boundary": CheckpointBoundary.AFTER_MODEL_CALL, "calls": (a_call(driver),)}
    await driver.commit(lease, 1, frontier=asked)
    await driver.park(lease, *await driver.begin(lease, 0))


@state
async def waiting_for_an_approval(driver):
    await driver.commit(await driver.worker(), 1, Then.WAIT_APPROVAL, attention=Attention.APPROVAL, detail="req-9")


@state
async def asking(driver):
    """Two calls of one turn wait for a person; whoever approves the first one has to be ana or bob."""
    await _ask(driver, ("ana", "bob"), ())


@state
async def granted(driver):
    """A call was approved with a grant for all of the run, and nobody has taken the run since."""
    await _ask(driver, ())
    answer = Answer(request_id="req-1", approved=True, answer_id="given", grant=NewGrant())
    by = Actor("ana", "op")
    await driver.runs.answer(driver.run_id, answer, tenant=driver.tenant, by=by, policy=driver.policy)


async def _ask(driver, *approvers):
    calls = [a_call(driver, index).model_copy(update={"needs_approval": True}) for index in range(len(approvers))]
    requests = [
        NewRequest(
            call_id=call.call_id,
            key=call.key,
            tool=call.tool,
            digest=driver.intent(call.index).digest,
            arguments=call.arguments,
            approvers=who,
        )
        for call, who in zip(calls, approvers, strict=True)
    ]
    frontier = {"boundary": CheckpointBoundary.BEFORE_APPROVAL, "calls": tuple(calls)}
    await driver.commit(
        await driver.worker(),
        1,
        Then.WAIT_APPROVAL,
        frontier=frontier,
        requests=requests,
        attention=Attention.APPROVAL,
        detail="waiting",
    )


@state
async def swept(driver):
    await driver.runs.sweep()


@state
async def limited(driver):
    await driver.submit()
    await driver.change_budget(BudgetChange(to={Kind.TOKENS: 1_000}))
