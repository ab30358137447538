"""What every bundle of :class:`~adk_worker.runs.Stores` has to do, by the parts of a run's way."""

from __future__ import annotations

import pytest
import pytest_asyncio

from adk_worker.conformance.making import MISSING, Make, made
from adk_worker.conformance.runs.accounts import AccountsConformance
from adk_worker.conformance.runs.approvals import ApprovalsConformance
from adk_worker.conformance.runs.budgets import BudgetsConformance
from adk_worker.conformance.runs.calls import CallsConformance
from adk_worker.conformance.runs.cancel import CancelConformance
from adk_worker.conformance.runs.commit import CommitConformance
from adk_worker.conformance.runs.continuation import ContinuationConformance
from adk_worker.conformance.runs.deciding import DecidingConformance
from adk_worker.conformance.runs.evidence import EvidenceConformance
from adk_worker.conformance.runs.fences import FencesConformance
from adk_worker.conformance.runs.hindsight import HindsightConformance
from adk_worker.conformance.runs.permits import PermitsConformance
from adk_worker.conformance.runs.prune import PruneConformance
from adk_worker.conformance.runs.reading import ReadingConformance
from adk_worker.conformance.runs.reaper import ReaperConformance
from adk_worker.conformance.runs.reseal import ResealConformance
from adk_worker.conformance.runs.resting import RestingConformance
from adk_worker.conformance.runs.submit import SubmitConformance
from adk_worker.conformance.runs.take import TakeConformance
from adk_worker.conformance.runs.waitlist import WaitlistConformance
from adk_worker.runs import Stores


class RunStoreConformance(
    SubmitConformance,
    TakeConformance,
    CommitConformance,
    ContinuationConformance,
    FencesConformance,
    CallsConformance,
    EvidenceConformance,
    DecidingConformance,
    HindsightConformance,
    RestingConformance,
    ReaperConformance,
    CancelConformance,
    ReadingConformance,
    PruneConformance,
    ApprovalsConformance,
    PermitsConformance,
    ResealConformance,
    BudgetsConformance,
    AccountsConformance,
    WaitlistConformance,
):
    """Override the fixture ``make_store``: it gives a function that makes a bundle that nobody has used."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def make_store(self) -> Make[Stores]:
        """Give what makes a fresh bundle, or an awaitable of one."""
        raise NotImplementedError(MISSING)

    @pytest_asyncio.fixture
    async def stores(self, make_store: Make[Stores]) -> Stores:
        """The bundle of one test."""
        return await made(make_store)


__all__ = ["RunStoreConformance"]
