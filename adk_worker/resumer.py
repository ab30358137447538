"""Resuming in process: take the lease, read the frontier, plan, and hand all of it to whoever goes on."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from adk_worker.checkpoint import Checkpoint, Checkpointer
from adk_worker.errors import FrontierLostError, HistoryUnavailableError, NoCheckpointError
from adk_worker.history import HistoryStore
from adk_worker.idempotency import IdempotencyStore
from adk_worker.keeping.leaseholder import Leaseholder
from adk_worker.lease import LeasePolicy, LeaseStore, RunLease
from adk_worker.liveness import Holder
from adk_worker.names import check_run
from adk_worker.resume import ResumePlan, is_marked, plan_resume


@dataclass(frozen=True, slots=True)
class Carried:
    """A run that this process holds: its lease is renewed until :meth:`release`, or until a runner has ended it.

    ``checkpoint`` has its whole transcript in ``messages``. Hand it to :meth:`AgentRunner.resume` to go on, or use it
    as an async context manager.
    """

    leaseholder: Leaseholder
    checkpoint: Checkpoint
    plan: ResumePlan

    @property
    def lease(self) -> RunLease:
        """The lease as it was renewed last."""
        return self.leaseholder.lease

    async def release(self) -> None:
        """Stop renewing, and release the lease. Harmless when that has been done."""
        await self.leaseholder.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


class Resumer:
    """Takes over runs whose process died. Without ``idempotency`` every outstanding call is indeterminate (I6)."""

    def __init__(
        self,
        *,
        checkpoints: Checkpointer,
        leases: LeaseStore,
        history: HistoryStore | None = None,
        idempotency: IdempotencyStore | None = None,
        policy: LeasePolicy | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._leases = leases
        self._history = history
        self._idempotency = idempotency
        self._policy = policy or LeasePolicy()

    async def resume(self, run_id: str, *, tenant: str, worker: str) -> Carried:
        """Hold the run and know what it needs. ``worker`` is a label; the holder's name is made unique (L4).

        :raises RunLeaseError: somebody else holds it, and is named (L5).
        :raises NoCheckpointError: nothing is stored under that name.
        :raises CheckpointFormatError: a newer version has to carry it on (C4).
        :raises FrontierLostError: what is stored is behind what ran (C3).
        :raises HistoryUnavailableError: its transcript does not resolve (H2).
        """
        check_run(tenant, run_id)
        holder = Leaseholder(self._leases, run_id, tenant=tenant, holder=str(Holder.new(worker)), policy=self._policy)
        await holder.__aenter__()
        try:
            # Read only now: whoever held the lease before may have written until it was ours.
            checkpoint = await read_frontier(
                run_id,
                tenant=tenant,
                checkpoints=self._checkpoints,
                idempotency=self._idempotency,
                history=self._history,
            )
            return Carried(holder, checkpoint, await plan_resume(checkpoint, self._idempotency))
        except BaseException:
            await holder.release()
            raise


async def read_frontier(
    run_id: str,
    *,
    tenant: str,
    checkpoints: Checkpointer,
    idempotency: IdempotencyStore | None,
    history: HistoryStore | None,
) -> Checkpoint:
    """The stored frontier with its whole transcript in ``messages``; raises as :meth:`Resumer.resume` does."""
    checkpoint = await checkpoints.latest(run_id, tenant=tenant)
    if checkpoint is None:
        raise NoCheckpointError(tenant=tenant, run_id=run_id)
    if idempotency is not None and await is_marked(idempotency, tenant=tenant, run_id=run_id):
        raise FrontierLostError(tenant=tenant, run_id=run_id, sequence=checkpoint.sequence)
    handle = checkpoint.history_handle
    if handle is None:
        return checkpoint
    messages = None if history is None else await history.fetch(handle, tenant=tenant)
    if messages is None:
        reason = "no history store was given" if history is None else "the store has no such transcript"
        raise HistoryUnavailableError(handle=handle, reason=reason)
    return checkpoint.updated(messages=messages)
