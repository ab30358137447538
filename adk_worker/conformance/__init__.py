"""The suites that every store passes, ours and yours: subclass one in your tests, and say how to make a store.

::

    class TestMyLeases(LeaseStoreConformance):
        @pytest.fixture
        def make_store(self, tmp_path):
            return lambda: MyLeaseStore(tmp_path / "leases")

``make_store`` gives a function that returns a store nobody has used, or an awaitable of one; it is called once in each
test. For :class:`RunStoreConformance` that is the whole bundle, :class:`~adk_worker.runs.Stores`. What has to be
closed, the fixture closes behind its ``yield``. A store is used from several threads and event loops at once. Install
``adk-worker[test]``; the suites work in both of pytest-asyncio's modes.
"""

from __future__ import annotations

import pytest

_ASSERTING = (
    "checkpoints",
    "decisions",
    "history",
    "idempotency",
    "leases",
    "resume_claims",
    "runs.accounts",
    "runs.approvals",
    "runs.asker",
    "runs.budgets",
    "runs.calls",
    "runs.cancel",
    "runs.commit",
    "runs.continuation",
    "runs.deciding",
    "runs.driver",
    "runs.evidence",
    "runs.fences",
    "runs.hindsight",
    "runs.permits",
    "runs.prune",
    "runs.reading",
    "runs.reaper",
    "runs.reseal",
    "runs.resting",
    "runs.submit",
    "runs.take",
    "runs.waitlist",
    "waiting",
)
# Before the first import of each, so that an assertion that fails shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _ASSERTING))

from adk_worker.conformance.checkpoints import CheckpointStoreConformance  # noqa: E402
from adk_worker.conformance.decisions import DecisionsConformance  # noqa: E402
from adk_worker.conformance.history import HistoryStoreConformance  # noqa: E402
from adk_worker.conformance.idempotency import IdempotencyStoreConformance  # noqa: E402
from adk_worker.conformance.leases import LeaseStoreConformance  # noqa: E402
from adk_worker.conformance.resume_claims import ResumeClaimsConformance  # noqa: E402
from adk_worker.conformance.runs import RunStoreConformance  # noqa: E402

__all__ = [
    "CheckpointStoreConformance",
    "DecisionsConformance",
    "HistoryStoreConformance",
    "IdempotencyStoreConformance",
    "LeaseStoreConformance",
    "ResumeClaimsConformance",
    "RunStoreConformance",
]
