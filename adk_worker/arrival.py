"""What a worker does, as it starts, for runs that can go on because it has: none of them has to wait for a clock.

Runs that its dead predecessors on this host still hold need not rest until their leases lapse (I11). And those that
were given back because no worker had their code need not wait out their backoff, now that one has (C4, C7).
"""

from __future__ import annotations

from typing import Final

from adk_worker.actors import Actor
from adk_worker.deployment import OF_OTHER_CODE, refusal
from adk_worker.errors import AdkError, StoreUnavailableError
from adk_worker.filters import RunFilter
from adk_worker.liveness import ProcessIdentity, known_dead, short_name
from adk_worker.log import get_logger
from adk_worker.reaper import bury
from adk_worker.registry import Registry
from adk_worker.results import text_of
from adk_worker.runs import Dispatch, Run, RunStatus, RunStore
from adk_worker.steps import Dispatcher
from adk_worker.transitions.runs import FleetPolicy

_FAILURES: Final = 3
"""After so many failed publications in a row the broker is taken to be away; the reaper publishes what is queued."""
_PAGE: Final = 100

_log = get_logger(__name__)


async def bury_predecessors(runs: RunStore, dispatcher: Dispatcher, policy: FleetPolicy) -> int:
    """Recover the runs whose holders are known, from here, to be dead; how many.

    A holder in another pid namespace, as in another container of this host, is never known dead; nor is one of another
    boot. Their leases lapse.

    :raises StoreUnavailableError: the store is away; the reaper does the rest.
    """
    recovered = 0
    for lease in await runs.held_on(ProcessIdentity.current().host, within=policy.lease_ttl):
        if known_dead(lease.holder):
            message = await bury(
                runs, dispatcher, policy, tenant=lease.tenant, run_id=lease.run_id, holder=lease.holder
            )
            recovered += message is not None
            _log.warning(
                "predecessor_died",
                tenant=lease.tenant,
                run_id=lease.run_id,
                holder=short_name(lease.holder),
                carried_on=message is not None,
            )
    return recovered


async def recall(runs: RunStore, dispatcher: Dispatcher, policy: FleetPolicy, registry: Registry, *, by: Actor) -> int:
    """Queue at once, and publish, the runs that back off for want of code that is here; how many.

    Their backoff begins anew: of a fleet in which some workers have the code and some have not, one that has not may
    well be given the message. ``by`` is kept with the run.

    :raises StoreUnavailableError: the store is away; those that are left back off as they did.
    """
    recalled = failures = 0
    cursor: str | None = None
    more = True
    while more and failures < _FAILURES:
        waiting = RunFilter(status=RunStatus.QUEUED, attention=True)
        page, cursor = await runs.list(waiting, limit=_PAGE, after=cursor)
        for run in page:
            ticket = await _requeued(runs, policy, registry, run, by=by) if failures < _FAILURES else None
            if ticket is None:
                continue
            recalled += 1
            try:
                await dispatcher.dispatch(Dispatch(run.tenant, run.run_id, ticket, recovery=True))
                failures = 0
            except Exception as error:  # noqa: BLE001 - the ticket is in the store: the reaper publishes it
                failures += 1
                _log.warning("dispatch_failed", run_id=run.run_id, ticket=ticket, error=text_of(error))
        more = cursor is not None
    return recalled


async def _requeued(runs: RunStore, policy: FleetPolicy, registry: Registry, run: Run, *, by: Actor) -> int | None:
    """The new ticket of a run that this code can carry on; ``None`` for any other, or if it has moved on by itself."""
    if run.attention not in OF_OTHER_CODE:
        return None
    payload = await runs.payload(run.run_id, tenant=run.tenant)
    if refusal(run, payload, registry) is not None:
        return None
    try:
        return (await runs.requeue(run.run_id, tenant=run.tenant, by=by, policy=policy)).ticket
    except StoreUnavailableError:
        raise
    except AdkError:
        return None
