"""What every bundle of :class:`~adk_worker.runs.Stores` has to do, by the parts of a run's way."""

from __future__ import annotations

import pytest

from adk_worker.conformance.runs.calls import CallsConformance
from adk_worker.conformance.runs.cancel import CancelConformance
from adk_worker.conformance.runs.commit import CommitConformance
from adk_worker.conformance.runs.evidence import EvidenceConformance
from adk_worker.conformance.runs.fences import FencesConformance
from adk_worker.conformance.runs.reading import ReadingConformance
from adk_worker.conformance.runs.reaper import ReaperConformance
from adk_worker.conformance.runs.resting import RestingConformance
from adk_worker.conformance.runs.submit import SubmitConformance
from adk_worker.conformance.runs.take import TakeConformance
from adk_worker.runs import Stores


class RunStoreConformance(
    SubmitConformance,
    TakeConformance,
    CommitConformance,
    FencesConformance,
    CallsConformance,
    EvidenceConformance,
    RestingConformance,
    ReaperConformance,
    CancelConformance,
    ReadingConformance,
):
    """Override the fixture ``stores``: it yields a bundle that nobody has used."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def stores(self) -> Stores:
        """Yield a fresh bundle."""
        raise NotImplementedError("override the fixture `stores`")


__all__ = ["RunStoreConformance"]
