"""The reaper: one sweep over the lapsed leases of the fleet, and over what else waits for nobody.

What to do with a lapsed lease is decided by :func:`adk_worker.transitions.runs.reap` and written by the store, one
atomic compare-and-set each, so that any number of reapers may sweep at once. Here is what surrounds that: whether
deaths count, and what is published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from adk_worker.actors import Actor
from adk_worker.approvals.store import Expired
from adk_worker.errors import StoreUnavailableError
from adk_worker.ledger.raising import SYSTEM_BUDGET, go_round
from adk_worker.log import get_logger
from adk_worker.results import text_of
from adk_worker.runs import Dispatch, Reaped, RunStore, Submitted
from adk_worker.steps import Dispatcher
from adk_worker.transitions.leases import Holding
from adk_worker.transitions.runs import FleetPolicy, Verdict

_log = get_logger(__name__)

_FAILURES: Final = 3
"""After so many failed publications in a row the broker is taken to be away. Each may have cost a time-out."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did, in numbers of runs."""

    recovered: int = 0
    """Their worker was gone; they were queued again."""
    published_again: int = 0
    """Their message was lost, or is late."""
    parked: int = 0
    """They died too often, or their frontier is behind what ran."""
    expired: int = 0
    """Their approvals came to nothing in time: denied."""
    afforded: int = 0
    """They were parked over their tenant's budget, and there is room for them: queued again."""
    cancelled: int = 0
    """They had been asked to end."""
    unpublished: int = 0
    """Of all that were queued, those whose message the broker did not take. Their leases lapse again."""
    counted: bool = True
    """Whether deaths counted towards ``poisoned``."""

    @property
    def acted(self) -> int:
        """How many lapsed leases there were."""
        return self.recovered + self.published_again + self.parked + self.cancelled


async def sweep(
    runs: RunStore,
    dispatcher: Dispatcher,
    policy: FleetPolicy,
    *,
    gap: float | None = None,
    batch: int = 100,
) -> SweepReport:
    """Act on every lease that has lapsed, and publish what follows, each message after its commit.

    After more than ``gap`` seconds without a sweep (a lease's TTL by default), nobody can say whether the workers died
    or the store was away, and with it everyone's renewals: runs are then recovered without counting a crash. So are
    those of the first sweep of all, before which nobody looked either.

    :raises StoreUnavailableError: the store is away; the next sweep does the rest.
    """
    began = await runs.sweep()
    gap = policy.lease_ttl if gap is None else gap
    counted = began.last is not None and began.now - began.last <= gap
    if began.last is None:
        _log.info("first_sweep")
    elif not counted:
        _log.warning("sweep_after_gap", last=began.last, seconds=began.now - began.last)
    publishing = _Publishing(dispatcher)
    reaped: list[Reaped] = []
    more = True
    while more and not publishing.broker_away:
        found = await runs.claim_lapsed(policy=policy, limit=batch, count_crashes=counted)
        reaped += found
        for one in found:
            await publishing.follow(one)
        more = len(found) >= batch
    expired: list[Expired] = []
    more = True
    while more and not publishing.broker_away:
        over = await runs.expire(policy=policy, limit=batch)
        expired += over
        for late in over:
            await publishing.expired(late)
        more = len(over) >= batch
    afforded = await _afford(runs, publishing, policy, batch=batch)
    report = _report(reaped, expired, afforded, publishing.failed, counted=counted)
    if report.acted or report.expired or report.afforded:
        _log.info(
            "swept",
            recovered=report.recovered,
            published_again=report.published_again,
            parked=report.parked,
            cancelled=report.cancelled,
            expired=report.expired,
            afforded=report.afforded,
            unpublished=report.unpublished,
            counted=counted,
        )
    return report


async def _afford(runs: RunStore, publishing: _Publishing, policy: FleetPolicy, *, batch: int) -> int:
    """Have those go on that wait for room on their tenant's account, and have it now; how many."""
    by, afforded, cursor, more = Actor.here(SYSTEM_BUDGET), 0, None, True
    while more and not publishing.broker_away:
        due, cursor = await runs.rounds_due(limit=batch, after=cursor)
        for begun in due:
            try:
                afforded += await go_round(runs, begun, by=by, policy=policy, dispatch=publishing.afforded)
            except StoreUnavailableError:
                raise
            except Exception as error:  # noqa: BLE001 - a run that cannot be read is not to hold up other tenants'
                _log.warning("round_failed", tenant=begun.tenant, error=text_of(error))
        more = cursor is not None
    return afforded


class _Publishing:
    """Publishes what a sweep queued. A failure is no error: the ticket is in the store, and its lease lapses again."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._in_a_row = 0
        self.failed = 0

    @property
    def broker_away(self) -> bool:
        return self._in_a_row >= _FAILURES

    async def follow(self, reaped: Reaped) -> None:
        log = _log.bind(tenant=reaped.tenant, run_id=reaped.run_id)
        log.info("lease_reaped", was=reaped.was.value, verdict=reaped.verdict.value, published=bool(reaped.dispatch))
        await self._publish(reaped.dispatch)

    async def expired(self, expired: Expired) -> None:
        log = _log.bind(tenant=expired.tenant, run_id=expired.run_id)
        log.info("approvals_expired", requests=list(expired.requests), published=bool(expired.dispatch))
        await self._publish(expired.dispatch)

    async def afforded(self, submitted: Submitted) -> bool:
        run, ticket = submitted.run, submitted.ticket
        _log.bind(tenant=run.tenant, run_id=run.run_id).info("affordable_again")
        await self._publish(None if ticket is None else Dispatch(run.tenant, run.run_id, ticket, recovery=True))
        # What is left of a round is queued all the same, and counted as not published.
        return True

    async def _publish(self, dispatch: Dispatch | None) -> None:
        if dispatch is None:
            return
        if self.broker_away:
            self.failed += 1
            return
        try:
            await self._dispatcher.dispatch(dispatch)
            self._in_a_row = 0
        except Exception as error:  # noqa: BLE001 - whatever the broker says, the sweep goes on
            self.failed += 1
            self._in_a_row += 1
            _log.warning(
                "dispatch_failed",
                tenant=dispatch.tenant,
                run_id=dispatch.run_id,
                ticket=dispatch.ticket,
                error=text_of(error),
            )


def _report(
    reaped: Sequence[Reaped], expired: Sequence[Expired], afforded: int, unpublished: int, *, counted: bool
) -> SweepReport:
    queued = [one for one in reaped if one.dispatch is not None]
    return SweepReport(
        recovered=sum(one.was is Holding.WORKER for one in queued),
        published_again=sum(one.was is Holding.QUEUE for one in queued),
        parked=sum(one.verdict is Verdict.PARKED for one in reaped),
        cancelled=sum(one.verdict is Verdict.CANCELLED for one in reaped),
        expired=len(expired),
        afforded=afforded,
        unpublished=unpublished,
        counted=counted,
    )


async def bury(
    runs: RunStore, dispatcher: Dispatcher, policy: FleetPolicy, *, tenant: str, run_id: str, holder: str
) -> Dispatch | None:
    """Recover a run at once whose ``holder`` is known to be dead (I11); the caller has the proof.

    Returns the message, published or not; ``None`` where there is nothing to publish: the holder did not have the lease
    any more, or the run was parked or cancelled instead.
    """
    reaped = await runs.claim_dead(run_id, tenant=tenant, holder=holder, policy=policy)
    if reaped is None:
        return None
    await _Publishing(dispatcher).follow(reaped)
    return reaped.dispatch
