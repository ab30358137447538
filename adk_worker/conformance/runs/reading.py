"""Looking at runs: takes no lease, changes nothing, and reaches no other tenant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.runs.driver import PATIENT, TENANT, Driver
from adk_worker.conformance.waiting import LONG, SOON, until
from adk_worker.errors import InvalidNameError
from adk_worker.events import Event, NewEvent
from adk_worker.filters import RunFilter
from adk_worker.lease import RunLease
from adk_worker.pruning import Prune
from adk_worker.runs import NewRun, Run, RunStatus, Stores
from adk_worker.transitions.runs import Attention, Reason, Then


class ReadingConformance:
    """What people and pages ask for."""

    async def test_what_is_not_there_reads_as_nothing(self, stores: Stores) -> None:
        """T1: an unknown run, and another tenant's, in the very same way."""
        driver = Driver(stores)
        lease = await driver.worker()
        await driver.commit(lease, 1)
        await driver.begin(lease, 0)

        for other in (Driver(stores, run_id="another"), Driver(stores, tenant="other")):
            picture = await other.picture()
            assert (picture.run, picture.payload, picture.held) == (None, None, None)
            assert (list(picture.claims), list(picture.events)) == ([], [])
        assert await stores.runs.list(RunFilter(tenant="other"), limit=10) == ([], None)

    async def test_looking_changes_nothing(self, stores: Stores) -> None:
        """L2: takes no lease, not even a free one, raises no fence, and renews nothing."""
        running, parked = Driver(stores, run_id="running"), Driver(stores, run_id="parked")
        for driver, then in ((running, Then.KEEP), (parked, Then.PARK)):
            await driver.commit(await driver.worker(), 1, then)
        before = [await driver.picture() for driver in (running, parked)]

        await stores.runs.list(RunFilter(), limit=10)
        await stores.runs.oldest_lapsed()
        await stores.lifecycle.verify()

        assert [await driver.picture() for driver in (running, parked)] == before

    # --- events -----------------------------------------------------------------------------------------------

    async def test_events_are_read_from_where_the_reader_stopped(self, stores: Stores) -> None:
        """H1: oldest first; ids rise, so that a page that was cut goes on behind its last one."""
        driver = Driver(stores)
        lease = await driver.worker()
        for sequence in range(1, 6):
            told = (NewEvent("one", {"n": sequence}), NewEvent("two", {"n": sequence}))
            await driver.commit(lease, sequence, events=told)
        everything = await driver.events()

        pages: list[Event] = []
        while page := await self._events(driver, after=pages[-1].id if pages else 0, limit=5):
            assert len(page) <= 5
            pages.extend(page)

        ids = [event.id for event in everything]
        assert ids == sorted(set(ids))
        assert all(event_id > 0 for event_id in ids)
        assert [event.at for event in everything] == sorted(event.at for event in everything)
        told_of = [(event.kind, event.data["n"]) for event in everything[2:]]
        assert told_of == [(kind, n) for n in range(1, 6) for kind in ("one", "two")]
        assert pages == everything
        assert await self._events(driver, after=ids[-1], limit=5) == []

    async def test_events_of_runs_do_not_mix(self, stores: Stores) -> None:
        """T1: however they were written in turn."""
        drivers = [Driver(stores, run_id="one"), Driver(stores, run_id="two"), Driver(stores, tenant="o", run_id="one")]
        leases = [await driver.worker() for driver in drivers]
        for sequence in (1, 2):
            for number, (driver, lease) in enumerate(zip(drivers, leases, strict=True)):
                await driver.commit(lease, sequence, events=(NewEvent("told", {"n": number, "s": sequence}),))

        for number, driver in enumerate(drivers):
            told = [event.data for event in await driver.events() if event.kind == "told"]
            assert told == [{"n": number, "s": 1}, {"n": number, "s": 2}]

    # --- list -------------------------------------------------------------------------------------------------

    async def test_runs_are_listed_newest_first_in_pages(self, stores: Stores) -> None:
        """H1: each once, though new ones come in while somebody reads."""
        for number in range(7):
            await Driver(stores, run_id=f"run-{number}").submit()

        listed: list[Run] = []
        page, cursor = await stores.runs.list(RunFilter(), limit=3)
        while cursor is not None:
            listed.extend(page)
            await Driver(stores, run_id=f"new-{len(listed)}").submit()
            page, cursor = await stores.runs.list(RunFilter(), limit=3, after=cursor)
        listed.extend(page)

        assert [run.run_id for run in listed] == [f"run-{number}" for number in reversed(range(7))]
        for run in listed:
            assert run == await stores.runs.get(run.run_id, tenant=TENANT)

    async def test_a_page_that_is_just_full_is_the_last(self, stores: Stores) -> None:
        """H1: its cursor leads to no empty page."""
        for number in range(3):
            await Driver(stores, run_id=f"run-{number}").submit()

        page, cursor = await stores.runs.list(RunFilter(), limit=3)

        assert (len(page), cursor) == (3, None)
        assert await stores.runs.list(RunFilter(status=RunStatus.FAILED), limit=3) == ([], None)

    async def test_runs_are_listed_by_status(self, stores: Stores) -> None:
        """L2: a live run is queued or running by who holds its lease."""
        ways: dict[RunStatus, Callable[[Driver, RunLease], Awaitable[Any]]] = {
            RunStatus.QUEUED: lambda driver, lease: driver.commit(lease, 1, Then.HAND_OVER),
            RunStatus.RUNNING: lambda driver, lease: driver.commit(lease, 1),
            RunStatus.WAITING_APPROVAL: lambda driver, lease: driver.commit(lease, 1, Then.WAIT_APPROVAL),
            RunStatus.PARKED: lambda driver, lease: driver.commit(lease, 1, Then.PARK),
            RunStatus.FAILED: lambda driver, lease: driver.commit(lease, 1, Then.FAIL),
            RunStatus.COMPLETED: lambda driver, lease: driver.commit(lease, 1, Then.COMPLETE),
            RunStatus.CANCELLED: self._cancelled,
        }
        assert set(ways) == set(RunStatus)
        for status, get_there in ways.items():
            for number in range(2):
                driver = Driver(stores, run_id=f"{status}-{number}")
                await get_there(driver, await driver.worker())

        for status in RunStatus:
            page, cursor = await stores.runs.list(RunFilter(status=status), limit=1)
            rest, end = await stores.runs.list(RunFilter(status=status), limit=1, after=cursor)

            assert [run.run_id for run in (*page, *rest)] == [f"{status}-1", f"{status}-0"]
            assert end is None

    async def test_a_list_by_status_follows_the_lease(self, stores: Stores) -> None:
        """L2: whoever gives it to whom."""
        other, driver = Driver(stores, run_id="other"), Driver(stores)
        await other.submit()
        ticket = (await driver.submit()).ticket

        async def is_listed_as(status: RunStatus) -> bool:
            ways: tuple[dict[str, Any], ...] = ({}, {"tenant": TENANT}, {"agent": "booking"}, {"run_id": "run"})
            for way in ways:
                listed = []
                for live in (RunStatus.QUEUED, RunStatus.RUNNING):
                    page, _ = await stores.runs.list(RunFilter(status=live, **way), limit=10)
                    listed += [(run.run_id, live) for run in page]
                mine = [] if status is RunStatus.PARKED else [("run", status)]
                others = [] if "run_id" in way else [("other", RunStatus.QUEUED)]
                if sorted(listed) != sorted([*mine, *others]):
                    return False
            return True

        assert await is_listed_as(RunStatus.QUEUED)
        assert ticket is not None
        taken = await driver.take(ticket, ttl=SOON)
        assert taken is not None
        assert await is_listed_as(RunStatus.RUNNING)
        await driver.lapse()
        at_a_terminal = await stores.leases.acquire("run", tenant=TENANT, holder="ann", ttl_seconds=LONG)
        assert await is_listed_as(RunStatus.RUNNING)
        await stores.leases.release(at_a_terminal)
        assert await is_listed_as(RunStatus.QUEUED)
        await driver.dead_worker()
        assert await is_listed_as(RunStatus.RUNNING)
        await driver.reap()
        assert await is_listed_as(RunStatus.QUEUED)
        lease = await driver.worker()
        await stores.runs.renew_many([lease], ttl_seconds=LONG)
        assert await is_listed_as(RunStatus.RUNNING)
        await driver.commit(lease, 1, Then.HAND_OVER)
        assert await is_listed_as(RunStatus.QUEUED)
        await driver.park(await driver.worker())
        assert await is_listed_as(RunStatus.PARKED)
        await driver.requeue()
        assert await is_listed_as(RunStatus.QUEUED)

    async def test_a_name_that_is_submitted_again_is_listed_as_new(self, stores: Stores) -> None:
        """Once its run has been pruned, the next one under it stands where any new one would."""
        first, between = Driver(stores, run_id="first"), Driver(stores, run_id="between")
        await first.commit(await first.worker(), 1, Then.COMPLETE)
        await stores.runs.prune(Prune(older_than=0.0), limit=10)
        await between.submit()
        await first.submit()

        for where in (RunFilter(), RunFilter(status=RunStatus.QUEUED), RunFilter(tenant=TENANT)):
            page, _ = await stores.runs.list(where, limit=10)
            assert [run.run_id for run in page] == ["first", "between"]

    async def test_runs_are_listed_by_tenant_and_by_attention(self, stores: Stores) -> None:
        """T1: one tenant's, or all; those that somebody has to look at, or the others."""
        for tenant in (TENANT, "other"):
            for run_id in ("fine", "odd", "queued"):
                driver = Driver(stores, tenant=tenant, run_id=run_id)
                lease = await driver.worker()
                if run_id == "odd":
                    await driver.commit(lease, 1, Then.PARK, attention=Attention.OVER_BUDGET)
                if run_id == "queued":
                    await driver.give_back(lease, Reason.CONFLICT, attention=Attention.AGENT_UNKNOWN)

        async def listed(**where: Any) -> list[tuple[str, str]]:
            page, _ = await stores.runs.list(RunFilter(**where), limit=10)
            return [(run.tenant, run.run_id) for run in page]

        assert await listed(tenant=TENANT) == [(TENANT, "queued"), (TENANT, "odd"), (TENANT, "fine")]
        assert await listed(attention=False) == [("other", "fine"), (TENANT, "fine")]
        assert await listed(tenant="other", attention=True) == [("other", "queued"), ("other", "odd")]
        assert await listed(tenant=TENANT, attention=True, status=RunStatus.PARKED) == [(TENANT, "odd")]
        assert await listed(attention=True, status=RunStatus.QUEUED) == [("other", "queued"), (TENANT, "queued")]
        assert await listed(tenant=TENANT, attention=False, status=RunStatus.RUNNING) == [(TENANT, "fine")]
        assert await listed(attention=True, status=RunStatus.RUNNING) == []
        assert len(await listed()) == 6

    async def test_runs_are_listed_by_agent_and_by_one_attention(self, stores: Stores) -> None:
        """P2: what one cause has stopped is found apart from the rest, page by page."""
        for number, (agent, attention) in enumerate(
            [
                ("booking", Attention.OVER_BUDGET),
                ("refunds", Attention.OVER_BUDGET),
                ("booking", Attention.KEY_REUSED),
                ("booking", None),
                ("booking", Attention.OVER_BUDGET),
            ]
        ):
            driver = Driver(stores, run_id=f"run-{number}")
            await driver.submit(agent=agent)
            if attention is not None:
                await driver.runs.park(await driver.worker(), attention=attention, detail="somebody has to look")

        async def listed(**where: Any) -> list[str]:
            page, cursor = await stores.runs.list(RunFilter(**where), limit=1)
            names = [run.run_id for run in page]
            while cursor is not None:
                page, cursor = await stores.runs.list(RunFilter(**where), limit=1, after=cursor)
                names += [run.run_id for run in page]
            return names

        assert await listed(agent="booking") == ["run-4", "run-3", "run-2", "run-0"]
        assert await listed(attention=Attention.OVER_BUDGET) == ["run-4", "run-1", "run-0"]
        assert await listed(attention=Attention.OVER_BUDGET, agent="booking") == ["run-4", "run-0"]
        assert await listed(attention=Attention.KEY_REUSED, status=RunStatus.PARKED, tenant=TENANT) == ["run-2"]
        assert await listed(attention=Attention.POISONED) == []
        assert await listed(agent="book") == []

    async def test_runs_are_listed_by_when_they_were_submitted_and_written(self, stores: Stores) -> None:
        """P2, L1: by the store's clock, from one moment on and before another, so that no run is in two such lists."""
        early, late = Driver(stores, run_id="early"), Driver(stores, run_id="late")
        await early.submit()
        await self._tick(stores)
        await late.submit()
        await self._tick(stores)
        await early.cancel()
        first, second = await early.run(), await late.run()
        assert first.created_at < second.created_at <= second.updated_at < first.updated_at

        async def listed(**where: Any) -> list[str]:
            page, _ = await stores.runs.list(RunFilter(tenant=TENANT, **where), limit=10)
            return [run.run_id for run in page]

        assert await listed(created_since=second.created_at) == ["late"]
        assert await listed(created_until=second.created_at) == ["early"]
        assert await listed(created_since=first.created_at, created_until=second.created_at) == ["early"]
        assert await listed(updated_since=first.updated_at) == ["early"]
        assert await listed(updated_until=first.updated_at) == ["late"]
        assert await listed(updated_since=first.updated_at, status=RunStatus.QUEUED) == []

    async def test_a_run_is_found_without_its_tenant(self, stores: Stores) -> None:
        """T1: whichever tenants have one of that id, newest first, and none of a name that only looks like it."""
        for tenant, run_id in HOSTILE_RUNS:
            await Driver(stores, tenant=tenant, run_id=run_id).submit()
        for tenant in ("one", "two", "three"):
            await Driver(stores, tenant=tenant, run_id="wanted").submit()
        await Driver(stores, tenant="two", run_id="wanted").cancel()

        page, cursor = await stores.runs.list(RunFilter(run_id="wanted"), limit=2)
        rest, end = await stores.runs.list(RunFilter(run_id="wanted"), limit=2, after=cursor)

        assert [run.tenant for run in (*page, *rest)] == ["three", "two", "one"]
        assert end is None
        only, _ = await stores.runs.list(RunFilter(run_id="wanted", status=RunStatus.CANCELLED), limit=2)
        assert [run.tenant for run in only] == ["two"]
        for _, run_id in HOSTILE_RUNS:
            found, _ = await stores.runs.list(RunFilter(run_id=run_id), limit=100)
            assert {run.run_id for run in found} == {run_id}

    async def test_a_run_that_was_removed_is_not_found(self, stores: Stores) -> None:
        """C5: its id leads nowhere any more."""
        gone, stays = Driver(stores, tenant="one", run_id="wanted"), Driver(stores, tenant="two", run_id="wanted")
        for driver in (gone, stays):
            await driver.submit()
        await gone.cancel()

        await stores.runs.prune(Prune(older_than=0.0), limit=10)

        found, _ = await stores.runs.list(RunFilter(run_id="wanted"), limit=10)
        assert [run.tenant for run in found] == ["two"]

    @pytest.mark.parametrize("cursor", ["", "odd", "-1", "1.5", "\u0661", "'", "\x00"], ids=repr)
    async def test_what_is_no_cursor_is_refused(self, stores: Stores, cursor: str) -> None:
        """T1: it comes back from people's browsers."""
        with pytest.raises(InvalidNameError):
            await stores.runs.list(RunFilter(), limit=10, after=cursor)

    # --- names ------------------------------------------------------------------------------------------------

    async def test_no_name_reaches_anothers_run(self, stores: Stores) -> None:
        """T1: to take it, to write it, or to look at it."""
        drivers = [Driver(stores, tenant=tenant, run_id=run_id) for tenant, run_id in HOSTILE_RUNS]
        for number, driver in enumerate(drivers):
            lease = await driver.worker()
            await driver.begin(lease, 0)
            await driver.commit(lease, 1, Then.PARK, frontier={"output": f"{number}"}, segment=driver.segment("said"))

        for number, driver in enumerate(drivers):
            run = await driver.run()
            assert (run.tenant, run.run_id, run.output) == (*HOSTILE_RUNS[number], f"{number}")
            assert [claim.key for claim in await driver.claims()] == [driver.intent(0).key]
            assert len(await driver.events()) == 4
            page, _ = await stores.runs.list(RunFilter(tenant=driver.tenant), limit=100)
            assert {one.tenant for one in page} == {driver.tenant}
            await driver.cancel()

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, stores: Stores, name: str) -> None:
        """T1: of a tenant and a run, by every method that takes them."""
        runs = stores.runs
        for tenant, run_id in ((TENANT, name), (name, "run")):
            lease = RunLease(tenant, run_id, "one", 1, 0.0)
            driver = Driver(stores, tenant=tenant, run_id=run_id)
            for call in (
                lambda tenant=tenant, run_id=run_id: runs.submit(NewRun(tenant, run_id, "a", "b"), policy=PATIENT),
                lambda driver=driver: driver.take(1),
                lambda tenant=tenant, run_id=run_id: runs.held_by(run_id, tenant=tenant, holder="one"),
                lambda lease=lease: runs.renew_many([lease], ttl_seconds=LONG),
                lambda lease=lease: runs.begin(lease, [], owner="one"),
                lambda lease=lease: runs.park(lease, attention=Attention.POISONED, detail="x"),
                lambda lease=lease: runs.fail(lease, detail="x"),
                lambda driver=driver, lease=lease: driver.give_back(lease),
                lambda driver=driver: driver.requeue(),
                lambda driver=driver: driver.cancel(),
                lambda driver=driver: driver.run_or_none(),
                lambda driver=driver: driver.payload(),
                lambda driver=driver: driver.events(),
                lambda driver=driver: driver.claims(),
                lambda tenant=tenant, run_id=run_id: runs.claim_dead(
                    run_id, tenant=tenant, holder="one", policy=PATIENT
                ),
            ):
                with pytest.raises(InvalidNameError):
                    await call()
        if name is not None:
            with pytest.raises(InvalidNameError):
                await runs.list(RunFilter(tenant=name), limit=10)
            with pytest.raises(InvalidNameError):
                await runs.list(RunFilter(run_id=name), limit=10)
        with pytest.raises(InvalidNameError):
            await runs.held_on(name, within=LONG)

    @staticmethod
    async def _tick(stores: Stores) -> None:
        """Wait until the store's clock shows another time."""
        began = (await stores.runs.sweep()).now

        async def later() -> bool:
            return (await stores.runs.sweep()).now > began

        await until(later, what="the store's clock to move")

    @staticmethod
    async def _cancelled(driver: Driver, lease: RunLease) -> None:
        await driver.cancel()
        await driver.begin(lease)

    @staticmethod
    async def _events(driver: Driver, *, after: int, limit: int) -> list[Event]:
        return list(await driver.runs.events(driver.run_id, tenant=driver.tenant, after=after, limit=limit))
