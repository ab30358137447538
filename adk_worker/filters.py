"""Which runs to list, and which of them a person means: :class:`RunFilter`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from adk_worker.errors import ConfigurationError
from adk_worker.names import check_name
from adk_worker.transitions.runs import Attention

if TYPE_CHECKING:
    from adk_worker.runs import Run, RunStatus


@dataclass(frozen=True, slots=True)
class RunFilter:
    """All that is given has to hold; ``None`` leaves a condition out. ``attention=True`` means any attention at all.

    Times are in seconds since the epoch by the store's clock: from ``…_since`` on, and before ``…_until``. A run is
    updated by each boundary and by whatever moves it; not by a lease that is taken or renewed.

    Stores have indexes by ``run_id``, and by ``attention``, ``status`` and ``tenant``, in the order in which runs were
    submitted. ``agent``, which attention it is, and times are looked at run by run among those: a list by them alone
    reads all runs of the tenant, or of all tenants.

    :raises InvalidNameError: a tenant, a run id or an agent that can be none.
    :raises ConfigurationError: no time lies between ``since`` and ``until``.
    """

    tenant: str | None = None
    status: RunStatus | None = None
    attention: bool | Attention | None = None
    run_id: str | None = None
    agent: str | None = None
    created_since: float | None = None
    created_until: float | None = None
    updated_since: float | None = None
    updated_until: float | None = None

    def __post_init__(self) -> None:
        for what, name in (("tenant", self.tenant), ("run id", self.run_id), ("agent's name", self.agent)):
            if name is not None:
                check_name(name, what=what)
        for what, since, until in (
            ("created", self.created_since, self.created_until),
            ("updated", self.updated_since, self.updated_until),
        ):
            if not _at(since, float("-inf")) < _at(until, float("inf")):
                raise ConfigurationError(
                    f"no run is {what} from {since} on and before {until}: give two times of which the first is "
                    "earlier."
                )

    @property
    def kind(self) -> Attention | None:
        """The one attention that is asked for, if it is one."""
        return self.attention if isinstance(self.attention, Attention) else None

    @property
    def needs_attention(self) -> bool | None:
        """Whether runs with any attention are asked for, or those without, or both."""
        return None if self.attention is None else bool(self.attention)

    def covers(self, run: Run) -> bool:
        """Whether the run is one of those."""
        return (
            self.tenant in {None, run.tenant}
            and self.status in {None, run.status}
            and self.run_id in {None, run.run_id}
            and self.agent in {None, run.agent}
            and self.needs_attention in {None, run.attention is not None}
            and self.kind in {None, run.attention}
            and _at(self.created_since, run.created_at) <= run.created_at
            and _at(self.updated_since, run.updated_at) <= run.updated_at
            and (self.created_until is None or run.created_at < self.created_until)
            and (self.updated_until is None or run.updated_at < self.updated_until)
        )


def _at(time: float | None, otherwise: float) -> float:
    return otherwise if time is None else time
