"""What people have approved and granted permits their own calls, and is spent by the write that acts on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adk_worker.approvals.answers import NewGrant
from adk_worker.approvals.requests import RequestState
from adk_worker.conformance.clocks import YEAR, caller_off_by
from adk_worker.conformance.runs.asker import BOB, Asker
from adk_worker.conformance.runs.driver import ANN
from adk_worker.conformance.waiting import SOON, until
from adk_worker.errors import (
    ApprovalRefusedError,
    NotApprovedError,
    RunNotFoundError,
)
from adk_worker.events import EventKind
from adk_worker.runs import Stores
from adk_worker.transitions.runs import Then


class PermitsConformance:
    """P1: nothing is begun that nobody has approved, looked at in the begin's own write."""

    # --- acting on it -----------------------------------------------------------------------------------------

    async def test_an_approval_is_spent_by_the_begin_that_acts_on_it(self, stores: Stores) -> None:
        """P1, I2: in the same write as the claim; what was shown goes with it."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1")
        lease = await driver.worker()
        assert (await driver.asked()).spent_at is None

        await driver.permitted(lease)

        spent = await driver.asked()
        assert spent.spent_at is not None
        assert (spent.state, spent.arguments) == (RequestState.APPROVED, {})
        assert [claim.key for claim in await driver.claims()] == [driver.intent(0).key]
        (event,) = await driver.events(EventKind.CALL_PERMITTED)
        assert event.data == {"key": driver.intent(0).key, "tool": "book", "permit": "req-1"}

    async def test_the_same_call_is_begun_again_under_its_own_approval(self, stores: Stores) -> None:
        """F5, P1: its begin was lost, or its worker died: nobody is asked twice about one call."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1")
        lease = await driver.worker()
        await driver.permitted(lease)
        before = await driver.approvals()
        await driver.permitted(lease)
        await driver.give_back(lease)
        heir = await driver.worker()

        await driver.permitted(heir, take_over=lease.holder)

        assert await driver.approvals() == before
        assert [claim.owner for claim in await driver.claims()] == [heir.holder]
        assert len(await driver.events(EventKind.CALL_PERMITTED)) == 2

    @pytest.mark.parametrize(
        ("index", "permit", "said"),
        [
            (1, "req-1", "another call"),
            (0, "req-2", "a request that was denied"),
            (0, "req-3", "a request that there is not"),
            (0, "grant-1", "a grant that there is not"),
        ],
    )
    async def test_nothing_is_begun_that_nobody_has_approved(
        self, stores: Stores, index: int, permit: str, said: str
    ) -> None:
        """P1: an answer permits the call that it is about, and no other; the other calls wait with it."""
        driver = Asker(stores)
        await driver.ask(0, 5)
        await driver.answer("req-1")
        await driver.answer("req-2", approved=False)
        lease = await driver.worker()
        before = await driver.everything()
        intents = [driver.intent(7), replace(driver.intent(index), permit=permit)]

        with pytest.raises(NotApprovedError) as refused:
            await stores.runs.begin(lease, intents, owner=lease.holder)

        assert refused.value.keys == (driver.intent(index).key,), said
        assert await driver.everything() == before

    async def test_an_approval_is_of_the_arguments_that_were_shown(self, stores: Stores) -> None:
        """P1: a mismatch fails closed."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1")
        lease = await driver.worker()
        before = await driver.everything()
        changed = replace(driver.intent(0, seat="1A"), permit="req-1")

        with pytest.raises(NotApprovedError):
            await stores.runs.begin(lease, [changed], owner=lease.holder)

        assert await driver.everything() == before

    async def test_an_answer_of_another_run_permits_nothing(self, stores: Stores) -> None:
        """T1, P1."""
        driver, other = Asker(stores), Asker(stores, run_id="other")
        await other.ask(0)
        await other.answer("req-1", grant=NewGrant())
        lease = await driver.worker()

        for permit in ("req-1", "grant-1"):
            with pytest.raises(NotApprovedError):
                await driver.permitted(lease, permit=permit)

        assert await driver.claims() == []

    async def test_a_denial_is_spent_by_the_boundary_that_tells_of_it(self, stores: Stores) -> None:
        """P1: in the same write."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1", approved=False, reason="too dear")
        lease = await driver.worker()

        await driver.commit(lease, 2, Then.HAND_OVER, denials=["req-1"])

        spent = await driver.asked()
        assert spent.spent_at is not None
        assert (spent.state, spent.reason, spent.arguments) == (RequestState.DENIED, "too dear", {})

    async def test_a_boundary_tells_of_no_denial_that_there_is_not(self, stores: Stores) -> None:
        """P1: of none that was approved, or is not there; nor does one ask that does not wait for the answer."""
        driver = Asker(stores)
        await driver.ask(0)
        await driver.answer("req-1")
        lease = await driver.worker()
        before = await driver.everything()

        for name in ("req-1", "req-2"):
            with pytest.raises(ValueError, match="not denied"):
                await driver.commit(lease, 2, denials=[name])
        with pytest.raises(ValueError, match="asks"):
            await driver.commit(lease, 2, Then.HAND_OVER, requests=[driver.request(1)])

        assert await driver.everything() == before

    # --- grants -----------------------------------------------------------------------------------------------

    async def test_a_grant_lets_later_calls_of_its_tool_pass(self, stores: Stores) -> None:
        """P1: each is told of with the grant's id; calls of other tools are none of its business."""
        driver = Asker(stores)
        lease = await driver.granted()
        (grant,) = (await driver.approvals()).grants
        assert (grant.grant_id, grant.tool, grant.by, grant.expires_at) == ("grant-1", "book", "ann", None)
        assert ((await driver.asked()).grant_id, grant.request_id, grant.os_user) == ("grant-1", "req-1", "op-1")
        (answered,) = await driver.events(EventKind.APPROVAL_ANSWERED)
        assert (answered.data["grant"], answered.data["expires_at"]) == ("grant-1", None)

        for index in (1, 2):
            await driver.permitted(lease, index, permit="grant-1")
        with pytest.raises(NotApprovedError):
            await driver.permitted(lease, 3, permit="grant-1", tool="pay")

        told = [event.data for event in await driver.events(EventKind.CALL_PERMITTED)]
        assert [data["permit"] for data in told] == ["grant-1", "grant-1"]

    async def test_a_grant_that_is_over_lets_nothing_pass(self, stores: Stores) -> None:
        """P1, L1: revoked, or past its time by the store's clock, looked at in the begin's own write."""
        driver, timed = Asker(stores), Asker(stores, run_id="timed")
        lease = await driver.granted()
        revoked = await stores.runs.revoke("run", "grant-1", tenant=driver.tenant, by=BOB)
        assert revoked == (await driver.approvals()).grants[0]
        assert revoked.revoked_by == "bob"
        with pytest.raises(NotApprovedError):
            await driver.permitted(lease, 1, permit="grant-1")

        lease = await timed.granted(seconds=SOON)
        (grant,) = (await timed.approvals()).grants
        assert grant.expires_at == pytest.approx(grant.given_at + SOON)

        async def over() -> bool:
            now = (await stores.runs.approvals("timed", tenant=timed.tenant)).now
            return grant.expires_at is not None and now >= grant.expires_at

        await until(over, what="the grant to be over")
        with caller_off_by(-YEAR), pytest.raises(NotApprovedError):
            await timed.permitted(lease, 1, permit="grant-1")

        assert (await driver.claims(), await timed.claims()) == ([], [])

    async def test_a_grant_is_revoked_once(self, stores: Stores) -> None:
        """P1: again changes nothing; one that there is not is refused; T1: so is another tenant's."""
        driver = Asker(stores)
        await driver.granted()
        await stores.runs.revoke("run", "grant-1", tenant=driver.tenant, by=BOB)
        before = await driver.everything()

        again = await stores.runs.revoke("run", "grant-1", tenant=driver.tenant, by=ANN)

        assert again.revoked_by == "bob"
        with pytest.raises(ApprovalRefusedError, match=r"no such grant.*grant-1"):
            await stores.runs.revoke("run", "grant-2", tenant=driver.tenant, by=ANN)
        with pytest.raises(RunNotFoundError):
            await stores.runs.revoke("run", "grant-1", tenant="elsewhere", by=ANN)
        assert await driver.everything() == before
        (event,) = await driver.events(EventKind.GRANT_REVOKED)
        assert event.data == {"grant": "grant-1", "tool": "book", "by": "bob", "os_user": "op-2"}
