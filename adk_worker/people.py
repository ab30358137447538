"""What people do about runs that wait for them, about budgets, and about what is over.

It is that part of :class:`~adk_worker.client.Fleet`.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final

from adk_worker.actors import Action, Actor, Verifier, verify
from adk_worker.approvals.answers import MAX_REASON, Answer, Answered, NewGrant
from adk_worker.approvals.requests import Approvals, Grant
from adk_worker.errors import CommitUnknownError, InvalidNameError
from adk_worker.ledger.accounts import Account
from adk_worker.ledger.amounts import BudgetChange
from adk_worker.ledger.raising import change_account
from adk_worker.log import get_logger
from adk_worker.names import check_name, check_run
from adk_worker.pruning import Prune, Pruned
from adk_worker.results import text_of
from adk_worker.runs import Dispatch, Run, Stores, Submitted
from adk_worker.transitions.runs import FleetPolicy

if TYPE_CHECKING:
    from adk_worker.redaction.masking import Redactor
    from adk_worker.steps import Dispatcher

_log = get_logger(__name__)

_TIMES: Final = 3
"""How often an answer is given whose commit may have happened: the next one finds out (F5)."""


class People:
    """What people do about a run that waits for them. ``by`` is always who acts, and was authenticated by you (P5)."""

    def __init__(
        self,
        stores: Stores,
        dispatcher: Dispatcher,
        *,
        policy: FleetPolicy,
        redactor: Redactor | None,
        verifier: Verifier | None,
    ) -> None:
        self.stores = stores
        self._dispatcher = dispatcher
        self._policy = policy
        self._redactor = redactor
        self._verifier = verifier

    async def approvals(self, run_id: str, *, tenant: str) -> Approvals:
        """What the run's people were asked, and grant; nothing for a run that there is not.

        ``.pending`` waits for an answer: show its tool and arguments, and give its ``digest`` back with the answer.
        """
        check_run(tenant, run_id)
        return (await self.stores.runs.approvals(run_id, tenant=tenant)).approvals

    async def approve(
        self,
        run_id: str,
        request_id: str,
        *,
        tenant: str,
        by: str,
        why: str | None = None,
        digest: str | None = None,
        grant: NewGrant | None = None,
    ) -> Answered:
        """Approve one call. With the last answer of its turn the run goes on (P1).

        :param why: kept with the answer.
        :param digest: of the request as it was shown to them: an answer to other arguments is refused.
        :param grant: lets later calls of that tool in that run pass unasked: ``NewGrant()`` for all of the run,
            ``NewGrant(seconds=7200)`` for a time.
        :raises RunNotFoundError: there is no such run.
        :raises ApprovalRefusedError: there is no such request, or it takes no answer any more: what stands is said.
        :raises NotAllowedError: it is not theirs to answer (P1, P5).
        :raises InvalidNameError: the reason is too long, or has what looks like a secret.
        """
        actor = await self._allowed(by, Action.APPROVE, run_id, tenant=tenant)
        answer = self._answer(request_id, approved=True, why=why, digest=digest, grant=grant)
        return await self._answered(run_id, answer, tenant=tenant, by=actor)

    async def deny(
        self, run_id: str, request_id: str, *, tenant: str, by: str, why: str | None = None, digest: str | None = None
    ) -> Answered:
        """Deny one call; the model is told who did, and why. Otherwise as :meth:`approve`."""
        actor = await self._allowed(by, Action.DENY, run_id, tenant=tenant)
        answer = self._answer(request_id, approved=False, why=why, digest=digest)
        return await self._answered(run_id, answer, tenant=tenant, by=actor)

    async def revoke(self, run_id: str, grant_id: str, *, tenant: str, by: str) -> Grant:
        """Revoke a grant: no call is begun under it any more; what would have been is asked about (P1).

        :raises RunNotFoundError: there is no such run.
        :raises ApprovalRefusedError: the run has no such grant.
        :raises NotAllowedError: they may not (P5).
        """
        actor = await self._allowed(by, Action.REVOKE, run_id, tenant=tenant)
        return await self.stores.runs.revoke(run_id, grant_id, tenant=tenant, by=actor)

    async def change_budget(self, run_id: str, *, tenant: str, change: BudgetChange, by: str) -> Run:
        """Change what a run may spend; one that is parked on its limits goes on, if they allow its next call now (P3).

        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it has completed, or was cancelled.
        :raises BudgetError: a limit is to be raised that is not set.
        :raises NotAllowedError: they may not (P5).
        """
        actor = await self._allowed(by, Action.BUDGET, run_id, tenant=tenant)
        submitted = await self.stores.runs.change_budget(
            run_id, tenant=tenant, change=change, by=actor, policy=self._policy
        )
        await self._dispatched(submitted, recovery=True)
        return submitted.run

    async def account(self, tenant: str) -> Account | None:
        """What a tenant may spend, and has since it was first given limits; ``None`` before that."""
        return await self.stores.runs.account(tenant)

    async def change_account(self, tenant: str, *, change: BudgetChange, by: str) -> tuple[Account, int]:
        """Change what a tenant may spend; how many runs that were parked on it are queued again is returned, too (P3).

        :raises BudgetError: a limit is to be raised that is not set.
        :raises NotAllowedError: they may not (P5).
        """
        check_name(tenant, what="tenant")
        actor = Actor.here(by)
        await verify(self._verifier, actor, Action.BUDGET, tenant=tenant, run_id=None)
        dispatch = partial(self._dispatched, recovery=True)
        return await change_account(
            self.stores.runs, tenant, change=change, by=actor, policy=self._policy, dispatch=dispatch
        )

    async def prune(
        self, *, older_than: float, by: str, failed: bool = False, batch: int = 100
    ) -> AsyncIterator[Pruned]:
        """Remove runs that are over, everybody's, in batches of so many that are looked at; what each came to.

        :param older_than: for how many seconds they have not been written, at least.
        :param failed: failed ones too, which could still be resumed.
        :raises ConfigurationError: no such age.
        :raises NotAllowedError: they may not (P5). Your verifier is asked for no tenant and no run.
        """
        actor = Actor.here(by)
        await verify(self._verifier, actor, Action.PRUNE, tenant=None, run_id=None)
        _log.info("pruning", older_than=older_than, failed=failed, **actor.told)  # no run is left to keep it
        which = Prune(older_than=older_than, failed=failed)
        cursor: str | None = None
        while True:
            pruned = await self.stores.runs.prune(which, limit=batch, after=cursor)
            yield pruned
            cursor = pruned.cursor
            if cursor is None:
                return

    async def _allowed(self, by: str, action: Action, run_id: str, *, tenant: str) -> Actor:
        """Who acts, if they may (P5)."""
        check_run(tenant, run_id)
        actor = Actor.here(by)
        await verify(self._verifier, actor, action, tenant=tenant, run_id=run_id)
        return actor

    async def _dispatched(self, submitted: Submitted, *, recovery: bool = False) -> bool:
        """Publish, if there is something to be published; whether that went well."""
        if submitted.ticket is None:
            return True
        run = submitted.run
        try:
            await self._dispatcher.dispatch(Dispatch(run.tenant, run.run_id, submitted.ticket, recovery))
        except Exception as error:  # noqa: BLE001 - the ticket is in the store: the reaper publishes it
            _log.warning("dispatch_failed", run_id=run.run_id, ticket=submitted.ticket, error=text_of(error))
            return False
        return True

    def _redacting(self) -> Redactor:
        if self._redactor is None:
            from adk_worker.redaction.masking import Redactor  # noqa: PLC0415 - for those who write texts

            self._redactor = Redactor()
        return self._redactor

    def _answer(
        self, request_id: str, *, approved: bool, why: str | None, digest: str | None, grant: NewGrant | None = None
    ) -> Answer:
        check_name(request_id, what="request")
        if why is not None:
            self._check_reason(why)
        answer_id = uuid.uuid4().hex
        return Answer(
            request_id=request_id, approved=approved, answer_id=answer_id, reason=why, digest=digest, grant=grant
        )

    def _check_reason(self, why: str) -> None:
        if not isinstance(why, str):
            raise InvalidNameError(what="reason", reason=f"it must be a text, not {type(why).__name__}")
        if len(why) > MAX_REASON:
            raise InvalidNameError(what="reason", reason=f"it is longer than {MAX_REASON} characters")
        if self._redacting().masker().text(why) != why:
            # The run's own masker is a worker's to use: here it could only be refused (R1).
            raise InvalidNameError(what="reason", reason="it has what looks like a secret; say it without")

    async def _answered(self, run_id: str, answer: Answer, *, tenant: str, by: Actor) -> Answered:
        answered = await self._certain_answer(run_id, answer, tenant=tenant, by=by)
        await self._dispatched(Submitted(answered.run, answered.ticket), recovery=True)
        return answered

    async def _certain_answer(self, run_id: str, answer: Answer, *, tenant: str, by: Actor) -> Answered:
        for _ in range(_TIMES - 1):
            try:
                return await self.stores.runs.answer(run_id, answer, tenant=tenant, by=by, policy=self._policy)
            except CommitUnknownError:
                # It may have been written: then it finds itself given, by its id (F5).
                continue
        return await self.stores.runs.answer(run_id, answer, tenant=tenant, by=by, policy=self._policy)
