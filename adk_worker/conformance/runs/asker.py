"""Drives a run that asks people about its calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adk_worker.actors import Actor
from adk_worker.approvals.answers import Answer, Answered, NewGrant
from adk_worker.approvals.requests import ApprovalRequest, Approvals, NewRequest
from adk_worker.conformance.runs.driver import ANN, Driver
from adk_worker.conformance.waiting import LONG, until
from adk_worker.lease import RunLease
from adk_worker.runs import Committed
from adk_worker.transitions.runs import Attention, Then

BOB = Actor("bob", "op-2")
"""Another person."""


class Asker(Driver):
    """A run that asks people about its calls."""

    @classmethod
    def of(cls, driver: Driver) -> Asker:
        """The same run as that of a plain driver."""
        return cls(driver.stores, tenant=driver.tenant, run_id=driver.run_id, policy=driver.policy)

    def request(self, index: int = 0, **fields: Any) -> NewRequest:
        """What is asked about the call at ``index``."""
        intent = self.intent(index)
        said: dict[str, Any] = {"arguments": {"seat": "12A"}, "expires_in": LONG, **fields}
        return NewRequest(call_id=f"call-{index}", key=intent.key, tool="book", digest=intent.digest, **said)

    async def ask(self, *indexes: int, sequence: int = 1, lease: RunLease | None = None, **fields: Any) -> Committed:
        """Commit a boundary that asks about these calls, and waits."""
        lease = lease or await self.worker()
        requests = [self.request(index, **fields) for index in indexes]
        return await self.commit(
            lease, sequence, Then.WAIT_APPROVAL, requests=requests, attention=Attention.APPROVAL, detail="waiting"
        )

    async def answer(self, name: str, *, by: Actor = ANN, answer_id: str | None = None, **fields: Any) -> Answered:
        """Answer a request, as a person would; with an approval unless told otherwise."""
        said: dict[str, Any] = {"approved": True, "answer_id": answer_id or f"{name} by {by.name}", **fields}
        answer = Answer(request_id=name, **said)
        return await self.runs.answer(self.run_id, answer, tenant=self.tenant, by=by, policy=self.policy)

    async def approvals(self) -> Approvals:
        """All that was asked and granted."""
        return (await self.runs.approvals(self.run_id, tenant=self.tenant)).approvals

    async def asked(self, name: str = "req-1") -> ApprovalRequest:
        """One request."""
        request = (await self.approvals()).request(name)
        assert request is not None
        return request

    async def over(self, name: str = "req-1") -> None:
        """Wait until the request is past its time, by the store's clock."""
        request = await self.asked(name)

        async def past() -> bool:
            return (await self.runs.approvals(self.run_id, tenant=self.tenant)).now >= request.expires_at

        await until(past, what=f"{name} to be past its time")

    async def granted(self, **fields: Any) -> RunLease:
        """Ask about the call at 0, have it approved with a grant, and give the lease of the worker that carries on."""
        await self.ask(0)
        await self.answer("req-1", grant=NewGrant(**fields))
        return await self.worker()

    async def permitted(self, lease: RunLease, index: int = 0, *, permit: str = "req-1", **fields: Any) -> None:
        """Begin a call under what permits it."""
        intent = replace(self.intent(index), permit=permit, **fields)
        await self.runs.begin(lease, [intent], owner=lease.holder)

    async def everything(self) -> tuple[Any, ...]:
        """All that is stored of the run, to be compared with all of it later."""
        return await self.picture(), await self.approvals()
