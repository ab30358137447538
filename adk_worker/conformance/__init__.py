"""The suites that every store passes, ours and yours: subclass one in your tests, and give it a fresh store.

::

    class TestMyLeases(LeaseStoreConformance):
        @pytest.fixture
        async def store(self) -> AsyncIterator[LeaseStore]:
            async with my_store() as store:
                yield store

Suites of a lone store ask for the fixture ``store``, :class:`RunStoreConformance` for ``stores``, the whole bundle. A
store is used from several threads and event loops at once. Install ``adk-worker[test]``; the suites work with
pytest-asyncio's auto mode, and in strict mode with ``pytest_asyncio.fixture``.
"""

from __future__ import annotations

import pytest

_ASSERTING = (
    "checkpoints",
    "history",
    "idempotency",
    "leases",
    "resume_claims",
    "runs.calls",
    "runs.cancel",
    "runs.commit",
    "runs.driver",
    "runs.evidence",
    "runs.fences",
    "runs.reading",
    "runs.reaper",
    "runs.resting",
    "runs.submit",
    "runs.take",
    "waiting",
)
# Before the first import of each, so that an assertion that fails shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _ASSERTING))

from adk_worker.conformance.checkpoints import CheckpointStoreConformance  # noqa: E402
from adk_worker.conformance.history import HistoryStoreConformance  # noqa: E402
from adk_worker.conformance.idempotency import IdempotencyStoreConformance  # noqa: E402
from adk_worker.conformance.leases import LeaseStoreConformance  # noqa: E402
from adk_worker.conformance.resume_claims import ResumeClaimsConformance  # noqa: E402
from adk_worker.conformance.runs import RunStoreConformance  # noqa: E402

__all__ = [
    "CheckpointStoreConformance",
    "HistoryStoreConformance",
    "IdempotencyStoreConformance",
    "LeaseStoreConformance",
    "ResumeClaimsConformance",
    "RunStoreConformance",
]
