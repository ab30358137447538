"""The store: does it answer, is its schema whole, what may it lose, what does its clock say, does anything reap."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from adk_worker.cli.checkup.finding import Finding, Subject, fail, ok, unseen, warning
from adk_worker.errors import AdkError, ConfigurationError, StoreUnavailableError
from adk_worker.lifecycle import ComparesSchema, TellsRisks, TellsSweeps
from adk_worker.runs import Sweep

if TYPE_CHECKING:
    from adk_worker.runs import Stores

_APART: Final = 5.0
"""How many seconds two clocks may be apart before it is a finding."""
_EXPIRES: Final = 30.0
"""For so long at least a reap message is valid."""
_SWEEPS: Final = 6
"""So many sweeps may be missed before somebody has to look."""

_TO_REAP: Final = (
    "start beat (`celery -A tasks.app beat`) and a control worker (`celery -A tasks.app worker -Q adk.control`), or "
    "see their logs for `not_swept`"
)


def store(subject: Subject) -> Iterator[Finding]:
    """All about the store, over one connection."""
    told = _look(subject)

    async def another() -> Finding | None:
        return await anext(told, None)

    with asyncio.Runner() as runner:
        while (finding := runner.run(another())) is not None:
            yield finding


async def _look(subject: Subject) -> AsyncIterator[Finding]:
    from adk_worker.wiring import make_stores

    settings = subject.settings
    try:
        stores = make_stores(
            settings.model_copy(
                update={"store_pool": 1, "socket_timeout": min(settings.socket_timeout, subject.patience)}
            )
        )
    except AdkError as error:
        yield unseen("store", error)
        return
    try:
        async for finding in _examined(stores, subject):
            yield finding
    finally:
        await stores.lifecycle.close()


async def _examined(stores: Stores, subject: Subject) -> AsyncIterator[Finding]:
    from adk_worker.urls import without_secrets

    try:
        await stores.lifecycle.verify()
        yield ok("store", f"{without_secrets(subject.settings.store_url)} answers, and is at this version")
    except StoreUnavailableError as error:
        yield unseen("store", error)
        return
    except ConfigurationError as error:
        yield fail("store", str(error))
        return
    for look in (_schema, _risks, _time):
        try:
            async for finding in look(stores, subject):
                yield finding
        except AdkError as error:
            yield unseen(look.__name__.strip("_"), error)


async def _schema(stores: Stores, _: Subject) -> AsyncIterator[Finding]:
    if not isinstance(stores.lifecycle, ComparesSchema):
        return
    found = await stores.lifecycle.differences()
    if found:
        todo = "restore it from a backup, or make good what is named"
        yield fail("schema", f"it is not what its version says: {'; '.join(found)}", todo)
    else:
        yield ok("schema", "every table, column and index is as declared")


async def _risks(stores: Stores, _: Subject) -> AsyncIterator[Finding]:
    if not isinstance(stores.lifecycle, TellsRisks):
        return
    risks = await stores.lifecycle.risks()
    for risk in risks:
        yield warning("risks", risk)
    if not risks:
        yield ok("risks", "its server keeps what it has acknowledged")


async def _time(stores: Stores, subject: Subject) -> AsyncIterator[Finding]:
    if isinstance(stores.lifecycle, TellsSweeps):
        before = time.time()
        swept = await stores.lifecycle.swept()
        yield clocks(swept.now, before, time.time())
        yield sweeps(swept, every=subject.settings.reap_every)
    yield lapsed(await stores.runs.oldest_lapsed(), subject.settings.lease_ttl)


def clocks(store_now: float, before: float, after: float) -> Finding:
    """This host's clock beside the store's, which was read between ``before`` and ``after``."""
    apart = max(before - store_now, store_now - after, 0.0)
    found = f"this host's clock and the store's are {apart:.1f} s apart"
    if apart > _EXPIRES:
        why = "; a reaper's message that beat has sent from here may be dropped as expired"
        return fail("clocks", found + why, "run NTP on both")
    if apart > _APART:
        return warning("clocks", found, "run NTP on both")
    return ok("clocks", found)


def sweeps(swept: Sweep, *, every: float) -> Finding:
    """Whether anything reaps."""
    if swept.last is None:
        return fail("sweeps", "nothing has ever swept: a run whose worker dies is never taken up again", _TO_REAP)
    age = max(0.0, swept.now - swept.last)
    found = f"the last sweep was {age:.0f} s ago; one is due every {every:g} s"
    if age > max(_SWEEPS * every, _EXPIRES):
        return fail("sweeps", f"{found}: runs whose worker died stand still", _TO_REAP)
    return ok("sweeps", found)


def lapsed(seconds: float | None, ttl: float) -> Finding:
    """How long the oldest lapsed lease has been so."""
    if seconds is None:
        return ok("lapsed leases", "none")
    found = f"the oldest has lapsed {seconds:.0f} s ago"
    if seconds > ttl:
        return fail("lapsed leases", found, "see `sweeps`; or `run_not_reaped` in the control worker's log names it")
    return ok("lapsed leases", found)
