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

# Before the first import of each, so that a failing assertion shows its values.
pytest.register_assert_rewrite(
    "adk_worker.conformance.checkpoints",
    "adk_worker.conformance.history",
    "adk_worker.conformance.idempotency",
    "adk_worker.conformance.leases",
    "adk_worker.conformance.resume_claims",
    *(
        f"adk_worker.conformance.runs.{part}"
        for part in ("driver", "submit", "take", "commit", "fences", "calls", "resting", "reaper", "cancel", "reading")
    ),
    "adk_worker.conformance.waiting",
)

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
