"""The client for web apps: submit a run, look at it, wait for it, answer what it asks, stop it, queue it again.

:class:`Fleet` is async and may be used from any event loop. :attr:`Fleet.sync` has the same methods for code without
one. This module imports neither Celery nor a driver.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, runtime_checkable

from adk_worker.actors import Action, Actor, Verifier, verify
from adk_worker.bulk import BulkOutcome, Errand, Which, carry_out
from adk_worker.errors import (
    CommitUnknownError,
    ConfigurationError,
    RunNotFoundError,
    StoreUnavailableError,
    WaitTimeoutError,
)
from adk_worker.events import Event
from adk_worker.filters import RunFilter
from adk_worker.inspection import Inspection, inspect_run
from adk_worker.ledger.amounts import Budget
from adk_worker.log import get_logger
from adk_worker.names import check_name, check_run
from adk_worker.people import People
from adk_worker.runs import NewRun, Run, RunStatus, Stores, Submitted
from adk_worker.settling.settlement import UNSAID
from adk_worker.submission import checked
from adk_worker.sync import SyncFace
from adk_worker.transitions.runs import Attention, FleetPolicy

if TYPE_CHECKING:
    from adk_worker.redaction.masking import Redactor
    from adk_worker.registry import Registry
    from adk_worker.steps import Dispatcher

_log = get_logger(__name__)

T = TypeVar("T")

_FIRST_LOOK: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_PAGE: Final = 100
_TIMES: Final = 3
"""How often a submit is made whose commit may have happened: the next one finds out (F5)."""


@runtime_checkable
class Closes(Protocol):
    """A dispatcher that has something to give back."""

    async def close(self) -> None:
        """Give back connections and threads."""
        ...


class Fleet(People):
    """A fleet as its users see it. Made once per process: ``Fleet.from_settings()``, or from parts.

    :param registry: the agents that this process knows. With one, an unknown agent is refused at once; without one
        (a web app that does not import the agents' code) the worker finds out.
    :param redactor: masks what enters a run here: its input and metadata (R1).
    :param verifier: says whether a person may do what they ask for here (P5); whoever was authenticated may, without
        one.
    :param budget: the limits of runs that are submitted without any of their own.
    """

    def __init__(
        self,
        stores: Stores,
        dispatcher: Dispatcher,
        *,
        policy: FleetPolicy | None = None,
        registry: Registry | None = None,
        redactor: Redactor | None = None,
        verifier: Verifier | None = None,
        budget: Budget | None = None,
    ) -> None:
        policy = policy or FleetPolicy()
        super().__init__(stores, dispatcher, policy=policy, redactor=redactor, verifier=verifier)
        self._registry = registry
        self._budget = budget or Budget()
        self._sync: SyncFace[Fleet] | None = None

    @classmethod
    def from_settings(cls, *, verifier: Verifier | None = None) -> Fleet:
        """The fleet that ``ADK_STORE_URL`` and ``ADK_BROKER_URL`` name. ``verifier`` comes before ``ADK_VERIFIER``.

        :raises ConfigurationError: a setting is missing or wrong; every one that is, is named.
        """
        from adk_worker.settings import Settings  # noqa: PLC0415 - the edge that reads the environment
        from adk_worker.wiring import make_fleet  # noqa: PLC0415 - the one module that reaches outwards

        return make_fleet(Settings.load(), verifier=verifier)

    @property
    def registry(self) -> Registry | None:
        """The agents that this process knows, if it does."""
        return self._registry

    @property
    def sync(self) -> Any:
        """The same methods, blocking, for code without an event loop; iterators become plain ones.

        They run on one loop in a thread of their own.
        """
        if self._sync is None:
            self._sync = SyncFace(self)
        return self._sync

    async def submit(
        self,
        agent: str,
        input: str,  # noqa: A002 - the name that callers read best
        *,
        tenant: str,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        revision: str | None = None,
        budget: Budget | None = None,
        connection: object | None = None,
    ) -> Run:
        """Submit a run and dispatch it. The very same submit again finds the run that is there.

        A broker that is away does not fail it: the reaper publishes what could not be.

        :param run_id: yours to choose, so that a retry of your request is no second run; made up if left out.
        :param metadata: JSON, for the tools (:attr:`ToolContext.metadata`); masked as the input is.
        :param revision: pins the run to one revision of the agent. Left out, its first worker pins its own (C7), so
            that web apps and workers need not be deployed at once.
        :param budget: what the run may spend (P3); by default the fleet's (ADK_RUN_BUDGET_…). ``Budget()`` has none.
        :param connection: a SQLAlchemy session or connection of yours: the run exists exactly if you commit. It is
            published by the reaper then; or at once, by :meth:`dispatch` after your commit.
        :raises UnknownAgentError: this process knows its agents, and none has that name.
        :raises RunExistsError: the id is taken by another request.
        :raises InvalidNameError: a name that cannot be one.
        :raises NotJSONError: the input is no text, or the metadata is not JSON.
        :raises StoreUnavailableError: nothing was submitted, unless it is a ``CommitUnknownError``. Asking again is
            safe under a run id of your own.
        """
        new = self._masked(
            NewRun(
                tenant=tenant,
                run_id=run_id if run_id is not None else uuid.uuid4().hex,
                agent=agent,
                input=input,
                revision=check_name(revision, what="revision") if revision is not None else "",
                metadata=metadata if metadata is not None else {},
                budget=self._budget if budget is None else budget,
            )
        )
        if self._registry is not None:
            self._registry.get(agent)
        if connection is not None:
            return (await self.stores.runs.submit(new, policy=self._policy, connection=connection)).run
        submitted = await self._certain(self.stores.runs.submit, new, policy=self._policy)
        await self._dispatched(submitted)
        return submitted.run

    async def dispatch(self, run: Run, *, recovery: bool = False) -> None:
        """Publish the message of a queued run: after the commit of a transaction that :meth:`submit` has joined.

        Harmless otherwise: a copy of a message is refused. ``recovery`` shows it as such.
        """
        if run.status is RunStatus.QUEUED:
            await self._dispatched(Submitted(run, run.fence), recovery=recovery)

    async def get(self, run_id: str, *, tenant: str) -> Run:
        """The run as it stands.

        :raises RunNotFoundError: that tenant has none of that name (T1).
        """
        check_run(tenant, run_id)
        run = await self.stores.runs.get(run_id, tenant=tenant)
        if run is None:
            raise RunNotFoundError(tenant=tenant, run_id=run_id)
        return run

    async def inspect(self, run_id: str, *, tenant: str) -> Inspection:
        """All that is known of the run, and what stands in its way; :mod:`adk_worker.describe` has words for it.

        :raises RunNotFoundError: that tenant has none of that name (T1).
        """
        found = await inspect_run(self.stores, run_id, tenant=tenant, registry=self._registry)
        if found is None:
            raise RunNotFoundError(tenant=tenant, run_id=run_id)
        return found

    async def wait(self, run_id: str, *, tenant: str, timeout: float | None = None) -> Run:
        """Wait until nothing advances the run without somebody acting, and return it. ``timeout`` is in seconds.

        With a ``timeout``, a store that is away for a moment is waited for too.

        :raises WaitTimeoutError: it still moves; the run itself goes on.
        :raises ConfigurationError: the time-out is no number.
        :raises RunNotFoundError: that tenant has none of that name (T1).
        :raises StoreUnavailableError: the store is away, and there is no time-out, or it is over.
        """
        if timeout is not None and math.isnan(timeout):
            raise ConfigurationError("a time-out of NaN would never be over; give seconds, or None to wait for ever.")
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _FIRST_LOOK
        while True:
            try:
                run = await self.get(run_id, tenant=tenant)
                if run.status.resting:
                    return run
            except StoreUnavailableError as error:
                if not error.retryable or deadline is None or time.monotonic() >= deadline:
                    raise
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeoutError.of_run(run_id, timeout or 0.0)
            await asyncio.sleep(pause if left is None else min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def events(self, run_id: str, *, tenant: str, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """What happened to the run, oldest first, from behind the event ``after``.

        With ``follow`` it goes on until the run rests, and then ends.

        :raises RunNotFoundError: there is no such run.
        """
        run = await self.get(run_id, tenant=tenant)
        pause = _FIRST_LOOK
        while True:
            resting = run.status.resting
            page = await self.stores.runs.events(run_id, tenant=tenant, after=after)
            for event in page:
                after = event.id
                yield event
            if page:
                pause = _FIRST_LOOK
                continue
            if resting or not follow:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
            run = await self.get(run_id, tenant=tenant)

    async def list(
        self,
        where: RunFilter | None = None,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        attention: bool | Attention | None = None,
    ) -> AsyncIterator[Run]:
        """Runs that match, newest first, page by page. ``attention=True`` are those that need somebody.

        Without a tenant it is everybody's runs: for those who operate the fleet.

        :param where: all conditions in one, for more of them than can be named here.
        :raises ConfigurationError: there are conditions beside ``where``.
        """
        named = {"tenant": tenant, "status": status, "attention": attention}
        beside = [name for name, value in named.items() if value is not None]
        if where is not None and beside:
            raise ConfigurationError(f"{', '.join(beside)} beside a filter: name it in the RunFilter itself.")
        where = where or RunFilter(tenant=tenant, status=status, attention=attention)
        cursor: str | None = None
        while True:
            page, cursor = await self.stores.runs.list(where, limit=_PAGE, after=cursor)
            for run in page:
                yield run
            if cursor is None:
                return

    async def find(self, run_id: str, *, by: str) -> AsyncIterator[Run]:
        """Runs of this id, whichever tenant's they are, newest first: for those who operate the fleet.

        :raises NotAllowedError: they may not (P5). Your verifier is asked for no tenant.
        :raises InvalidNameError: no run can have that id.
        """
        where = RunFilter(run_id=run_id)
        await verify(self._verifier, Actor.here(by), Action.FIND, tenant=None, run_id=run_id)
        async for run in self.list(where):
            yield run

    async def cancel(self, run_id: str, *, tenant: str, by: str) -> Run:
        """Ask for the run's end: at once if nobody holds it, else at its holder's next write or renewal (P2).

        :param by: who asks, and has been authenticated by you; it is kept with the run.
        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it has completed or failed.
        :raises NotAllowedError: they may not (P5).
        """
        actor = await self._allowed(by, Action.CANCEL, run_id, tenant=tenant)
        return await self.stores.runs.cancel(run_id, tenant=tenant, by=actor)

    async def resume(self, run_id: str, *, tenant: str, by: str) -> Run:
        """Queue a parked or failed run again, now that its cause is gone, or one that backs off in the queue at once.

        :param by: who asks, and has been authenticated by you; it is kept with the run.
        :raises RunNotFoundError: there is no such run.
        :raises RunStateError: it neither rests nor backs off, or waits for something else.
        :raises FrontierLostError: what ran is ahead of what is stored (C3).
        :raises NotAllowedError: they may not (P5).
        """
        actor = await self._allowed(by, Action.RESUME, run_id, tenant=tenant)
        submitted = await self.stores.runs.requeue(run_id, tenant=tenant, by=actor, policy=self._policy)
        await self._dispatched(submitted, recovery=True)
        return submitted.run

    async def settle(
        self,
        run_id: str,
        call: str,
        *,
        tenant: str,
        completed: object = UNSAID,
        never_ran: bool = False,
        why: str,
        by: str,
        owner_may_live: bool = False,
    ) -> Run:
        """Settle a call of which nobody knows whether it happened, and have the run go on once none is left (I8).

        :param call: its key, its id, or the name of its tool, if one such call alone is undecided.
        :param completed: what it returned, as JSON; masked here (R1).
        :param never_ran: it did not happen and never will: it is made, under the same key.
        :param why: how you know; kept with the call, masked.
        :param by: who says so, and has been authenticated by you; kept with the call.
        :param owner_may_live: you say that nothing of it is under way, although the worker that began it is not known
            to be dead, or a request may outlive it still (``max_in_flight`` of its tool).

        :raises RunNotFoundError: there is no such run.
        :raises CallNotFoundError: the run has no such call, or several of that name.
        :raises CallDecidedError: it is settled already; says how, by whom and when.
        :raises CallStateError: this call is not for a person to settle.
        :raises RunStateError: the run has ended, and all of its calls are decided.
        :raises OwnerMayLiveError: you say that it never ran, and something of it may be under way.
        :raises NotAllowedError: they may not (P5).
        :raises ConfigurationError: not exactly one of ``completed`` and ``never_ran``.
        :raises InvalidNameError: ``why`` is empty or too long.
        :raises NotJSONError: ``completed`` is no JSON.
        :raises ValueTooLargeError: it is larger than the result of a tool may be.
        """
        from adk_worker.settling import deciding  # noqa: PLC0415 - for those who settle

        word = deciding.Word.given(completed=completed, never_ran=never_ran, why=why, owner_may_live=owner_may_live)
        actor = await self._allowed(by, Action.SETTLE, run_id, tenant=tenant)
        found = await self.inspect(run_id, tenant=tenant)
        meant = deciding.meant(call, found, await self.stores.runs.claims(run_id, tenant=tenant))
        asked = meant.asked(word, by=actor, masker=self._redacting().masker(meant.masks, of=(tenant, run_id)))
        settled = deciding.done(
            await self._certain(
                self.stores.runs.decide, run_id, tenant=tenant, claim=meant.claim, asked=asked, policy=self._policy
            )
        )
        run = settled.run or await self.get(run_id, tenant=tenant)
        await self._dispatched(Submitted(run, settled.ticket), recovery=True)
        return run

    async def cancel_many(
        self, which: Which, *, by: str, dry_run: bool = False, limit: int | None = None
    ) -> AsyncIterator[BulkOutcome]:
        """Ask for the end of many runs, one after the other, and tell what came of each.

        :param which: what they have in common; or runs as you have listed them, which are left alone if they have moved
            since. Those that have ended are not among the former.
        :param dry_run: say which ones they are, and write nothing.
        :param limit: no more than so many; those that are refused or have moved are not counted.

        It raises what :func:`adk_worker.bulk.carry_out` does.
        """

        async def cancelled(run: Run) -> Run:
            return await self.stores.runs.cancel(run.run_id, tenant=run.tenant, by=actor, seen=run)

        actor = Actor.here(by)
        errand = Errand(Action.CANCEL, actor, self._verifier, cancelled)
        async for outcome in carry_out(errand, self.stores, which, dry_run=dry_run, limit=limit):
            yield outcome

    async def resume_many(
        self, which: Which, *, by: str, dry_run: bool = False, limit: int | None = None
    ) -> AsyncIterator[BulkOutcome]:
        """Queue many runs again, now that the cause is gone: failed and parked ones, and those that back off.

        The parameters are those of :meth:`cancel_many`. Once a message could not be published no more are tried: the
        reaper publishes the rest.
        """
        publishes = True

        async def requeued(run: Run) -> Run:
            nonlocal publishes
            submitted = await self.stores.runs.requeue(
                run.run_id, tenant=run.tenant, by=actor, policy=self._policy, seen=run
            )
            if publishes:
                publishes = await self._dispatched(submitted, recovery=True)
            return submitted.run

        actor = Actor.here(by)
        errand = Errand(Action.RESUME, actor, self._verifier, requeued)
        async for outcome in carry_out(errand, self.stores, which, dry_run=dry_run, limit=limit):
            yield outcome

    async def close(self) -> None:
        """Give back connections and threads, the stores' and the dispatcher's."""
        if isinstance(self._dispatcher, Closes):
            await self._dispatcher.close()
        await self.stores.lifecycle.close()

    def _masked(self, new: NewRun) -> NewRun:
        """The submit as it may be stored: JSON, and without a secret (R1)."""
        asked = checked(new)  # first: masking walks through it
        masker = self._redacting().masker(of=(asked.tenant, asked.run_id))
        masked = replace(asked, input=masker.text(asked.input), metadata=masker.json(asked.metadata))
        return replace(masked, masks=masker.state())

    async def _certain(self, write: Callable[..., Awaitable[T]], *args: Any, **fields: Any) -> T:
        """Write, and again if it is not known whether that was written: it finds itself done then (F5)."""
        from tenacity import (  # noqa: PLC0415 - for those who write
            AsyncRetrying,
            retry_if_exception_type,
            stop_after_attempt,
            wait_random_exponential,
        )

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(CommitUnknownError),
            wait=wait_random_exponential(multiplier=0.1, max=1.0),
            stop=stop_after_attempt(_TIMES),
            reraise=True,
        )
        return await retrying(write, *args, **fields)
