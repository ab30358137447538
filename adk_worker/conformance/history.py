"""What every :class:`~adk_worker.history.HistoryStore` has to do."""

from __future__ import annotations

import pytest
import pytest_asyncio

from adk_worker.conformance.fencing import Fences
from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.names import HOSTILE_RUNS, REFUSED_NAMES
from adk_worker.conformance.texts import MEGABYTE, TRICKY
from adk_worker.conformance.waiting import LONG, race_in_threads, winners
from adk_worker.errors import HistoryUnavailableError, InvalidNameError, StaleFenceError
from adk_worker.history import Handle, HistoryStore, ReadsSegments, Segment
from adk_worker.lease import LeaseStore
from adk_worker.messages import BinaryPart, Message, TextPart, ToolCallPart, ToolResultPart, dump_messages

TENANT = "acme"
ASKED = Message.user("book the flight")
SAID = Message.assistant("which seat?")
TOLD = Message.user("12A")


class HistoryStoreConformance:
    """Override the fixture ``make_store``: it gives a function that makes a history store that nobody has used.

    Override ``leases`` too where the store compares fences with leases of its own.
    """

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[HistoryStore]:
        """Give what makes a fresh store, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def store(self, make_store: Make[HistoryStore]) -> HistoryStore:
        """The store of one test."""
        return await made(make_store)

    @pytest.fixture
    def leases(self) -> LeaseStore | None:
        """The lease store whose leases decide about this store's fences; ``None`` if it knows of no leases."""
        return None

    async def test_a_handle_resolves_to_its_messages_in_order(self, store: HistoryStore) -> None:
        """H1: segment by segment."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])
        second = await store.append("run", tenant=TENANT, start=1, messages=[SAID, TOLD], after=first)

        assert await store.fetch(second, tenant=TENANT) == (ASKED, SAID, TOLD)

    async def test_a_handle_is_made_of_the_new_messages_alone(self, store: HistoryStore) -> None:
        """H1: whoever has the handle before can make the next one, so a step's cost does not grow with the run."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])

        second = await store.append("run", tenant=TENANT, start=1, messages=[SAID], after=first)

        assert first == str(Segment.extend(Handle.empty("run"), [ASKED]).handle)
        assert second == str(Segment.extend(Handle.parse(first), [SAID]).handle)

    async def test_a_handle_pins_the_length(self, store: HistoryStore) -> None:
        """H3: what is appended later is not part of it."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])

        await store.append("run", tenant=TENANT, start=1, messages=[SAID], after=first)

        assert await store.fetch(first, tenant=TENANT) == (ASKED,)

    async def test_without_a_handle_one_appends_behind_the_newest(self, store: HistoryStore) -> None:
        """H1: the newest that ends there."""
        await store.append("run", tenant=TENANT, start=0, messages=[SAID])
        await store.append("run", tenant=TENANT, start=0, messages=[ASKED])

        handle = await store.append("run", tenant=TENANT, start=1, messages=[TOLD])

        assert await store.fetch(handle, tenant=TENANT) == (ASKED, TOLD)

    async def test_appending_the_same_again_finds_it_done(self, store: HistoryStore) -> None:
        """F5: after an answer that was lost."""
        handle = await store.append("run", tenant=TENANT, start=0, messages=[ASKED, SAID])

        again = await store.append("run", tenant=TENANT, start=0, messages=[ASKED, SAID])

        assert again == handle
        assert await store.fetch(handle, tenant=TENANT) == (ASKED, SAID)

    async def test_what_a_superseded_worker_appends_is_never_seen(self, store: HistoryStore) -> None:
        """H3: neither before nor after its successor, though it appended at the same place."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])
        await store.append("run", tenant=TENANT, start=1, messages=[Message.user("stale")], after=first)
        second = await store.append("run", tenant=TENANT, start=1, messages=[SAID], after=first)
        await store.append("run", tenant=TENANT, start=1, messages=[Message.user("late")], after=first)
        await store.append("run", tenant=TENANT, start=2, messages=[Message.user("later")], after=second)

        third = await store.append("run", tenant=TENANT, start=2, messages=[TOLD], after=second)

        assert await store.fetch(second, tenant=TENANT) == (ASKED, SAID)
        assert await store.fetch(third, tenant=TENANT) == (ASKED, SAID, TOLD)

    async def test_the_empty_transcript_is_there_for_every_run(self, store: HistoryStore) -> None:
        """H1: a run that has said nothing yet."""
        assert await store.fetch(str(Handle.empty("run")), tenant=TENANT) == ()

    async def test_nothing_is_appended_behind_a_gap(self, store: HistoryStore) -> None:
        """H2: a transcript has no holes."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED, SAID])
        elsewhere = await store.append("other", tenant=TENANT, start=0, messages=[ASKED, SAID])
        unknown = str(Handle("run", 2, "0" * 32))

        for start, after in ((1, None), (3, None), (-1, None), (1, first), (2, elsewhere), (2, unknown), (2, "odd")):
            with pytest.raises(HistoryUnavailableError):
                await store.append("run", tenant=TENANT, start=start, messages=[TOLD], after=after)

        assert await store.fetch(first, tenant=TENANT) == (ASKED, SAID)

    async def test_a_segment_has_messages(self, store: HistoryStore) -> None:
        """H1: nothing to append is a mistake of the caller's."""
        with pytest.raises(ValueError, match="message"):
            await store.append("run", tenant=TENANT, start=0, messages=[])

    async def test_a_handle_with_another_digest_does_not_resolve(self, store: HistoryStore) -> None:
        """H2: nor one of another length."""
        handle = Handle.parse(await store.append("run", tenant=TENANT, start=0, messages=[ASKED, SAID]))

        for wrong in (Handle("run", 2, "0" * 32), Handle("run", 1, handle.digest), Handle("run", 3, handle.digest)):
            with pytest.raises(HistoryUnavailableError) as refused:
                await store.fetch(str(wrong), tenant=TENANT)
            assert refused.value.handle == str(wrong)

    @pytest.mark.parametrize("handle", ["", "run", "h1.cnVu.1", "h2.cnVu.1.0", "h1.%.1.0", "h1.cnVu.one.0"])
    async def test_what_is_no_handle_does_not_resolve(self, store: HistoryStore, handle: str) -> None:
        """H2: whatever it is."""
        with pytest.raises(HistoryUnavailableError):
            await store.fetch(handle, tenant=TENANT)

    # --- fences -----------------------------------------------------------------------------------------------

    async def test_a_stale_fence_appends_nothing(self, store: HistoryStore, leases: LeaseStore | None) -> None:
        """F1: the refusal names both numbers."""
        fences = Fences(leases, tenant=TENANT, run_id="run")
        old = await fences.next()
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED], fence=old)
        new = await fences.next()
        second = await store.append("run", tenant=TENANT, start=1, messages=[SAID], fence=new, after=first)

        with pytest.raises(StaleFenceError) as refused:
            await store.append("run", tenant=TENANT, start=2, messages=[TOLD], fence=old, after=second)

        assert (refused.value.presented, refused.value.current) == (old, new)
        unwritten = Segment.extend(Handle.parse(second), [TOLD]).handle
        with pytest.raises(HistoryUnavailableError):
            await store.fetch(str(unwritten), tenant=TENANT)
        assert await store.fetch(second, tenant=TENANT) == (ASKED, SAID)

    async def test_a_fence_that_was_given_up_appends_nothing(
        self, store: HistoryStore, leases: LeaseStore | None
    ) -> None:
        """F1: it is equal still, and the lease is not held any more: accepted means both."""
        if leases is None:
            pytest.skip("this store knows of no leases")
        lease = await leases.acquire("run", tenant=TENANT, holder="one", ttl_seconds=LONG)
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED], fence=lease.fence)
        await leases.release(lease)

        with pytest.raises(StaleFenceError) as refused:
            await store.append("run", tenant=TENANT, start=1, messages=[SAID], fence=lease.fence, after=first)

        assert (refused.value.presented, refused.value.current) == (lease.fence, lease.fence)
        with pytest.raises(HistoryUnavailableError):
            await store.fetch(str(Segment.extend(Handle.parse(first), [SAID]).handle), tenant=TENANT)

    async def test_without_a_fence_nothing_is_asked(self, store: HistoryStore, leases: LeaseStore | None) -> None:
        """F2: the runner in process has no lease."""
        fences = Fences(leases, tenant=TENANT, run_id="run")
        await fences.next()
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED], fence=await fences.next())

        second = await store.append("run", tenant=TENANT, start=1, messages=[SAID], after=first)

        assert await store.fetch(second, tenant=TENANT) == (ASKED, SAID)

    # --- races ------------------------------------------------------------------------------------------------

    async def test_appends_that_race_each_keep_their_own(self, store: HistoryStore) -> None:
        """H3, F5: of different messages each handle has its own; of the same ones all have one."""
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])
        texts = ["one", "two", "three", "three", "three", "four"]
        racers = [
            lambda text=text: store.append("run", tenant=TENANT, start=1, messages=[Message.user(text)], after=first)
            for text in texts
        ]

        handles = winners(await race_in_threads(racers), StaleFenceError)

        assert len(set(handles)) == len(set(texts))
        for handle, text in zip(handles, texts, strict=True):
            assert await store.fetch(handle, tenant=TENANT) == (ASKED, Message.user(text))

    # --- payloads and names -----------------------------------------------------------------------------------

    async def test_every_message_reads_as_it_was_written(self, store: HistoryStore) -> None:
        """T2: every part, every script, NUL, and a megabyte."""
        parts = (
            TextPart(text=TRICKY),
            BinaryPart(media_type="image/png", data=bytes(range(256))),
            ToolCallPart(id="c", name="book", arguments={TRICKY: [1, None, {"a": 2.5}]}),
            ToolResultPart(call_id="c", name="book", content={"text": TRICKY}, is_error=True),
        )
        messages = [Message(role=role, parts=parts) for role in ("user", "assistant", "tool")]
        messages.append(Message.user("\u00e9" * MEGABYTE))

        handle = await store.append("run", tenant=TENANT, start=0, messages=messages)

        assert await store.fetch(handle, tenant=TENANT) == tuple(messages)

    async def test_another_tenant_has_no_such_transcript(self, store: HistoryStore) -> None:
        """T1: nor has a run that nobody has; and nothing is appended behind another tenant's."""
        handle = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])

        assert await store.fetch(handle, tenant="other") is None
        assert await store.fetch(str(Handle("nobody", 1, "0" * 32)), tenant=TENANT) is None
        for after in (None, handle):
            with pytest.raises(HistoryUnavailableError):
                await store.append("run", tenant="other", start=1, messages=[SAID], after=after)

    async def test_no_name_reaches_anothers_transcript(self, store: HistoryStore) -> None:
        """T1: each has its own."""
        handles = [
            await store.append(run_id, tenant=tenant, start=0, messages=[Message.user(f"{number}")])
            for number, (tenant, run_id) in enumerate(HOSTILE_RUNS)
        ]

        for number, (tenant, _) in enumerate(HOSTILE_RUNS):
            assert await store.fetch(handles[number], tenant=tenant) == (Message.user(f"{number}"),)

    @pytest.mark.parametrize("name", REFUSED_NAMES, ids=repr)
    async def test_what_is_no_name_is_refused(self, store: HistoryStore, name: str) -> None:
        """T1: of a tenant and a run, by every method."""
        with pytest.raises(InvalidNameError):
            await store.append(name, tenant=TENANT, start=0, messages=[ASKED])
        with pytest.raises(InvalidNameError):
            await store.append("run", tenant=name, start=0, messages=[ASKED])
        with pytest.raises(InvalidNameError):
            await store.fetch(str(Handle.empty("run")), tenant=name)

    async def test_all_that_is_kept_is_shown_without_a_handle(self, store: HistoryStore) -> None:
        """H3: what a superseded worker has left too, and nothing of another run's (T1)."""
        if not isinstance(store, ReadsSegments):
            pytest.skip("the store shows nothing without a handle")
        first = await store.append("run", tenant=TENANT, start=0, messages=[ASKED])
        for said in ([SAID], [TOLD]):
            await store.append("run", tenant=TENANT, start=1, messages=said, after=first)
        await store.append("run", tenant="elsewhere", start=0, messages=[TOLD])

        shown = await store.segments("run", tenant=TENANT)

        assert sorted(shown) == sorted(dump_messages([message]) for message in (ASKED, SAID, TOLD))
        assert list(await store.segments("another", tenant=TENANT)) == []
