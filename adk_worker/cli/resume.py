"""``adk run --resume``: take the lease, see whether the run may be carried on, and hand it to the queue."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from adk_worker.actors import Action, Actor, verify
from adk_worker.cli import options
from adk_worker.cli.exits import ExitCode, code_of_inspection, code_of_parking
from adk_worker.cli.output import emit, note, say
from adk_worker.cli.program import Invocation, awaited
from adk_worker.cli.source import Access
from adk_worker.errors import RunLeaseError, RunNotFoundError, RunStateError, WaitTimeoutError
from adk_worker.lease import QUEUE, RunLease
from adk_worker.runs import Run, RunStatus

if TYPE_CHECKING:
    from adk_worker.inspection import Inspection

DEFAULT_PATIENCE = 60.0
"""For how many seconds a worker is awaited that commits."""

_FIRST_LOOK = 0.05
_LONGEST_PAUSE = 1.0


@click.command("resume", context_settings=dict(options.HELP))
@options.run_id
@options.tenant
@click.option("--wait/--no-wait", default=True, help="Wait until a worker has carried it on; the default.")
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=options.PATIENCE,
    default=DEFAULT_PATIENCE,
    show_default=True,
    help="Wait no longer.",
)
@options.by
@options.as_json
@options.debug
@click.pass_obj
def resume(
    invocation: Invocation, *, run_id: str, tenant: str, wait: bool, timeout: float, by: str | None, as_json: bool
) -> int:
    """Carry a run on: take its lease, see whether it may be, hand it to the queue, and wait for a worker.

    Exit codes: 0 carried on, 1 nothing is checkpointed under that id, 2 the command line cannot be read, 3 somebody
    holds it, 4 it must not be carried on, 64 and above anything else.
    """

    async def carry() -> int:
        async with invocation.source.open(publishes=True) as access:
            patience = timeout if wait else None
            return await carry_on(access, run_id, tenant=tenant, patience=patience, by=by, as_json=as_json)

    return awaited(carry)


async def carry_on(
    access: Access, run_id: str, *, tenant: str, patience: float | None, by: str | None, as_json: bool
) -> int:
    """Carry the run on, and return the exit code. ``patience`` is for how long a worker is awaited, in seconds.

    ``by`` is who asks, if they have said it.
    """
    telling = _Telling(run_id, tenant=tenant, as_json=as_json)
    try:
        found = await access.fleet.inspect(run_id, tenant=tenant)
    except RunNotFoundError as error:
        note(f"nothing is checkpointed there: {error}")
        return telling.end(ExitCode.NOTHING, "nothing")
    telling.show(found)
    if found.over:
        note("it is over: nothing is left to be carried on")
        return telling.end(ExitCode.NOTHING, "over")
    if found.run is None:
        note("only the fleet's runs are handed to its queue; the program that carries this one resumes it too")
        return telling.end(ExitCode.NOT_ASKED_FOR, "not_of_the_fleet")
    return await _carry(access, found, patience, telling, by=by or access.by)


async def _carry(access: Access, found: Inspection, patience: float | None, telling: _Telling, *, by: str) -> int:
    # Before the lease is taken: that alone has a live run go on, under another fence (P5).
    await verify(access.verifier, Actor.here(by), Action.RESUME, tenant=found.tenant, run_id=found.run_id)
    try:
        ours = await _examine(access, found, telling)
        if ours is None:
            return telling.end(ExitCode.REFUSED, "refused")
        await _hand_over(access, ours, by=by)
    except RunLeaseError as held:
        note(f"error: {held}")
        return telling.end(ExitCode.HELD, "held", holder=held.holder)
    if patience is None:
        telling.queued()
        return telling.end(ExitCode.DONE, "queued")
    return await _await_commit(access, ours, patience, telling)


class _Telling:
    """Tells how it goes, as lines on the way or as one object at the end.

    The object: ``tenant`` and ``run_id``; ``outcome`` in a word; ``fence``, which was held; ``holder``, who stood in
    the way; ``before``, an inspection; ``run``, as it stood at the end; ``exit_code``.
    """

    def __init__(self, run_id: str, *, tenant: str, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[str, Any] = {
            "tenant": tenant,
            "run_id": run_id,
            "outcome": None,
            "fence": None,
            "holder": None,
            "before": None,
            "run": None,
        }

    def show(self, found: Inspection) -> None:
        from adk_worker.cli.report import inspection_object
        from adk_worker.describe import describe

        if self._as_json:
            self._told["before"] = inspection_object(found, code_of_inspection(found))
        else:
            say(describe(found))

    def holding(self, lease: RunLease) -> None:
        self._told["fence"] = lease.fence
        self._say(f"holding its lease under fence {lease.fence}")

    def queued(self) -> None:
        self._say("queued: a worker is awaited, and nobody waits for it here")

    def carried(self, run: Run) -> int:
        self._say(f"carried on: sequence {run.sequence}, {run.status.value} under fence {run.fence}")
        return self.end(ExitCode.DONE, "carried_on", run=run)

    def rests(self, run: Run) -> int:
        """It came to rest before a boundary of its own."""
        from adk_worker.describe import describe

        self._say("a worker took it, and it rests again:")
        self._say(describe(run))
        code = code_of_parking(run.attention) if run.status is RunStatus.PARKED else ExitCode.NOT_COMPLETED
        return self.end(code, "rests", run=run)

    def end(self, code: ExitCode, outcome: str, *, run: Run | None = None, holder: str | None = None) -> int:
        if self._as_json:
            from adk_worker.cli.report import run_object

            standing = run_object(run) if run else None
            emit({**self._told, "outcome": outcome, "holder": holder, "run": standing, "exit_code": int(code)})
        return code

    def _say(self, text: str) -> None:
        if not self._as_json:
            say(text)


class _Ours:
    """What was seen of the run under our own lease."""

    def __init__(self, lease: RunLease, run: Run) -> None:
        self.tenant, self.run_id = lease.tenant, lease.run_id
        self.fence = lease.fence
        self.sequence = run.sequence
        self.resting = run.status.resting


async def _examine(access: Access, found: Inspection, telling: _Telling) -> _Ours | None:
    """Hold the lease for as long as it takes to see whether the run may be carried on; ``None`` if it must not be.

    The way out gives the lease back: a live run's to the queue, under a new ticket, and a resting run's to nobody.

    :raises RunLeaseError: somebody else holds it.
    """
    from adk_worker.inspection import inspect_run
    from adk_worker.keeping.leaseholder import Leaseholder
    from adk_worker.liveness import Holder

    holding = Leaseholder(
        access.stores.leases,
        found.run_id,
        tenant=found.tenant,
        holder=str(Holder.new("cli")),
        policy=access.lease_policy,
    )
    async with holding as held:
        telling.holding(held.lease)
        under = await inspect_run(
            access.stores, found.run_id, tenant=found.tenant, registry=access.fleet.registry, under=held.lease
        )
        if under is None or under.run is None:
            raise RunNotFoundError(tenant=found.tenant, run_id=found.run_id)
        if under.obstacle is not None:
            if str(under.obstacle) != str(found.obstacle):
                note(f"it must not be carried on: {under.obstacle}")
            return None
        held.check()
        return _Ours(held.lease, under.run)


async def _hand_over(access: Access, ours: _Ours, *, by: str) -> None:
    """Have the run queued under a ticket, and publish that. The reaper does what cannot be published.

    :raises RunLeaseError: somebody has taken the lease of a resting run since.
    """
    if ours.resting:
        try:
            await access.fleet.resume(ours.run_id, tenant=ours.tenant, by=by)
        except RunStateError:
            # A late outcome has healed it meanwhile, so that it is queued already.
            await access.fleet.dispatch(await access.fleet.get(ours.run_id, tenant=ours.tenant))
        return
    run = await access.fleet.get(ours.run_id, tenant=ours.tenant)
    if run.holder == QUEUE:
        await access.fleet.dispatch(run, recovery=True)


async def _await_commit(access: Access, ours: _Ours, patience: float, telling: _Telling) -> int:
    deadline = time.monotonic() + patience
    pause = _FIRST_LOOK
    while True:
        run = await access.fleet.get(ours.run_id, tenant=ours.tenant)
        if run.sequence > ours.sequence:
            return telling.carried(run)
        if run.status.resting:
            return telling.rests(run)
        left = deadline - time.monotonic()
        if left <= 0:
            what = f"a commit of a worker on run {ours.run_id!r}"
            note(f"{WaitTimeoutError(what=what, seconds=patience)} Is there a worker, and does it know the agent?")
            return telling.end(ExitCode.TIMED_OUT, "timed_out", run=run)
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE)
